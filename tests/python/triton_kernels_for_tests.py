"""Kernels that test_cuda.py launches: Triton reads their source from a file."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_kernel(a, b, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    tl.store(out + places, tl.load(a + places, mask=inside) + tl.load(b + places, mask=inside), mask=inside)
