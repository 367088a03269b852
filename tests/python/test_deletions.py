"""Keys and attributes that a compiled function deletes, and that another thread deletes first."""

from __future__ import annotations

import collections
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import Case, Suite, check, check_captured

import kintsugi

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


# --- deletions with hooks of the class ---


@factory()
def make_delattr_in_python():
    log: list[str] = []

    class Logged:
        def __delattr__(self, name: str) -> None:
            log.append(name)
            super().__delattr__(name)

    one = Logged()

    def f(x):
        one.k = 1
        y = x * 2
        del one.k
        return y, hasattr(one, "k")

    return f, one, log


@factory(traces=2)
def make_delattr_of_a_base():
    log: list[str] = []

    class Base:
        def __delattr__(self, name: str) -> None:
            log.append(name)
            object.__delattr__(self, name)

    class Slotted(Base):
        def __delattr__(self, name: str) -> None:
            log.append("slotted")
            super().__delattr__(name)

    one = Slotted()
    one.k = 1

    def f(x):
        if hasattr(one, "k"):
            del one.k
        else:
            one.k = 2
        return x + 1, hasattr(one, "k")

    return f, one, log


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)


# --- another thread is faster ---

ACT: Callable[[], None] | None = None


@torch.library.custom_op("kintsugi_test::let_others_act", mutates_args=())
def let_others_act(x: torch.Tensor) -> torch.Tensor:
    if ACT is not None:
        other = threading.Thread(target=ACT)
        other.start()
        other.join()
    return x.clone()


@let_others_act.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Box:
    k: int


KEYS: dict[str, int] = {}
ORDERED: collections.OrderedDict[str, int] = collections.OrderedDict()
BOX = Box()


def reset() -> None:
    BOX.k = 1
    for keys in (KEYS, ORDERED):
        keys.clear()
        keys.update(a=0, k=5)


def delete_all() -> None:
    vars(BOX).pop("k", None)
    for keys in (KEYS, ORDERED):
        keys.pop("k", None)


def state() -> Any:
    return hasattr(BOX, "k"), list(KEYS.items()), list(ORDERED.items())


def pop(x):
    return let_others_act(x) * 2, KEYS.pop("k")


def pop_or(x):
    return let_others_act(x) * 2, KEYS.pop("k", None)


def pop_or_of_an_ordered_dict(x):
    return let_others_act(x) * 2, ORDERED.pop("k", "nothing")


def popitem(x):
    return let_others_act(x) * 2, KEYS.popitem()


def del_key(x):
    y = let_others_act(x) * 2
    del KEYS["k"]
    return y


def del_key_or(x):
    y = let_others_act(x) * 2
    try:
        del KEYS["k"]
    except KeyError as error:
        return y, error.args
    return y


def pop_in_a_key(x):
    return let_others_act(x) * 2, sorted([1, 2], key=lambda i: KEYS.pop("k", i))


def del_attribute(x):
    y = let_others_act(x) * 2
    del BOX.k
    return y


def outcome(function: Callable[..., Any], act: Callable[[], None] | None) -> Any:
    global ACT
    reset()
    ACT = act
    try:
        result = function(torch.ones(2))
        told: Any = [value.tolist() if isinstance(value, torch.Tensor) else value for value in result]
    except Exception as error:
        lines = [
            (f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__
        ]
        told = type(error), error.args, getattr(error, "name", None), lines[1:]
    finally:
        ACT = None
    return told, state()


RACES = [
    pop,
    pop_or,
    pop_or_of_an_ordered_dict,
    popitem,
    del_key,
    del_key_or,
    pop_in_a_key,
    del_attribute,
]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("function", RACES, ids=lambda f: f.__name__)
def test_another_thread_deletes_first(function: Callable[..., Any], backend: str) -> None:
    """What a guard has seen is gone when the run gets to the deletion: the instruction says what follows."""
    options = {"sync": True} if backend == "native" else None
    compiled = kintsugi.compile(function, backend=backend, options=options)
    for act in (None, None, delete_all, None, delete_all, delete_all, None):
        assert outcome(compiled, act) == outcome(function, act)
    stats = compiled.stats()
    assert stats.hits == 6, stats
