"""Any number of threads may call one compiled callable: right results, one compile a key, no race with reset."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import kintsugi

THREADS = 32


def _compile(function: Any) -> Any:
    return kintsugi.compile(function, backend="eager")


@pytest.fixture
def calls(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--thread-calls"))


@pytest.fixture(autouse=True)
def _switch_often() -> Any:
    """Threads take turns a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def _in_threads(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """All threads start at once; the first exception of any is raised here."""
    gate = threading.Barrier(count)

    def start(number: int) -> Any:
        gate.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return [
            future.result(timeout=300) for future in [pool.submit(start, number) for number in range(count)]
        ]


def test_one_callable(calls: int) -> None:
    def step(x: torch.Tensor, scale: float = 3.0) -> torch.Tensor:
        y = x * scale
        return y + x.sum()

    compiled = _compile(step)

    def work(number: int) -> None:
        x = torch.full((4,), float(number))
        expected = step(x)
        for _ in range(calls):
            assert torch.equal(compiled(x), expected)

    _in_threads(work)
    stats = compiled.stats()
    assert stats.trace_count == 1, stats
    assert stats.hits + stats.misses == THREADS * calls, stats
    # While the first call records, the others may run in eager; once the trace is there, every call runs it.
    _in_threads(work)
    assert compiled.stats().hits - stats.hits == THREADS * calls, compiled.stats()


def test_several_keys(calls: int) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * x.shape[0]

    compiled = _compile(step)

    def work(number: int) -> None:
        sizes = [1 + (number + shift) % 4 for shift in range(4)]
        for turn in range(calls):
            x = torch.full((sizes[turn % 4],), float(turn))
            assert torch.equal(compiled(x), step(x))

    _in_threads(work)
    assert compiled.stats().trace_count <= 4, compiled.stats()


def test_a_module_with_gradients(calls: int) -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
    compiled = _compile(module)

    def work(number: int) -> None:
        x = torch.full((2, 4), number / 10, requires_grad=True)
        (expected,) = torch.autograd.grad(module(x).sum(), x)
        for _ in range(calls // 4):
            (found,) = torch.autograd.grad(compiled(x).sum(), x)
            assert torch.equal(found, expected)

    _in_threads(work)


def test_effects_of_every_call_happen(calls: int) -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

    def step(counter: Counter, seen: list[float], x: torch.Tensor) -> torch.Tensor:
        counter.count += 1
        seen.append(float(counter.count))
        return x + 1

    compiled = _compile(step)

    def work(_: int) -> int:
        counter, seen = Counter(), []  # type: ignore[var-annotated]
        for _ in range(calls):
            compiled(counter, seen, torch.zeros(2))
        assert seen == [float(number + 1) for number in range(calls)]
        return counter.count

    assert _in_threads(work) == [calls] * THREADS


def test_grad_mode_belongs_to_the_thread(calls: int) -> None:
    weight = torch.ones(3, requires_grad=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        return x * weight

    compiled = _compile(step)

    def work(number: int) -> None:
        with torch.set_grad_enabled(number % 2 == 0):
            for _ in range(calls):
                assert compiled(torch.ones(3)).requires_grad == (number % 2 == 0)

    _in_threads(work)


def test_side_exits(calls: int) -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        total = x
        for _ in range(3):
            if total.sum() > 0:
                total = total - 1
            else:
                total = total * 2 + 3
        return total

    compiled = _compile(branch)

    def work(number: int) -> None:
        for turn in range(calls):
            x = torch.full((2,), float((number + turn) % 5 - 2))
            assert torch.equal(compiled(x), branch(x))

    _in_threads(work)


def test_reset_while_others_call(calls: int) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).sin()

    compiled = _compile(step)
    x = torch.arange(4.0)
    expected = step(x)

    def work(number: int) -> None:
        for turn in range(calls):
            if number == 0 and turn % 10 == 0:
                kintsugi.reset()
            assert torch.equal(compiled(x), expected)

    _in_threads(work, 8)


def test_compiling_in_every_thread(calls: int) -> None:
    def work(number: int) -> None:
        for turn in range(max(4, calls // 10)):
            shift = number * 1000 + turn

            def step(x: torch.Tensor, shift: int = shift) -> torch.Tensor:
                return x + shift

            compiled = _compile(step)
            for _ in range(3):
                assert compiled(torch.zeros(1)).item() == shift

    _in_threads(work, 8)


def test_calls_inside_calls(calls: int) -> None:
    inner = _compile(lambda x: x * 2)

    def outer(x: torch.Tensor, depth: int) -> torch.Tensor:
        x = inner(x) + 1
        return compiled(x, depth - 1) if depth else x

    compiled = _compile(outer)

    def work(_: int) -> None:
        for turn in range(calls // 4):
            depth, expected = turn % 3, 1.0
            for _ in range(depth + 1):
                expected = expected * 2 + 1
            assert compiled(torch.ones(1), depth).item() == expected

    _in_threads(work, 8)


def test_first_calls_at_once_record_once() -> None:
    """While one thread records, the others wait for it or run in eager; they do not record the same thing again."""

    def slow(x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return x + 1

    for _ in range(5):
        compiled = _compile(slow)
        results = _in_threads(lambda _, call=compiled: call(torch.zeros(1)).item(), 8)  # type: ignore[misc]
        assert results == [1.0] * 8
        assert compiled.stats().trace_count == 1, compiled.stats()


def test_a_thread_in_a_compiled_function() -> None:
    """A thread that the function starts is not recorded."""

    def spawn(x: torch.Tensor) -> torch.Tensor:
        found: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: found.append(x * 3))
        thread.start()
        thread.join()
        return found[0] + 1

    compiled = _compile(spawn)
    for value in (1.0, 2.0, 3.0):
        assert torch.equal(compiled(torch.full((2,), value)), torch.full((2,), 3 * value + 1))
