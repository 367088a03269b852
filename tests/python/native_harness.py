"""Runs a function in eager mode and through backend="native", and compares within the documented tolerances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import harness
import torch

import kintsugi
from bench import compare

# docs/internals/native.md states them.
TOLERANCES = {
    torch.float32: (1e-5, 1e-5),
    torch.float64: (1e-9, 1e-9),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float16: (2e-3, 1e-3),
}


def native(fn: Callable[..., Any], **options: Any) -> Any:
    """Compiled before its first call returns."""
    return kintsugi.compile(fn, backend="native", options={"sync": True, **options})


def tensors_in(result: object) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [t for part in result for t in tensors_in(part)]
    if isinstance(result, dict):
        return [t for part in result.values() for t in tensors_in(part)]
    return []


def assert_same(got: object, wanted: object, *, exact: bool = False) -> None:
    mine, theirs = tensors_in(got), tensors_in(wanted)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        assert a.requires_grad == b.requires_grad and (a._base is None) == (b._base is None)
        assert_values(a, b, exact=exact)


def assert_values(
    got: Any, wanted: Any, *, exact: bool = False, scale: float = 1.0, message: str = ""
) -> None:
    """Within the tolerance of the type; NaN, infinities and the signs of zeros are those of eager mode."""
    if isinstance(wanted, (tuple, list)):
        assert type(got) is type(wanted) and len(got) == len(wanted), message
        for mine, theirs in zip(got, wanted, strict=True):
            assert_values(mine, theirs, exact=exact, scale=scale, message=message)
        return
    if not isinstance(wanted, torch.Tensor):
        assert type(got) is type(wanted) and got == wanted, message
        return
    if exact or wanted.dtype not in TOLERANCES:
        assert compare.same_values(got, wanted), f"{message}: {got}, expected {wanted}"
        return
    rtol, atol = TOLERANCES[wanted.dtype]
    compare.assert_near(got, wanted, rtol * scale, atol * scale, message)


def shared_storages(result: object, inputs: tuple[object, ...]) -> list[tuple[int, int]]:
    """Which of the tensors share memory, as pairs of positions."""
    found = [*tensors_in(list(inputs)), *tensors_in(result)]
    return [
        (i, j)
        for i in range(len(found))
        for j in range(i)
        if found[i].numel() and found[i].untyped_storage().data_ptr() == found[j].untyped_storage().data_ptr()
    ]


def check(
    fn: Callable[..., Any],
    *inputs: Any,
    compiled: bool = True,
    exact: bool = False,
    calls: int = 3,
    **options: Any,
) -> Any:
    """Calls both sides several times. `compiled`: native code has to run, or must not."""
    runner = native(fn, **options)
    with torch.no_grad():
        wanted = fn(*inputs)
        for _ in range(calls):
            got = runner(*inputs)
            assert_same(got, wanted, exact=exact)
            assert shared_storages(got, inputs) == shared_storages(wanted, inputs)
    core = runner._kintsugi_compiled.stats()
    assert (core["native_runs"] > 0) == compiled, core
    return runner


def in_threads(work: Callable[[int], None], count: int) -> None:
    """work(0), work(1) ... at one time, in grad mode off; the first failure is raised."""
    harness.in_threads(count, torch.no_grad()(work))
