"""Numbers that each run computes as keys of older dicts: they are looked up by value, so the call stays on its trace.
Compared with eager mode, call by call, with the state that is left."""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

A = torch.eye(3) * 0.5


LAYER, ACTIVATION = torch.nn.Linear(3, 3), torch.nn.Tanh()


def twice(t: torch.Tensor) -> torch.Tensor:
    return t * 2


class State:
    def __init__(self) -> None:
        self.a = 0
        self.d: dict[Any, Any] = {}
        self.old: dict[Any, Any] = {k: k * 10 for k in range(40)}
        self.ordered: OrderedDict[Any, Any] = OrderedDict()
        self.default: defaultdict[Any, list[Any]] = defaultdict(list)
        self.log: list[Any] = []
        self.functions: dict[Any, Any] = {k: twice if k % 9 == 0 else torch.sin for k in range(60)}
        self.modules: dict[Any, Any] = {k: ACTIVATION if k % 9 == 0 else LAYER for k in range(60)}
        self.kinds: dict[Any, Any] = {k: (k, 0.5 * k, torch.cos)[k // 4 % 3] for k in range(60)}


def store(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    y = t @ t
    s.d[s.a] = y
    return y


def store_then_count(s: State, t: torch.Tensor) -> Any:
    y = t @ t
    s.d[s.a] = y
    s.a += 1
    return y


def within(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    s.d[s.a % 5] = t * 2
    return t + 1


def read_back(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    s.d[s.a] = t * 2
    return s.d[s.a] + 1, s.a in s.d, s.d.get(s.a - 1) is None, len(s.d)


def read_old(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    return t * s.old[s.a], s.old.get(s.a + 1), s.a in s.old, s.a + 50 in s.old


def read_constant_behind(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    s.d["last"] = s.a
    s.d[s.a] = t + 1
    return s.d["last"], 3 in s.d, s.d.get(3, t), list(s.d)[:3]


def popped(s: State, t: torch.Tensor) -> Any:
    s.d[s.a] = s.a
    s.a += 1
    return t @ t, s.d.pop(s.a - 1), s.d.pop(s.a, None), len(s.d)


def set_by_default(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    first = s.d.setdefault(s.a // 2, t * 2)
    return first + 1, sorted(s.d)


def deleted(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    s.d[s.a] = t
    if s.a - 2 in s.d:
        del s.d[s.a - 2]
    return t + 1, list(s.d)


def deleted_old(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    del s.old[s.a]
    return t + 1


def stored_and_deleted(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    s.d[s.a] = t * s.a
    taken = s.d[s.a]
    del s.d[s.a]
    return taken, s.a in s.d, len(s.d)


def constant_deleted_behind(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    s.d["last"] = t
    s.d[s.a] = s.a
    del s.d["last"]
    s.d["last"] = t * 2
    return s.d["last"], list(s.d)


def deleted_or_not(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    try:
        del s.old[s.a * 7]
    except KeyError as error:
        s.log.append(error.args)
    return t * 2, 3 in s.old, s.old.get(s.a)


def missing(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    y = t * 2
    try:
        s.d[s.a]
    except KeyError as error:
        s.log.append(error.args)
    s.d[s.a + 1] = s.a
    return y


def iterated(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    s.d[s.a] = s.a * 2
    return t + 1, sum(s.d.values()), [k for k in s.d], dict(s.d.items())


def other_dicts(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    s.ordered[s.a] = t * 3
    s.default[s.a].append(s.a)
    own = {s.a: 1}
    own[s.a + 1] = 2
    return t - 1, own


def mixed_values(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    s.d[s.a] = t if s.a % 2 else s.a
    s.d[-s.a] = None
    return t + s.a


def of_functions(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    return s.functions[s.a](t) + s.a, s.functions.get(s.a + 1)(t)


def of_modules(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    return s.modules[s.a](t).relu() * s.a


def of_kinds(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    found = s.kinds[s.a]
    return t + found if isinstance(found, (int, float)) else found(t), type(found).__name__


def stored_beside(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    s.kinds[-s.a] = t * 2
    return s.kinds[-s.a] + s.kinds[1]


def swapped(s: State, t: torch.Tensor) -> Any:
    s.a += 1
    s.functions[s.a], s.functions[s.a + 1] = s.functions[s.a + 1], s.functions[s.a]
    return s.functions[s.a](t)


FUNCTIONS: list[Callable[..., Any]] = [
    *(of_functions, of_modules, of_kinds, stored_beside, swapped),
    *(store, store_then_count, within, read_back, read_old, read_constant_behind, popped, set_by_default),
    *(deleted, missing, iterated, other_dicts, mixed_values),
    *(deleted_old, stored_and_deleted, constant_deleted_behind, deleted_or_not),
]


def seen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return [(key, type(key).__name__, seen(item)) for key, item in value.items()]
    return [seen(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_like_eager_mode(function: Callable[..., Any], backend: str) -> None:
    options = {"sync": True} if backend == "native" else {}
    compiled = kintsugi.compile(function, backend=backend, options=options)
    expected, actual = State(), State()
    for call in range(12):
        if call == 8:  # other values, as somebody else may leave them
            for state in (expected, actual):
                state.a += 7
                state.d["other"] = copy.copy(state.d)
                state.d.pop("other")
        assert seen(compiled(actual, A)) == seen(function(expected, A)), call
        assert seen(vars(actual)) == seen(vars(expected)), call


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize(
    "function",
    [
        *(
            store,
            store_then_count,
            within,
            read_old,
            deleted_old,
            stored_and_deleted,
            constant_deleted_behind,
        ),
        stored_beside,
    ],
    ids=lambda f: f.__name__,
)
def test_stays_on_its_trace(function: Callable[..., Any], backend: str) -> None:
    options = {"sync": True} if backend == "native" else {}
    compiled = kintsugi.compile(function, backend=backend, options=options)
    state = State()
    for _ in range(8):
        compiled(state, A)
    before = compiled._kintsugi_compiled.stats()["side_exits"]
    for _ in range(20):
        compiled(state, A)
    assert compiled._kintsugi_compiled.stats()["side_exits"] == before


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("function", [of_functions, of_modules, of_kinds, swapped], ids=lambda f: f.__name__)
def test_leaves_for_what_is_found(function: Callable[..., Any], backend: str) -> None:
    """Where entries are of several kinds, a run leaves its trace when a kind is met first, not for each key."""
    options = {"sync": True} if backend == "native" else {}
    compiled = kintsugi.compile(function, backend=backend, options=options)
    expected, actual = State(), State()
    for _ in range(45):
        assert seen(compiled(actual, A)) == seen(function(expected, A))
    assert compiled._kintsugi_compiled.stats()["side_exits"] <= 4
