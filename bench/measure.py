"""Timing: interleaved rounds, medians, and forked children so that a crash costs one row, not the run."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import pickle
import select
import signal
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

Thunk = Callable[[int], Any]


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """The cycle collector runs at times that have nothing to do with what is measured."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def seconds(thunk: Thunk, calls: int) -> float:
    """Seconds a call, over `calls` calls. The thunk makes that many calls itself, so that a loop costs little."""
    start = time.perf_counter()
    thunk(calls)
    return (time.perf_counter() - start) / calls


def peak_memory(work: Callable[[], Any]) -> int:
    """Bytes of torch's CPU allocator that `work` holds at most, beyond what was held before."""
    gc.collect()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        kept = work()
    del kept
    held = most = 0
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def loop(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Thunk:
    """Makes as many calls as it is told."""

    def run(calls: int) -> None:
        if kwargs:
            for _ in range(calls):
                call(*args, **kwargs)
        else:
            for _ in range(calls):
                call(*args)

    return run


def calls_for(thunk: Thunk, target: float, most: int = 1_000_000) -> int:
    """How many calls take about `target` seconds."""
    calls = 1
    while True:
        spent = seconds(thunk, calls) * calls
        if spent >= target / 4 or calls >= most:
            return max(1, min(most, int(calls * target / max(spent, 1e-9))))
        calls *= 4


def interleaved(thunks: dict[str, Thunk], rounds: int, calls: int) -> dict[str, list[float]]:
    """Seconds a call for each thunk and each round; the order rotates so that none always runs first."""
    names = list(thunks)
    times: dict[str, list[float]] = {name: [] for name in names}
    with no_collection():
        for turn in range(rounds):
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                times[name].append(seconds(thunks[name], calls))
    return times


def summarize(times: dict[str, list[float]], base: str = "eager") -> dict[str, dict[str, float]]:
    """Median seconds a call, and the median over rounds of the speed-up and of the excess over `base`."""
    rows = {}
    for name, series in times.items():
        pairs = list(zip(times[base], series, strict=True))
        rows[name] = {
            "seconds": statistics.median(series),
            "speedup": statistics.median(first / second for first, second in pairs),
            "excess_us": 1e6 * statistics.median(second - first for first, second in pairs),
        }
    return rows


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


class Overtime(Exception):
    """A step took longer than it was allowed to."""


@contextlib.contextmanager
def limit(allowed: float) -> Iterator[None]:
    """Raises Overtime in the main thread when the body takes longer than `allowed` seconds."""

    def late(_signal: int, _frame: Any) -> None:
        raise Overtime(f"longer than {allowed:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, allowed)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _child(work: Callable[[], Any], pipe: int) -> None:
    try:
        answer = ("ok", work())
    except BaseException:
        answer = ("error", traceback.format_exc(limit=-6))
    with contextlib.suppress(BaseException), os.fdopen(pipe, "wb") as out:
        pickle.dump(answer, out)
    os._exit(0)


def isolated(work: Callable[[], Any], allowed: float) -> tuple[str, Any]:
    """Runs `work` in a forked child: ("ok", result), ("error", traceback), ("crash", why) or ("timeout", why).

    The caller must not have started threads (torch starts its own at the first parallel kernel), so a parent only
    imports; each child then begins with the same warm interpreter and no compiled code.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        _child(work, send)
    os.close(send)
    data = bytearray()
    end = time.monotonic() + allowed
    with os.fdopen(receive, "rb") as pipe:
        while (left := end - time.monotonic()) > 0:
            if not select.select([pipe], [], [], left)[0]:
                continue
            chunk = os.read(pipe.fileno(), 1 << 16)
            if not chunk:
                break
            data += chunk
        else:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if left <= 0:
        return "timeout", f"longer than {allowed:g} s"
    if os.WIFSIGNALED(status):
        return "crash", signal.Signals(os.WTERMSIG(status)).name
    return pickle.loads(bytes(data)) if data else ("crash", f"exit status {os.WEXITSTATUS(status)}")
