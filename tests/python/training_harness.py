"""What tests of training with native code share: both sides run, forward and backward, and compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from native_harness import assert_values, native, tensors_in

Fn = Callable[..., Any]


def leaves(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors of their own, which require gradients where the given ones do."""
    return tuple(
        x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
        for x in inputs
    )


def seeds(result: object) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The results that autograd follows, and a gradient for each of them."""
    generator = torch.Generator().manual_seed(7)
    return [
        (t, torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype))
        for t in tensors_in(result)
        if t.requires_grad
    ]


def run(fn: Fn, inputs: tuple[Any, ...]) -> tuple[Any, list[torch.Tensor | None]]:
    mine = leaves(inputs)
    result = fn(*mine)
    arriving = seeds(result)
    torch.autograd.backward([t for t, _ in arriving], [g for _, g in arriving])
    return result, [x.grad for x in mine if isinstance(x, torch.Tensor) and x.requires_grad]


def close(got: torch.Tensor, wanted: torch.Tensor, scale: float = 1.0) -> None:
    assert_values(got, wanted, scale=scale)


def check(fn: Fn, *inputs: Any, compiled: bool = True, calls: int = 3, scale: float = 4.0) -> Any:
    """Both sides several times, forward and backward. `compiled`: native code has to run, or must not."""
    runner = native(fn)
    wanted, gradients = run(fn, inputs)
    for _ in range(calls):
        got, mine = run(runner, inputs)
        for a, b in zip(tensors_in(got), tensors_in(wanted), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
            assert a.requires_grad == b.requires_grad and (a.grad_fn is None) == (b.grad_fn is None)
            assert (a._base is None) == (b._base is None) and a.is_leaf == b.is_leaf
            close(a.detach(), b.detach(), scale)
        for x, y in zip(mine, gradients, strict=True):
            assert (x is None) == (y is None)
            if x is not None and y is not None:
                assert x.stride() == y.stride()
                close(x, y, scale)
    stats = runner._kintsugi_compiled.stats()
    assert (stats["native_runs"] > 0) == compiled, stats
    assert stats["native_backwards"] == stats["native_runs"], stats
    return runner


def check_gradient_of_ones(fn: Fn, *sizes: int, calls: int) -> None:
    """One input, whose gradient alone is compared; nothing is said of what runs natively."""
    runner = native(fn)
    for _ in range(calls):
        mine, theirs = (torch.ones(sizes, requires_grad=True) for _ in range(2))
        runner(mine).backward()
        fn(theirs).backward()
        torch.testing.assert_close(mine.grad, theirs.grad)


def rand(*sizes: int, grad: bool = True, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(sizes, dtype=dtype).requires_grad_(grad)
