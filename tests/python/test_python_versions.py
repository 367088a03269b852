"""What versions of CPython compile into other instructions: the same programs, whichever they are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kintsugi


class Seen:
    """What `[...]` asks for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __getitem__(self, key: Any) -> Any:
        self.asked.append(key)
        if isinstance(key, slice) and key.stop == 3:
            raise KeyError("three")
        return key

    def __setitem__(self, key: Any, value: Any) -> None:
        self.asked.append((key, value))


class Base(torch.nn.Module):
    scale = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale

    @property
    def twice(self) -> int:
        return self.scale * 2


class Derived(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + super().twice + super(Derived, self).scale


def slices(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    y = x + 1
    part = items[low:high]
    return y[low:] * len(part), part


def slices_of_an_object(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    seen = Seen()
    try:
        got = seen[low:high]
    except KeyError as error:
        got = str(error)
    seen[low:high] = low
    return x + low, got, seen.asked


def stored_slices(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    copy = list(items)
    copy[low:high] = ["new"]
    z = x.clone()
    z[low:high] = 0
    return z, copy


def comprehensions(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    i = 7
    ys = [x * i for i in range(low, 3)]
    try:
        [10 // (i - low) for i in range(3)]
    except ZeroDivisionError as error:
        ys.append(torch.tensor(len(str(error))))
    return sum(ys), i, {i: -i for i in range(2)}, {ord(str(i)) % 7 for i in items if i != high}


def unset_variables(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    if low > 1:
        k = 3
    ys = [k + 1 for k in range(2)]
    try:
        return x + k, ys
    except UnboundLocalError as error:
        return x - 1, ys, str(error)


def generators(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    def inner() -> Iterator[Any]:
        got = yield x
        yield got
        if low == 1:
            raise StopIteration(3)
        return "end"

    def outer() -> Iterator[Any]:
        result = yield from inner()
        yield result

    steps = outer()
    out = [next(steps), steps.send(low)]
    try:
        out.append(next(steps))
    except RuntimeError as error:
        out += [str(error), type(error.__cause__)]
    thrown = outer()
    next(thrown)
    try:
        thrown.throw(KeyError("thrown"))
    except KeyError as error:
        out.append(str(error))
    return out


def class_bodies(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    value = low

    class Local:
        held = value
        for value in range(2):
            pass
        kept = value

        def add(self, y: torch.Tensor) -> torch.Tensor:
            return y + self.held + self.kept

    return Local().add(x)


PROGRAMS = [
    slices, slices_of_an_object, stored_slices, comprehensions, unset_variables, generators, class_bodies,
]  # fmt: skip
ARGUMENTS = [
    ([1, 2, 3, 4], 1, 3),
    ([1, 2, 3, 4], 1, 3),
    ([1, 2, 3, 4], 0, None),
    ("abc", 2, 3),
    ((1, 2), 1, 2),
]


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return repr(function(*args))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs(program: Callable[..., Any], backend: str) -> None:
    compiled = kintsugi.compile(program, backend=backend)
    x = torch.arange(4.0)
    for _ in range(2):
        for arguments in ARGUMENTS:
            assert outcome(compiled, x, *arguments) == outcome(program, x, *arguments)


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_super_is_looked_up_again(backend: str) -> None:
    model = Derived()
    compiled = kintsugi.compile(model, backend=backend)
    x = torch.arange(3.0)
    forward = Base.forward
    try:
        for scale in (2, 2, 3):
            Base.scale = scale
            assert torch.equal(compiled(x), model(x))
        Base.forward = lambda self, x: x - self.scale
        assert torch.equal(compiled(x), model(x))
        assert torch.equal(compiled(x), x - 3 + 6 + 3)
    finally:
        Base.forward, Base.scale = forward, 2


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_tools_of_sys_monitoring_see_what_they_see_in_eager_mode() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def program(x: torch.Tensor) -> torch.Tensor:
        return inner(x) * 2

    compiled = kintsugi.compile(program, backend="eager")
    x = torch.arange(3.0)
    for _ in range(3):
        compiled(x)
    monitoring, tool = sys.monitoring, sys.monitoring.COVERAGE_ID
    seen: list[Any] = []
    monitoring.use_tool_id(tool, "test")
    try:
        monitoring.register_callback(
            tool, monitoring.events.PY_START, lambda code, _: seen.append(code.co_name)
        )
        monitoring.set_events(tool, monitoring.events.PY_START)
        compiled(x)
        monitoring.set_events(tool, 0)
        assert seen[-2:] == ["program", "inner"]
        seen.clear()
        monitoring.set_local_events(tool, inner.__code__, monitoring.events.PY_START)
        compiled(x)
        assert seen == ["inner"]
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    hits = compiled.stats().hits if hasattr(compiled, "stats") else None
    compiled(x)
    if hits is not None:
        assert compiled.stats().hits == hits + 1


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_copies_ask_hooks_that_call_what_they_close_over(backend: str) -> None:
    import copy

    asked: list[str] = []

    def note(name: str) -> None:
        asked.append(name)

    class Watched:
        def __init__(self) -> None:
            self.held = 3

        def __getattribute__(self, name: str) -> Any:
            note(name)
            return super().__getattribute__(name)

    watched = Watched()

    def program(x: torch.Tensor) -> torch.Tensor:
        return x + copy.copy(watched).held

    x = torch.arange(3.0)
    counts = []
    compiled = kintsugi.compile(program, backend=backend)
    for function in (program, compiled, compiled, compiled):
        asked.clear()
        assert torch.equal(function(x), x + 3)
        counts.append(list(asked))
    assert counts == [counts[0]] * 4
