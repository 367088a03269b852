"""A number that a call is given, or reads, stays the object that it is: where it is returned, kept, and at exits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

BACKENDS: list[Any] = ["eager", "native", pytest.param(lambda graph, _: graph, id="fx")]
NAN, OTHER_NAN = float("nan"), float("nan")
FLOATS = [(1.5, 2.5), (3.5, 4.5), (7.25,) * 2, (8.5, float("8.5")), (NAN, NAN), (NAN, OTHER_NAN), (7.25,) * 2]
INTS = [(1, 2), (3, 4), (700,) * 2, (701, int("701")), (2**80,) * 2, (2**80, int(str(2**80))), (900,) * 2]
KEPT: list[Any] = []
KNOWN = [7.25, 700]


class Holder:
    def __init__(self, n: Any) -> None:
        self.n = n


def same(x: torch.Tensor, a: Any, b: Any) -> Any:
    return a is b, x * a


def other(x: torch.Tensor, a: Any, b: Any) -> Any:
    return a is not b, x * a + b


def given_back(x: torch.Tensor, a: Any, b: Any) -> Any:
    return x * a, a, [b, a]


def kept(x: torch.Tensor, a: Any, b: Any) -> Any:
    KEPT[:] = [a, b]
    return x + a, KEPT[0] is KEPT[1]


def of_an_object(x: torch.Tensor, a: Any, b: Any) -> Any:
    holder = Holder(a)
    n = holder.n
    holder.n = b
    return x * n, n is a, holder.n is a


def behind_a_branch(x: torch.Tensor, a: Any, b: Any) -> Any:
    y = x * a
    if y.sum() > 20:
        return y, a is b
    return y, b is a, a


def known(x: torch.Tensor, a: Any, b: Any) -> Any:
    return x * a, a is KNOWN[0], b is KNOWN[1]


PROGRAMS = [same, other, given_back, kept, of_an_object, behind_a_branch, known]


def _what(result: Any, a: Any, b: Any) -> Any:
    """The result, with the names of numbers in place of those that are arguments."""
    if isinstance(result, (tuple, list)):
        return type(result)(_what(part, a, b) for part in result)
    if isinstance(result, torch.Tensor):
        return result.tolist() if not result.isnan().any() else "nan"
    return ("a", a is b) if result is a else "b" if result is b else result


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("numbers", [FLOATS, INTS], ids=["floats", "ints"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_arguments(program: Callable[..., Any], numbers: list[Any], backend: Any) -> None:
    compiled = kintsugi.compile(program, backend=backend)
    x = torch.ones(3)
    for a, b in numbers * 2:
        if abs(a) > 2**64:  # torch takes no such number
            continue
        expected, found = program(x, a, b), compiled(x, a, b)
        kintsugi.wait()
        assert _what(expected, a, b) == _what(found, a, b), (a, b)
        if program is kept:
            assert KEPT[0] is a
            assert KEPT[1] is b


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("numbers", [FLOATS, INTS], ids=["floats", "ints"])
def test_attributes(numbers: list[Any], backend: Any) -> None:
    holder, last = Holder(0.5), Holder(None)

    def f(x: torch.Tensor) -> Any:
        n = holder.n
        last.n = n
        return x * n, n

    compiled = kintsugi.compile(f, backend=backend)
    for a, _ in numbers * 2:
        if abs(a) > 2**64:
            continue
        holder.n = a
        _, n = compiled(torch.ones(2))
        kintsugi.wait()
        assert n is a
        assert last.n is a
