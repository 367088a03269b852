"""Dicts with keys that have an `__eq__` in Python: look-ups call it as often as in eager mode, recorded too."""

from __future__ import annotations

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
