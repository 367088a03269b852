"""A number is itself: a NaN that a run computes is found by its identity, as `losses.index(min(losses))` has to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

NAN = float("nan")


def index_of_the_greatest(x: torch.Tensor, v: float) -> Any:
    losses = [float(u.sum()) for u in x]
    return losses.index(max(losses)), losses.index(min(losses)), losses.count(losses[0])


def containers(x: torch.Tensor, v: float) -> Any:
    n = x.sum().item()
    return (
        [n].count(n),
        n in [n],
        n in (1, n),
        [n] == [n],
        (n, 1) == (n, 1),
        n in {n: 1},
        {n: 1}.get(n),
        n == n,
    )


def across_steps(x: torch.Tensor, v: float) -> Any:
    n = x.sum().item()
    items, table = [n], {n: 2}
    print(end="")
    other = items[0]
    return items.index(other), table.get(n), n is other, len({n, other}), {other, n} == {n}


def removed(x: torch.Tensor, v: float) -> Any:
    items = [1.0, x.sum().item(), x.max().item()]
    items.remove(items[1])
    return len(items), items[1] in items, [i for i, n in enumerate(items) if n is items[1]]


def argument(x: torch.Tensor, v: float) -> Any:
    items = [0.0, v]
    return v in items, items.index(v), v == v, (v,) == (v,), {v: x.shape}.get(v), v + 1 in [v + 1]


def kept_for_the_caller(x: torch.Tensor, v: float) -> Any:
    n = x.sum().item()
    made = {"a": n, "b": [n, n * 1.0]}
    return made["a"] is made["b"][0], made["b"].index(made["a"]), sorted([n, 1.0], key=math.isnan).index(n)


def behind_a_branch(x: torch.Tensor, v: float) -> Any:
    n, m = x.sum().item(), x.max().item()
    items = [n, m]
    if n > 3:
        items.append(1.0)
    elif n != n:
        items.append(2.0)
    best = max(items)
    return items.index(best), items.count(n), len(items), tuple(items).index(items[-1])


PROGRAMS = [
    index_of_the_greatest,
    containers,
    across_steps,
    removed,
    argument,
    kept_for_the_caller,
    behind_a_branch,
]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("order", ["numbers first", "NaN first", "in turns"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_in_eager_mode(program: Callable[..., Any], order: str, backend: str) -> None:
    numbers = [(torch.arange(4.0).reshape(2, 2) + k, 2.0 + k) for k in range(3)]
    unknown = [(torch.full((2, 2), NAN), NAN), (torch.tensor([[1.0, NAN], [NAN, 2.0]]), float("nan"))]
    calls = numbers + unknown * 2 if order == "numbers first" else unknown * 2 + numbers
    if order == "in turns":
        calls = [call for pair in zip(numbers, unknown * 2, strict=False) for call in pair] * 2
    compiled = kintsugi.compile(program, backend=backend)
    for x, v in calls:
        outcomes = []
        for fn in (program, compiled):
            try:
                outcomes.append(repr(fn(x, v)))
            except ValueError as error:
                outcomes.append(repr(error))
        assert outcomes[1] == outcomes[0]


def test_the_arguments_own_object() -> None:
    compiled = kintsugi.compile(lambda x, v, items: (x + 1, items.index(v), v in items), backend="eager")
    for value in (1.0, 2.0, NAN, NAN, 3.0, NAN):
        number = value * 1.0
        assert compiled(torch.ones(1), number, [0.0, number])[1:] == (1, True)
