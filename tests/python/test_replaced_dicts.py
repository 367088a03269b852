"""`object.__dict__ = dict`: behind it attributes are those of the new dict, also where two objects share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import shown

import kintsugi

X = torch.Tensor


class Plain:
    pass


class Shared:
    """All instances have the same attributes."""

    state: dict[str, Any] = {}

    def __init__(self) -> None:
        self.__dict__ = self.state


class Items(dict[str, Any]):
    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        self.__dict__ = self


class Record:
    def __init__(self, x: X, n: int) -> None:
        self.x, self.n = x, n

    def copy(self) -> Record:
        made = object.__new__(type(self))
        made.__dict__ = self.__dict__.copy()
        return made

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state


OLD = Plain()


def pair(x: X, n: int) -> tuple[Any, Any]:
    a, b = Plain(), Plain()
    a.v, b.v = x, x * n
    return a, b


def swapped(x: X, n: int) -> Any:
    a, b = pair(x, n)
    a.__dict__, b.__dict__ = b.__dict__, a.__dict__
    vars(b)["u"] = n
    return a.v, b.v, b.u


def swapped_later(x: X, n: int) -> Any:
    a, b = pair(x, n)
    mine, other = a.__dict__, b.__dict__
    b.__dict__ = mine
    a.__dict__ = other
    mine["k"] = n
    return a.v, b.v, b.k, hasattr(a, "k"), sorted(mine), sorted(other)


def one_dict(x: X, n: int) -> Any:
    a, b = pair(x, n)
    a.__dict__ = b.__dict__
    a.w = n
    b.v = x + n
    return a.v, b.w, a.__dict__ is b.__dict__


def another(x: X, n: int) -> Any:
    a, _ = pair(x, n)
    entries = {"v": x * n}
    a.__dict__ = entries
    a.w = n
    entries["z"] = n + 1
    return a.v, a.w, a.z, list(a.__dict__), hasattr(a, "q"), entries


def by_setattr(x: X, n: int) -> Any:
    a, b = pair(x, n)
    setattr(a, "__dict__", {"v": x * n})
    object.__setattr__(b, "__dict__", {"v": x - n})
    return a.v, b.v


def older(x: X, n: int) -> Any:
    OLD.k = n
    OLD.__dict__ = {"v": x * n, "k": n + 1}
    first = OLD.v, OLD.k
    made, _ = pair(x, n)
    made.__dict__ = OLD.__dict__
    made.v = x - n
    return first, OLD.v, made.k


def shared(x: X, n: int) -> Any:
    a, b = Shared(), Shared()
    a.v = x * n
    b.v = x - n
    b.k = n
    return a.v, Shared().k, a.__dict__ is b.__dict__


def items(x: X, n: int) -> Any:
    a = Items(u=x, k=n)
    a.w = x * n
    a["k"] = n + 1
    return a["w"], a.u, a.k, sorted(a)


def copied(x: X, n: int) -> Any:
    first = Record(x, n)
    second = first.copy()
    second.n = n + 1
    third = Record.__new__(Record)
    third.__setstate__({"x": x * n, "n": n})
    return first.n, second.n, second.x, third.x, third.n


PROGRAMS = [swapped, swapped_later, one_dict, another, by_setattr, older, shared, items, copied]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_attributes_behind_a_new_dict(program: Callable[[X, int], Any], backend: str) -> None:
    compiled = kintsugi.compile(program, backend=backend)
    for n in (2, 3, 1, 2, 4, 3):
        x = torch.ones(2) * n
        assert shown(compiled(x, n)) == shown(program(x, n)), n
        kintsugi.wait()


@pytest.mark.parametrize("program", [swapped, one_dict, another, shared, copied])
def test_a_new_dict_is_no_break(program: Callable[[X, int], Any]) -> None:
    compiled = kintsugi.compile(program, backend="eager")
    for n in (2, 3, 4, 5):
        compiled(torch.ones(2), n)
    assert (compiled.stats().graph_break_count, compiled.stats().misses <= 2) == (0, True)


REGISTERED: list[Any] = []


@kintsugi.disable
def register(item: Any) -> None:
    item.place = len(REGISTERED)


class Registered:
    def __init__(self, x: X) -> None:
        self.x = x
        register(self)


def test_a_constructor_that_ends_with_a_step() -> None:
    """The step may have changed the instance, which the constructor still gives back."""

    def program(x: X, n: int) -> Any:
        made = Registered(x * n)
        return made.x, made.place

    compiled = kintsugi.compile(program, backend="eager")
    for n in (2, 3, 4):
        assert shown(compiled(torch.ones(2), n)) == shown(program(torch.ones(2), n))
        REGISTERED.append(n)
    assert compiled.stats().graph_break_count == 1  # the disabled function
