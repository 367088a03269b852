"""Texts that are others in each call, and lists and dicts of the program that grow from call to call: after a few
recordings one trace serves them all. What comes of them is what eager mode gives."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import harness
import pytest
import torch
from harness import describe

import kintsugi

Program = tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]
PROGRAMS: dict[str, Callable[[], Program]] = {}
WHOLE: dict[str, bool] = {}
STEPS: set[str] = set()
CALLS = 30
RECORDINGS = 6  # a text or a length is open in the sixth


def program(
    whole: bool = True, steps: bool = False
) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    """`whole`: no more is recorded once everything is open; `steps`: there are steps that are not looked into."""

    def register(make: Callable[[], Program]) -> Callable[[], Program]:
        PROGRAMS[make.__name__] = make
        WHOLE[make.__name__] = whole
        STEPS.update([make.__name__] if steps else [])
        return make

    return register


def x(turn: int) -> torch.Tensor:
    return torch.randn(3, generator=torch.Generator().manual_seed(turn))


def tagged(turn: int) -> tuple[torch.Tensor, str]:
    return x(turn), f"step-{turn}"


def alone(turn: int) -> tuple[torch.Tensor]:
    return (x(turn),)


# --- texts


@program()
def formatted() -> Program:
    lines: list[str] = []

    def run(x: torch.Tensor, tag: str) -> Any:
        lines.append(f"{tag!r:>12}|{tag:<9}|{x.sum().item():.3f}")
        lines.append("%s=%d" % (tag, len(tag)))
        lines.append("{}/{name}".format(tag, name=tag.upper()))
        lines.append(tag + "!" + tag * 2)
        return x + 1, list(lines[-4:])

    return run, tagged


@program()
def taken_apart() -> Program:
    def run(x: torch.Tensor, tag: str) -> Any:
        name, number = tag.split("-")
        n = int(number)
        return x * n + len(name), tag.partition("-")[2], tag[5:], tag[-1], tag.replace("e", "E"), n % 3

    return run, tagged


@program()
def decided_on() -> Program:
    def run(x: torch.Tensor, tag: str) -> Any:
        if tag == "step-7" or tag.endswith("9"):
            return x * 2
        if "3" in tag:
            x = x + 3
        if tag.startswith("other"):
            return x - 1
        if not tag or tag != tag.strip():
            return x
        return x + 1, tag < "step-2", tag in ("step-4", "step-8")

    return run, tagged


@program()
def lengths_of_texts() -> Program:
    def run(x: torch.Tensor, text: str) -> Any:
        y = x * len(text)
        if len(text) > 4:
            y = y - 1
        return y, len(text.split()), text.title()

    return run, lambda turn: (x(turn), "word " * (turn % 8) + str(turn))


@program()
def empty_texts() -> Program:
    def run(x: torch.Tensor, text: str) -> Any:
        if text:
            return x + len(text)
        return x

    return run, lambda turn: (x(turn), "" if turn % 5 == 4 else str(turn))


@program()
def keys() -> Program:
    seen: dict[str, float] = {"step-0": -1.0, "fixed": 5.0}

    def run(x: torch.Tensor, tag: str) -> Any:
        before = seen.get(tag)
        known = tag in seen
        seen[tag] = x.sum().item()
        seen["fixed"] = seen["fixed"] + 1
        return x * 2, before, known, seen[tag], seen["fixed"], len(seen)

    return run, lambda turn: (x(turn), f"step-{turn % 13}")


@program()
def vocabulary() -> Program:
    ids: dict[str, int] = {}
    table = torch.arange(60.0).view(30, 2)

    def run(word: str) -> Any:
        i = ids.setdefault(word, len(ids))
        return table[i], i, len(ids)

    return run, lambda turn: (f"w{(turn * 7) % 11}",)


@program()
def popped_keys() -> Program:
    waiting = {f"job-{i}": i * 2 for i in range(CALLS)}

    def run(x: torch.Tensor, name: str) -> Any:
        a = waiting.pop(name, None)
        b = waiting.pop(name, "gone")
        return x + a, b, len(waiting)

    return run, lambda turn: (x(turn), f"job-{turn}")


@program()
def missing_keys() -> Program:
    table = {"job-3": 1.0, "job-7": 2.0}

    def run(x: torch.Tensor, name: str) -> Any:
        try:
            return x * table[name]
        except KeyError as e:
            return x, str(e)

    return run, lambda turn: (x(turn), f"job-{turn % 9}")


@program()
def logged() -> Program:
    records: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    logger = logging.Logger("open_lengths")
    logger.addHandler(Handler())

    def run(x: torch.Tensor, tag: str) -> Any:
        logger.info("at %s", tag)
        logger.warning(f"{tag} has {x.numel()}")
        return x + 1, tuple(records[-2:])

    return run, tagged


@program()
def attributes_of_texts() -> Program:
    class Run:
        def __init__(self) -> None:
            self.name = "none"
            self.names: list[str] = []

        def __call__(self, x: torch.Tensor, tag: str) -> Any:
            before, self.name = self.name, tag
            self.names.append(self.name.lower())
            return x + 1, before, self.name == tag, before == tag

    return Run(), tagged


@program(whole=False)
def other_types() -> Program:
    def run(x: torch.Tensor, tag: Any) -> Any:
        if tag == "step-3":
            return x
        return x + 1, f"<{tag}>", tag is None

    class Text(str):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    def arguments(turn: int) -> tuple[Any, ...]:
        given: list[Any] = [f"step-{turn}", None, 3, Text("step")]
        return x(turn), given[turn % 11 % 8 // 2 if turn > 12 else 0]

    return run, arguments


@program(whole=False)
def chosen_functions() -> Program:
    table = {"relu": torch.relu, "tanh": torch.tanh, "neg": torch.neg}

    def run(x: torch.Tensor, name: str) -> Any:
        return table[name](x)

    return run, lambda turn: (x(turn), ["relu", "tanh", "neg"][turn % 3])


# --- lists and dicts


@program()
def history() -> Program:
    losses: list[float] = []

    def run(x: torch.Tensor) -> Any:
        loss = x.sum()
        losses.append(loss.item())
        mean = sum(losses[-5:]) / len(losses[-5:])
        return loss - mean, len(losses), losses[-1], losses[0], max(losses), min(losses[-3:]), sum(losses)

    return run, alone


@program()
def history_in_dict() -> Program:
    hist: dict[str, list[Any]] = {"loss": [], "step": []}

    def run(x: torch.Tensor) -> Any:
        hist["loss"].append(x.mean().item())
        hist["step"].append(len(hist["step"]))
        if len(hist["loss"]) > 12:
            return x * 2, hist["step"][-1]
        return x, hist["step"][-1]

    return run, alone


@program()
def history_of_object() -> Program:
    class Tracker:
        def __init__(self) -> None:
            self.values: list[float] = []
            self.best = float("inf")

        def __call__(self, x: torch.Tensor) -> Any:
            v = x.abs().sum().item()
            if self.values and v < min(self.values):
                self.best = v
            self.values.append(v)
            return x - sum(self.values) / len(self.values), self.best, any(self.values), all(self.values)

    return Tracker(), alone


@program()
def bounded_by_pop() -> Program:
    window: list[float] = []

    def run(x: torch.Tensor) -> Any:
        window.append(x.sum().item())
        if len(window) > 9:
            window.pop(0)
        return x + sum(window), len(window), list(window)

    return run, alone


@program()
def stack_of_numbers() -> Program:
    stack = list(range(40))

    def run(x: torch.Tensor) -> Any:
        last = stack.pop()
        stack.insert(0, last * 2)
        stack.pop(1)
        return x * last, stack[-1], stack[0], len(stack)

    return run, alone


@program()
def cleared_at_times() -> Program:
    values: list[float] = []

    def run(x: torch.Tensor) -> Any:
        values.append(x[0].item())
        n = len(values)
        if n == 7:
            total = sum(values)
            values.clear()
            return x * total, len(values), n
        return x, len(values), n

    return run, alone


@program()
def extended() -> Program:
    values: list[float] = []

    def run(x: torch.Tensor) -> Any:
        values.extend(x.tolist())
        values[-1] = 0.5
        del values[0]
        return x + values[-1], len(values), values[2:4], values[-2:]

    return run, alone


@program(whole=False)
def with_tensors() -> Program:
    kept: list[torch.Tensor] = []

    def run(x: torch.Tensor) -> Any:
        kept.append(x)
        if len(kept) > 1:
            return kept[-1] + kept[-2], kept[0], len(kept), kept[-1] is x
        return x, x, len(kept), True

    return run, alone


@program(whole=False)
def mixed_items() -> Program:
    class Number:
        def __init__(self, value: float) -> None:
            self.value = value

        def __radd__(self, other: Any) -> Any:
            return other + self.value * 100

        def __add__(self, other: Any) -> Any:
            return self.value + other

    values: list[Any] = []

    def run(x: torch.Tensor) -> Any:
        values.append(x[0].item())
        return x + sum(values), len(values)

    def arguments(turn: int) -> tuple[Any, ...]:
        if turn == 12:
            values.append(Number(2.0))
        return alone(turn)

    return run, arguments


@program()
def changed_between() -> Program:
    values: list[float] = []

    def run(x: torch.Tensor) -> Any:
        values.append(float(len(values)))
        return x * values[-1], values[-4:], len(values)

    def arguments(turn: int) -> tuple[Any, ...]:
        if turn == 13:
            values[:] = [3.0, 4.0]
        elif turn == 17:
            values.clear()
        return alone(turn)

    return run, arguments


@program()
def two_names_of_one_list() -> Program:
    class Both:
        def __init__(self) -> None:
            self.first: list[int] = []
            self.second = self.first

        def __call__(self, x: torch.Tensor) -> Any:
            self.first.append(len(self.second))
            return x + len(self.second), self.first[-1], self.second[-2:], self.first is self.second

    return Both(), alone


@program()
def deque_of_numbers() -> Program:
    values: deque[float] = deque(maxlen=4)

    def run(x: torch.Tensor) -> Any:
        values.append(x.sum().item())
        return x * (sum(values) / len(values)), len(values)

    return run, alone


@program(steps=True)
def walked_over() -> Program:
    values: list[float] = []

    def run(x: torch.Tensor) -> Any:
        values.append(x.sum().item())
        doubled = [v * 2 for v in values]
        return x + doubled[-1], len(doubled)

    return run, alone


@program()
def stacked_tensors() -> Program:
    losses: list[torch.Tensor] = []

    def run(x: torch.Tensor) -> Any:
        losses.append(x.sum())
        kept = torch.stack(losses)
        return kept.mean() + x, torch.cat([kept, x]), torch.stack(losses[-3:], dim=0)

    return run, alone


@program()
def stacked_with_gradients() -> Program:
    kept: list[torch.Tensor] = []
    weight = torch.ones(3, requires_grad=True)

    def run(x: torch.Tensor) -> Any:
        kept.append((x * weight).sum().detach())
        loss = (torch.stack(kept, 0).sum() * weight).sum() + (x * weight).sum()
        return loss, torch.vstack(kept).shape[0]

    return run, alone


@program()
def joined_of_other_sizes() -> Program:
    parts: list[torch.Tensor] = []

    def run(x: torch.Tensor, n: int) -> Any:
        parts.append(x.expand(n, 3))
        if len(parts) > 10:
            parts.pop(0)
        whole = torch.cat(parts, dim=0)
        if whole.shape[0] > 14:
            whole = whole * 2
        return whole, whole.shape[0]

    return run, lambda turn: (x(turn), turn % 4 + 1)


@program(steps=True)
def items_of_tensors() -> Program:
    losses: list[torch.Tensor] = []

    def run(x: torch.Tensor) -> Any:
        losses.append(x.abs().mean())
        mean = sum(l.item() for l in losses) / len(losses)
        best = min(l.item() for l in losses)
        names = ", ".join(f"{l:.3f}" for l in losses)
        low = [i for i, l in enumerate(losses[-4:]) if l.item() < mean]
        return x - mean, best, names, any(l > 1 for l in losses), sorted(float(l) for l in losses)[:2], low

    return run, alone


@program(steps=True)
def with_variables_of_the_function() -> Program:
    values: list[float] = []

    def run(x: torch.Tensor, limit: float) -> Any:
        values.append(x.sum().item())
        scale = x.numel() * 2
        over = [v * scale for v in values if v > limit]
        limit = limit + 1
        return x + sum(over), len(over), {round(v, 1) for v in values}, limit

    return run, lambda turn: (x(turn), float(turn % 3))


@program(steps=True)
def comprehensions_of_dicts() -> Program:
    history: dict[str, float] = {}

    def run(x: torch.Tensor, name: str) -> Any:
        history[name] = x.sum().item()
        best = max(v for v in history.values())
        turned = {v: k for k, v in history.items()}
        return x + best, turned[best], len([k for k in history if k.endswith("1")])

    return run, tagged


@program(whole=False)
def raising_comprehensions() -> Program:
    values: list[float] = []

    def run(x: torch.Tensor) -> Any:
        values.append(float(len(values) - 9))
        try:
            inverse = [1 / v for v in values]
        except ZeroDivisionError as e:
            values[-1] = 0.25
            return x, str(e)
        return x * inverse[-1], len(inverse)

    return run, alone


@program(whole=False)
def tensors_of_other_classes() -> Program:
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    seen: list[str] = []
    kept: list[torch.Tensor] = []

    def run(x: torch.Tensor) -> Any:
        kept.append(x)
        return torch.stack(kept).sum().item(), len(seen)

    def arguments(turn: int) -> tuple[Any, ...]:
        if turn == 14:
            kept.append(torch.ones(3).as_subclass(Own))
        elif turn == 16:
            kept.pop(-3)
        return alone(turn)

    return run, arguments


@program()
def errors() -> Program:
    values: list[float] = []

    def run(x: torch.Tensor) -> Any:
        values.append(1.0)
        try:
            return x + values[20]
        except IndexError as e:
            return x, str(e), len(values)

    return run, alone


@program()
def behind_side_exits() -> Program:
    values: list[float] = []

    def run(x: torch.Tensor) -> Any:
        values.append(x.sum().item())
        if x.sum() > 0:
            values.append(-1.0)
            return x + len(values), values[-2:]
        return x - len(values), values[-1]

    return run, alone


# Since CPython 3.12 these comprehensions are part of the function: they are recorded item by item, for each length.
INLINED = {"walked_over", "with_variables_of_the_function"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_like_eager(name: str, request: pytest.FixtureRequest) -> None:
    eager, eager_arguments = PROGRAMS[name]()
    function, arguments = PROGRAMS[name]()
    compiled = kintsugi.compile(function)
    close = harness.through_native
    for turn in range(CALLS):
        expected = describe(eager(*eager_arguments(turn)), close=close)
        assert describe(compiled(*arguments(turn)), close=close) == expected, f"call {turn}"
    if WHOLE[name] and not (sys.version_info >= (3, 12) and name in INLINED):
        stats = compiled.stats()
        assert stats.trace_count <= RECORDINGS
        assert stats.misses <= RECORDINGS + 1
        assert stats.graph_break_count == 0 or name in STEPS


def test_few_texts_have_a_trace_each() -> None:
    """Modes and names of layers: the trace of each knows its text."""

    def run(x: torch.Tensor, mode: str) -> torch.Tensor:
        return x * 2 if mode == "double" else x + len(mode)

    compiled = kintsugi.compile(run)
    for turn in range(20):
        compiled(torch.ones(2), ["double", "one", "three", "seven"][turn % 4])
    stats = compiled.stats()
    assert (stats.trace_count, stats.misses, stats.side_exits) == (4, 4, 0)


def test_fixed_sizes_open_nothing() -> None:
    compiled = kintsugi.compile(lambda x, tag: x + len(tag), dynamic=False)
    for turn in range(12):
        assert compiled(torch.zeros(1), "a" * turn).item() == turn
    assert compiled.stats().hits == 0
