"""Compiled functions after fork(), in a fork() during use, and in the children of multiprocessing."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from children import DEADLINE_S, in_fork
from torch import nn

import kintsugi


def _double(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x))


def test_compiled_before_the_fork() -> None:
    compiled = kintsugi.compile(_double, backend="eager")
    x = torch.arange(3.0)
    expected = _double(x).tolist()
    assert [compiled(x).tolist() for _ in range(3)] == [expected] * 3

    def work() -> tuple[list[float], int]:
        hits = compiled.stats().hits
        return compiled(x).tolist(), compiled.stats().hits - hits

    assert in_fork(work) == (expected, 1)  # the child replays what the parent recorded
    assert compiled(x).tolist() == expected


def test_first_call_in_the_child() -> None:
    compiled = kintsugi.compile(_double, backend="eager")
    x = torch.arange(3.0)
    assert in_fork(lambda: [compiled(x).tolist() for _ in range(3)]) == [_double(x).tolist()] * 3
    assert compiled.stats().misses == 0
    assert compiled(x).tolist() == _double(x).tolist()


def test_a_new_shape_and_reset_in_the_child() -> None:
    compiled = kintsugi.compile(_double, backend="eager")
    compiled(torch.zeros(3))

    def work() -> list[list[float]]:
        seen = [compiled(torch.zeros(5)).tolist(), compiled(torch.zeros(3)).tolist()]
        kintsugi.reset()
        return [*seen, compiled(torch.zeros(3)).tolist()]

    assert in_fork(work) == [[1.0] * 5, [1.0] * 3, [1.0] * 3]


def test_fork_while_other_threads_call() -> None:
    """Locks of threads that do not exist in the child must not block it."""
    compiled = kintsugi.compile(_double, backend="eager")
    stop = threading.Event()

    def busy(size: int) -> None:
        while not stop.is_set():
            compiled(torch.zeros(size))
            if size == 1:
                kintsugi.reset()

    threads = [threading.Thread(target=busy, args=(size,)) for size in range(1, 5)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            time.sleep(0.005)
            assert in_fork(lambda: compiled(torch.zeros(2)).tolist()) == [1.0, 1.0]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_fork_inside_a_compiled_function() -> None:
    def forks(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        child = os.fork()
        if child == 0:
            os._exit(7 if (y * 2)[0].item() == 4.0 else 1)
        status = os.waitpid(child, 0)[1]
        return y + os.waitstatus_to_exitcode(status)

    compiled = kintsugi.compile(forks, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2)).tolist() == [9.0, 9.0]


def test_training_in_the_child() -> None:
    torch.manual_seed(0)
    module = Small()
    compiled = kintsugi.compile(module, backend="eager")
    x = torch.ones(2, 3)
    expected = torch.autograd.grad(compiled(x).sum(), module.fc.weight)[0].tolist()
    assert in_fork(lambda: torch.autograd.grad(compiled(x).sum(), module.fc.weight)[0].tolist()) == expected


def _child(queue: Any) -> None:
    torch.set_num_threads(1)
    compiled = kintsugi.compile(_double, backend="eager")
    queue.put([compiled(torch.arange(3.0)).tolist() for _ in range(3)])
    queue.put(compiled.stats().hits)


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing(method: str) -> None:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_child, args=(queue,))
    process.start()
    try:
        assert queue.get(timeout=DEADLINE_S) == [[1.0, 3.0, 5.0]] * 3
        assert queue.get(timeout=DEADLINE_S) == 2
    finally:
        process.join(DEADLINE_S)
        if process.is_alive():
            process.kill()
    assert process.exitcode == 0


class Halves(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """A data set whose items are made by a compiled function in the workers of a DataLoader."""

    def __init__(self) -> None:
        self.prepare = kintsugi.compile(_double, backend="eager")

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.prepare(torch.tensor([float(index)]))


def test_data_loader_workers() -> None:
    loader = torch.utils.data.DataLoader(
        Halves(), batch_size=4, num_workers=2, timeout=DEADLINE_S, multiprocessing_context="fork"
    )
    assert [batch.flatten().tolist() for batch in loader] == [[1.0, 3.0, 5.0, 7.0], [9.0, 11.0, 13.0, 15.0]]


def test_forks_at_any_moment_of_a_compilation() -> None:
    # What the thread has half done when the process forks is done anew in the child, and nothing twice.
    x = torch.randn(64)
    forks = 24

    def build(k: int) -> tuple[Callable[..., torch.Tensor], Any]:
        def fn(x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(torch.tanh(x) * (k + 0.25) - x.exp(), -1)

        compiled = kintsugi.compile(fn, backend="native")
        compiled(x), compiled(x)
        return fn, compiled

    usual = 0.0
    for k in range(3):  # the first one starts the compiler
        start = time.perf_counter()
        build(-1 - k)
        assert kintsugi.wait(DEADLINE_S)
        usual = time.perf_counter() - start
    for k in range(forks):
        fn, compiled = build(k)
        time.sleep(1.5 * usual * k / forks)

        def work(compiled: Any = compiled) -> tuple[bool, int, int, list[float]]:
            done = kintsugi.wait(DEADLINE_S)
            stats = compiled.stats()
            return done, stats.native_ready, stats.native_refused, compiled(x).tolist()

        done, ready, refused, values = in_fork(work)
        assert (done, ready, refused) == (True, 1, 0), k
        torch.testing.assert_close(torch.tensor(values), fn(x))
    assert kintsugi.wait(DEADLINE_S)
