"""Exceptions out of an iterable that C code consumes: of the iterator itself, of a generator, of a `__next__`, of what
map() calls. Each is recorded where it is raised, and what was taken before it is gone."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kintsugi


class Gone(Exception):
    pass


def generator(x: torch.Tensor) -> Iterator[Any]:
    yield 1
    yield 2
    raise Gone("generator")


class Raising:
    def __init__(self) -> None:
        self.n = 0

    def __iter__(self) -> Raising:
        return self

    def __next__(self) -> int:
        self.n += 1
        if self.n == 3:
            raise Gone("next", self.n)
        return self.n


class RaisingAtOnce:
    def __iter__(self) -> Any:
        raise Gone("iter")


def checked(n: int) -> int:
    if n == 3:
        raise Gone("map")
    return n


def changed(x: torch.Tensor) -> Iterator[Any]:
    table = {1: 1, 2: 2}
    it = iter(table)
    next(it)
    table[3] = 3
    return it


def spoilt(x: torch.Tensor) -> Iterator[Any]:
    queue = collections.deque([1, 2])
    it = iter(queue)
    queue.append(3)
    return it


ITERABLES: dict[str, Callable[[torch.Tensor], Any]] = {
    "strict zip, the second is shorter": lambda x: zip(iter(range(4)), [1], strict=True),
    "strict zip, the first is shorter": lambda x: zip([1], iter(range(4)), strict=True),
    "strict zip of lists": lambda x: zip([1, 2], [1], strict=True),
    "strict zip of tensors": lambda x: zip([x, x], [x], strict=True),
    "strict zip of three": lambda x: zip([1, 2], [3, 4], {}, strict=True),
    "strict zip of a generator": lambda x: zip(generator(x), [1], strict=True),
    "enumerate of a strict zip": lambda x: enumerate(zip([1, 2], [1], strict=True)),
    "generator": generator,
    "generator expression": lambda x: (checked(v) for v in [1, 2, 3]),
    "enumerate of a generator": lambda x: enumerate(generator(x)),
    "zip of a generator": lambda x: zip(generator(x), range(9)),
    "map": lambda x: map(checked, [1, 2, 3]),
    "map of a builtin": lambda x: map(int, ["1", "b"]),
    "filter": lambda x: filter(checked, [1, 2, 3]),
    "next": lambda x: Raising(),
    "iter": lambda x: RaisingAtOnce(),
    "dict that has changed": changed,
    "deque that has changed": spoilt,
}


def collected(*args: Any, **named: Any) -> Any:
    return args, named


def joined(it: Any) -> Any:
    items: list[Any] = [0]
    try:
        items += it
    finally:
        items.append(len(items))
    return items


def extended(it: Any) -> Any:
    items: list[Any] = [0]
    items.extend(it)
    return items


def updated(it: Any) -> Any:
    table = {0: 0}
    table.update(it)
    return table


def looped(it: Any) -> Any:
    seen = []
    for item in it:
        seen.append(item)
    return seen


def delegated(it: Any) -> Any:
    def inner() -> Any:
        yield from it

    return list(inner())


def unpacked(it: Any) -> Any:
    a, b = it
    return a, b


def unpacked_rest(it: Any) -> Any:
    a, *b = it
    return a, b


CONSUMERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda it: list(it),
    "tuple": lambda it: tuple(it),
    "set": lambda it: set(it),
    "frozenset": lambda it: frozenset(it),
    "dict": lambda it: dict(it),
    "dict of pairs": lambda it: dict((v, v) for v in it),
    "sorted": lambda it: sorted(it),
    "sorted by key": lambda it: sorted(it, key=str),
    "sum": lambda it: sum(it),
    "max": lambda it: max(it),
    "min": lambda it: min(it),
    "any": lambda it: any(v == 9 for v in it),
    "all": lambda it: all(it),
    "join": lambda it: ",".join(str(v) for v in it),
    "join of it": lambda it: ",".join(it),
    "deque": lambda it: collections.deque(it),
    "drained deque": lambda it: collections.deque(it, maxlen=0),
    "unpacked": unpacked,
    "unpacked rest": unpacked_rest,
    "list display": lambda it: [*it],
    "tuple display": lambda it: (0, *it),
    "set display": lambda it: {*it},
    "call": lambda it: collected(*it),
    "call with names": lambda it: collected(*it, a=1),
    "comprehension": lambda it: [v for v in it],
    "dict comprehension": lambda it: {v: v for v in it},
    "loop": looped,
    "extend": extended,
    "in place": joined,
    "update": updated,
    "yield from": delegated,
    "reduce": lambda it: functools.reduce(lambda a, b: b, it),
    "contains": lambda it: 9 in it,
    "enumerate": lambda it: list(enumerate(it)),
    "zip": lambda it: list(zip(it, range(9))),
    "last": lambda it: list(zip(range(9), it))[-1],
}


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [shown(v) for v in value]
    return value


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("iterable", ITERABLES)
def test_exceptions(iterable: str, backend: str) -> None:
    make = ITERABLES[iterable]
    wrong = []
    for name, consume in CONSUMERS.items():

        def f(x: torch.Tensor) -> Any:
            y = x * 2
            kept: Any = None
            try:
                kept = make(x)
                taken = consume(kept)
            except (Gone, ValueError, TypeError, RuntimeError) as error:
                try:
                    left = next(kept, "end")  # where the iterator is now
                except (TypeError, ValueError, RuntimeError, Gone) as again:
                    left = repr(again)
                return y + 1, type(error).__name__, str(error), left
            return y, taken

        compiled = kintsugi.compile(f, backend=backend)
        for call in range(4):
            x = torch.full((2,), float(call))
            expected, got = shown(f(x)), shown(compiled(x))
            if got != expected:
                wrong.append(f"{name}, call {call}: {expected} but {got}")
                break
    assert not wrong, "\n".join(wrong)


def test_are_recorded() -> None:
    """list() and tuple() of what raises are parts of the trace, not breaks."""

    def f(x: torch.Tensor) -> Any:
        for take in (list, tuple):
            try:
                take(zip([x, x], [1], strict=True))
            except ValueError as error:
                x = x + len(str(error))
        return x

    compiled = kintsugi.compile(f, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), f(torch.ones(2)))
    assert compiled.breaks() == [] and compiled.stats().trace_count == 1
