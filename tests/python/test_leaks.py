"""Nothing grows over many rounds of compile, call and reset: memory, Python objects, reference counts."""

from __future__ import annotations

import gc
import pathlib
import resource
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import SANITIZER
from torch import nn

import kintsugi

# Allocators round up and fragment; a leak of one object a round is far above this at the full number of rounds.
FEW_OBJECTS = 40
FEW_BYTES = 4 << 20
# What leaks grows each time. What an allocator or another thread keeps once does not grow again.
GOES = 3


def _memory() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _peak() -> int:
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def _rounds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--leak-rounds"))


def _compile(function: Any) -> Any:
    return kintsugi.compile(function, backend="eager")


def _pure() -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y).relu() * 2

    compiled = _compile(add)
    compiled(torch.ones(4), torch.ones(4))
    compiled(torch.ones(4), torch.ones(4))


def _module() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    compiled = _compile(module)
    compiled(torch.ones(2, 4)).sum().backward()
    compiled(torch.ones(2, 4)).sum().backward()


def _side_exit() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1

    compiled = _compile(branch)
    compiled(torch.ones(4))
    compiled(-torch.ones(4))
    compiled(torch.ones(4))


def _exception() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        try:
            x = x + torch.ones(3)
        except RuntimeError:
            x = x - 1
        raise ValueError(str(x.shape))

    compiled = _compile(wrong)
    for _ in range(2):
        try:
            compiled(torch.ones(4))
        except ValueError:
            pass


def _containers() -> None:
    def collect(items: list[Any], **options: Any) -> dict[str, Any]:
        made = {str(index): [item, item + 1, options] for index, item in enumerate(items)}
        items.append(items[0] * 2)
        made["all"] = [part for parts in made.values() for part in parts]
        return made

    compiled = _compile(collect)
    for _ in range(2):
        compiled([torch.ones(2), torch.zeros(2)], scale=2.0, name="n")


def _new_shapes() -> None:
    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * x.shape[0]

    compiled = _compile(scale)
    for size in range(1, 12):
        compiled(torch.ones(size))


def _new_code() -> None:
    """Code objects that die: what is kept beside them has to go with them."""
    space: dict[str, Any] = {}
    exec("def made(x):\n    y = x * 2\n    return [y + i for i in range(3)]", space)
    compiled = _compile(space["made"])
    compiled(torch.ones(2))
    compiled(torch.ones(2))


def _opaque() -> None:
    def stamped(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        number = int("".join(map(chr, b"12")), 10)
        found = sorted([3, 1, 2], key=lambda value: -value)
        return x * number + x.sum().item(), found[0]

    compiled = _compile(stamped)
    compiled(torch.ones(2))
    compiled(torch.ones(2))


PROGRAMS: list[Callable[[], None]] = [
    _pure,
    _module,
    _side_exit,
    _exception,
    _containers,
    _new_shapes,
    _new_code,
    _opaque,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__.strip("_"))
def test_compile_call_reset(program: Callable[[], None], request: pytest.FixtureRequest) -> None:
    rounds = _rounds(request)

    def repeat(count: int) -> None:
        for _ in range(count):
            program()
            kintsugi.reset()

    repeat(max(20, rounds // 5))
    grown, more = FEW_OBJECTS + 1, FEW_BYTES + 1
    for _ in range(GOES):
        first, memory = _objects(), _memory()
        repeat(rounds)
        grown, more = min(grown, _objects() - first), min(more, _memory() - memory)
        if grown <= FEW_OBJECTS and more <= FEW_BYTES:
            break
    assert grown <= FEW_OBJECTS, f"{grown} more objects after {rounds} rounds"
    assert SANITIZER or more <= FEW_BYTES, (
        f"{more} more bytes after {rounds} rounds ({more / rounds:.0f} a round)"
    )


def test_programs_that_record_all_the_time_are_collected() -> None:
    """Recording puts collections off: they are made up for."""
    before = gc.get_stats()[0]["collections"]
    for _ in range(1000):
        _new_code()
    assert gc.get_stats()[0]["collections"] - before > 2


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__.strip("_"))
def test_without_reset(program: Callable[[], None], request: pytest.FixtureRequest) -> None:
    """What was compiled goes with the last reference to it."""
    rounds = _rounds(request)
    for _ in range(max(20, rounds // 5)):
        program()
    objects = _objects()
    for _ in range(rounds):
        program()
    grown = _objects() - objects
    assert grown <= FEW_OBJECTS, f"{grown} more objects after {rounds} rounds"


def _watched() -> list[Any]:
    return [None, True, False, 0, 1, 2, "x", (), torch.float32, torch.Tensor, torch.nn.functional.relu]


def test_reference_counts_of_shared_objects(request: pytest.FixtureRequest) -> None:
    """Replay neither keeps nor loses a reference to anything it touches."""
    rounds = 10 * _rounds(request)

    class Box:
        scale: float = 2.0

    box, names = Box(), ["a", "b"]

    def use(x: torch.Tensor, flag: bool = True, nothing: None = None) -> tuple[Any, ...]:
        if flag and nothing is None:
            x = torch.nn.functional.relu(x) * box.scale
        return x, names, (x, None, True, 1, "x"), {"b": box}

    x = torch.ones(2)
    compiled = _compile(use)
    for _ in range(5):
        compiled(x)
    mine = [x, box, names, use, use.__code__, Box]
    before = [sys.getrefcount(value) for value in (*_watched(), *mine)]
    for _ in range(rounds):
        compiled(x)
    after = [sys.getrefcount(value) for value in (*_watched(), *mine)]
    moved = [
        f"{value!r}: {second - first:+}"
        for value, first, second in zip((*_watched(), *mine), before, after, strict=True)
        if abs(second - first) > 20
    ]
    assert not moved, f"after {rounds} calls: {', '.join(moved)}"


def test_reference_counts_of_results_and_arguments() -> None:
    def give(x: torch.Tensor, items: list[Any]) -> list[Any]:
        items.append(x)
        return [x * 2, x]

    compiled = _compile(give)
    for turn in range(4):
        counts = []
        for call in (give, compiled):
            x, items = torch.ones(2), []  # type: ignore[var-annotated]
            out = call(x, items)
            counts.append([sys.getrefcount(value) for value in (x, items, out, out[0], out[1])])
        assert counts[0] == counts[1], f"call {turn + 1}: {counts[1]}, in eager {counts[0]}"


def test_results_die_with_their_last_user() -> None:
    def give(x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        y = x + 1
        return y * 2, [y]

    compiled = _compile(give)
    for _ in range(4):
        x = torch.ones(2)
        out, parts = compiled(x)
        seen = [weakref.ref(value) for value in (x, out, parts[0])]
        del x, out, parts
        assert [ref() for ref in seen] == [None] * 3


def test_the_users_objects_are_not_kept_alive() -> None:
    module: Any = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    compiled = _compile(module)
    for _ in range(3):
        compiled(torch.ones(2, 4))
    seen = [weakref.ref(module), weakref.ref(module[0].weight), weakref.ref(module[1])]
    del module, compiled
    gc.collect()
    assert [ref() for ref in seen] == [None] * 3


def test_an_object_of_a_trace_dies_while_the_function_lives() -> None:
    """A dead object kills its traces; a new one at the same address is a different object."""

    def apply(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return layer(x)

    compiled = _compile(apply)
    x = torch.ones(1, 2)
    for turn in range(30):
        layer = nn.Linear(2, 1)
        nn.init.constant_(layer.weight, float(turn))
        for _ in range(2):
            assert torch.equal(compiled(layer, x), layer(x)), turn
        ref = weakref.ref(layer)
        del layer
        gc.collect()
        assert ref() is None, "the trace keeps the module alive"


@pytest.mark.skipif(SANITIZER, reason="freed memory stays in the sanitizer's quarantine")
def test_intermediates_are_freed_during_a_call() -> None:
    """A call needs no more memory at its peak than eager: tensors go at their last use."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(64):
            x = x + 1
        return x

    compiled = _compile(chain)
    x = torch.zeros(1 << 20)
    for _ in range(3):
        compiled(x)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _peak()
    compiled(x)
    grown = _peak() - before
    assert grown < 32 << 20, f"{grown >> 20} MiB more for 64 steps of 4 MiB"


def test_a_traceback_of_replay_is_freed() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y.reshape(7)

    compiled = _compile(wrong)
    for _ in range(4):
        x = torch.ones(2)
        ref = weakref.ref(x)
        with pytest.raises(RuntimeError) as caught:
            compiled(x)
        assert isinstance(caught.tb, types.TracebackType)
        del x, caught
        gc.collect()
        assert ref() is None


def test_reset_of_a_function_that_only_its_own_traces_hold() -> None:
    """What a trace pins may lead back to the function: the reset takes the last reference to it away."""
    for _ in range(20):
        space: dict[str, Any] = {}
        exec("def helper(x): return x + 1\ndef program(x): return helper(x) if x.sum() > 0 else x", space)
        compiled = _compile(space["program"])
        space["helper"].owner = compiled
        compiled(torch.ones(3))
        compiled(-torch.ones(3))
        ref = weakref.ref(compiled)
        del compiled, space
        kintsugi.reset()
        gc.collect()
        assert ref() is None
