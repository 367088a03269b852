"""Ints that 64 bits can't hold, made of ones that they can: no values of a trace, in whichever call they come up."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import shown

import kintsugi

X = torch.Tensor
LARGE = 10**40


def product(x: X, n: int) -> Any:
    result = 1
    for i in range(1, 12 * n):
        result *= i
    return result == LARGE, result, x * n


def in_place(x: X, n: int) -> Any:
    a = 2**62
    a += n * 2**61
    return a == LARGE, a & 7, a | n, ~a, a >> 3, a / 3, a // 3, a % 5, -a, x * n


def branches(x: X, n: int) -> Any:
    k = n * 2**62
    if k > LARGE:
        return x
    return x * 3 if k == 2**63 else x * n


def hashed(x: X, n: int) -> Any:
    h = n
    for c in b"abcdefgh":
        h = (h * 31 + c) * 1000003
    return h & 0xFFFFFFFF, h == LARGE, h % 97, x * (h % 5)


def square(a: int) -> bool:
    return a * a != LARGE


def compared_in_a_callee(x: X, n: int) -> Any:
    return square(10**17 * n), x * n


PROGRAMS: dict[str, Callable[[X, int], Any]] = {
    "product": product,
    "in_place": in_place,
    "branches": branches,
    "hashed": hashed,
    "compared_in_a_callee": compared_in_a_callee,
    "sum": lambda x, n: ((n + 2**62) + 2**62 > LARGE, sum([n * 2**60] * 3) == LARGE, x),
    "difference": lambda x, n: (-(2**62) - n * 2**61 == LARGE, (-n * 2**60 - n * 2**60) // -1 < 2**64, x),
    "smallest": lambda x, n: (-(n * -(2**60)) == LARGE, (n * -(2**60)) // -1 == LARGE, abs(n * -(2**60)), x),
    "of_a_float": lambda x, n: (int(n * 1e300) != LARGE, {int(n * 1e30): 1}, int(float(n) * 2.0**60), x * n),
    "rounded": lambda x, n: (round(n * 1e30) == LARGE, math.floor(n * 1e30) == LARGE, x),
    "of_a_tensor": lambda x, n: (
        int(x.sum().item()) * 2**62 == LARGE,
        int(x.sum().item() * 1e30) == LARGE,
        x,
    ),
    "of_sizes": lambda x, n: (x.size(0) * 2**62 == LARGE, x.numel() * n * 2**61 - 1, x * n),
    "items": lambda x, n: (
        {n * 2**62: 1},
        [n * 2**62] == [LARGE],
        (n * 2**62, 1) < (LARGE, 2),
        range(n * 2**62)[-1],
    ),
    "counted": lambda x, n: ([*range(n * 2**62, n * 2**62 + 3)], [*enumerate("ab", n * 2**62)], x),
    "small_again": lambda x, n: x * (n * 2**60 * 4 // 2**62),
}


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_ints_that_are_made(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    compiled = kintsugi.compile(program, backend=backend)
    for n in (2, 3, 1, 4, 2, 8, 16, 1, 5):
        x = torch.ones(n)
        assert shown(compiled(x, n)) == shown(program(x, n)), n
        kintsugi.wait()


def test_one_trace_for_large_ones() -> None:
    """An operation with such a result is a step, in which nothing is pinned."""
    compiled = kintsugi.compile(lambda x, n: (n * 2**62 + 1, x * 2), backend="eager")
    for n in range(2, 12):
        assert compiled(torch.ones(2), n)[0] == n * 2**62 + 1
    assert compiled.stats().misses <= 3
