"""Operations in place that change what a tensor is: what is read of it afterwards is read of what it is now.

Each change is made with sizes that follow from data, and with sizes that are the same in each run; each reading is made
of a name that had the tensor before the change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import describe

import kintsugi

CHANGES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "resize_": lambda y, x: y.resize_(int((x > 0).sum())),
    "resize_twice": lambda y, x: y.resize_(int((x > 0).sum()) + 1).resize_(int((x > 0).sum())),
    "resize_as_": lambda y, x: y.resize_as_(x[x > 0]),
    "resize_rank": lambda y, x: y.resize_(int((x > 0).sum()), 2),
    "set_": lambda y, x: y.set_(x[x > 0]),
    "out=": lambda y, x: torch.masked_select(x, x > 0, out=y),
    "unsqueeze_": lambda y, x: y.resize_(int((x > 0).sum())).unsqueeze_(0),
    "squeeze_": lambda y, x: y.resize_(int((x > 0).sum()), 1).squeeze_(),
    "t_": lambda y, x: y.resize_(int((x > 0).sum()), 2).t_(),
    "transpose_": lambda y, x: y.resize_(int((x > 0).sum()), 2).transpose_(0, 1),
    "fixed unsqueeze_": lambda y, x: y.unsqueeze_(1),
    "fixed resize_": lambda y, x: y.resize_(2, 2),
    "fixed t_": lambda y, x: y.resize_(2, 3).t_(),
}

READINGS: dict[str, Callable[[torch.Tensor], Any]] = {
    "numel": lambda y: y.numel(),
    "shape": lambda y: tuple(y.shape),
    "size": lambda y: y.size(0),
    "last": lambda y: y.shape[-1],
    "dim": lambda y: y.dim(),
    "ndim": lambda y: y.ndim,
    "len": lambda y: len(y),
    "stride": lambda y: y.stride(),
    "contiguous": lambda y: y.is_contiguous(),
    "branch": lambda y: "many" if y.shape[0] > 2 else "few",
    "range": lambda y: [k for k in range(y.shape[0])],
    "computed": lambda y: y.fill_(1.0) * y.shape[0],
    "kernel": lambda y: torch.tanh(y.fill_(1.0)) + 1,
}

INPUTS = [
    torch.tensor([1.0, 2.0, 3.0, -1.0]),
    torch.tensor([2.0, 4.0, 6.0, -2.0]),
    torch.tensor([1.0, -2.0, 3.0, -1.0]),
    torch.tensor([1.0, 2.0, 3.0, 4.0]),
    torch.tensor([-1.0, -2.0, 3.0, -1.0]),
    torch.tensor([1.0, 2.0, 3.0, -1.0]),
]


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except (RuntimeError, IndexError, TypeError) as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("change", CHANGES)
def test_as_eager_mode(change: str, reading: str, backend: str) -> None:
    changed, read = CHANGES[change], READINGS[reading]

    def own(x: torch.Tensor) -> Any:
        y = x.clone()
        changed(y, x)
        return read(y), y.shape[0]

    def passed(x: torch.Tensor, y: torch.Tensor) -> Any:
        before = y.numel()
        changed(y, x)
        return before, read(y)

    options = {"sync": True} if backend == "native" else None
    for fn in (own, passed):
        compiled = kintsugi.compile(fn, backend=backend, options=options)
        for x in INPUTS:
            args = [x.clone()] if fn is own else [x.clone(), torch.zeros(4)]
            theirs = [a.clone() for a in args]
            mine, wanted = outcome(compiled, *args), outcome(fn, *theirs)
            assert describe(mine, close=True) == describe(wanted, close=True)
            assert [a.shape for a in args] == [a.shape for a in theirs]


VARYING: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "t_": lambda x, n: x.t_(),
    "transpose_": lambda x, n: x.transpose_(0, 1),
    "swapaxes_": lambda x, n: x.swapaxes_(0, 1),
    "unsqueeze_": lambda x, n: x.unsqueeze_(0),
    "resize_": lambda x, n: x.resize_(n, 2),
    "out=": lambda x, n: torch.zeros(n, 2, out=x),
    "twice": lambda x, n: x.t_().unsqueeze_(1),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("change", VARYING)
@pytest.mark.parametrize("dynamic", [None, True])
def test_of_tensors_whose_sizes_vary(change: str, reading: str, backend: str, dynamic: bool | None) -> None:
    changed, read = VARYING[change], READINGS[reading]

    class Box:
        held: Any = None

    def direct(x: torch.Tensor, n: int) -> Any:
        changed(x, n)
        return read(x)

    def held(x: torch.Tensor, n: int) -> Any:
        before = tuple(x.shape)
        box = Box()
        box.held = x
        changed(box.held, n)
        return before, read(box.held)

    options = {"sync": True} if backend == "native" else None
    for fn in (direct, held):
        compiled = kintsugi.compile(fn, backend=backend, options=options, dynamic=dynamic)
        for rows, n in ((3, 3), (4, 4), (5, 5), (6, 2), (2, 6), (5, 5)):
            mine, wanted = outcome(compiled, torch.ones(rows, 2), n), outcome(fn, torch.ones(rows, 2), n)
            assert describe(mine, close=True) == describe(wanted, close=True)
