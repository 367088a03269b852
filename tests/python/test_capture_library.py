"""Deques, getters, kept map objects, regular expressions, members of enums: as eager has them."""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import itertools
import operator
import re
import types
from typing import Any

import pytest
import torch
from harness import Case, Suite, check, check_captured, floats, signs
from torch import nn

import kintsugi

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


# --- deques ---


@case()
def deque_of_the_trace(x):
    d = collections.deque([x, x + 1], maxlen=3)
    d.append(x * 2)
    d.appendleft(x * 3)
    d.extend((1, 2))
    d.extendleft([x, 4])
    d.rotate(-1)
    last, first = d.pop(), d.popleft()
    e = d.copy()
    e.reverse()
    e.append(5)
    return last, first, d, list(e), len(d), bool(d), d[0], [v for v in e], e.maxlen


@case()
def deque_of_what(x):
    d = collections.deque({"a": 1, "b": 2}.items())
    d.rotate(5)
    d.rotate(0)
    e = collections.deque(v * 2 for v in (x, 1, 2))
    e.clear()
    return (
        x,
        d,
        e,
        collections.deque(),
        collections.deque("abc", 2),
        collections.deque(iterable=[1], maxlen=None),
    )


@case()
def deque_handed_out(x):
    d = collections.deque([1, 2])
    both = [d, d]
    d.append(x)
    return both, d


@case(traces=None, breaks=None)
def deque_raises(x):
    d = collections.deque()
    seen = []
    try:
        d.pop()
    except IndexError as error:
        seen.append(str(error))
    try:
        collections.deque([], -1)
    except ValueError as error:
        seen.append(str(error))
    return x, seen


@case(calls=6, inputs=signs, traces=None, breaks=None)
def deque_over_exits(x):
    d = collections.deque([x], maxlen=2)
    for row in x:
        if row.sum() > 0:
            d.append(row * 2)
        else:
            d.appendleft(row)
    return d, d.maxlen


@factory(calls=6, inputs=signs, traces=None, breaks=None)
def make_deque_of_the_caller():
    history: collections.deque[Any] = collections.deque(maxlen=2)

    def f(x):
        fresh = collections.deque([x])
        history.append(fresh)
        if x.sum() > 0:
            fresh.append(1)
        fresh.append(2)
        return len(fresh), len(history), x

    return f, history


# --- getters ---

SECOND = operator.itemgetter(1)
SHAPED = operator.attrgetter("shape", "T.dtype")
SUMMED = operator.methodcaller("sum", dim=0)


@case()
def getters(x):
    pair = operator.itemgetter(1, 0)
    nested = operator.attrgetter("a.b")
    space = types.SimpleNamespace(a=types.SimpleNamespace(b=x * 2))
    return (
        SECOND([x, x + 1]),
        SHAPED(x),
        SUMMED(x),
        pair((x, 1)),
        nested(space),
        operator.methodcaller("add", 2)(x),
    )


@case()
def getters_as_keys(x):
    rows = [("b", 1), ("a", 2), ("a", 0)]
    firsts = list(map(operator.itemgetter(0), rows))
    return x, sorted(rows, key=SECOND), max(rows, key=operator.itemgetter(0, 1)), firsts


@case()
def getters_handed_out(x):
    get = operator.itemgetter("k")
    call = operator.methodcaller("sub", x, alpha=2)
    return get, call(x * 3), [get, get]


@case(traces=None, breaks=None)
def getters_that_raise(x):
    seen = []
    for get, of in ((SECOND, [1]), (operator.attrgetter("missing.too"), x), (operator.itemgetter("k"), {})):
        try:
            get(of)
        except (IndexError, AttributeError, KeyError) as error:
            seen.append((type(error), str(error)))
    return x, seen


@case(calls=6, inputs=signs, traces=None, breaks=None)
def getters_over_exits(x):
    class_of = operator.methodcaller("item")
    total = 0
    for row in x.sum(1):
        if class_of(row) > 0:
            total = total + row
    return total, class_of


# --- map and filter objects that are kept ---


@case()
def kept_maps(x):
    m = map(lambda a, b: a * b, [x, x + 1, x + 2], (1, 2, 3, 4))
    first = next(m)
    rest = [v for v in m]
    return first, rest, next(m, "over"), list(m)


@case()
def kept_filters(x):
    source = iter([1, 0, 2, 3])
    some = filter(None, source)
    one = next(some)
    odd = filter(lambda v: v % 2, source)
    return x * one, list(odd), list(some), next(source, "over")


@case()
def map_unpacked(x):
    m = map(lambda v: x + v, (1, 2, 3))
    a, *rest = m
    b, c = map(str, (1, 2))
    d = [*map(len, ("a", "bb"))]
    return a, rest, b, c, d, max(*map(abs, (-3, 2)))


@case()
def map_of_map(x):
    inner = map(lambda v: v + 1, [x, x * 2])
    outer = map(torch.sin, inner)
    total = sum(outer)
    return total, list(inner), dict(map(lambda k: (k, x), "ab"))


@case()
def map_handed_out(x):
    m = map(abs, [1, -2, -3])
    next(m)
    return x, m, [m]


@case(calls=6, inputs=signs, traces=None, breaks=None)
def kept_map_over_exits(x):
    seen = []

    def look(row):
        seen.append("looked")
        return row * 2 if row.sum() > 0 else row - 1

    m = map(look, x)
    out = []
    for row in m:
        if row.sum() > 0.5:
            break
        out.append(row)
    left = filter(lambda r: bool(r.sum() > 0), m)
    return out, list(left), seen


@case(traces=None, breaks=None)
def map_that_raises(x):
    def stop(v):
        if v == 2:
            raise StopIteration
        return v

    m = map(stop, (1, 2, 3))
    seen = [list(m), list(m)]
    try:
        next(map(stop, ()))
    except StopIteration:
        seen.append("stopped")
    return x, seen


@case()
def iterators_taken_at_once(x):
    numbered = [(i, v) for i, v in zip(itertools.count(1), (x, x + 1))]
    turned = [v for v in itertools.islice(itertools.cycle("ab"), 3)]
    chosen = list(itertools.compress((x, 1, 2), (1, 0, 1)))
    orders = (
        list(itertools.permutations("abc", 2)),
        list(itertools.permutations(())),
        list(itertools.permutations((1,), 2)),
    )
    return numbered, turned, chosen, orders, list(enumerate(map(abs, (-1, 2)), 5))


# --- regular expressions ---

NUMBER = re.compile(r"(?P<name>\w+)\.(\d+)")


@case()
def patterns(x):
    m = NUMBER.match("layer.12.weight")
    missing = re.search("z+", "layer")
    parts = re.split(r"[.]", "a.b")
    parts.append(x)
    return (
        x * int(m[2]),
        m.group("name", 2),
        m.groupdict(),
        m.span(),
        missing is None,
        bool(m),
        parts,
        re.sub(r"(\d)", r"<\1>", "a1"),
        re.fullmatch("a|b", "b").end(),
        m.re is NUMBER,
        m.string,
    )


@case(inputs=lambda call: (floats((2,))(call)[0], f"w{call % 2}.{call % 2}"), traces=None, breaks=None)
def patterns_of_arguments(x, name):
    m = re.match(r"w(\d)\.(\d)", name)
    return (
        x + int(m[1]),
        re.sub(r"\d", lambda found: found[0] * 2, name),
        [v.group() for v in re.finditer(r"\d", name)],
    )


# --- classes of lists, callables with a sentinel, singledispatch ---


class Row(list):
    def total(self):
        return sum(self)


@case()
def classes_of_lists(x):
    row = Row([x, x + 1])
    row.append(x * 2)
    copy = Row(row)
    copy.pop()
    return row, row.total(), row[1:], len(copy), copy, type(copy) is Row, isinstance(Row(), list), Row((1, 2))


@case(calls=6, inputs=signs, traces=None, breaks=None)
def classes_of_lists_over_exits(x):
    row = Row()
    for part in x:
        if part.sum() > 0:
            row.append(part)
    row.extend([1])
    return row, Row


@case()
def until_a_sentinel(x):
    rest = [1, 2, 0, 3]
    seen = [v for v in iter(lambda: rest.pop(0), 0)]
    return x, seen, rest


@functools.singledispatch
def described(value):
    return ("object", value)


@described.register
def _(value: int):
    return ("int", value + 1)


@described.register(list)
def _(value):
    return ("list", [described(v) for v in value])


class Describing:
    @functools.singledispatchmethod
    def tell(self, value):
        return value

    @tell.register
    def _(self, value: torch.Tensor):
        return value * 2


# In the first patch releases of CPython 3.13 a weak reference to the object is made: see test_capture_classes.py.
KEEPS_METHODS = hasattr(functools.singledispatchmethod(print), "_method_cache")


@case(traces=None if KEEPS_METHODS else 1, breaks=None if KEEPS_METHODS else 0)
def single_dispatch(x):
    return (
        described(1),
        described("a"),
        described([1, x]),
        Describing().tell(x),
        Describing().tell(3),
        described(True),
    )


def test_an_implementation_that_is_registered_later():
    @functools.singledispatch
    def told(value):
        return "object"

    compiled = kintsugi.compile(lambda x: (told(1), x + 1), backend="eager")
    assert [compiled(torch.ones(1))[0] for _ in range(3)] == ["object"] * 3
    told.register(int, lambda value: "int")
    assert [compiled(torch.ones(1))[0] for _ in range(3)] == ["int"] * 3


# --- tensors that a trace can't describe ---


class Marked(torch.Tensor):
    mark = "marked"


@factory(inputs=lambda call: floats((4, 4), (4, 4))(call), breaks=None)
def make_sparse_arguments():
    adjacency = torch.eye(4).to_sparse()
    lin = nn.Linear(4, 4)
    nn.init.constant_(lin.weight, 0.25), nn.init.zeros_(lin.bias)

    def f(x, y):
        h = lin(x).relu()
        h = torch.sparse.mm(adjacency, h)
        s = (x > 0).float().to_sparse()
        mixed = s @ y + adjacency @ h
        return h * 2, mixed, s.to_dense(), adjacency.shape, s.is_sparse, s

    return f


@case(inputs=lambda call: (floats((2, 3))(call)[0].as_subclass(Marked), *floats((2, 3))(call)), breaks=None)
def arguments_of_a_class_of_tensors(x, y):
    z = y.relu() + 1
    w = x + z
    w.mul_(2)
    return w, type(w) is Marked, x.mark, x.shape, torch.cat([x, y]), z * 2, x[0].sum(), isinstance(y, Marked)


@case(
    calls=6,
    inputs=lambda call: (floats((2, 3))(call)[0].as_subclass(Marked if call % 2 else torch.Tensor),),
    traces=None,
    breaks=None,
)
def a_class_of_tensors_now_and_then(x):
    return x * 2, type(x) is Marked, torch.ones(2) + 1


# --- lists that are emptied, dicts that are filled ---


@factory(calls=6)
def make_lists_emptied():
    log: list[Any] = []
    other = [1, 2, 3]

    def f(x):
        del log[:]
        log.append("one")
        other.clear()
        other.extend([x, len(log)])
        log.append(len(other))
        other[0] = 5
        return x, list(log), other[0]

    def grow(x):
        result = f(x)
        return result

    return grow, log, other


@factory(calls=6, traces=None, breaks=None)
def make_emptied_in_between():
    log: list[Any] = []
    calls = [0]

    @kintsugi.disable
    def more():
        calls[0] += 1
        log.extend(range(calls[0]))

    def f(x):
        more()
        before = len(log)
        log.clear()
        log.append(before)
        return x, before, log[0]

    return f, log


@case()
def dicts_of_pairs(x):
    d = {"a": 1}
    d.update([("b", x), ["c", 2]])
    d.update((k, v) for k, v in zip("de", (3, x + 1)))
    od = collections.OrderedDict([("b", 1), ("a", 2), ("c", x)])
    od.move_to_end("b")
    od.move_to_end("c", last=False)
    od.update({"z": 0})
    return d, od, list(od)


@case(traces=None, breaks=None)
def dicts_of_wrong_pairs(x):
    seen = []
    for attempt in (
        lambda: {}.update([(1, 2, 3)]),
        lambda: collections.OrderedDict([(1,)]),
        lambda: collections.OrderedDict([()]),
        lambda: collections.OrderedDict([(1, 2, 3)]),
        lambda: collections.OrderedDict(a=1).move_to_end("b"),
    ):
        try:
            attempt()
        except (TypeError, ValueError, KeyError) as error:
            seen.append((type(error), str(error)))
    return x, seen


# --- context managers, named tuples, members, namespaces ---


class Noted:
    def __init__(self, log, name, swallow=False):
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self):
        self.log.append(("enter", self.name))
        return self

    def __exit__(self, kind, error, tb):
        self.log.append(("exit", self.name, kind))
        return self.swallow


@case(calls=6, inputs=signs, traces=None, breaks=None)
def exit_stack_over_exits(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(Noted(log, "a"))
        stack.enter_context(Noted(log, "b", swallow=True))
        stack.callback(log.append, "called")
        if x.sum() > 0:
            raise ValueError("x")
        log.append("body")
    with contextlib.suppress(KeyError), contextlib.ExitStack() as stack:
        stack.push(lambda *details: log.append(details[0]))
        log.append({}["k"])
    return x, log


Pair = collections.namedtuple("Pair", "a b", defaults=(1,))


@case()
def named_tuples_made(x):
    p = Pair._make([x, 2])
    q = p._replace(b=x + 1)
    return p, q, Pair(*map(torch.sin, (x, x))), Pair._make(v for v in (1, 2)), q._asdict()


class Kind(enum.Enum):
    ONE = "one"
    TWO = "two"

    @property
    def upper(self):
        return self.value.upper()


@case(inputs=lambda call: (floats((2,))(call)[0], list(Kind)[call % 2]), traces=2)
def members(x, kind):
    if kind is Kind.ONE:
        x = x + 1
    try:
        x = x + Kind.THREE.value
    except AttributeError:
        x = x * 2
    return x, kind.upper, Kind["TWO"], Kind("one") == kind, hasattr(Kind, "TWO")


@factory()
def make_namespaces():
    holder = types.SimpleNamespace(a=1, b=2)

    def f(x):
        del holder.a
        holder.a = x.shape[0]
        fresh = types.SimpleNamespace(c=3)
        del fresh.c
        return x, holder.a, hasattr(fresh, "c"), types.MethodType(lambda self, y: (self, y), 3)(x)

    return f, holder


# --- parameters that are swapped ---


@factory(calls=4, breaks=None)
def make_functional_calls():
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    m[2].weight = m[0].weight
    for p in m.parameters():
        nn.init.constant_(p, 0.5)

    def f(x):
        given = {"0.weight": m[0].weight * 2, "0.bias": x.sum(0)}
        out = torch.func.functional_call(m, given, (x,))
        return out, m(x), sorted(given)

    return f, m


# --- steps that give back what the trace has made ---


def _given_back(sometimes: bool) -> Any:
    count = [0]

    @kintsugi.disable
    def give(x):
        count[0] += 1
        return x if (count[0] > 3) is sometimes else x + 1

    return give


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_step_that_gives_back_its_argument_or_another(first, wrapped):
    def make():
        give = _given_back(first)

        def f(x):
            y = x * 2
            z = [give(y)][0] if wrapped else give(y)
            same = z is y
            w = z + 1
            z.mul_(3)
            return w, y, same

        return f

    eager, compiled = make(), kintsugi.compile(make(), backend="eager")
    for _ in range(8):
        for mine, theirs in zip(compiled(torch.ones(2)), eager(torch.ones(2)), strict=True):
            assert torch.equal(mine, theirs) if isinstance(mine, torch.Tensor) else mine == theirs


def test_a_list_of_the_program_that_gives_back_a_tensor():
    def make():
        kept: list[torch.Tensor] = []
        count = [0]

        @kintsugi.disable
        def keep(x):
            count[0] += 1
            kept[:] = [x if count[0] < 4 else x * 10]

        def f(x):
            y = x + 1
            keep(y)
            return kept[0] * 2, kept[0] is y

        return f

    eager, compiled = make(), kintsugi.compile(make(), backend="eager")
    for _ in range(7):
        mine, theirs = compiled(torch.ones(2)), eager(torch.ones(2))
        assert torch.equal(mine[0], theirs[0])
        assert mine[1] == theirs[1]


@SUITE.parametrize()
def test_equal(case: Case):
    check(case)


@SUITE.parametrize()
def test_captured(case: Case):
    check_captured(case)
