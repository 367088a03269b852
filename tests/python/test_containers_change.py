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
        self.one = {1}
        self.ordered = collections.OrderedDict(a=1, b=2, c=3)
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
    s.one.add(100 + len(s.one))
    s.ordered[f"k{len(s.ordered)}"] = 9
    s.queue.append(7)


def remove(s: State) -> None:
    for container in (s.found, s.empty):
        if container:
            container.pop(next(iter(container)))
    if len(s.ordered) > 1:  # the words of the error are those of clear() where it is empty
        s.ordered.popitem()
    if s.numbers:
        s.numbers.pop()
    for members in (s.members, s.one):
        if members:
            members.pop()
    if s.queue:
        s.queue.pop()


def replace(s: State) -> None:
    s.found["b"] = s.found.get("b", 0) + 70
    s.ordered["b"] = s.ordered.get("b", 0) + 70
    if len(s.numbers) > 2:
        s.numbers[2] += 70


def clear(s: State) -> None:
    for container in (s.found, s.empty, s.numbers, s.members, s.one, s.queue, s.ordered):
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
    "ordered": lambda s, way, x: collected(s.ordered, way, x),
    "ordered items": lambda s, way, x: collected(s.ordered.items(), way, x),
    "ordered, once": lambda s, way, x: once(s.ordered.values(), way, x),
    "ordered, in front": lambda s, way, x: in_front(s.ordered, way, x),
    "ordered, backwards": lambda s, way, x: collected(reversed(s.ordered), way, x),
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
        for schedule in SCHEDULES:
            expected = outcomes(program, way, kind, schedule)
            compiled = native(program) if backend == "native" else kintsugi.compile(program, backend=backend)
            got = outcomes(compiled, way, kind, schedule)
            for call, (theirs, mine) in enumerate(zip(expected, got, strict=True)):
                assert mine == theirs, f"{name}, {schedule}, call {call}"


def caught(items: Any, way: Any, x: torch.Tensor) -> Any:
    """The error of the iterator stays in the program, which asks once more."""
    iterator, found = iter(items), []
    for _ in range(5):
        try:
            found.append(next(iterator, "end"))
        except RuntimeError as error:
            found.append(str(error))
        x = way(x)
    return found, x


def stored_in_front(key: str, d: dict[str, int], way: Any, x: torch.Tensor) -> Any:
    """A key that varies makes the dict longer in some calls only, before it is iterated over."""
    d[key] = 5
    found = []
    for item in d:
        found.append(item)
        x = way(x)
    return found, [k for k in d], x


def stored_behind(key: str, d: dict[str, int], way: Any, x: torch.Tensor) -> Any:
    """And behind the start of the iterator, which raises in these calls."""
    iterator = iter(d.items())
    first = next(iterator, None)
    d[key] = 5
    x = way(x)
    return first, list(iterator), x


def mapped_late(key: str, d: dict[str, int], way: Any, x: torch.Tensor) -> Any:
    kept = map(str.upper, d)
    d["new"] = len(key)
    d.pop("new")
    x = way(x)
    return list(kept), x


BEHIND_STEPS: dict[str, Callable[[str, State, Any, torch.Tensor], Any]] = {
    "caught, keys": lambda key, s, way, x: caught(s.found, way, x),
    "caught, items": lambda key, s, way, x: caught(s.found.items(), way, x),
    "caught, ordered": lambda key, s, way, x: caught(s.ordered.items(), way, x),
    "caught, empty": lambda key, s, way, x: caught(s.empty, way, x),
    "caught, set": lambda key, s, way, x: caught(s.members, way, x),
    "caught, one": lambda key, s, way, x: caught(s.one, way, x),
    "one, in front": lambda key, s, way, x: in_front(s.one, way, x),
    "stored in front": lambda key, s, way, x: stored_in_front(key, s.found, way, x),
    "stored behind": lambda key, s, way, x: stored_behind(key, s.found, way, x),
    "mapped late": lambda key, s, way, x: mapped_late(key, s.found, way, x),
}
KEYS = [["b"] * 9, ["a", "z", "b", "z", "q"], ["n0", "n1", "n2", "n3", "n4", "a", "a"]]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("kind", [add, remove, replace, clear])
@pytest.mark.parametrize("name", BEHIND_STEPS)
def test_sizes_that_iterators_count_on(name: str, kind: Any, backend: str) -> None:
    program = BEHIND_STEPS[name]
    for way in (by_operator, by_step):
        for schedule in [*SCHEDULES, (0,) * 7]:
            for keys in KEYS if "stored" in name else KEYS[1:2]:
                found = []
                for compiled in (False, True):
                    call = program
                    if compiled:
                        call = (
                            native(program)
                            if backend == "native"
                            else kintsugi.compile(program, backend="eager")
                        )
                    given = iter(keys * 2)
                    found.append(outcomes(lambda s, w, x: call(next(given), s, w, x), way, kind, schedule))
                for at, (mine, theirs) in enumerate(zip(*found, strict=True)):
                    assert mine == theirs, f"{way.__name__}, {schedule}, {keys}, call {at}"
