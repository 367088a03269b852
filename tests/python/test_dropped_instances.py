"""Dropped instances and exceptions go while recording, and nothing that is still seen goes with them."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from harness import describe
from native_harness import native

import kintsugi

LOG: list[Any] = []


class Box:
    def __init__(self, held: Any) -> None:
        self.held = held


class Slotted:
    __slots__ = ("__weakref__", "held")

    def __init__(self, held: Any) -> None:
        self.held = held


@dataclasses.dataclass
class Record:
    held: torch.Tensor
    before: Any = None


class Named(dict[str, Any]):
    pass


class Ordered(collections.OrderedDict[str, Any]):
    pass


class Loud:
    def __init__(self, name: Any) -> None:
        self.name = name

    def __del__(self) -> None:
        LOG.append(self.name)


class Failed(Exception):
    def __init__(self, held: Any) -> None:
        super().__init__("failed")
        self.held = held


class Color(enum.Enum):
    RED = 1


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor, by: float) -> torch.Tensor:
        return x * by

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.by = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * ctx.by + x * 0, None


def fail(x: torch.Tensor) -> torch.Tensor:
    raise Failed(x + 1)


def nothing(x: torch.Tensor) -> torch.Tensor:
    """Frames and turns of loops: at their ends the recorder lets go."""
    for turn in range(40):
        x = Box([x + turn]).held[0]
    return x


def boxes(x: torch.Tensor) -> Any:
    kept = [Box(Slotted(Record(x + k))) for k in range(3)]
    y = nothing(x)
    y = y + 1 if y.sum() > 0 else y - 1
    return y, kept[1], kept[2].held.held.held


def chain(x: torch.Tensor) -> Any:
    last = Record(x)
    for _ in range(40):
        last = Record(last.held + 1, before=last if len(LOG) == 0 else None)
    if last.held.sum() > 0:
        return last.before.before.held
    return last.before


def dict_of_a_dropped_instance(x: torch.Tensor) -> Any:
    names = vars(Box(x * 2))
    y = nothing(x)
    names["more"] = y
    return names, names["held"] + (1 if y.sum() > 0 else 2)


def bound_method_of_a_dropped_instance(x: torch.Tensor) -> Any:
    get = Named(held=x * 3).get
    y = nothing(x)
    return get("held") + y if y.sum() > 0 else get("none", y)


def subclasses_of_containers(x: torch.Tensor) -> Any:
    kept = [Named(a=x + 1), Ordered(b=Named(c=x))]
    y = nothing(x)
    for k in range(40):
        y = Ordered(y=Named(z=y + k))["y"]["z"]
    return kept if y.sum() > 0 else (kept[1], y)


def classes_of_the_call(x: torch.Tensor) -> Any:
    class Local:
        def __init__(self, held: Any) -> None:
            self.held = held

    y = nothing(Local(x).held)
    made = Local(y)
    y = nothing(y)
    return type(made).__name__, made.held, y + 1 if y.sum() > 0 else y


def caught(x: torch.Tensor) -> Any:
    for _ in range(40):
        try:
            fail(x)
        except Failed as error:
            x = error.held
    return x if x.sum() > 0 else x - 1


def kept_exception(x: torch.Tensor) -> Any:
    kept = None
    try:
        fail(x)
    except Failed as error:
        kept = error
    y = nothing(x)
    y = y + 1 if y.sum() > 0 else y - 1
    assert kept is not None and kept.__traceback__ is not None
    names = [entry.name for entry in traceback.extract_tb(kept.__traceback__)]
    return y, kept.held, names[-1], kept.__context__


def chained_exceptions(x: torch.Tensor) -> Any:
    try:
        try:
            fail(x)
        except Failed as error:
            raise ValueError("outer") from error
    except ValueError as outer:
        cause = outer.__cause__
    y = nothing(x)
    assert isinstance(cause, Failed)
    return cause.held + y if y.sum() > 0 else (cause.held, cause.args)


def raised_again(x: torch.Tensor) -> Any:
    kept: list[BaseException] = []
    for _ in range(3):
        with contextlib.suppress(Failed):
            fail(x)
        try:
            fail(x)
        except Failed as error:
            kept.append(error)
    y = nothing(x)
    try:
        raise kept[1] if y.sum() > 0 else kept[0]
    except Failed as error:
        return error.held, error is kept[1]


def results_of_generators(x: torch.Tensor) -> Any:
    def steps(y: torch.Tensor) -> Iterator[torch.Tensor]:
        yield y + 1
        return Box(y + 2)  # type: ignore[return-value]

    for _ in range(40):
        running = steps(x)
        x = next(running)
        try:
            next(running)
        except StopIteration as stop:
            x = stop.value.held
    return x if x.sum() > 0 else Box(x)


def finalizers_inside(x: torch.Tensor) -> Any:
    for k in range(4):
        LOG.append(("made", k))
        x = Box((x + 1, Loud(k))).held[0]
        LOG.append(("next", k))
    return nothing(x)


def finalizers_in_frames_of_exceptions(x: torch.Tensor) -> Any:
    def failing(k: int) -> None:
        held = Loud(k)
        raise Failed((x, held.name))

    for k in range(3):
        try:
            failing(k)
        except Failed as error:
            LOG.append(("caught", error.held[1]))
        LOG.append(("behind", k))
    return nothing(x)


def weak_references_to_what_instances_hold(x: torch.Tensor) -> Any:
    inner = Slotted(x)
    box = Box(inner)
    watch = weakref.ref(inner, lambda _: LOG.append("gone"))
    del inner
    y = nothing(x)
    LOG.append(watch() is None)
    del box
    LOG.append("behind")
    y = nothing(y)
    return y, watch() is None


def weak_references_to_instances(x: torch.Tensor) -> Any:
    seen = []
    held: weakref.WeakValueDictionary[int, Box] = weakref.WeakValueDictionary()
    for k in range(3):
        box = Box(x + k)
        held[k] = box
        x = nothing(x)
        seen.append(sorted(held))
    return x, seen


def identities(x: torch.Tensor) -> Any:
    first = Box(x)
    x = nothing(x)
    second = Box(x)
    keys = {first: 1, second: 2}
    x = nothing(x)
    return first is second, keys[first], keys[second], len({id(first), id(second)}), x


def members(x: torch.Tensor) -> Any:
    for _ in range(40):
        x = Record(x + Color.RED.value).held
    return x, Color(1) is Color.RED


def functions_of_autograd(x: torch.Tensor) -> Any:
    for _ in range(5):
        x = Scaled.apply(x + 1, 1.5)
    return x if x.sum() > 0 else x - 1


PROGRAMS = [
    boxes,
    chain,
    dict_of_a_dropped_instance,
    bound_method_of_a_dropped_instance,
    subclasses_of_containers,
    classes_of_the_call,
    caught,
    kept_exception,
    chained_exceptions,
    raised_again,
    results_of_generators,
    finalizers_inside,
    finalizers_in_frames_of_exceptions,
    weak_references_to_what_instances_hold,
    weak_references_to_instances,
    identities,
    members,
    functions_of_autograd,
]


def compiled_by(backend: str, program: Callable[..., Any]) -> Callable[..., Any]:
    if backend == "native":
        return native(program)
    return kintsugi.compile(
        program, backend="eager" if backend == "replay" else lambda gm, inputs: gm.forward
    )


def outcomes(call: Callable[..., Any]) -> list[Any]:
    found = []
    for shift in (0.0, -5000.0, 2.0, -6000.0, 1.0):
        LOG.clear()
        result = call(torch.arange(3.0) + shift)
        found.append((describe(result), list(LOG)))
    return found


@pytest.mark.parametrize("backend", ["replay", "native", "fx"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_is_still_seen(program: Callable[..., Any], backend: str) -> None:
    with kintsugi.config.patch(report_compiling=False):
        assert outcomes(compiled_by(backend, program)) == outcomes(program)
