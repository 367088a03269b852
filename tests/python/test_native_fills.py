"""backend="native": what is filled has memory where it is viewed, joined or written to again, scalars too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import kintsugi

FILLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "fill_": lambda a: a.fill_(3),
    "zero_": lambda a: a.zero_(),
    "add_": lambda a: a.add_(1),
    "own fill_": lambda a: torch.empty_like(a).fill_(2),
    "new_empty": lambda a: a.new_empty(a.shape).zero_(),
    "own zero_": lambda a: a.clone().zero_(),
    "full_like": lambda a: torch.full_like(a, 4),
    "zeros": lambda a: torch.zeros(a.shape, dtype=a.dtype),
    "fill of a sum": lambda a: (a * 2).fill_(1) + 1,
}
USES: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "view": lambda a, b: b.add_(b.view(b.shape)),
    "movedim": lambda a, b: b.add_(b.movedim(0, -1)) if b.dim() < 2 else b.t(),
    "itself": lambda a, b: b.mul_(b + 1).add_(b),
    "argument": lambda a, b: a.add_(b),
    "cat": lambda a, b: torch.cat([b.reshape(-1), b.reshape(-1)]),
    "cat with the argument": lambda a, b: torch.cat([b.reshape(-1), a.reshape(-1)]) + 1,
    "cat computed": lambda a, b: torch.cat([b.reshape(-1) * 2, a.reshape(-1)]) * 2,
    "cat of three": lambda a, b: torch.cat([b.reshape(-1, 1), a.reshape(-1, 1), b.reshape(-1, 1)], 1),
    "cat unused": lambda a, b: torch.cat([b.reshape(-1), b.reshape(-1)]).sum() * 0 if a is None else b,
    "stack": lambda a, b: torch.stack([b, a, b]),
    "pad": lambda a, b: torch.nn.functional.pad(b.reshape(-1), (1, 1)),
    "call": lambda a, b: torch.cumsum(b.reshape(-1), 0),
    "where": lambda a, b: torch.where(a > 2, b, a),
    "index": lambda a, b: b.reshape(-1)[torch.zeros(2, dtype=torch.long)] if b.numel() else b,
    "sum": lambda a, b: b.sum() + a.sum(),
    "broadcast": lambda a, b: b + torch.ones(2, *[1] * b.dim(), dtype=b.dtype),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("fill", FILLS)
def test_fills(fill: str, dtype: torch.dtype, dynamic: bool) -> None:
    for use, then in USES.items():

        def function(a, then=then):
            b = FILLS[fill](a)
            return then(a, b), b

        compiled = kintsugi.compile(function, backend="native", dynamic=dynamic, options={"sync": True})
        for shape in ((), (4,), (2, 3), (1,), (0,), (2, 3), (), (5,), (7,)):
            start = (
                torch.arange(max(1, torch.Size(shape).numel()))
                .to(dtype)[: torch.Size(shape).numel()]
                .view(shape)
            )
            mine, eager = start.clone(), start.clone()
            got, expected = (*compiled(mine), mine), (*function(eager), eager)
            for x, y in zip(got, expected, strict=True):
                assert x.dtype == y.dtype and x.stride() == y.stride() and torch.equal(x, y), (
                    use,
                    shape,
                    x,
                    y,
                )


@pytest.mark.parametrize("last", ["sin_", "exp_", "zero_", "index_fill_"])
def test_layouts_behind_writes_to_own_tensors(last: str) -> None:
    """Transposed arguments with sizes that vary: what is written in place lies as before."""

    def function(a):
        a = a * 1
        a.add_(1)
        if last == "index_fill_":
            return a.index_fill_(0, torch.tensor([0]), 2.0)
        return getattr(a, last)()

    compiled = kintsugi.compile(function, backend="native", options={"sync": True})
    for rows, columns in ((4, 4), (3, 5), (3, 5), (4, 4), (6, 2), (1, 3), (3, 1)):
        x = torch.randn(columns, rows).t()
        got, expected = compiled(x.clone(memory_format=torch.preserve_format)), function(x)
        assert torch.equal(got, expected) and got.stride() == expected.stride()
