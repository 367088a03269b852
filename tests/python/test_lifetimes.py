"""When objects go that the program has dropped: finalizers in Python, weak references, what they are found by."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import describe
from torch import nn

import kintsugi

LOG: list[Any] = []
PROGRAMS: list[Callable[[torch.Tensor], Any]] = []


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS.append(function)
    return function


class Finalized:
    def __init__(self, name: Any) -> None:
        self.name = name

    def __del__(self) -> None:
        LOG.append(self.name)

    def method(self) -> int:
        return 1


class Plain:
    def method(self) -> int:
        return 1


@program
def deleted(x):
    made = Finalized("made")
    y = x * 2
    made.method()
    del made
    LOG.append("after")
    return y, list(LOG)


@program
def at_the_end_of_a_function(x):
    def inner():
        made = Finalized("inner")
        return x + made.method()

    result = inner()
    LOG.append("after")
    return result, list(LOG)


@program
def held_by_a_list(x):
    items = [Finalized(i) for i in range(3)]
    items.pop()
    LOG.append("popped")
    items.clear()
    LOG.append("cleared")
    return x, list(LOG)


@program
def never_kept(x):
    reference = weakref.ref(Finalized("gone"))
    return x, reference() is None, list(LOG)


@program
def weak_callback(x):
    kept = Plain()
    seen: list[str] = []
    reference = weakref.ref(kept, lambda _: seen.append("gone"))
    del kept
    seen.append("after")
    return seen, reference() is None


@program
def weak_after_a_method(x):
    kept = Plain()
    kept.method()
    reference = weakref.ref(kept)
    there = reference() is not None
    del kept
    return x, there, reference() is None


@program
def weak_module(x):
    kept = nn.Linear(1, 1)
    reference = weakref.ref(kept)
    there = reference() is not None
    del kept
    return x, there, reference() is None


@program
def weak_values(x):
    known: Any = weakref.WeakValueDictionary()
    kept = nn.Linear(1, 1)
    known["k"] = kept
    before = len(known)
    del kept
    return x, before, len(known)


@program
def a_cycle(x):
    one, other = Plain(), Plain()
    one.other, other.other = other, one
    reference = weakref.ref(one)
    del one, other
    gc.collect()
    return x, reference() is None


# From CPython 3.13 on two variables that are set one behind the other are set by one instruction.


def waiting(name, *inside):
    """A generator that waits where closing it runs code."""

    def items():
        try:
            yield inside
        finally:
            LOG.append(name)

    made = items()
    next(made)
    return made


def pair(first, second):
    return first, second


@program
def two_variables(x):
    one, other = pair(Finalized("one"), Finalized("other"))
    LOG.append("made")
    one, other = pair(x, 2)
    LOG.append("after")
    return one * other, list(LOG)


@program
def two_variables_the_newer_one_first(x):
    other = Finalized("other")
    one = Finalized("one")
    LOG.append("made")
    one, other = pair(x, 2)
    return one * other, list(LOG)


@program
def two_variables_with_lists(x):
    one, other = pair([Finalized("in a list")], Finalized("alone"))
    one, other = pair(x, [Finalized("new")])
    LOG.append("after")
    one, other = pair(x, 2)
    return one * other, list(LOG)


@program
def two_variables_with_generators(x):
    one, other = pair(waiting("one"), waiting("other"))
    LOG.append("made")
    one, other = pair(x, 2)
    LOG.append("after")
    return one * other, list(LOG)


@program
def two_variables_a_generator_first(x):
    one, other = pair(waiting("generator"), Finalized("object"))
    one, other = pair(x, 2)
    return one * other, list(LOG)


@program
def two_variables_a_generator_last(x):
    one, other = pair(Finalized("object"), waiting("generator", Finalized("inside")))
    one, other = pair(x, 2)
    return one * other, list(LOG)


@program
def two_variables_that_others_hold(x):
    one, other = pair(Finalized("one"), waiting("other"))
    kept = [one, other]
    one, other = pair(x, 2)
    LOG.append("after")
    kept.clear()
    return one * other, list(LOG)


@program
def one_variable_twice(x):
    one = Finalized("old")
    one, one = pair(Finalized("between"), x)
    LOG.append("after")
    return one, list(LOG)


@program
def two_variables_in_a_loop(x):
    one = other = None
    for i in range(3):
        one, other = pair(waiting(("one", i)), waiting(("other", i)))
        LOG.append(i)
    one, other = pair(x, 2)
    return one * other, list(LOG)


@program
def two_variables_that_change_places(x):
    one, other = pair(Finalized("one"), waiting("other"))
    one, other = pair(other, one)
    LOG.append("after")
    del other
    return x, one is None, list(LOG)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_objects_go_as_in_eager_mode(function: Callable[[torch.Tensor], Any]) -> None:
    compiled = kintsugi.compile(function)
    for turn in range(6):
        results = []
        for call in (compiled, function):
            LOG.clear()
            results.append((describe(call(torch.full((2,), float(turn)))), list(LOG)))
        assert results[0] == results[1], f"call {turn}"


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_pairs_of_variables_are_recorded(backend: str) -> None:
    def function(x):
        with torch.no_grad(), torch.enable_grad():
            one, other = pair(waiting("one"), waiting("other"))
            one, other = pair(x * 2, x + 1)
            one, other = pair(other, one)
        return one - other, list(LOG)

    compiled = kintsugi.compile(function, backend=backend)
    for turn in range(4):
        results = []
        for call in (compiled, function):
            LOG.clear()
            results.append(describe(call(torch.full((2,), float(turn))), close=backend == "native"))
        assert results[0] == results[1], f"call {turn}"
    assert compiled.stats().graph_break_count == 0 and compiled.stats().hits == 3
