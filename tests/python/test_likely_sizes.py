"""Operators of libraries say nothing of the sizes of their results: these are taken to be as they were, and
guarded. They may run Python code, so that native segments end in front of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from native_harness import assert_values, native
from training_harness import check_gradient_of_ones

import kintsugi


@torch.library.custom_op("kintsugi_likely::rows", mutates_args=())
def rows(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return x[: int(count)] * 2


@torch.library.custom_op("kintsugi_likely::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _runs(program: Any, backend: str, **options: Any) -> Any:
    return native(program, **options) if backend == "native" else kintsugi.compile(program, backend=backend)


def _traces(runner: Any) -> list[str]:
    return [str(text) for text in runner._kintsugi_compiled.traces()]


def test_one_trace() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = twice(x + 1)
        n = y.shape[0]
        return (y * n).tanh() + twice(y)

    x = torch.randn(5, 4)
    program(x)  # the first call of a process imports modules of torch
    runner = native(program)
    with torch.no_grad():
        for _ in range(4):
            assert_values(runner(x), program(x))
    stats = runner._kintsugi_compiled.stats()
    assert stats["native_segments"] == 3 and stats["native_runs"] >= 9 and stats["side_traces"] == 0, stats
    assert any("guard.meta" in text for text in _traces(runner))


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_sizes_that_vary_after_all(backend: str) -> None:
    def program(x: torch.Tensor, count: torch.Tensor, seen: list[Any]) -> Any:
        y = rows(x + 1, count)
        seen.append("rows")
        z = y.relu() * 3
        seen.append(z.shape[0])
        return (z + 1).sum(0), z

    runner = _runs(program, backend)
    x = torch.randn(9, 4)
    with torch.no_grad():
        for count in (3, 3, 3, 5, 5, 2, 7, 8, 3, 6, 4, 9, 1, 3):
            mine: list[Any] = []
            theirs: list[Any] = []
            wanted = program(x, torch.tensor(count), theirs)
            got = runner(x, torch.tensor(count), mine)
            assert_values(got, wanted)
            assert mine == theirs
    # The first surprise leaves the sizes open: one side trace does for all of them.
    assert runner._kintsugi_compiled.stats()["side_traces"] <= 2


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_nobody_but_python_looks(backend: str) -> None:
    def program(x: torch.Tensor, count: torch.Tensor) -> Any:
        y = rows(x, count)
        return x + y.shape[0], y.dim()

    runner = _runs(program, backend)
    x = torch.randn(9, 4)
    with torch.no_grad():
        for count in (3, 3, 3, 3, 5, 2, 3, 5):
            wanted = program(x, torch.tensor(count))
            assert_values(runner(x, torch.tensor(count)), wanted)


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_state_at_the_exit(backend: str) -> None:
    """What was written before the guard is there, once, when it fails inside a segment."""

    def program(x: torch.Tensor, count: torch.Tensor, total: torch.Tensor, seen: list[str]) -> Any:
        total.add_(1)
        part = torch.zeros_like(x)
        part[0] = x[1]
        y = rows(part + total, count)
        z = y * 2
        total.mul_(2)
        print_me = f"{tuple(z.shape)}"
        seen.append(print_me)
        return z.sum() + total

    runner = _runs(program, backend)
    x = torch.randn(9, 4)
    mine, theirs = torch.zeros(4), torch.zeros(4)
    with torch.no_grad():
        for count in (3, 3, 3, 3, 5, 3, 2, 5, 3):
            my: list[str] = []
            their: list[str] = []
            wanted = program(x, torch.tensor(count), theirs, their)
            got = runner(x, torch.tensor(count), mine, my)
            assert_values(got, wanted)
            assert_values(mine, theirs)
            assert my == their


def test_compared_with_replay() -> None:
    """While replay is measured, an exit leaves the segment in the middle."""

    def program(x: torch.Tensor, count: torch.Tensor) -> Any:
        y = rows(x + 1, count)
        return (y.tanh() + 1) * 2

    runner = kintsugi.compile(program, backend="native")
    x = torch.randn(9, 4)
    with torch.no_grad():
        for turn in range(60):
            count = 5 if turn % 3 == 2 and turn > 3 else 3
            assert_values(runner(x, torch.tensor(count)), program(x, torch.tensor(count)))
            if turn == 3:
                kintsugi.wait()


def test_static_shapes_are_asked_for() -> None:
    def program(x: torch.Tensor, count: torch.Tensor) -> Any:
        return rows(x, count).relu() + 1

    runner = kintsugi.compile(program, backend="eager", dynamic=False)
    x = torch.randn(9, 4)
    for count in (3, 3, 5, 5, 3, 2, 5):
        assert_values(runner(x, torch.tensor(count)), program(x, torch.tensor(count)))


def test_with_gradients() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (twice(x.detach()) + x).tanh().sum()

    check_gradient_of_ones(program, 5, 4, calls=4)
