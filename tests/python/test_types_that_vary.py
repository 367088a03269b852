"""One compiled function, arguments of another type in each call: what a type decides is guarded by it."""

from __future__ import annotations

import collections
import copy
import itertools
import random
from collections.abc import Callable
from typing import Any

import call_arguments
import pytest

import kintsugi

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "copy": lambda v: (lambda w: (w, w is v))(copy.copy(v)),
    "deepcopy": lambda v: (lambda w: (w, w is v))(copy.deepcopy(v)),
    "any": lambda v: any(q == 1 for q in v),
    "max": lambda v: max(v, key=lambda q: -q),
    "sum": lambda v: sum(q for q in v),
    "list": lambda v: list(v),
    "tuple": lambda v: tuple(v),
    "set": lambda v: len(set(v)),
    "sorted": lambda v: sorted(v),
    "iter": lambda v: next(iter(v)),
    "is its iterator": lambda v: iter(v) is v,
    "filterfalse": lambda v: list(itertools.filterfalse(None, v)),
    "map": lambda v: list(map(str, v)),
    "zip": lambda v: list(zip(v, v, strict=False)),
    "enumerate": lambda v: list(enumerate(v)),
    "loop": lambda v: [q for q in v if q],
    "star": lambda v: [*v, 1],
    "unpack": lambda v: (lambda a, *b: (a, b))(*v),
    "dict": lambda v: dict(v),
    "ordered": lambda v: collections.OrderedDict(v),
    "len": lambda v: len(v),
    "truth": lambda v: 1 if v else 2,
    "index": lambda v: v[0],
    "contains": lambda v: 1 in v,
    "str": lambda v: call_arguments.without_places(f"{v!s:.60} {v!r:.60}"),
    "hash": lambda v: hash(v) == hash(v),
    "isinstance": lambda v: (isinstance(v, list | tuple), callable(v), type(v).__name__),
    "add": lambda v: v + v,
    "times": lambda v: v * 2,
    "compare": lambda v: (v == v, v is None),
    "call": lambda v: v(1),
    "attribute": lambda v: getattr(v, "a", "none"),
    "match": lambda v: _matched(v),
}


def _matched(v: Any) -> Any:
    match v:
        case []:
            return "empty"
        case [first, *rest]:
            return first, rest
        case {"a": a}:
            return a
        case int() | float():
            return "number"
        case str():
            return "text"
        case _:
            return "else"


GROUPS, FEW = 30, 4  # so few types that each has a trace: from some on, calls run in eager mode


@pytest.mark.parametrize("name", PROGRAMS)
def test_types_that_vary(name: str) -> None:
    program = PROGRAMS[name]
    chance = random.Random(name)
    makers = [key for key in call_arguments.MAKERS if key not in ("hash", "random")]
    for _ in range(GROUPS):
        some = chance.sample(makers, FEW)
        compiled = kintsugi.compile(program, backend="eager")
        for k, maker in enumerate([*some, *reversed(some), *some]):
            make = call_arguments.MAKERS[maker]
            want = call_arguments.outcome(program, (make(k % 5),))
            got = call_arguments.outcome(compiled, (make(k % 5),))
            assert got == want, (some, maker, k)


class Base:
    x = "base"


class First(Base):
    x = "first"


class Second(First):
    x = "second"


class Third(Second, First):
    pass


@pytest.mark.parametrize("orders", [(Second, Third, First), (Third, int, Second), (First, Second, str)])
def test_super_of_other_types(orders: tuple[type, ...]) -> None:
    def program(v: object) -> object:
        return super(First, v).x, super(Second, v).x  # type: ignore[misc]

    compiled = kintsugi.compile(program, backend="eager")
    for cls in orders * 2:
        assert call_arguments.outcome(compiled, (cls(),))[:3] == call_arguments.outcome(program, (cls(),))[:3]
