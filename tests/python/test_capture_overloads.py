"""Operators and comparisons with special methods in Python, which may say NotImplemented: as eager has them."""

from __future__ import annotations

import dataclasses

import torch
from harness import Case, Suite, check, check_captured, signs

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


class Amount:
    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        if not isinstance(other, (Amount, int)):
            return NotImplemented
        return Amount(self.v + getattr(other, "v", other))

    __radd__ = __add__

    def __iadd__(self, other):
        if other == 0:
            return NotImplemented
        self.v = self.v + getattr(other, "v", other)
        return self

    def __eq__(self, other):
        return self.v == other.v if isinstance(other, Amount) else NotImplemented

    def __lt__(self, other):
        return self.v < other.v

    def __hash__(self):
        return 1

    def __neg__(self):
        return Amount(-self.v)

    def __rsub__(self, other):
        return ("rsub", other, self.v)


class Larger(Amount):
    def __radd__(self, other):
        return ("larger", self.v)


class Strange:
    def __add__(self, other):
        return NotImplemented

    def __rmul__(self, other):
        return "strange"


@case()
def operators(x):
    a, b = Amount(1), Larger(2)
    c = a
    c += 3
    kept = a
    a += 0
    return (
        (Amount(x) + Amount(x)).v,
        a + b,
        (b + Amount(5)).v,
        (7 + Amount(1)).v,
        sum([Amount(1), Amount(2)]).v,
        (c.v, kept.v, a.v),
        (-a).v,
        10 - a,
        3 * Strange(),
    )


@case()
def comparisons(x):
    a, b = Amount(1), Amount(1)
    order = [v.v for v in sorted([Amount(3), Amount(1), Amount(2), Amount(0)], reverse=True)]
    return x, a == b, a != b, a == 3, a != 3, 3 == a, a == Larger(1), a > b, a < Larger(5), order, a == None  # noqa: E711


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass(order=True)
class Ordered:
    x: int


@case()
def dataclass_operators(x):
    return (
        x,
        Point(1) == Point(1),
        Point(1) != Point(2),
        Point(1) == Ordered(1),
        Ordered(1) < Ordered(2),
        Ordered(1) >= Ordered(2),
    )


@case(traces=None, breaks=None)
def operators_that_refuse(x):
    seen = []
    for attempt in (
        lambda: Strange() + 1,
        lambda: Amount(1) + "a",
        lambda: "a" + Amount(1),
        lambda: [1] + Amount(1),
        lambda: Amount(1) <= 2,
        lambda: Amount(1) ** Strange(),
        lambda: Amount(1) < Strange(),
    ):
        try:
            attempt()
        except (TypeError, AttributeError) as error:
            seen.append((type(error), str(error)))
    return x, seen


class Collected:
    def __init__(self, items):
        self.items = list(items)

    def __iadd__(self, more):
        self.items.extend(more)
        return self

    def __add__(self, more):
        return Collected([*self.items, *more])


@case()
def sums_with_lists(x):
    a = Collected([x])
    a += [x + 1]
    layers = torch.nn.ModuleList([torch.nn.ReLU()])
    layers += [torch.nn.Tanh()]
    return a.items, (a + [2]).items, layers[0:1][0](layers[1](x))


@case(calls=6, inputs=signs, traces=None, breaks=None)
def operators_over_exits(x):
    class Picky:
        def __add__(self, other):
            return NotImplemented if other.sum() > 0 else "taken"

    class Taker:
        def __init__(self, t):
            self.t = t

        def sum(self):
            return self.t.sum()

        def __radd__(self, other):
            return "reflected"

    return Picky() + Taker(x), x


@case(calls=6, inputs=signs, traces=None, breaks=None)
def comparisons_seen(x):
    log = []

    class Seen:
        def __init__(self, name, key):
            self.name, self.key = name, key

        def __lt__(self, other):
            log.append((self.name, other.name))
            return bool(self.key < other.key)

    rows = [Seen(i, row.sum()) for i, row in enumerate(x)] + [Seen(9, torch.tensor(0.0))]
    return [r.name for r in sorted(rows)], [r.name for r in sorted(rows, reverse=True)], log


@case()
def membership_by_iteration(x):
    return x, 3 in Holding([1, 3]), 4 not in Holding([1, 3]), 2 in ByIndex(), 9 in ByIndex()


class Holding:
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


class ByIndex:
    def __getitem__(self, i):
        if i > 3:
            raise IndexError
        return i


@SUITE.parametrize()
def test_equal(case: Case):
    check(case)


@SUITE.parametrize()
def test_captured(case: Case):
    check_captured(case)
