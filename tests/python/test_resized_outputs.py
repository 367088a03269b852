"""Warnings of an `out=` tensor that is resized: text, category, place and number are eager mode's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi


def of_symbols(x: torch.Tensor) -> Any:
    out = x.new_empty(x.shape[0])
    torch.add(x, 1, out=out)
    return out


def product(x: torch.Tensor) -> Any:
    out = torch.empty(x.shape[0])
    torch.matmul(x, x.t(), out=out)
    return out + 1


def joined(x: torch.Tensor) -> Any:
    out = x[0].clone()
    torch.cat([x, x], out=out)
    return out.sum()


def of_a_sum(x: torch.Tensor) -> Any:
    out = x.sum(0)
    torch.mul(x, 2, out=out)
    return out


def masked(x: torch.Tensor) -> Any:
    out = torch.empty(2)
    torch.add(x[x > 0.5], 1, out=out)
    return out


def masked_twice(x: torch.Tensor) -> Any:
    out, other = torch.empty(2), torch.empty(2)
    torch.add(x[x > 0.5], 1, out=out)
    torch.mul(out, 2, out=other)
    return other.sum() * x, out


def places(x: torch.Tensor) -> Any:
    out = torch.empty(2, dtype=torch.long)
    torch.nonzero(x > 0.5, out=out)
    return out


def two(x: torch.Tensor) -> Any:
    values, indices = torch.empty(1), torch.empty(1, dtype=torch.long)
    torch.max(x, 0, out=(values, indices))
    return values, indices


def in_a_loop(x: torch.Tensor) -> Any:
    out = x.new_empty(x.shape[0])
    for _ in range(2):
        torch.add(x, 1, out=out)
        out = x.new_empty(2)
    return out.zero_()


def fitting(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    torch.mul(x, 2, out=out)
    return out


def plain(graph: Any, _: Any) -> Any:
    return graph


PROGRAMS = [of_symbols, product, joined, of_a_sum, masked, masked_twice, places, two, in_a_loop, fitting]


def outcome(function: Callable[..., Any], x: torch.Tensor, shown: str) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(shown)  # type: ignore[arg-type]
        made = function(x)
    told = [(str(one.message), one.category, one.filename, one.lineno) for one in caught]
    return repr(made), getattr(made, "shape", None), told


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("backend", ["eager", "native", pytest.param(plain, id="fx"), "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_warnings(program: Callable[..., Any], backend: Any, dynamic: bool | None) -> None:
    compiled = kintsugi.compile(program, backend=backend, dynamic=dynamic)
    before = list(warnings.filters)
    for call in range(8):
        x = torch.zeros(3 + call // 2, 3)
        x.view(-1)[: (2, 2, 3, 3, 2, 4, 3, 5)[call]] = 0.75
        for shown in ("always", "default"):
            assert outcome(compiled, x, shown) == outcome(program, x, shown), call
        if call == 2 and backend == "native":
            kintsugi.wait()
    assert list(warnings.filters) == before
