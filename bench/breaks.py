"""Small programs that break the graph of torch.compile: graphs, breaks, the first call, milliseconds a call.

Each program is a function of tensors over some layers, with one thing in it that people write every day. `inputs(call)`
goes both ways where a branch depends on data.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import logging
import math
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from bench import measure
from bench.systems import EAGER, System, warm_up_all

Data = dict[str, Any]
WIDTH = 64
PROGRAMS: dict[str, Callable[[], Callable[..., Any]]] = {}


def program(make: Callable[[], Callable[..., Any]]) -> Callable[[], Callable[..., Any]]:
    PROGRAMS[make.__name__.replace("_", " ")] = make
    return make


def _layers(count: int = 4) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(count))


def _stack(
    x: torch.Tensor, layers: nn.ModuleList, between: Callable[[torch.Tensor, int], Any]
) -> torch.Tensor:
    for i, layer in enumerate(layers):
        x = torch.tanh(layer(x))
        changed = between(x, i)
        x = x if changed is None else changed
    return x


def _with(between: Callable[[torch.Tensor, int], Any]) -> Callable[..., Any]:
    layers = _layers()
    return lambda x: _stack(x, layers, between)


@program
def print_in_a_loop() -> Callable[..., Any]:
    return _with(lambda x, i: print("layer", i))


@program
def print_of_a_tensor_s_mean() -> Callable[..., Any]:
    return _with(lambda x, i: print(f"{i}: {x.mean():.4f}"))


@program
def logging_a_scalar() -> Callable[..., Any]:
    log = logging.getLogger("bench.breaks")
    return _with(lambda x, i: log.info("layer %d: %s", i, x.shape))


@program
def a_warning() -> Callable[..., Any]:
    return _with(lambda x, i: warnings.warn("old", stacklevel=2) if i == 0 else None)


@program
def a_branch_on_a_sum() -> Callable[..., Any]:
    return _with(lambda x, i: x + 1 if x.sum() > 0 else x - 1)


@program
def an_assert_on_finite_values() -> Callable[..., Any]:
    def check(x: torch.Tensor, i: int) -> None:
        assert torch.isfinite(x).all(), "not finite"

    return _with(check)


@program
def item_as_a_factor() -> Callable[..., Any]:
    return _with(lambda x, i: x * x.abs().max().item())


@program
def item_in_a_branch() -> Callable[..., Any]:
    return _with(lambda x, i: x.clamp(-1, 1) if x.max().item() > 0.9 else x)


@program
def tolist_of_indices() -> Callable[..., Any]:
    return _with(lambda x, i: x[:, x.abs().sum(0).topk(WIDTH).indices.sort().values.tolist()[:WIDTH]])


@program
def a_while_loop_on_data() -> Callable[..., Any]:
    def shrink(x: torch.Tensor, i: int) -> torch.Tensor:
        while x.abs().sum() > 200:
            x = x * 0.7
        return x

    return _with(shrink)


@program
def boolean_masks() -> Callable[..., Any]:
    return _with(lambda x, i: x - x[x > 0].mean())


@program
def nonzero_routing() -> Callable[..., Any]:
    experts = _layers()

    def route(x: torch.Tensor) -> torch.Tensor:
        choice = x[:, :4].argmax(-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(experts):
            rows = torch.nonzero(choice == e).flatten()
            out.index_add_(0, rows, expert(x[rows]))
        return out

    return route


@program
def masked_scatter_of_rows() -> Callable[..., Any]:
    def fill(x: torch.Tensor, i: int) -> torch.Tensor:
        keep = x.sum(1) > 0
        x = x.clone()
        x[keep] = x[keep] * 0.5
        return x

    return _with(fill)


@program
def unique_values() -> Callable[..., Any]:
    return _with(lambda x, i: x + torch.unique((x * 4).round()).numel() * 1e-3)


@program
def repeat_interleave_by_counts() -> Callable[..., Any]:
    return _with(lambda x, i: x + x.repeat_interleave((x[:, 0] > 0).long() + 1, dim=0).mean(0))


@program
def time_and_counters() -> Callable[..., Any]:
    spent = {"calls": 0, "seconds": 0.0}

    def count(x: torch.Tensor, i: int) -> None:
        start = time.perf_counter()
        spent["calls"] += 1
        spent["seconds"] += time.perf_counter() - start

    return _with(count)


@program
def random_decisions() -> Callable[..., Any]:
    return _with(lambda x, i: x * random.uniform(0.9, 1.1))


@program
def numpy_in_the_middle() -> Callable[..., Any]:
    return _with(lambda x, i: torch.from_numpy(np.tanh(x.detach().numpy())))


@program
def a_lock() -> Callable[..., Any]:
    lock = threading.Lock()

    def locked(x: torch.Tensor, i: int) -> torch.Tensor:
        with lock:
            return x * 0.5

    return _with(locked)


@program
def json_of_shapes() -> Callable[..., Any]:
    return _with(lambda x, i: json.dumps({"layer": i, "shape": list(x.shape)}) and None)


@program
def deepcopy_of_options() -> Callable[..., Any]:
    options = {"scale": 0.5, "names": ["a", "b"]}
    return _with(lambda x, i: x * copy.deepcopy(options)["scale"])


@program
def a_generator() -> Callable[..., Any]:
    layers = _layers()

    def outputs(x: torch.Tensor) -> Any:
        for layer in layers:
            x = torch.tanh(layer(x))
            yield x

    return lambda x: sum(out.mean() for out in outputs(x))


@program
def a_caught_exception() -> Callable[..., Any]:
    def attempt(x: torch.Tensor, i: int) -> torch.Tensor:
        try:
            if i % 2:
                raise ValueError(i)
            return x + 1
        except ValueError:
            return x - 1

    return _with(attempt)


@program
def a_context_manager() -> Callable[..., Any]:
    @contextlib.contextmanager
    def section(name: str) -> Any:
        print("enter", name)
        yield
        print("leave", name)

    def inside(x: torch.Tensor, i: int) -> torch.Tensor:
        with section(str(i)):
            return x * 2

    return _with(inside)


@program
def a_cached_function() -> Callable[..., Any]:
    @functools.lru_cache
    def table(n: int) -> float:
        return math.sqrt(n)

    return _with(lambda x, i: x / table(x.shape[-1]))


@program
def lists_of_intermediates() -> Callable[..., Any]:
    kept: list[torch.Tensor] = []

    def keep(x: torch.Tensor, i: int) -> None:
        if i == 0:
            kept.clear()
        kept.append(x.mean())

    return _with(keep)


@program
def a_hand_written_lstm() -> Callable[..., Any]:
    cell = nn.LSTMCell(WIDTH, WIDTH)

    def run(x: torch.Tensor) -> torch.Tensor:
        h = c = torch.zeros(1, WIDTH)
        for row in x[:8]:
            h, c = cell(row[None], (h, c))
            if h.max() > 0.99:
                h = h * 0.5
        return h

    return run


@program
def early_stop_while_decoding() -> Callable[..., Any]:
    step = nn.Linear(WIDTH, WIDTH)

    def decode(x: torch.Tensor) -> torch.Tensor:
        h = x[:1]
        for _n in range(12):
            h = torch.tanh(step(h))
            if h.argmax().item() == 3:
                break
        return h

    return decode


@program
def beam_search() -> Callable[..., Any]:
    step = nn.Linear(WIDTH, WIDTH)

    def search(x: torch.Tensor) -> Any:
        beams = [(0.0, x[0], [])]
        for _ in range(4):
            grown = []
            for score, state, path in beams:
                logits = F.log_softmax(step(state), -1)
                values, tokens = logits.topk(2)
                for v, t in zip(values.tolist(), tokens.tolist(), strict=True):
                    grown.append((score + v, torch.tanh(step(state) + t), [*path, t]))
            beams = sorted(grown, key=lambda b: -b[0])[:2]
        return beams[0][2]

    return search


@program
def non_maximum_suppression() -> Callable[..., Any]:
    def suppress(x: torch.Tensor) -> torch.Tensor:
        boxes = x[:16, :4].abs()
        order = x[:16, 4].argsort(descending=True)
        keep = []
        while order.numel() > 0:
            first = order[0]
            keep.append(first)
            distance = (boxes[order] - boxes[first]).abs().sum(1)
            order = order[distance > 1.0]
        return torch.stack(keep)

    return suppress


@program
def gradient_norm_clipping() -> Callable[..., Any]:
    def clip(x: torch.Tensor, i: int) -> torch.Tensor:
        norm = x.norm()
        return x / norm if norm > 5 else x

    return _with(clip)


@program
def stream_writes() -> Callable[..., Any]:
    stream = io.StringIO()
    return _with(lambda x, i: stream.write(f"{i}\n") and None)


def inputs(call: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(call)
    return torch.randn(32, WIDTH, generator=generator) + (0.3 if call % 2 else -0.3)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def first_call(name: str, system: System) -> float:
    """Seconds of the first call of one program, for a process in which nothing was compiled before."""
    torch.manual_seed(0)
    fn, x = PROGRAMS[name](), inputs(0)
    call = fn if system is EAGER else system.compile(fn)
    with _quiet():
        start = time.perf_counter()
        call(x)
        return time.perf_counter() - start


def measure_program(name: str, systems: Sequence[System], rounds: int) -> Data:
    """Steady state of one program for all systems; eight inputs in turn."""
    xs = [inputs(i) for i in range(8)]
    thunks: dict[str, measure.Thunk] = {}
    rows: Data = {}
    with _quiet():
        for system in systems:
            system.reset()
            torch.manual_seed(0)
            fn = PROGRAMS[name]()
            call = fn if system is EAGER else system.compile(fn)
            call(xs[0])
            for _ in range(3):
                for x in xs:
                    call(x)
            rows[system.name] = {"counts": system.counts(call)}

            def run(calls: int, call: Callable[..., Any] = call) -> None:
                for i in range(calls):
                    call(xs[i % 8])

            thunks[system.name] = run
        warm_up_all(systems, {name: functools.partial(thunk, 8) for name, thunk in thunks.items()})
        calls = max(8, min(measure.calls_for(thunk, 0.02) for thunk in thunks.values()) // 8 * 8)
        for system, row in measure.summarize(measure.interleaved(thunks, rounds, calls)).items():
            rows[system].update(row)
    return rows
