"""Numbers that a dtype, or 64 bits, can't hold, among ones that they can: eager's results and eager's refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import kintsugi

X = torch.Tensor
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "times": lambda x, n: x * n,
    "plus": lambda x, n: n + x,
    "mul": lambda x, n: torch.mul(x, n),
    "sum": lambda x, n: x.sum() * n,
    "whole": lambda x, n: x.long() + n,
    "alpha": lambda x, n: x.add(x, alpha=n),
    "sub": lambda x, n: torch.sub(x, 1, alpha=n),
    "rsub": lambda x, n: torch.rsub(x, 1, alpha=n),
    "fill": lambda x, n: x.fill_(n),
    "addcmul": lambda x, n: x.addcmul(x, x, value=n),
    "addcdiv": lambda x, n: torch.addcdiv(x, x, x, value=n),
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
    "where": lambda x, n: torch.where(x > 1, x, n),
    "clamp": lambda x, n: x.clamp(max=n),
    "full_like": lambda x, n: torch.full_like(x, n) + x,
    "stored": lambda x, n: x.__setitem__(0, n),
    "half": lambda x, n: x.half() * n + 1,
    "half_alpha": lambda x, n: x.half().add(x.half(), alpha=n),
    "bfloat_fill": lambda x, n: (x.bfloat16() + 1).fill_(n),
    "bytes": lambda x, n: x.to(torch.uint8).add(n),
    "ints": lambda x, n: x.to(torch.int32) + n,
    "ints_alpha": lambda x, n: x.to(torch.int32).add(x.to(torch.int32), alpha=n),
    "compared": lambda x, n: x.to(torch.int32) == n,
    "lerp": lambda x, n: x.lerp(x + 1, n),
    "leaky": lambda x, n: functional.leaky_relu(-x, n),
    "threshold": lambda x, n: functional.threshold(x, 1.5, n),
    "tensor": lambda x, n: torch.tensor(n),
    "tensor_of_float": lambda x, n: torch.tensor(n, dtype=torch.float32),
    "tensor_of_ints": lambda x, n: torch.tensor(n, dtype=torch.int32),
    "read": lambda x, n: x.add(x, alpha=(x.double() * n).sum().item()),
    "enumerated": lambda x, n: [*zip(enumerate([x], n), [1])],
}
NUMBERS: dict[str, list[Any]] = {
    "floats": [0.5, 2.5, 1e308, -1e308, float("inf"), 1.5, float("nan"), 3.5e38, 65504.0, 65520.0],
    "ints": [1, 2, 300, -1, -(2**63), 2**63 - 1, 2**40, 70000, 3],
    "large": [3, 2**63, 2**70, 4, -(2**70), 2**64 - 1, 2**64, 2**1100, 5, -(2**63) - 1],
}


def outcome(program: Callable[[Any, Any], Any], n: Any) -> tuple[Any, ...]:
    x = torch.arange(1.0, 4.0)
    try:
        result = program(x, n)
    except Exception as error:
        return type(error), str(error), repr(x)
    return type(result), getattr(result, "dtype", None), repr(result), repr(x)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager_mode(name: str, numbers: str, backend: str) -> None:
    program = PROGRAMS[name]
    compiled = kintsugi.compile(
        program, backend=backend, options={"sync": True} if backend == "native" else {}
    )
    for n in NUMBERS[numbers] * 2:
        assert outcome(compiled, n) == outcome(program, n), n


@pytest.mark.parametrize("n", [1e308, -(2**63), 2**63, 2**40, 70000, 3.5e38])
@pytest.mark.parametrize("name", ["alpha", "sub", "fill", "half_alpha", "ints_alpha", "times", "bfloat_fill"])
def test_as_a_constant(name: str, n: Any) -> None:
    program = PROGRAMS[name]
    compiled = kintsugi.compile(lambda x, _: program(x, n), backend="native", options={"sync": True})
    for _ in range(3):
        assert outcome(compiled, None) == outcome(program, n)
