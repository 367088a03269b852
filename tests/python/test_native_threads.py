"""Native code that arrives while other threads call: many swaps, right results all the time.

By default some swaps and threads; `--thread-calls 1000` makes a thousand swaps with 32 threads.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from harness import SANITIZER
from native_harness import assert_same, in_threads

import kintsugi

THREADS = 32
AT_ONCE = 10
Function = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture
def swaps(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--thread-calls"))


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def program(seed: int) -> Function:
    """A chain of operations; other seeds give other kernels, but some have the same."""
    r = random.Random(seed)
    steps: list[Function] = [
        lambda x: F.gelu(x) * 2,
        lambda x: torch.tanh(x) + x,
        lambda x: F.softmax(x, -1) - 0.5,
        lambda x: x * torch.sigmoid(x),
        lambda x: F.layer_norm(x, (8,)),
        lambda x: x - x.mean(-1, keepdim=True),
    ]
    chosen = r.choices(steps, k=3)

    def run(x: torch.Tensor) -> torch.Tensor:
        for step in chosen:
            x = step(x)
        return x

    return run


def test_swaps_under_calls(swaps: int) -> None:
    """All threads call the same functions, whose code arrives one after another."""
    x = torch.randn(3, 8)
    ready = 0
    for first in range(0, swaps, AT_ONCE):
        programs = [program(seed) for seed in range(first, first + AT_ONCE)]
        with torch.no_grad():
            wanted = [fn(x) for fn in programs]
        runners = [kintsugi.compile(fn, backend="native") for fn in programs]
        arrived = threading.Event()

        def work(
            k: int,
            runners: list[Function] = runners,
            wanted: list[torch.Tensor] = wanted,
            arrived: threading.Event = arrived,
        ) -> None:
            for turn in range(40):
                if turn > AT_ONCE and arrived.is_set():
                    break
                at = (k + turn) % AT_ONCE
                assert_same(runners[at](x), wanted[at])
                if k == 0 and turn == AT_ONCE:
                    kintsugi.wait(30)
                    arrived.set()

        in_threads(work, THREADS if swaps >= 1000 else 8)
        assert kintsugi.wait(60)
        for runner, value in zip(runners, wanted, strict=True):
            with torch.no_grad():
                assert_same(runner(x), value)
            stats = runner.stats()
            assert stats.native_segments == stats.native_ready + stats.native_refused
            ready += stats.native_ready
        kintsugi.reset()
    assert ready >= swaps * 0.9


def test_reset_while_code_arrives(swaps: int) -> None:
    """Segments that are dropped while they are compiled, or while other threads run them."""
    x = torch.randn(3, 8)
    fn = program(3)
    with torch.no_grad():
        wanted = fn(x)
    runner = kintsugi.compile(fn, backend="native")

    def work(k: int) -> None:
        for turn in range(max(swaps // 10, 10)):
            assert_same(runner(x), wanted)
            if k == 0 and turn % 3 == 2:
                kintsugi.reset()

    in_threads(work, 8)
    assert kintsugi.wait(60)


@pytest.mark.skipif(SANITIZER, reason="freed memory stays in the sanitizer's quarantine")
def test_memory_of_many_swaps_does_not_grow(swaps: int) -> None:
    """What a segment had is given back when it is dropped: kernels are shared, plans and frames are not."""

    def rounds(count: int) -> None:
        for seed in range(count):
            runner = kintsugi.compile(program(seed % 7), backend="native", options={"sync": True})
            with torch.no_grad():
                for rows in (2, 5):
                    runner(torch.randn(rows, 8))
                    runner(torch.randn(rows, 8))
            kintsugi.reset()

    rounds(60)
    before = _resident()
    rounds(max(swaps, 60))
    grown = _resident() - before
    assert grown < 8 << 20, f"{grown >> 10} KiB more"


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def _time_on_processors() -> dict[str, int]:
    """Nanoseconds that each thread of the process has run so far, by its number."""
    times = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # threads end
            times[task.name] = int((task / "schedstat").read_text().split()[0])
    return times


def test_kernels_are_shared_by_torchs_threads() -> None:
    """Two threads have computed, however many other programs the processors are shared with."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        compiled = kintsugi.compile(
            lambda x: (x.exp().sin() + x.tanh()).erf(), backend="native", options={"sync": True}
        )
        x = torch.randn(2000, 1000)
        with torch.no_grad():
            compiled(x), compiled(x)
            start = _time_on_processors()
            for _ in range(20):
                compiled(x)
            spent = sorted(time - start.get(task, 0) for task, time in _time_on_processors().items())
        assert compiled.stats().native_runs > 0
        assert spent[-2] > sum(spent) / 4
    finally:
        torch.set_num_threads(before)
