"""The flags and the order by which torch chooses kernels of attention, read and changed inside compiled functions."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import kintsugi


def flags() -> list[Any]:
    names = ("flash", "mem_efficient", "math", "cudnn", "overrideable")
    return [getattr(torch._C, f"_get_{name}_sdp_enabled")() for name in names] + [
        torch._C._get_sdp_priority_order()
    ]


def attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x)


def one(x: torch.Tensor) -> Any:
    with sdpa_kernel(SDPBackend.MATH):
        return attention(x), flags()


def several(x: torch.Tensor) -> Any:
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
        return attention(x), flags()


def in_order(x: torch.Tensor) -> Any:
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        return attention(x), flags()


def old_name(x: torch.Tensor) -> Any:
    with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_math=True, enable_mem_efficient=False):
        return attention(x), flags()


def read(x: torch.Tensor) -> Any:
    cuda = torch.backends.cuda
    return (
        x + cuda.flash_sdp_enabled() + 2 * cuda.math_sdp_enabled() + 4 * cuda.mem_efficient_sdp_enabled(),
        flags(),
    )


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("fn", [one, several, in_order, old_name, read])
def test_flags_of_attention_are_no_breaks(fn: Any, backend: str) -> None:
    options = {"sync": True} if backend == "native" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = kintsugi.compile(fn, backend=backend, options=options)
        before = flags()
        for _ in range(4):
            x = torch.randn(1, 2, 4, 8)
            (a, seen), (b, shown) = fn(x), compiled(x)
            torch.testing.assert_close(b, a)
            assert seen == shown and flags() == before
        stats = compiled.stats()
        assert stats.graph_break_count == 0 and stats.hits == 3


def test_flags_that_change_between_calls() -> None:
    compiled = kintsugi.compile(read, backend="eager")
    x = torch.zeros(2)
    for kernels in ([SDPBackend.MATH], [SDPBackend.FLASH_ATTENTION], [SDPBackend.MATH]):
        with sdpa_kernel(kernels):
            (a, seen), (b, shown) = read(x), compiled(x)
            assert torch.equal(a, b) and seen == shown
        order = torch._C._get_sdp_priority_order()
        torch._C._set_sdp_priority_order(order[::-1])
        try:
            assert compiled(x)[1] == read(x)[1]
        finally:
            torch._C._set_sdp_priority_order(order)


def test_keys_that_torch_binds() -> None:
    def fn(x: torch.Tensor) -> Any:
        kernels = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
        numbers = {kernel: k for k, kernel in enumerate(kernels)}
        return x + len(dict.fromkeys(kernels)), list(dict.fromkeys(kernels)), numbers

    compiled = kintsugi.compile(fn, backend="eager")
    for _ in range(3):
        mine, theirs = fn(torch.zeros(2)), compiled(torch.zeros(2))
        assert torch.equal(mine[0], theirs[0]) and mine[1:] == theirs[1:]
        assert all(a is b for a, b in zip(mine[1], theirs[1], strict=True))
    assert compiled.stats().graph_break_count == 0
