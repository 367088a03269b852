"""Code that is not looked into gives a tensor that the call has made an attribute, which hides a method of its class.

It finds the tensor anywhere: as an argument, in a list that the call has filled, in an attribute, in a weak reference.
"""

from __future__ import annotations

import collections
import functools
import operator
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

BOX: list[Any] = []
STATE = {"hides": False}


def attach(t: Any) -> None:
    if STATE["hides"]:
        t.sum = lambda *args: "hidden"


@torch.compiler.disable  # type: ignore[untyped-decorator]
def opaque(box: Any) -> None:
    for t in box:
        attach(t)


class Holder:
    held: Any = None


class Missing(dict[Any, Any]):
    def __missing__(self, key: Any) -> int:
        attach(key)
        return 1


SET = operator.methodcaller("__setattr__", "sum", lambda *args: "hidden")


def of_a_global_list(x: torch.Tensor) -> Any:
    t = x + 1
    BOX[:] = [t]
    opaque(BOX)
    return t.sum()


def of_a_new_list(x: torch.Tensor) -> Any:
    t = x + 1
    opaque([t])
    return t.sum(), t.mean()


def of_a_dict(x: torch.Tensor) -> Any:
    t = x + 1
    opaque({"t": t}.values())
    return t.sum()


def of_an_attribute(x: torch.Tensor) -> Any:
    holder = Holder()
    t = holder.held = x + 1
    opaque([holder.held])
    u = t * 2
    return t.sum(), u.sum()


def of_a_weak_reference(x: torch.Tensor) -> Any:
    t = x + 1
    opaque([weakref.ref(t)()])
    return t.sum()


def of_a_view(x: torch.Tensor) -> Any:
    t = x + 1
    part = t[0]
    opaque([part])
    return part.sum(), t.sum()


def emptied_since(x: torch.Tensor) -> Any:
    t = x + 1
    BOX[:] = [t]
    opaque(BOX)
    BOX.clear()
    method = t.sum
    return method()


def in_a_loop(x: torch.Tensor) -> Any:
    t = x + 1
    for k in range(2):
        opaque([t])
        t = t * 2 if k else t
    return t.sum()


def in_another_function(x: torch.Tensor) -> Any:
    def total(t: Any) -> Any:
        return t.sum(), getattr(t, "sum")(), torch.sum(t), hasattr(t, "extra")

    t = x.clone()
    opaque([t])
    return total(t)


def by_c_functions(x: torch.Tensor) -> Any:
    t = x + 1
    BOX[:] = [t]
    if STATE["hides"]:
        list(map(SET, BOX))
    return t.sum()


def by_callbacks(x: torch.Tensor) -> Any:
    t, u, v, w = x + 1, x + 2, x + 3, x + 4
    collections.deque(map(attach, [t]), 0)
    functools.reduce(lambda a, b: (attach(b), b)[1], [u, u])
    sorted([v], key=lambda one: (attach(one), 0)[1])
    operator.getitem(Missing(), w)
    return t.sum(), u.sum(), v.sum(), w.sum()


def of_an_input(x: torch.Tensor) -> Any:
    same = x.view(-1)
    opaque([same, x])
    return same.sum(), x.sum()


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [shown(item) for item in value] if isinstance(value, tuple) else value


PROGRAMS: list[Callable[..., Any]] = [
    *(
        of_a_global_list,
        of_a_new_list,
        of_a_dict,
        of_an_attribute,
        of_a_weak_reference,
        of_a_view,
        emptied_since,
    ),
    *(in_a_loop, in_another_function, by_c_functions, by_callbacks, of_an_input),
]
ORDERS = [[0, 0, 1, 0, 1, 1], [1, 1, 0, 0, 1], [0, 1, 0, 1]]
BACKENDS: list[Any] = ["eager", "native", pytest.param(lambda graph, _: graph, id="fx")]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", ORDERS, ids=["late", "first", "second"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager_mode(program: Callable[..., Any], order: list[int], backend: Any) -> None:
    compiled = kintsugi.compile(program, backend=backend)
    for call, hides in enumerate(order):
        STATE["hides"] = bool(hides)
        outcomes = [shown(function(torch.ones(3))) for function in (program, compiled)]
        assert outcomes[1] == outcomes[0], call
        if call == 1 and backend == "native":
            kintsugi.wait()
