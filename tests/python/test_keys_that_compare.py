"""Dicts with keys that have an `__eq__` in Python: look-ups call it as often as in eager mode, recorded too."""

from __future__ import annotations

import copy
import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

LOG: list[str] = []


class Key:
    def __init__(self, n: int) -> None:
        self.n = n

    def __hash__(self) -> int:
        LOG.append(f"hash {self.n}")
        return hash(self.n)

    def __eq__(self, other: object) -> bool:
        LOG.append(f"eq {self.n}")
        return self.n == (other.n if isinstance(other, Key) else other)


TABLE: dict[Any, str] = {Key(3): "three", 4: "four", "five": "5"}
ORDERED = OrderedDict(TABLE)
DEFAULTS: defaultdict[Any, str] = defaultdict(str, TABLE)


def asked(x: torch.Tensor, n: int) -> Any:
    return TABLE.get(n), TABLE[n], n in TABLE, n not in TABLE


def of_a_shape(x: torch.Tensor, n: int) -> Any:
    return TABLE.get(x.shape[0]), TABLE[x.shape[0]], x.shape[0] in TABLE


def of_a_tensor(x: torch.Tensor, n: int) -> Any:
    k = int(x.sum())
    return TABLE.get(k), TABLE[k], k in TABLE, TABLE.get(k + 1, "none")


def of_an_item(x: torch.Tensor, n: int) -> Any:
    k = x.sum().item()
    return TABLE.get(k), k in TABLE


def others(x: torch.Tensor, n: int) -> Any:
    return TABLE.get("five"), "six" in TABLE, TABLE.get(n + 1), n + 2 in TABLE


def own(x: torch.Tensor, n: int) -> Any:
    made = {Key(3): 1, Key(8): 2}
    return made[n], n in made, made.get(n), made.get(n + 5), x + made[n]


def ordered(x: torch.Tensor, n: int) -> Any:
    return ORDERED.get(n), ORDERED[n], n in ORDERED


def defaults(x: torch.Tensor, n: int) -> Any:
    return DEFAULTS[n], DEFAULTS.get(n), n in DEFAULTS


def written(x: torch.Tensor, n: int) -> Any:
    made = {Key(3): 1}
    before = made.setdefault(n, 5)
    taken = made.pop(n)
    return before, taken, n in made


def stored(x: torch.Tensor, n: int) -> Any:
    made = {Key(3): 1, 4: 2}
    made[n] = 5
    made[n + 1] = 6
    made[n + 5] = 7
    return len(made), made[n + 5], x + made[n]


def deleted(x: torch.Tensor, n: int) -> Any:
    made = {Key(3): 1, 4: 2, "x": 3}
    del made["x"]
    del made[n]
    try:
        del made[n]
    except KeyError as error:
        return str(error), list(made.values())


def updated(x: torch.Tensor, n: int) -> Any:
    made = {Key(3): 1, 4: 2}
    made.update({n: 7, 8: 9})
    return len(made), made[n], made[8]


OLD: dict[Any, Any] = {}


def older(x: torch.Tensor, n: int) -> Any:
    OLD.clear()
    OLD[Key(3)] = 1
    OLD[n] = x + 1
    taken = OLD[n]
    del OLD[n]
    OLD[4] = 2
    return taken, list(OLD.values()), len(OLD)


def raises(x: torch.Tensor, n: int) -> Any:
    try:
        return TABLE[n + 96]
    except KeyError as error:
        return str(error)


@pytest.mark.parametrize(
    "program",
    [
        *(asked, of_a_shape, of_a_tensor, of_an_item, others, own, ordered, defaults, written, raises),
        *(stored, deleted, updated, older),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_comparisons(program: Callable[..., Any], dynamic: bool | None, backend: str) -> None:
    options = {"sync": True} if backend == "native" else None
    compiled = kintsugi.compile(program, backend=backend, dynamic=dynamic, options=options)
    x = torch.ones(3)
    for _ in range(4):
        LOG.clear()
        expected = repr(program(x, 3)), list(LOG)
        LOG.clear()
        assert (repr(compiled(x, 3)), LOG) == expected


class Ordered(Key):
    def __lt__(self, other: Ordered) -> bool:
        LOG.append(f"lt {self.n} {other.n}")
        return self.n < other.n


KEYS: list[Any] = [Ordered(2), Ordered(0), Ordered(1)]


def popped(made: dict[Any, int]) -> dict[Any, int]:
    made.pop(KEYS[0])
    return made


def added(made: dict[Any, int]) -> dict[Any, int]:
    made["plain"] = 7
    return made


def iterated(made: dict[Any, int]) -> Any:
    iterator = iter(made.items())
    return next(iterator), next(iter(made.values())), list(iterator)


def stored_each(made: dict[Any, int]) -> Any:
    other: dict[Any, Any] = {}
    for key in made:
        other[key] = other[key, 1] = 3
        other.setdefault(key, 4)
    for key in list(made):
        made[key] = 5
    return other


def deleted_each(made: dict[Any, int]) -> None:
    for key in list(made):
        del made[key]


def updated_each(made: dict[Any, int]) -> Any:
    other: dict[Any, int] = {}
    for key in made:
        other.update({key: 1})
    return other


WHOLE: dict[str, Callable[[dict[Any, int]], Any]] = {
    "copy": lambda made: made.copy(),
    "dict": dict,
    "stars": lambda made: {**made},
    "or": lambda made: made | {"x": 1},
    "or in place": lambda made: operator.ior(made, {"x": 1}),
    "update": lambda made: {}.update(made),
    "copy.copy": copy.copy,
    "fromkeys": dict.fromkeys,
    "ordered": OrderedDict,
    "defaultdict": lambda made: defaultdict(int, made),
    "keys": lambda made: list(made.keys()),
    "values": lambda made: list(made.values()),
    "items": lambda made: list(made.items()),
    "reversed": lambda made: list(reversed(made)),
    "sorted": sorted,
    "sorted items": lambda made: sorted(made.items(), key=lambda item: item[1]),
    "min": min,
    "sum": lambda made: sum(made.values()),
    "loop": lambda made: [value for value in made.values()],
    "comprehension": lambda made: {key: value for key, value in made.items()},
    "zip": lambda made: list(zip(made, made.values(), strict=True)),
    "iterators": iterated,
    "popitem": lambda made: made.popitem(),
    "clear": lambda made: made.clear(),
    "equal": lambda made: made == dict(made),
    "set": set,
    "values behind a deletion": lambda made: list(popped(made).values()),
    "items behind a deletion": lambda made: list(popped(made).items()),
    "keys behind an addition": lambda made: list(added(made)),
    "values behind an addition": lambda made: list(added(made).values()),
    "tuples": lambda made: list({(key, 1): 2 for key in made}.items()),
    "gets": lambda made: [made.get(key) for key in made],
    "subscripts": lambda made: [made[key] for key in made],
    "next": lambda made: made[next(iter(made))],
    "defaults": lambda made: [made.setdefault(key, 4) for key in made],
    "pops": lambda made: [made.pop(key) for key in list(made)],
    "members": lambda made: [key in made for key in made],
    "of a set": lambda made: len({key for key in made} | {(key, 1) for key in made}),
    "displays": lambda made: [({key: 2}, {(key, 1): 2}) for key in made],
    "pairs": lambda made: dict(zip(made, (1, 2, 3), strict=True)),
    "stores": stored_each,
    "deletions": deleted_each,
    "updates": updated_each,
    "ordered clear": lambda made: OrderedDict(made).clear(),
    "ordered popitem": lambda made: OrderedDict(made).popitem(last=False),
    "nested": lambda made: {key: dict(made) for key in (1, 2)},
}


@pytest.mark.parametrize("name", list(WHOLE))
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_whole_dicts(name: str, own: bool, backend: str) -> None:
    """What takes a dict as a whole hashes and compares its keys as often as C code does."""
    whole = WHOLE[name]

    def program(x: torch.Tensor, made: dict[Any, int]) -> Any:
        y = x + 1
        if own:
            made = {key: n for n, key in enumerate(KEYS)}
        return whole(made), y

    options = {"sync": True} if backend == "native" else None
    compiled = kintsugi.compile(program, backend=backend, options=options)
    x = torch.ones(3)
    for call in range(4):
        seen = []
        for function in (program, compiled):
            made = {key: n for n, key in enumerate(KEYS)}
            LOG.clear()
            result = function(x, made)
            told = list(LOG)
            shown = {id(key): f"key {n}" for n, key in enumerate(KEYS)}
            seen.append((told, describe(result, shown), describe(made, shown)))
        assert seen[0] == seen[1], call


def describe(value: Any, shown: dict[int, str]) -> Any:
    if id(value) in shown:
        return shown[id(value)]
    if isinstance(value, dict):
        return type(value).__name__, [describe(item, shown) for item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [describe(item, shown) for item in value]
    if isinstance(value, set):
        return {shown[id(item)] for item in value}
    return repr(value)
