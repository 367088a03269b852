"""sum() gives what CPython's own gives: from 3.12 on it adds floats with a compensation, from 3.14 on complex ones."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

import pytest
import torch
from harness import describe

import kintsugi
from kintsugi._polyfill_reductions import sum_


class Whole(int):
    def __add__(self, other: Any) -> Any:
        return "whole"

    def __radd__(self, other: Any) -> Any:
        return 0.5

    def __float__(self) -> float:
        return 100.0


class Real(float):
    pass


class Imaginary(complex):
    pass


class Becomes:
    """The sum with it is a number of the program's choice."""

    def __init__(self, number: Any) -> None:
        self.number = number

    def __radd__(self, other: Any) -> Any:
        return self.number


MAKERS: list[Callable[[], Any]] = [
    lambda: 0.1,
    lambda: 1e16,
    lambda: -1e16,
    lambda: 1.0,
    lambda: -0.0,
    lambda: 1e308,
    lambda: float("inf"),
    lambda: float("nan"),
    lambda: 3,
    lambda: True,
    lambda: 2**62,
    lambda: -(2**63),
    lambda: 2**63,
    lambda: 10**400,
    lambda: 1j,
    lambda: complex(1e16, -0.1),
    lambda: Whole(7),
    lambda: Real(0.1),
    lambda: Imaginary(0.3, 1e16),
    lambda: Fraction(1, 3),
    lambda: Becomes(0.1),
    lambda: Becomes(1e16 + 1j),
    lambda: Becomes(4),
]
COMMON = MAKERS[:4] + MAKERS[8:10]


def outcome(add: Callable[..., Any], values: list[Any], start: Any) -> Any:
    """The result, and how many items were taken."""
    taken = 0

    def items() -> Iterator[Any]:
        nonlocal taken
        for value in values:
            taken += 1
            yield value

    try:
        return describe(add(items(), *start)), taken
    except (OverflowError, TypeError) as error:
        return type(error), str(error), taken


@pytest.mark.parametrize("seed", range(20))
def test_the_polyfill_is_cpythons(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(400):
        makers = [
            chance.choice(COMMON if chance.random() < 0.8 else MAKERS) for _ in range(chance.randrange(12))
        ]
        start = [chance.choice(MAKERS)()] if chance.random() < 0.3 else []
        values = [make() for make in makers]
        assert outcome(sum_, values, start) == outcome(sum, values, start), (values, start)


def of_items(x: torch.Tensor, n: Any) -> Any:
    return sum(v.item() for v in x), x * 2


def with_a_start(x: torch.Tensor, n: Any) -> Any:
    return sum((v.item() for v in x), n), sum((v.item() for v in x), start=n)


def of_a_list_of_items(x: torch.Tensor, n: Any) -> Any:
    values = [v.item() for v in x]
    return sum(values), sum(values, n), sum([n, *values])


def of_constants(x: torch.Tensor, n: Any) -> Any:
    return sum(0.1 for _ in range(len(x))), sum((0.1 * k for k in range(7)), start=n), x + 1


def of_ints_and_floats(x: torch.Tensor, n: Any) -> Any:
    return sum(len(x) if k % 2 else v.item() for k, v in enumerate(x)), x


def numbers_before_tensors(x: torch.Tensor, n: Any) -> Any:
    return sum(v if k > 2 else v.item() for k, v in enumerate(x)), sum([0.1, n, 0.2, x[0].item(), x])


def reaches_tensors(x: torch.Tensor, n: Any) -> Any:
    return x * sum(v.item() for v in x)


def by_a_partial(x: torch.Tensor, n: Any) -> Any:
    add = functools.partial(sum)
    return add(v.item() for v in x), list(map(sum, [(0.1 for _ in x), (k for k in range(4))]))


class Items:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __iter__(self) -> Iterator[Any]:
        for value in self.x:
            yield value.item()


def of_an_object(x: torch.Tensor, n: Any) -> Any:
    return sum(Items(x)), sum(Items(x), n), functools.partial(sum, Items(x))()


def with_an_exit(x: torch.Tensor, n: Any) -> Any:
    def items() -> Iterable[float]:
        for value in x:
            yield value.item() if value > 0.15 else 0.1
            yield 0.2

    return sum(items())


def sizes(x: torch.Tensor, n: Any) -> Any:
    return x.new_ones(sum(size for size in x.shape)), sum(k for k in x.shape)


def too_large(x: torch.Tensor, n: Any) -> Any:
    taken = []

    def items() -> Iterator[Any]:
        for value in (0.5, 10**400, 0.1):
            taken.append(value)
            yield value

    try:
        return sum(items())
    except OverflowError as error:
        return str(error), len(taken), x + n


def refused(x: torch.Tensor, n: Any) -> Any:
    problems = []
    for call in (lambda: sum((v for v in x), ""), lambda: sum((v for v in x), stop=1), lambda: sum(3)):
        try:
            call()
        except TypeError as error:
            problems.append(str(error))
    return problems, x + 1


PROGRAMS = [
    of_items,
    with_a_start,
    of_a_list_of_items,
    of_constants,
    of_ints_and_floats,
    numbers_before_tensors,
    reaches_tensors,
    by_a_partial,
    of_an_object,
    with_an_exit,
    sizes,
    too_large,
    refused,
]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program: Callable[..., Any], backend: str) -> None:
    compiled = kintsugi.compile(program, backend=backend)
    inputs = [
        ([0.1] * 10, 0.1),
        ([1e16, 1.0, 1.0, -1e16], 0.5),
        ([0.1, 0.2, 0.3], 3),
        ([0.7, 1e16, 0.1, -1e16, 0.3], -0.0),
        ([float("inf"), 1.0, -1.0], 2),
        ([0.1] * 10, 0.3),
        ([0.0, 0.1, 0.2, 0.3, 0.7], 1e16),
    ]
    for values, n in inputs * 2:
        x = torch.tensor(values, dtype=torch.float64)
        assert describe(compiled(x, n)) == describe(program(x, n))
        kintsugi.wait()


@pytest.mark.parametrize("program", [of_items, of_a_list_of_items, reaches_tensors, with_a_start])
def test_sums_of_items_are_captured(program: Callable[..., Any]) -> None:
    compiled = kintsugi.compile(program)
    for turn in range(12):
        x = torch.tensor([0.1 * turn, 0.7, 1e16, 0.3], dtype=torch.float64)
        assert describe(compiled(x, 0.5)) == describe(program(x, 0.5))
    stats = compiled.stats()
    assert (stats.trace_count, stats.misses, stats.side_exits, stats.graph_break_count) == (1, 1, 0, 0)
