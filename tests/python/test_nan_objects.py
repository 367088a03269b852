"""Containers find a NaN by its identity: one that is given, read or older than the call is that very object.

`[a] == [b]`, `a in items`, `{a: 1}[b]` and the like take an object for equal to itself. Numbers go from call to call,
and then come NaNs: the same one twice, two objects, the one that a container holds.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

NAN, OTHER = float("nan"), float("nan")
ITEMS, PAIR, TABLE, MEMBERS = [NAN, 1.0], (NAN, 2.0), {NAN: 1}, {NAN}
Program = Callable[[float, float], Any]


class Holder:
    def __init__(self) -> None:
        self.items = [NAN]
        self.number = NAN
        self.a, self.b = 0.0, 0.0


HOLDER = Holder()


def removed(a: float, b: float) -> Any:
    items = [0.0, a]
    items.remove(b)
    return len(items)


def stored(a: float, b: float) -> Any:
    table = {a: 1}
    table[b] = 2
    return len(table), list(table.values())


def arguments(*given: float) -> Any:
    return given == (HOLDER.number, given[-1])


PROGRAMS: dict[str, Program] = {
    "in a list": lambda a, b: (a in [b], a not in (1.0, b), b in [1.0, a]),
    "lists": lambda a, b: ([a] == [b], [a] != [b], [a, 1] == [b, 1], [1, a] == [2, b]),
    "tuples": lambda a, b: ((a, 1) == (b, 1), (a, 1) != (b, 1), ((a,), 1) == ((b,), 1)),
    "orders": lambda a, b: ((a, 1) < (b, 2), [a, 1] < [b, 2], (a, 1) >= (b, 1)),
    "a dict": lambda a, b: ({a: 1}.get(b), b in {a: 1}, {a: 1}.pop(b, None), len({a: 1, b: 2})),
    "dicts": lambda a, b: ({"n": [a]} == {"n": [b]}, {a: 1} == {b: 1}, {1: a} == {1: b}),
    "stored": stored,
    "least and greatest": lambda a, b: (min([a, b]) is a, max(a, b) is a, sorted([a, 1.0, b])[0] is a),
    "index": lambda a, b: ([1.0, a].index(b), (a, b).index(b), [[a]].index([b])),
    "count": lambda a, b: ([a, b, a].count(a), (a, b).count(b)),
    "remove": removed,
    "sets": lambda a, b: (
        len({a, b}),
        len(set([a, b])),
        {a} == {b},
        {a} <= {b},
        len({a} | {b}),
        len({a} - {b}),
    ),
    "older list": lambda a, b: (a in ITEMS, ITEMS.count(a), [a, 1.0] == ITEMS, ITEMS[:1] == [b]),
    "index in an older list": lambda a, b: ITEMS.index(a),
    "older tuple": lambda a, b: (a in PAIR, (a, 2.0) == PAIR, PAIR.count(b)),
    "older dict": lambda a, b: (a in TABLE, TABLE.get(b)),
    "older set": lambda a, b: (a in MEMBERS, b in MEMBERS),
    "attributes": lambda a, b: (
        HOLDER.items == [a],
        HOLDER.number in [a],
        [HOLDER.number] == [b],
        a in HOLDER.items,
    ),
    "of attributes": lambda a, b: ([HOLDER.a] == [HOLDER.b], {HOLDER.a: 1}.get(HOLDER.b), HOLDER.a in ITEMS),
    "arguments": lambda a, b: arguments(a, b),
    "deque": lambda a, b: collections.deque([a]).count(b),
    "counter": lambda a, b: collections.Counter([a, b]).most_common(1)[0][1],
    "fromkeys": lambda a, b: len(dict.fromkeys([a, b])),
    "operator": lambda a, b: (operator.contains([a], b), operator.countOf([1.0, a], b)),
    "computed": lambda a, b: (a * 1.0 in [a], [a + b] == [a], [-a] == [-a], [a * 2] == [a * 2, 1]),
}
SEQUENCES: dict[str, list[tuple[float, float]]] = {
    "numbers first": [
        (1.5, 1.5),
        (2.5, 3.5),
        (NAN, NAN),
        (NAN, OTHER),
        (OTHER, NAN),
        (OTHER, OTHER),
        (NAN, 2.0),
    ]
    * 2,
    "NaN first": [(NAN, NAN), (NAN, NAN), (OTHER, OTHER), (NAN, OTHER), (1.0, 1.0), (NAN, NAN), (OTHER, NAN)],
    "new ones": [(n, n if k % 2 else float("nan")) for k, n in enumerate(float("nan") for _ in range(12))],
}
BACKENDS: list[Any] = ["eager", "native", pytest.param(lambda graph, _: graph, id="fx")]


def outcome(function: Callable[..., Any], *args: Any) -> str:
    try:
        return repr(function(*args))
    except ValueError as error:
        return repr(error)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", SEQUENCES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager_mode(name: str, order: str, backend: Any) -> None:
    program = PROGRAMS[name]

    def function(x: torch.Tensor, a: float, b: float) -> Any:
        y = x * 2
        return program(a, b), y.tolist()

    compiled = kintsugi.compile(function, backend=backend)
    x = torch.ones(2)
    for at, (a, b) in enumerate(SEQUENCES[order]):
        HOLDER.a, HOLDER.b = a, b
        assert outcome(compiled, x, a, b) == outcome(function, x, a, b)
        if at == 3 and backend == "native":
            kintsugi.wait()


@pytest.mark.parametrize("same", [True, False], ids=["one object", "new objects"])
def test_recordings(same: bool) -> None:
    """A NaN that stays is recorded once; where it is another object in each call, it is a number that varies."""
    compiled = kintsugi.compile(lambda x, n: (x * n, n != n, n > 1), backend="eager")
    for _ in range(12):
        result, unequal, greater = compiled(torch.ones(2), NAN if same else float("nan"))
        assert result.isnan().all() and unequal and not greater
    assert compiled._kintsugi_compiled.stats()["trace_count"] == (1 if same else 2)
    compiled = kintsugi.compile(lambda x, n: (x * 2, n in ITEMS, [n] == [HOLDER.number]), backend="eager")
    for _ in range(5):
        assert compiled(torch.ones(2), NAN)[1:] == (True, True)
    assert compiled._kintsugi_compiled.stats()["trace_count"] == 1
