"""Containers of before the call that change, in some calls only, while the function iterates over them.

What changes them is Python code behind an operator, or a step that is not looked into. Eager mode raises where a dict
or set has another size than the iterator expects, and a list gives what has been added.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from harness import describe
from native_harness import native

import kintsugi

SCHEDULES = [(0, 0, 0, 1, 0, 1, 0), (1, 0, 0, 1, 0), (0, 1, 1, 0, 0)]


class State:
    def __init__(self) -> None:
        self.found: dict[str, int] = {"a": 1, "b": 2, "c": 3}
        self.empty: dict[str, int] = {}
        self.numbers = [1, 2, 3]
        self.members = {1, 2, 3}
        self.queue = collections.deque([1, 2, 3])


current: list[State] = []
effect: list[Callable[[State], Any]] = []
left = [0]


def act() -> None:
    """At most twice in a call, so that a list that grows comes to its end."""
    if effect and left[0] > 0:
        left[0] -= 1
        effect[0](current[0])


def add(s: State) -> None:
    s.found[f"k{len(s.found)}"] = 9
    s.empty[f"k{len(s.empty)}"] = 9
    s.numbers.append(7)
    s.members.add(100 + len(s.members))
    s.queue.append(7)


def remove(s: State) -> None:
    for container in (s.found, s.empty):
        if container:
            container.pop(next(iter(container)))
    if s.numbers:
        s.numbers.pop()
    if s.members:
        s.members.pop()
    if s.queue:
        s.queue.pop()


def replace(s: State) -> None:
    s.found["b"] = s.found.get("b", 0) + 70
    if len(s.numbers) > 2:
        s.numbers[2] += 70


def clear(s: State) -> None:
    for container in (s.found, s.empty, s.numbers, s.members, s.queue):
        container.clear()  # type: ignore[attr-defined]


library = torch.library.Library("kintsugi_containers", "DEF")
library.define("op(Tensor x) -> Tensor")
library.impl("op", lambda x: (act(), x * 1)[1], "CPU")


@kintsugi.disable
def opaque(x: torch.Tensor) -> torch.Tensor:
    act()
    return x


def by_operator(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.kintsugi_containers.op(x)  # type: ignore[no-any-return]


def by_step(x: torch.Tensor) -> torch.Tensor:
    return opaque(x)


def collected(items: Any, way: Any, x: torch.Tensor) -> Any:
    found = []
    for item in items:
        found.append(item)
        x = way(x)
    return found, x


def once(items: Any, way: Any, x: torch.Tensor) -> Any:
    found = []
    for item in items:
        if not found:
            x = way(x)
        found.append(item)
    return found, x


def generated(items: Any) -> Iterator[Any]:
    yield from items


def in_front(items: Any, way: Any, x: torch.Tensor) -> Any:
    iterator = iter(items)
    x = way(x)
    return list(iterator), x


PROGRAMS: dict[str, Callable[[State, Any, torch.Tensor], Any]] = {
    "keys": lambda s, way, x: collected(s.found, way, x),
    "values": lambda s, way, x: collected(s.found.values(), way, x),
    "items": lambda s, way, x: collected(s.found.items(), way, x),
    "dict, once": lambda s, way, x: once(s.found, way, x),
    "comprehension": lambda s, way, x: [(key, way(x)) for key in s.found],
    "zip": lambda s, way, x: collected(zip(s.found, s.numbers, strict=False), way, x),
    "enumerate": lambda s, way, x: collected(enumerate(s.found), way, x),
    "map": lambda s, way, x: collected(map(str, s.found), way, x),
    "generator": lambda s, way, x: collected(generated(s.found), way, x),
    "dict, in front": lambda s, way, x: in_front(s.found, way, x),
    "empty, in front": lambda s, way, x: in_front(s.empty, way, x),
    "list": lambda s, way, x: collected(s.numbers, way, x),
    "list, once": lambda s, way, x: once(s.numbers, way, x),
    "enumerated list": lambda s, way, x: collected(enumerate(s.numbers), way, x),
    "reversed list": lambda s, way, x: collected(reversed(s.numbers), way, x),
    "list, in front": lambda s, way, x: in_front(s.numbers, way, x),
    "set": lambda s, way, x: collected(s.members, way, x),
    "set, in front": lambda s, way, x: in_front(s.members, way, x),
    "deque": lambda s, way, x: collected(s.queue, way, x),
    "deque, once": lambda s, way, x: once(s.queue, way, x),
}


# Iterators over a dict that gets another size go on where eager mode raises: see docs/internals/verification.md.
OF_DICTS = ("keys", "values", "items", "dict, once", "comprehension", "zip", "enumerate", "map", "generator")
OF_DICTS_IN_FRONT = ("dict, in front", "empty, in front")


def outcomes(call: Callable[..., Any], way: Any, kind: Any, schedule: tuple[int, ...]) -> list[Any]:
    current[:] = [State()]
    found = []
    for acts in schedule:
        effect[:] = [kind] if acts else []
        left[0] = 2
        try:
            result: Any = call(current[0], way, torch.ones(2))
        except RuntimeError as error:
            result = (type(error).__name__, str(error))
        effect.clear()
        found.append(describe(result, vars(current[0])))
    return found


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("kind", [add, remove, replace, clear])
@pytest.mark.parametrize("way", [by_operator, by_step])
def test_changes_while_the_function_iterates(way: Any, kind: Any, backend: str) -> None:
    for name, program in PROGRAMS.items():
        if kind is not replace and name in OF_DICTS + OF_DICTS_IN_FRONT:
            continue
        for schedule in SCHEDULES:
            expected = outcomes(program, way, kind, schedule)
            compiled = native(program) if backend == "native" else kintsugi.compile(program, backend=backend)
            got = outcomes(compiled, way, kind, schedule)
            for call, (theirs, mine) in enumerate(zip(expected, got, strict=True)):
                assert mine == theirs, f"{name}, {schedule}, call {call}"


@pytest.mark.xfail(strict=True, reason="a dict that gets another size behind a step raises nothing")
@pytest.mark.parametrize("name", OF_DICTS + OF_DICTS_IN_FRONT)
def test_dicts_that_get_another_size(name: str) -> None:
    for schedule in SCHEDULES:
        expected = outcomes(PROGRAMS[name], by_step, add, schedule)
        assert outcomes(kintsugi.compile(PROGRAMS[name], backend="eager"), by_step, add, schedule) == expected
