"""What comes from outside while something is compiled or runs: signals, forks, interrupts, a lack of memory, threads.

By default a small sample; `--world` takes the full counts (50 of each signal, 100 forks, 500 interrupted calls).
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from children import in_fork
from harness import SANITIZER
from native_harness import in_threads
from torch import nn

import kintsugi

X = torch.linspace(-1, 1, 64)
torch.testing.assert_close(X, X)  # imports much, which an interrupt must not break off


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--world"))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path) -> Iterator[None]:
    with kintsugi.config.patch(cache_dir=tmp_path):
        kintsugi.clear_cache(disk=False)
        yield


def compile_many(first: int = 0, count: int = 10**6, sync: bool = True) -> None:
    """Each program has kernels of its own; each result is checked."""
    for k in range(first, first + count):

        def f(x: torch.Tensor, k: int = k) -> torch.Tensor:
            for bit in range(8):
                x = (x.exp() * 0.3).tanh() if k >> bit & 1 else x.sigmoid() * 2  # rounding does not grow
            return x

        compiled = kintsugi.compile(f, backend="native", options={"sync": sync})
        with torch.no_grad():
            for _ in range(3):
                torch.testing.assert_close(compiled(X), f(X), equal_nan=True)


def ended(child: int, seconds: float = 30) -> int:
    """The exit code; the test fails if the process hangs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the process did not end")


def forked(work) -> int:  # type: ignore[no-untyped-def]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            status = work() or 0
        except KeyboardInterrupt:
            status = 3
        finally:
            os._exit(status)
    return child


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_while_compiling(number: signal.Signals, sync: bool, full: bool, tmp_path: Path) -> None:
    chance = random.Random(int(number))
    for _ in range(25 if full else 2):
        child = forked(lambda: compile_many(sync=sync))
        time.sleep(chance.random() * 0.6)
        os.kill(child, number)
        assert ended(child) == (-signal.SIGTERM if number == signal.SIGTERM else 3)
    # What the killed left on disk is good, or is not used.
    assert in_fork(lambda: compile_many(count=3)) is None


def test_an_interrupted_process_goes_on(full: bool) -> None:
    def work() -> int:
        for attempt in range(3):
            try:
                compile_many(first=attempt * 40)
            except KeyboardInterrupt:
                continue
        compile_many(count=3)
        assert kintsugi.wait(30)
        return 7

    chance = random.Random(1)
    for _ in range(10 if full else 1):
        child = forked(work)
        for _ in range(3):
            time.sleep(0.1 + chance.random() * 0.3)
            os.kill(child, signal.SIGINT)
        assert ended(child, 60) == 7


def test_the_interpreter_ends_while_something_is_compiled(tmp_path: Path, full: bool) -> None:
    code = """
import kintsugi, signal, sys, torch, threading
torch.set_num_threads(1)
def f(x):
    for k in range(12):
        x = (x.exp() + k).sin().softmax(-1)
    return x
compiled = kintsugi.compile(f, backend="native")
x = torch.ones(8, 64)
for _ in range(3):
    compiled(x)
print("compiling", flush=True)
"""
    env = os.environ | {"KINTSUGI_CACHE_DIR": str(tmp_path / "fresh")}
    endings = ("", "sys.exit(5)", "raise KeyboardInterrupt", "signal.raise_signal(signal.SIGTERM)")
    for how in endings if full else endings[:2]:
        done = subprocess.run(
            [sys.executable, "-c", code + how], capture_output=True, text=True, env=env, timeout=60
        )
        wanted = {"": 0, "sys.exit(5)": 5, "raise KeyboardInterrupt": -signal.SIGINT}.get(
            how, -signal.SIGTERM
        )
        assert done.stdout == "compiling\n" and done.returncode == wanted, done.stderr


def test_forks_while_compiling(full: bool, tmp_path: Path) -> None:
    """The child has no thread that compiles, and must neither wait for one nor for its locks. With an empty folder of
    kernels, so that compiling takes its time."""
    with kintsugi.config.patch(cache_dir=tmp_path / "empty"):
        _fork_while_compiling(100 if full else 5)


def _fork_while_compiling(times: int) -> None:
    stop = threading.Event()

    def busy() -> None:
        with contextlib.suppress(RuntimeError):
            for k in range(0, 10**6, 4):
                if stop.is_set():
                    return
                compile_many(k % 256, 4, sync=False)
                kintsugi.reset()
                kintsugi.clear_cache(disk=False)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for k in range(times):
            time.sleep(0.02 * random.Random(k).random())
            child = forked(lambda k=k: compile_many(k, 1, sync=bool(k % 2)) or kintsugi.wait(20) is not True)
            assert ended(child, 60) == 0
    finally:
        stop.set()
        thread.join()
    assert kintsugi.wait(60)


def _interrupted(after: float, work: Callable[[], object]) -> bool:
    """Calls `work`, with a KeyboardInterrupt so many seconds later; whether it came before the end."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        work()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return True
    return False


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))
        self.seen: list[float] = []
        self.depth = [0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.depth[0] += 1  # no interrupt comes between this and `try`, nor within `finally`
        try:
            for part in self.parts:
                x = torch.relu(part(x))
                if x.sum() > 1e9:
                    x = -x
            self.seen.append(x[0, 0].item())
            return x
        finally:
            self.depth[0] -= 1


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_keyboard_interrupts_at_random_times(backend: str, full: bool) -> None:
    torch.manual_seed(0)
    model = Layers().eval()
    compiled = kintsugi.compile(model, backend=backend)
    x = torch.randn(4, 16)
    chance = random.Random(3)
    came = 0
    with torch.no_grad():
        wanted = model(x)
        for call in range(500 if full else 40):
            if call % 10 == 0:
                kintsugi.reset()  # this one is recorded
            scale = 0.02 if call % 10 == 0 else 0.0006
            model.seen.clear()
            interrupted = _interrupted(max(1e-6, chance.random() * scale), lambda: compiled(x))
            came += interrupted
            # Whatever was under way has been left as the program says: once, and with its finally blocks.
            assert model.depth == [0]
            assert len(model.seen) == 1 or (interrupted and not model.seen)
            model.seen.clear()
            torch.testing.assert_close(compiled(x), wanted)
            assert model.depth == [0] and len(model.seen) == 1
    assert came > 0


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_memory_errors_in_the_middle(backend: str) -> None:
    """A step that can't have its memory raises as in eager mode, with what was done before it done."""
    log: list[int] = []

    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x * 2
        log.append(n)
        try:
            kept = [0] * (n * 10**15 if n % 3 == 0 else n)
            z = torch.empty(n * 10**13 if n % 3 == 1 else n)
        except MemoryError:
            return y - 1
        except RuntimeError:
            log.append(-n)
            raise
        return y + len(kept) + len(z)

    compiled = kintsugi.compile(f, backend=backend)
    for n in list(range(1, 7)) * 4:
        results: list[object] = []
        for fn in (f, compiled):
            log.clear()
            try:
                results.append((fn(X, n).tolist(), list(log)))
            except RuntimeError as error:
                results.append((str(error).splitlines()[0].partition("DefaultCPUAllocator")[2], list(log)))
        assert results[0] == results[1]


@pytest.mark.skipif(SANITIZER, reason="the sanitizer's own memory is limited, too")
def test_little_memory(full: bool) -> None:
    """Under ever tighter limits a call has eager's result or raises, and the next one with room is right."""

    def work() -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = torch.sort(x.sin().exp(), dim=0).values + 1
            return x

        x = torch.randn(256, 1024)
        wanted = f(x)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
        for step in range(40 if full else 12):
            kintsugi.reset()
            compiled = kintsugi.compile(f, backend="native" if step % 2 else "eager")
            resource.setrlimit(resource.RLIMIT_AS, (used + (step << 19), resource.RLIM_INFINITY))
            for _ in range(3):
                with contextlib.suppress(
                    MemoryError, RuntimeError
                ):  # how often depends on what the heap has free
                    torch.testing.assert_close(compiled(x), wanted)
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            torch.testing.assert_close(compiled(x), wanted)

    in_fork(work)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("how", ["parameter", "data", "module"])
def test_weights_replaced_under_threads(how: str, backend: str, full: bool) -> None:
    """Sixteen threads call while another one puts other weights in place: each result is that of one of the two."""
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU()).eval().requires_grad_(False)
    weights = [torch.full((8, 8), 1.0), torch.full((8, 8), -3.0).abs()]
    layers = [nn.Linear(8, 8, bias=False).requires_grad_(False) for _ in weights]
    for layer, weight in zip(layers, weights, strict=True):
        layer.weight = nn.Parameter(weight.clone(), requires_grad=False)
    model[0].weight = nn.Parameter(weights[0].clone(), requires_grad=False)
    compiled = kintsugi.compile(model, backend=backend)
    x = torch.ones(2, 8)
    stop = threading.Event()
    kept: list[torch.Tensor] = []

    def replace() -> None:
        k = 0
        while not stop.is_set():
            k = 1 - k
            if how == "parameter":
                model[0].weight = nn.Parameter(weights[k].clone(), requires_grad=False)
            elif how == "data":
                # torch frees what it replaces, also under an operator that reads it in another thread.
                kept.append(model[0].weight.data)
                model[0].weight.data = weights[k].clone()
            else:
                model[0] = layers[k]
            time.sleep(0.0002)

    thread = threading.Thread(target=replace)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()

    def work(_k: int) -> None:
        with torch.no_grad():
            for _ in range(500 if full else 30):
                y = compiled(x)
                assert y.unique().tolist() in ([8.0], [24.0]), y

    try:
        in_threads(work, 16)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)
