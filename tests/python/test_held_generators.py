"""Generators that wait in a `try` and that the program holds by something else: they end where the last of their
holders goes, in the first call as in later ones."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kintsugi

PROGRAMS: list[Callable[[torch.Tensor], Any]] = []


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS.append(function)
    return function


def waiting(log: list[Any], name: Any = "end") -> Iterator[int]:
    try:
        yield 1
        yield 2
    finally:
        log.append(name)


def passing(g: Any) -> Any:
    yield from g


def looping(g: Any) -> Any:
    for v in g:
        yield v


class Plain:
    pass


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda g: [g],
    "tuple": lambda g: (1, g),
    "nested": lambda g: [({"g": (g,)},)],
    "dict": lambda g: {"g": g},
    "dict of lists": lambda g: {1: [g]},
    "deque": lambda g: collections.deque([g]),
    "generator expression": lambda g: (v for v in g),
    "map": lambda g: map(str, g),
    "filter": lambda g: filter(None, g),
    "zip": lambda g: zip(g, [1, 2]),
    "enumerate": lambda g: enumerate(g),
    "started enumerate": lambda g: started(enumerate(g)),
    "started generator": lambda g: started(looping(g)),
    "generator": looping,
    "delegating generator": passing,
    "lambda": lambda g: lambda: g,
    "default": lambda g: lambda h=g: h,
    "method": lambda g: g.send,
    "exception": lambda g: KeyError(g),
    "instance": lambda g: with_attribute(Plain(), g),
    "iterator": lambda g: iter([g]),
    "slice": lambda g: slice(g),
    "partial": lambda g: contextlib.closing(g),
}


def started(g: Any) -> Any:
    next(g)
    return g


def with_attribute(o: Any, g: Any) -> Any:
    o.g = g
    return o


def dropped_by_name(x: torch.Tensor, hold: Callable[[Any], Any]) -> Any:
    log: list[Any] = []
    g = waiting(log)
    next(g)
    held = hold(g)
    del g
    log.append(1)
    held = None
    log.append(2)
    return log, x * 2, held


def dropped_with_a_frame(x: torch.Tensor, hold: Callable[[Any], Any]) -> Any:
    log: list[Any] = []

    def inner() -> int:
        g = waiting(log)
        next(g)
        held = hold(g)
        log.append(type(held).__name__)
        return 5

    y = x * inner()
    log.append(2)
    return log, y


def dropped_out_of_a_cell(x: torch.Tensor, hold: Callable[[Any], Any]) -> Any:
    log: list[Any] = []
    g: Any = waiting(log)
    next(g)
    held: Any = hold(g)

    def let_go() -> None:
        nonlocal g, held
        g = None
        log.append(1)
        held = None
        log.append(2)

    let_go()
    return log, x * 2


def dropped_out_of_a_list(x: torch.Tensor, hold: Callable[[Any], Any]) -> Any:
    log: list[Any] = []
    g = waiting(log)
    next(g)
    outer: list[Any] = [hold(g), 3]
    del g
    log.append(1)
    outer[0] = x
    log.append(2)
    if x.sum() > 5:
        log.append(3)
    return log, outer, x * 2


def kept_behind_an_exit(x: torch.Tensor, hold: Callable[[Any], Any]) -> Any:
    log: list[Any] = []
    g = waiting(log)
    next(g)
    held = hold(g)
    del g
    if x.sum() > 5:
        log.append(1)
    held = None
    log.append(2)
    return log, x * 2, held


def kept_in_the_result(x: torch.Tensor, hold: Callable[[Any], Any]) -> Any:
    log: list[Any] = []
    g = waiting(log)
    next(g)
    held = hold(g)
    del g
    log.append(1)
    return log, x * 2, held


WAYS = [
    *(dropped_by_name, dropped_with_a_frame, dropped_out_of_a_cell, dropped_out_of_a_list),
    *(kept_behind_an_exit, kept_in_the_result),
]


@program
def in_a_frame_of_a_traceback(x):
    log = []

    def fails():
        g = waiting(log)
        next(g)
        raise KeyError

    try:
        fails()
    except KeyError:
        log.append(1)
    log.append(2)
    return log, x * 2


@program
def in_an_exception_that_is_kept(x):
    log = []

    def fails():
        g = waiting(log)
        next(g)
        raise KeyError

    try:
        fails()
    except KeyError as error:
        kept = error
    log.append(1)
    kept = None
    log.append(2)
    return log, x * 2, kept


@program
def pushed_out_of_a_deque(x):
    log = []
    g = waiting(log)
    next(g)
    queue = collections.deque([g], maxlen=1)
    del g
    queue.append(3)
    log.append(1)
    return log, x * 2


@program
def over_written(x):
    log = []
    g = waiting(log)
    next(g)
    pair = (g, 1)
    del g
    items = [pair]
    del pair
    items[0] = 1
    log.append(1)
    return log, x * 2, items


@program
def two_in_a_list(x):
    log = []
    a, b = waiting(log, "a"), waiting(log, "b")
    next(a)
    next(b)
    both = [a, b]
    del a, b
    log.append(1)
    both = None
    log.append(2)
    return log, x * 2, both


@program
def two_that_hold_one_another(x):
    log = []
    inner = waiting(log, "inner")
    next(inner)

    def outer():
        try:
            yield from inner
        finally:
            log.append("outer")

    g = outer()
    next(g)
    held = [g]
    g = inner = None
    log.append(1)
    held.clear()
    log.append(2)
    return log, x * 2


@program
def in_a_context(x):
    log = []

    @contextlib.contextmanager
    def context():
        log.append("in")
        try:
            yield 1
        finally:
            log.append("out")

    with context() as n:
        items = [v * n for v in range(3)]
        x = x + items[2]
    log.append(1)
    return log, x


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(f: Callable[[torch.Tensor], Any], backend: str) -> None:
    compiled = kintsugi.compile(f, backend=backend)
    for call in range(5):
        x = torch.full((2,), float(call))
        assert compiled(x)[0] == f(x)[0], f"call {call}"


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
def test_holders(way: Callable[..., Any], holder: str, backend: str) -> None:
    hold = HOLDERS[holder]

    def f(x: torch.Tensor) -> Any:
        return way(x, hold)

    compiled = kintsugi.compile(f, backend=backend)
    for call in range(5):
        x = torch.full((2,), float(call))
        assert list(compiled(x)[0]) == list(f(x)[0]), f"call {call}"
