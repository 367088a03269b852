"""Fused kernels, memory-bound for the most part: eager, replay, native and, when asked, inductor, side by side.

    python -m bench.kernels [--peer inductor] [--threads 2] [--only softmax,gelu] [--rounds 15]

All run in one process in interleaved rounds; figures are medians in microseconds. `GB/s` counts each input and output
once; the share is of the bandwidth that a copy of 64 MB has in the same run.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import kintsugi

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
        k("bf16_gelu", lambda x: F.gelu(x + x), (rows.bfloat16(),)),
    ]


def _bytes(tensors: tuple[torch.Tensor, ...]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _bandwidth() -> float:
    """Bytes a second, read and written, of a copy."""
    source = torch.ones(16 * 1024 * 1024)
    target = torch.empty_like(source)
    times = []
    for _ in range(9):
        start = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - start)
    return 2 * _bytes((source,)) / statistics.median(times)


def _time(fn: Function, inputs: tuple[torch.Tensor, ...], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        fn(*inputs)
    return (time.perf_counter() - start) / repeats


def measure(kernel: Kernel, peer: str, rounds: int) -> dict[str, float]:
    """Median seconds of each system."""
    systems: dict[str, Function] = {
        "eager": kernel.function,
        "replay": kintsugi.compile(kernel.function, backend="eager"),
        "native": kintsugi.compile(kernel.function, backend="native", options={"sync": True}),
    }
    if peer != "none":
        systems[peer] = torch.compile(kernel.function, backend=peer)
    times: dict[str, list[float]] = {name: [] for name in systems}
    for fn in systems.values():
        for _ in range(3):
            fn(*kernel.inputs)
    repeats = max(1, int(2e-3 / max(1e-7, _time(kernel.function, kernel.inputs, 3))))
    for _ in range(rounds):
        for name, fn in systems.items():
            times[name].append(_time(fn, kernel.inputs, repeats))
    return {name: statistics.median(values) for name, values in times.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.kernels", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--peer", choices=("none", "inductor"), default="none")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="names, or parts of them, separated by commas")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    peak = _bandwidth()
    print(f"copy: {peak / 1e9:.1f} GB/s, {options.threads} thread(s), {torch.__version__}")
    wanted = [part for part in options.only.split(",") if part]
    ratios: dict[str, list[Any]] = {}
    with torch.no_grad():
        for kernel in suite():
            if wanted and not any(part in kernel.name for part in wanted):
                continue
            times = measure(kernel, options.peer, options.rounds)
            moved = _bytes(kernel.inputs) + _bytes((kernel.function(*kernel.inputs),))
            rate = moved / times["native"]
            columns = "  ".join(f"{name} {seconds * 1e6:9.1f}" for name, seconds in times.items())
            print(f"{kernel.name:16} {columns}  native {rate / 1e9:6.1f} GB/s {rate / peak:5.0%}")
            for name, seconds in times.items():
                ratios.setdefault(name, []).append(seconds / times["native"])
    for name, values in ratios.items():
        if name != "native" and values:
            mean = math.exp(sum(math.log(v) for v in values) / len(values))
            print(f"native is {mean:.2f} x as fast as {name} (geometric mean of {len(values)})")


if __name__ == "__main__":
    main()
