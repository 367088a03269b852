"""Models through eager mode, replay, native code and, when asked, inductor, side by side, without gradients.

    python -m bench.native [--models bert,gpt2] [--size mid] [--peer inductor] [--threads 2] [--rounds 15]

All run in one process in interleaved rounds; figures are medians in microseconds a call. `ready` is how long the native
code took from the first call until nothing was left to compile.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import kintsugi
from bench import measure
from bench.models import select
from bench.models.spec import ModelSpec

Call = Callable[[], Any]


def _loop(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    return lambda: call(*args, **kwargs)


def _systems(spec: ModelSpec, size: str, peer: str, mode: str) -> tuple[dict[str, Call], dict[str, Any]]:
    """One call of each system on the same inputs, warm; and what was seen while warming up."""
    model = spec.build(size)
    args, kwargs = spec.inputs(model, size)
    replay = kintsugi.compile(model, backend="eager")
    native = kintsugi.compile(model, backend="native", mode=mode)
    calls = {
        "eager": _loop(model, args, kwargs),
        "replay": _loop(replay, args, kwargs),
        "native": _loop(native, args, kwargs),
    }
    if peer != "none":
        calls[peer] = _loop(torch.compile(spec.build(size), backend=peer), args, kwargs)
    seen: dict[str, Any] = {}
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        call()
        if name == "native":
            kintsugi.wait()
        seen["ready_" + name] = time.perf_counter() - start
        for _ in range(4):
            call()
        if name == "native":
            # A backend may compare before it decides.
            kintsugi.wait()
    stats = native._kintsugi_compiled.stats()
    seen |= {key: stats[key] for key in ("native_segments", "native_ready", "native_refused") if key in stats}
    return calls, seen


def measure_model(
    spec: ModelSpec, size: str, peer: str, mode: str, rounds: int
) -> tuple[dict[str, float], Any]:
    """Median seconds of each system."""
    calls, seen = _systems(spec, size, peer, mode)
    start = time.perf_counter()
    calls["eager"]()
    repeats = max(1, int(20e-3 / (time.perf_counter() - start)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    with measure.no_collection():
        for turn in range(rounds):
            order = list(calls.items())
            for name, call in order if turn % 2 == 0 else reversed(order):
                start = time.perf_counter()
                for _ in range(repeats):
                    call()
                times[name].append((time.perf_counter() - start) / repeats)
    return {name: statistics.median(series) for name, series in times.items()}, seen


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.native", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--models", default="")
    parser.add_argument("--size", default="tiny", choices=("tiny", "mid"))
    parser.add_argument("--peer", choices=("none", "inductor"), default="none")
    parser.add_argument("--mode", default="default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    ratios: dict[str, list[float]] = {}
    print(f"{options.size}, {options.threads} thread(s), torch {torch.__version__}")
    for spec in select(options.models or None, quick=not options.models):
        if spec.consumes_inputs:
            continue
        with torch.no_grad():
            times, seen = measure_model(spec, options.size, options.peer, options.mode, options.rounds)
        columns = "  ".join(f"{name} {seconds * 1e6:9.1f}" for name, seconds in times.items())
        parts = "/".join(str(seen.get(key, "?")) for key in ("native_ready", "native_segments"))
        print(
            f"{spec.name:24} {columns}  segments {parts}  native/replay {times['replay'] / times['native']:.2f}"
            f"  ready {seen['ready_native']:.2f} s",
            flush=True,
        )
        for name, seconds in times.items():
            ratios.setdefault(name, []).append(seconds / times["native"])
        kintsugi.reset()
    for name, values in ratios.items():
        if name != "native":
            mean = math.exp(sum(math.log(v) for v in values) / len(values))
            print(
                f"native is {mean:.2f} x as fast as {name} (geometric mean of {len(values)}; worst {min(values):.2f})"
            )


if __name__ == "__main__":
    main()
