"""Programs with a kernel of every kind, run natively and compared with eager mode: `python target_programs.py LEVEL`.

The process has KINTSUGI_TARGET set by who starts it. It prints the level that code was made for, and fails with the
name of a program whose result differs, or that was not compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from native_harness import assert_values, native

from kintsugi import _C

Program = tuple[str, Callable[..., Any], tuple[Any, ...]]


EXACT = {"every f16", "f32 to f16", "ties of f16"}


def elementary(x: torch.Tensor) -> list[torch.Tensor]:
    functions = (torch.exp, torch.tanh, torch.sigmoid, F.gelu, F.silu, torch.erf, torch.floor, torch.round)
    return [f(x) * 2 for f in functions] + [torch.log(x.abs() + 1e-3), torch.sqrt(x.abs()) + 1]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v) * 2


def programs() -> Iterator[Program]:
    torch.manual_seed(7)
    x = torch.randn(37, 53)
    yield "elements", elementary, (x,)
    for kind in (torch.float16, torch.bfloat16):
        yield f"elements of {kind}", lambda x: F.silu(x) * x + 1, (x.to(kind),)
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32)
    yield "every f16", lambda x: (-x, x.float()), (patterns.to(torch.int16).view(torch.float16),)
    yield "f32 to f16", lambda x: (-x).half(), ((patterns * 65521 + 12345).view(torch.float32),)
    yield "ties of f16", lambda x: (-x).half(), (torch.arange(-5000, 5000) * 2.0**-25,)
    yield "integers", lambda x: (x * 3 + 1, x // 2, x > 1, x.float() * 0.5), (torch.arange(-99, 100),)
    yield "doubles", lambda x: x * x + x.abs().sqrt(), (x.double(),)
    yield "sums of rows", lambda x: (x.sum(-1), x.softmax(-1), x.amax(-1), x.argmax(-1)), (x,)
    yield "sums of columns", lambda x: (x.sum(0), x.mean(0, keepdim=True) + x, x.argmin(0)), (x,)
    yield "long rows", lambda x: (x * x).sum(-1) + x.amax(-1), (torch.randn(2, 40000) / 64,)
    yield "layer norm", lambda x: F.layer_norm(x, (53,)) + x, (x,)
    yield "another order of memory", lambda x: x.t().contiguous() + 1, (torch.randn(70, 300),)
    yield "repeated elements", lambda x: F.interpolate(x, scale_factor=2) + 1, (torch.randn(1, 3, 9, 11),)
    yield "padding", lambda x: F.pad(x, (1, 2)) * 2, (x,)
    yield "places", lambda x, i: x[i] * 2, (x, torch.tensor([3, 0, 36, 5]))
    yield "a gather", lambda x, i: x.gather(1, i) + 1, (x, torch.randint(0, 53, (37, 8)))
    for m, n, k in ((48, 64, 32), (13, 37, 53), (100, 129, 600)):
        yield (
            f"a product {m}x{n}x{k}",
            lambda x, w, b: F.gelu(F.linear(x, w, b)) / 4,
            (torch.randn(m, k) / k**0.5, torch.randn(n, k), torch.randn(n)),
        )
        by_rows = (torch.randn(m, k) / k**0.5, torch.randn(k, n))
        yield f"a product by rows {m}x{n}x{k}", lambda a, b: torch.mm(a, b) * 2, by_rows
    yield "many products", lambda a, b: torch.bmm(a, b) + 1, (torch.randn(3, 24, 40), torch.randn(3, 40, 33))
    for queries, keys, size, causal in ((1, 77, 64, False), (40, 40, 64, True), (70, 211, 24, False)):
        q, k, v = (torch.randn(2, 3, length, size) for length in (queries, keys, keys))
        yield (
            f"attention of {queries} queries and {keys} keys",
            lambda q, k, v, causal=causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal) * 2,
            (q, k, v),
        )
        halves = (q.half(), k.half(), v.half())
        yield f"attention of {queries} queries in f16", attention, halves
    norm = torch.nn.BatchNorm2d(8).eval()
    convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
    yield "a convolution", lambda x: F.relu(norm(convolution(x))), (torch.randn(2, 3, 20, 20),)
    yield (
        "rows added",
        lambda x, i, y: torch.relu(x).index_add_(0, i, y) * 2,
        (x, torch.tensor([1, 1, 5]), x[:3] * 2),
    )


def run(level: str) -> None:
    torch.set_num_threads(1)
    before = _C._failed_checks()[0]
    with torch.no_grad():
        for name, program, inputs in programs():
            compiled = native(program)
            wanted = program(*inputs)
            exact = name in EXACT
            for _ in range(3):
                assert_values(compiled(*inputs), wanted, exact=exact, scale=4, message=f"{level}: {name}")
            core = compiled._kintsugi_compiled.stats()
            assert core["native_runs"] > 0, f"{level}: {name} is not compiled: {core}"
    assert _C._failed_checks()[0] == before, _C._failed_checks()[1]
    assert _C.cache_info()["kernels"] >= 20, _C.cache_info()
    print(_C.target_info()["level"])


if __name__ == "__main__":
    run(sys.argv[1])
