"""Objects of a call that are reached in two ways (from themselves by a variable, in tuples of dicts) come back once."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi


class Holder:
    n = 0


def instance(x: torch.Tensor) -> Any:
    o = Holder()

    def grow() -> Any:
        o.n += 1
        return o

    o.grow = grow  # type: ignore[attr-defined]
    return x * 2, o, lambda got: (got.grow() is got, got.grow().n)


def mapping(x: torch.Tensor) -> Any:
    d: dict[str, Any] = {}
    d["self"] = lambda: d
    d["n"] = 1
    return x * 2, d, lambda got: (got["self"]() is got, sorted(got["self"]()))


def sequence(x: torch.Tensor) -> Any:
    items: list[Any] = [1]
    items.append(lambda: items)
    return x * 2, items, lambda got: (got[1]() is got, len(got))


def deeper(x: torch.Tensor) -> Any:
    d: dict[str, Any] = {"list": [Holder(), ()]}
    d["list"][0].get = lambda: d["list"]
    d["list"][1] = (lambda: d,)
    return x * 2, d, lambda got: (got["list"][0].get() is got["list"], got["list"][1][0]() is got)


def method(x: torch.Tensor) -> Any:
    def call(self: int) -> Any:
        return bound

    bound = types.MethodType(call, 1)
    return x * 2, bound, lambda got: (got() == got, got().__self__)


def partial(x: torch.Tensor) -> Any:
    def call(n: int) -> Any:
        return made

    made = functools.partial(call, 3)
    return x * 2, made, lambda got: (got() is got, got().args)


def two(x: torch.Tensor) -> Any:
    a, b = Holder(), Holder()
    a.other = lambda: b  # type: ignore[attr-defined]
    b.other = lambda: a  # type: ignore[attr-defined]
    return x * 2, (a, b), lambda got: (got[0].other() is got[1], got[1].other() is got[0])


def recursive(x: torch.Tensor) -> Any:
    def count(n: int) -> int:
        return 0 if n == 0 else 1 + count(n - 1)

    return x * 2, [count], lambda got: (got[0](4), got[0].__closure__[0].cell_contents is got[0])


def at_an_exit(x: torch.Tensor) -> Any:
    o = Holder()

    def grow() -> int:
        o.n += 1
        return o.n

    o.grow = grow  # type: ignore[attr-defined]
    if x.sum() > 5:
        o.grow()  # type: ignore[attr-defined]
    return x * 2, o, lambda got: (got.grow(), got.n)


def into_a_dict(x: torch.Tensor) -> Any:
    a, b = [3], [[1]]
    d: dict[str, Any] = {"l": a}
    d |= {"q": (a, b)}
    return (
        x,
        (a, b, d),
        lambda got: (got[2]["q"][0] is got[0], got[2]["q"][1] is got[1], got[2]["l"] is got[0]),
    )


def by_update(x: torch.Tensor) -> Any:
    a, b = [3], {"n": 1}
    d: dict[str, Any] = {}
    d.update(dict(q=(a, ((b,),))))
    b["m"] = 2
    return x, (a, b, d), lambda got: (got[2]["q"][0] is got[0], got[2]["q"][1][0][0] is got[1], got[2])


def by_merging(x: torch.Tensor) -> Any:
    a = [3]
    d = {"p": (1, (a,))} | {"q": (a,)}
    a.append(4)
    return x, (a, d), lambda got: (got[1]["p"][1][0] is got[0], got[1]["q"][0] is got[0], got[1])


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize(
    "f",
    [
        *(instance, mapping, sequence, deeper, method, partial, two, recursive, at_an_exit),
        *(into_a_dict, by_update, by_merging),
    ],
)
def test_one_object(f: Callable[[torch.Tensor], Any], backend: str) -> None:
    compiled = kintsugi.compile(f, backend=backend)
    for call in range(6):
        x = torch.full((3,), float(call))
        y, expected, look = f(x)
        z, got, _ = compiled(x)
        assert torch.equal(y, z)
        assert look(got) == look(expected), f"call {call}"
        assert type(got) is type(expected)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("make", [iter, enumerate, zip, reversed, lambda items: map(str, items)])
@pytest.mark.parametrize("first", [[], [1]])
def test_iterators_that_have_ended(make: Callable[[Any], Any], first: list[int], backend: str) -> None:
    """An iterator over a list that has ended gives nothing when the list grows."""

    def f(x: torch.Tensor) -> Any:
        items = list(first)
        iterator = make(items)
        for _ in iterator:
            pass
        items.append(5)
        return x * 2, iterator, items

    compiled = kintsugi.compile(f, backend=backend)
    for _ in range(4):
        _, iterator, items = compiled(torch.ones(2))
        _, expected, wanted = f(torch.ones(2))
        assert list(iterator) == list(expected) == [] and items == wanted


@pytest.mark.parametrize("depth", [1000, 30_000])
def test_what_is_nested_deep(depth: int) -> None:
    """Objects that are nested deeper than the C stack allows to describe are left to eager mode."""

    def f(x: torch.Tensor) -> Any:
        t: Any = ()
        for i in range(depth):
            t = [t, i]
        return (x * 3, t) if x.sum() > 5 else (x * 2, t)

    compiled = kintsugi.compile(f, backend="eager")
    for number in (1.0, 3.0, 1.0, 3.0):
        x = torch.full((3,), number)
        result, t = compiled(x)
        assert torch.equal(result, f(x)[0])
        for i in reversed(range(depth)):
            assert t[1] == i
            t = t[0]
        assert t == ()
