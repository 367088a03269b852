"""What is measured. Each function measures one thing for all systems in interleaved rounds and returns plain data."""

from __future__ import annotations

import copy
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from bench import compare, measure
from bench.models.spec import Inputs, ModelSpec
from bench.readiness import NeverCompiled
from bench.systems import EAGER, System, constant_backend, warm_up_all

Data = dict[str, Any]


def _one_argument(call: Callable[[Any], Any], x: Any) -> measure.Thunk:
    def run(calls: int) -> None:
        for _ in range(calls):
            call(x)

    return run


def _compiled(systems: Sequence[System], make: Callable[[], Any]) -> dict[str, Any]:
    made = {}
    for system in systems:
        system.reset()
        made[system.name] = system.compile(make())
    return made


def tiny_call(systems: Sequence[System], rounds: int) -> Data:
    """Call overhead: `x + 1` on four numbers, microseconds above eager."""

    def make() -> Callable[[torch.Tensor], torch.Tensor]:
        def add_one(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        return add_one

    x = torch.zeros(4)
    thunks = {name: _one_argument(call, x) for name, call in _compiled(systems, make).items()}
    for thunk in thunks.values():
        thunk(1000)
    return measure.summarize(measure.interleaved(thunks, rounds, 2000))


SMALL_KERNELS = 100


def kernel_cost(systems: Sequence[System], rounds: int) -> Data:
    """Microseconds of one of a hundred small kernels in a row: what the executor takes for each, and 64 elements.

    Each reduces along the other dimension than the one before, so that no two of them are one loop.
    """

    def make() -> Callable[[torch.Tensor], torch.Tensor]:
        def alternate(x: torch.Tensor) -> torch.Tensor:
            for k in range(SMALL_KERNELS):
                x = (x - x.amax(k % 2, keepdim=True)) * 0.5
            return x

        return alternate

    x = torch.randn(8, 8)
    thunks = {}
    for system in systems:
        system.reset()
        call = system.compile(make())
        system.warm_up(functools.partial(call, x))
        thunks[system.name] = _one_argument(call, x)
    warm_up_all(systems, {name: functools.partial(thunk, 1) for name, thunk in thunks.items()})
    times = measure.interleaved(thunks, rounds, 50)
    return {name: {"us": 1e6 * statistics.median(series) / SMALL_KERNELS} for name, series in times.items()}


def guard_cost(spec: ModelSpec, systems: Sequence[System], rounds: int) -> Data:
    """Guards and dispatch of a deep model of tiny widths, in microseconds a call, measured in two ways.

    `SYSTEM, kept results`: the graphs are replaced by ones that return kept results (an FX backend, the same for every
    system), so what a call costs is its guards, the wrapping of every parameter that the graph takes, and the
    rebuilding of its results. `SYSTEM, call less ...`: Kintsugi's own backends run as they are; of each call the time
    in native segments, or in the operators of the replay, is taken off (same call, same clock).
    """
    rows: Data = _own_guard_cost(spec, systems, 30 * rounds)
    thunks: dict[str, Any] = {}
    args, kwargs = spec.inputs(spec.build())
    for system in systems:
        name = f"{'kintsugi' if system.runs else system.name}, kept results"
        if system is EAGER or name in thunks:
            continue
        system.reset()
        try:
            call = system.compile(spec.build(), backend=constant_backend)
            for _ in range(3):
                call(*args, **kwargs)
            thunks[name] = measure.loop(call, args, kwargs)
        except Exception as error:
            rows[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
    # Compiling with one system changes classes that the other has guarded: all are warmed up before any is timed.
    for thunk in thunks.values():
        for _ in range(3):
            thunk(1)
    calls = min((measure.calls_for(thunk, 0.02) for thunk in thunks.values()), default=1)
    for name, series in measure.interleaved(thunks, rounds, calls).items() if thunks else ():
        rows[name] = {"us": 1e6 * statistics.median(series)}
    return rows


def _own_guard_cost(spec: ModelSpec, systems: Sequence[System], calls: int) -> Data:
    """Of Kintsugi's backends as they are: medians over calls of the whole call and of what is left of it without the
    native segments' or the operators' time; `spans` is how many of these there are."""
    from kintsugi import _C

    rows: Data = {}
    model = spec.build()
    args, kwargs = spec.inputs(model)
    clock = _C.clock_cost()
    for system in systems:
        if not system.runs:
            continue
        system.reset()
        call = system.compile(model)
        system.warm_up(functools.partial(call, *args, **kwargs))
        with measure.no_collection():
            seen = [_C.time_work(call, *args, **kwargs) for _ in range(calls)]
        runs = statistics.median(spans for _, _, spans in seen)
        left = statistics.median(whole - work - spans * clock for whole, work, spans in seen)
        native = system.counts(call)["native_runs"] > 0
        name = f"{system.name}, call less {'native segments' if native else 'operators'}"
        whole = statistics.median(whole for whole, _, _ in seen)
        rows[name] = {"us": left / 1e3, "whole_us": whole / 1e3, "spans": runs}
    return rows


def first_call(spec: ModelSpec, size: str, systems: Sequence[System], rounds: int) -> Data:
    """The first call of freshly compiled modules in a warm process, as a multiple of an eager call beside it.

    `ready_s` of a system, with empty caches: from compile() to the end of its first call that runs compiled code, as
    all later ones do. For native code that is a call behind the choice between it and replay.
    """
    model = spec.build(size)
    measured = [system for system in systems if system is not EAGER]
    ratios: dict[str, list[float]] = {system.name: [] for system in measured}
    cold: dict[str, Data] = {}
    eager_times = []
    for _ in range(2):
        args, kwargs = spec.inputs(model, size)
        model(*args, **kwargs)
    for turn in range(rounds):
        for system in measured:
            if turn >= system.first_calls:
                continue
            eager = min(_timed(model, spec.inputs(model, size, turn)) for _ in range(3))
            eager_times.append(eager)
            system.reset()
            start = time.perf_counter()
            call = system.compile(model)
            first = _timed(call, spec.inputs(model, size, turn))
            if turn == 0:
                fresh = functools.partial(_fresh_call, call, spec, model, size)
                cold[system.name] = {"coldest_s": first} | _ready(system, call, fresh, start)
            ratios[system.name].append(first / eager)
    rows: Data = {name: {"ratio": statistics.median(series)} | cold[name] for name, series in ratios.items()}
    rows["eager"] = {"seconds": statistics.median(eager_times)} if eager_times else {}
    return rows


def _fresh_call(call: Callable[..., Any], spec: ModelSpec, model: Any, size: str) -> Any:
    args, kwargs = spec.inputs(model, size)
    return call(*args, **kwargs)


def _ready(system: System, compiled: Any, call: Callable[[], Any], start: float) -> Data:
    try:
        return {"ready_s": system.ready(compiled, call, start)}
    except NeverCompiled as error:
        return {"never": str(error)}


def _timed(call: Callable[..., Any], inputs: Inputs) -> float:
    args, kwargs = inputs
    with measure.no_collection():
        start = time.perf_counter()
        call(*args, **kwargs)
        return time.perf_counter() - start


def _fresh_inputs_loop(call: Callable[..., Any], inputs: Inputs) -> measure.Thunk:
    """For calls that change their inputs: every call gets a copy, made outside of the measured time by `_refill`."""
    queue: list[Inputs] = []

    def run(calls: int) -> None:
        for _ in range(calls):
            args, kwargs = queue.pop()
            call(*args, **kwargs)

    def refill(calls: int) -> None:
        queue.extend(copy.deepcopy(inputs) for _ in range(calls))

    run.refill = refill  # type: ignore[attr-defined]
    return run


def _warmed_up(spec: ModelSpec, size: str, system: System) -> tuple[measure.Thunk, Data, Any]:
    """A compiled model that runs what it will run from now on: its calls, what it says of itself, and a result."""
    system.reset()
    model = spec.build(size)
    call = system.compile(model)

    def fresh(seed: int = 0) -> Any:
        args, kwargs = spec.inputs(model, size, seed)
        return call(*args, **kwargs)

    system.warm_up(fresh)
    for seed in (1, 2, 3):
        out = fresh(seed)
    inputs = spec.inputs(model, size, 4)
    thunk = _fresh_inputs_loop(call, inputs) if spec.consumes_inputs else measure.loop(call, *inputs)
    return thunk, {"counts": system.counts(call)}, out


def steady_state(spec: ModelSpec, size: str, systems: Sequence[System], rounds: int, target: float) -> Data:
    """Seconds a call once compiled, the counts, and the largest difference to eager on the same inputs.

    `peak_mb`: what a call holds of torch's memory at most, beside parameters and inputs.
    """
    thunks: dict[str, measure.Thunk] = {}
    rows: Data = {}
    reference = None
    for system in systems:
        try:
            thunks[system.name], rows[system.name], out = _warmed_up(spec, size, system)
            reference = out if system is EAGER else reference
            rows[system.name]["difference"] = compare.largest_distance(reference, out)
        except Exception as error:
            rows[system.name] = {"error": f"{type(error).__name__}: {error}"[:500]}
    warm_up_all(systems, {name: functools.partial(_once, thunk) for name, thunk in thunks.items()})
    times = _steady_rounds(thunks, rounds, target)
    for name, row in measure.summarize(times).items():
        rows[name] |= row
    for name, thunk in thunks.items():
        rows[name]["peak_mb"] = measure.peak_memory(functools.partial(_once, thunk)) / 1e6
    return rows


def _once(thunk: measure.Thunk) -> None:
    if hasattr(thunk, "refill"):
        thunk.refill(1)
    thunk(1)


def _steady_rounds(thunks: dict[str, measure.Thunk], rounds: int, target: float) -> dict[str, list[float]]:
    if not all(hasattr(thunk, "refill") for thunk in thunks.values()):
        return measure.interleaved(thunks, rounds, measure.calls_for(thunks["eager"], target))
    calls = 10
    times: dict[str, list[float]] = {name: [] for name in thunks}
    for _ in range(rounds + 1):
        for thunk in thunks.values():
            thunk.refill(calls)  # type: ignore[attr-defined]
        for name, series in measure.interleaved(thunks, 1, calls).items():
            times[name] += series
    return {name: series[1:] for name, series in times.items()}
