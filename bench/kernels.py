"""Fused kernels against the limits of the machine: `bench.run --only kernels`, and `--only bandwidth`.

The least time of a kernel is what its bytes take at the bandwidth of a copy, or its floating-point operations at the
speed of a large matrix product, whichever is longer; both are measured in the same run. Bytes are those of each input
and output, once. What a system reaches of it is its `share`. Kernels have arrays of some megabytes, which stay in the
last cache of many processors, so a share may be above 1. For `bandwidth`, every large array has twice the bytes of the
last cache, whose size the system tells; the copy has the same.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from bench import compare, measure, memory
from bench.systems import EAGER, OUR_ALLOCATOR, System, in_our_memory, warm_up_all

Data = dict[str, Any]
Function = Callable[..., torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A function and its inputs."""

    name: str
    function: Function
    inputs: tuple[torch.Tensor, ...]


def _rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return F.softmax(scores.masked_fill(mask, float("-inf")), -1) @ v


def _group_norm(x: torch.Tensor) -> torch.Tensor:
    return F.silu(F.group_norm(x, 8))


def _swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


def _residual_norm(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x + y, (w.shape[0],), w, b)


def _manual_rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def suite() -> list[Kernel]:
    """Each kernel at a size that does not fit into the second cache."""
    torch.manual_seed(0)
    rows, image = torch.randn(1024, 768), torch.randn(8, 64, 56, 56)
    other, w, b = torch.randn(1024, 768), torch.randn(768), torch.randn(768)
    heads = torch.randn(4, 12, 128, 64)
    scores, mask = torch.randn(4, 12, 128, 128), torch.ones(128, 128, dtype=torch.bool).triu(1)
    bn = torch.nn.BatchNorm2d(64).eval()
    conv = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.BatchNorm2d(32)).eval()
    deep = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.BatchNorm2d(64)).eval()
    ids = torch.randint(5000, (4, 256))
    table = torch.randn(5000, 256)
    k = Kernel
    return [
        k("gelu", lambda x: F.gelu(x), (rows,)),
        k("bias_gelu", lambda x, b: F.gelu(x + b), (rows, b)),
        k("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), (rows,)),
        k("silu_mul", _swiglu, (rows, other)),
        k("chain", lambda x, y: (torch.tanh(x) * 0.5 + y.sigmoid()).clamp(-1, 1) * x, (rows, other)),
        k("residual_relu", lambda x, y: F.relu(x + y * 0.5), (rows, other)),
        k("layer_norm", lambda x, w, b: F.layer_norm(x, (768,), w, b), (rows, w, b)),
        k("residual_norm", _residual_norm, (rows, other, w, b)),
        k("rms_norm", lambda x, w: F.rms_norm(x, (768,), w), (rows, w)),
        k("manual_rms", _manual_rms, (rows, w)),
        k("softmax", lambda x: F.softmax(x, -1), (scores,)),
        k("masked_softmax", lambda x, m: F.softmax((x * 0.125).masked_fill(m, -1e9), -1), (scores, mask)),
        k("log_softmax", lambda x: F.log_softmax(x, -1), (rows,)),
        k("batch_norm_relu", lambda x: F.relu(bn(x)), (image,)),
        k("group_norm_silu", _group_norm, (image,)),
        k("conv_norm_relu", lambda x: F.relu(conv(x)), (torch.randn(4, 3, 96, 96),)),
        k("conv_norm_silu", lambda x: F.silu(deep(x)), (image[:2],)),
        k("rotary", _rope, (heads, torch.randn(128, 64), torch.randn(128, 64))),
        k("attention", _attention, (heads, heads, heads, mask)),
        k("sdpa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (heads, heads, heads)),
        k("mean_pool", lambda x: x.mean((-2, -1)) * 2, (image,)),
        k("sum_last", lambda x: (x * x).sum(-1), (rows,)),
        k("argmax", lambda x: x.argmax(-1) + 1, (rows,)),
        k("cumsum", lambda x: x.cumsum(-1) * 2, (rows,)),
        k("embedding", lambda i, t: F.embedding(i, t) * 2 + 1, (ids, table)),
        k("max_pool_relu", lambda x: F.relu(F.max_pool2d(x, 2)), (image,)),
        k("upsample", lambda x: F.interpolate(x, scale_factor=2.0) * 2, (image,)),
        k("gather_scale", lambda x, i: x.gather(1, i) * 2 + 1, (rows, torch.randint(768, (1024, 768)))),
        k("transpose_add", lambda x: x.t().contiguous() + 1, (rows,)),
        k("cross_entropy", lambda x, y: F.cross_entropy(x, y), (rows, torch.randint(768, (1024,)))),
        k("embedding_bag", lambda i, t: F.embedding_bag(i, t) * 2, (ids, table)),
        k(
            "index_add",
            lambda x, i, y: (x * 2).index_add(0, i, y),
            (rows, torch.randint(1024, (1024,)), other),
        ),
        k("scatter", lambda x, i, y: x.scatter(1, i, y * 2), (rows, torch.randint(768, (1024, 768)), other)),
        k("dropout_add", lambda x, y: F.dropout(x, 0.1) + y, (rows, other)),
        k("bf16_gelu", lambda x: F.gelu(x + x), (rows.bfloat16(),)),
    ]


def large_suite() -> list[Kernel]:
    """What only reads and writes, each large array twice as large as the last cache."""
    torch.manual_seed(0)
    rows = -(-2 * memory.last_level_cache() // (768 * 4))
    x, y = torch.randn(rows, 768), torch.randn(rows, 768)
    w, b = torch.randn(768), torch.randn(768)
    k = Kernel
    return [
        k("bias_gelu, large", lambda x, b: F.gelu(x + b), (x, b)),
        k("residual_relu, large", lambda x, y: F.relu(x + y * 0.5), (x, y)),
        k("layer_norm, large", lambda x, w, b: F.layer_norm(x, (768,), w, b), (x, w, b)),
        k("residual_norm, large", _residual_norm, (x, y, w, b)),
        k("manual_rms, large", _manual_rms, (x, w)),
        k("softmax, large", lambda x: F.softmax(x, -1), (x,)),
        k("sum_last, large", lambda x: (x * x).sum(-1), (x,)),
    ]


SUITES = {"kernels": suite, "bandwidth": large_suite}


def select(pattern: str | None = None, part: str = "kernels") -> list[str]:
    """Names of kernels that contain one of the comma-separated parts of `pattern`."""
    parts = [part.strip() for part in (pattern or "").split(",") if part.strip()]
    return [
        kernel.name for kernel in SUITES[part]() if not parts or any(part in kernel.name for part in parts)
    ]


@dataclasses.dataclass(frozen=True)
class Peaks:
    """What the machine can do with the threads of this run: bytes and floating-point operations a second."""

    bandwidth: float
    flops: float


def peaks() -> Data:
    """Measured: a copy of twice the last cache (read and written), and a product of two matrices of 1024 x 1024."""
    source = torch.ones(2 * memory.last_level_cache() // 4)
    target = torch.empty_like(source)
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)

    def least(work: Callable[[], Any]) -> float:
        return min(measure.seconds(lambda _: work(), 1) for _ in range(15))

    moved = 2 * source.numel() * source.element_size()
    return {
        "bandwidth": moved / least(lambda: target.copy_(source)),
        "flops": 2 * 1024**3 / least(lambda: a @ b),
    }


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def least_seconds(kernel: Kernel, peak: Peaks) -> Data:
    """The least time that the machine allows, and what it is made of."""
    with FlopCounterMode(display=False) as counter:
        out = kernel.function(*kernel.inputs)
    moved, flops = _bytes([*kernel.inputs, out]), counter.get_total_flops()
    by_memory, by_arithmetic = moved / peak.bandwidth, flops / peak.flops
    bound = "memory" if by_memory >= by_arithmetic else "arithmetic"
    return {"bytes": moved, "flops": flops, "least_s": max(by_memory, by_arithmetic), "bound": bound}


def measure_kernel(
    name: str, systems: Sequence[System], rounds: int, peak: Peaks, part: str = "kernels"
) -> Data:
    """Medians of interleaved rounds of all systems, and the share of the machine that each reaches.

    Systems that are not ours stand there with the allocator of compiled runs as well, in a row of their own. For
    `bandwidth` all systems have the allocator of compiled runs: with torch's, every large result is new pages.
    """
    kernel = next(kernel for kernel in SUITES[part]() if kernel.name == name)
    thunks: dict[str, measure.Thunk] = {}
    rows: Data = {}

    def seeded(call: Function) -> torch.Tensor:
        torch.manual_seed(0)
        return call(*kernel.inputs)

    expected = seeded(kernel.function)
    for system in systems:
        system.reset()
        call = kernel.function if system is EAGER else system.compile(kernel.function)
        system.warm_up(lambda call=call: call(*kernel.inputs))
        if part == "bandwidth":
            call = in_our_memory(call)
        rows[system.name] = {"difference": compare.distance(expected, seeded(call))}
        thunks[system.name] = measure.loop(call, kernel.inputs, {})
        if part == "kernels" and not system.runs:
            pooled = f"{system.name}{OUR_ALLOCATOR}"
            rows[pooled], thunks[pooled] = {}, measure.loop(in_our_memory(call), kernel.inputs, {})
    warm_up_all(systems, {name: functools.partial(thunk, 1) for name, thunk in thunks.items()})
    times = measure.interleaved(thunks, rounds, measure.calls_for(thunks["eager"], 4e-3))
    machine = least_seconds(kernel, peak)
    for system_name, row in measure.summarize(times).items():
        rows[system_name] |= row | {"share": machine["least_s"] / statistics.median(times[system_name])}
    rows["eager"] |= machine
    return rows
