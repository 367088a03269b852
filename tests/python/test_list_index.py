"""Tensors that bindings make of lists of integers (`x[[2, 0]]`) are operations of the trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from native_harness import assert_values, native
from training_harness import check_gradient_of_ones

import kintsugi


def _runner(program: Any, backend: str) -> Any:
    return native(program) if backend == "native" else kintsugi.compile(program, backend=backend)


def _check(runner: Any, program: Any, *args: Any) -> None:
    wanted, got = program(*args), runner(*args)
    for a, b in zip(got, wanted, strict=True):
        assert a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
        assert_values(a, b)


INDICES = [[-2], [0], [1, 1, 1], [0, 1, 2], [3, 1, -1], [2, 0, 3, 1], [0, 0, 2]]


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_constants(backend: str) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = [x[..., index, :] * 2 for index in INDICES]
        y = x.clone()
        y[[0, 2]] = 5.0
        y[:, [1]] = x[:, [0]]
        return *out, y, x[[0, 1, 3], [1, 1, 0]], x[:2, [3, 0]]

    runner = _runner(program, backend)
    with torch.no_grad():
        for _ in range(4):
            _check(runner, program, torch.randn(4, 4, 4))
    core = runner._kintsugi_compiled
    assert core.stats()["graph_break_count"] == 0 and not core.breaks()
    assert "call." not in str(core.traces()[0])


class Holder:
    index = [0, 2]


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_lists_that_change(backend: str) -> None:
    holder = Holder()

    def program(x: torch.Tensor, given: list[int], n: int) -> tuple[torch.Tensor, ...]:
        return x[given] + 1, x[holder.index] * 2, x[[n, 0, n + 1]]

    runner = _runner(program, backend)
    x = torch.randn(4, 5)
    with torch.no_grad():
        for turn in range(3):
            for given, n in (([0, 1], 1), ([0, 1], 1), ([3, 1], 2), ([2, 2, 1], 0), ([0, 1], 1)):
                _check(runner, program, x, given, n)
            holder.index = [3, turn]


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_numbers_of_the_run(backend: str) -> None:
    def program(x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = int(at.item())
        return x[[first, 0]], x[[first]] + 1

    runner = _runner(program, backend)
    x = torch.randn(6, 5)
    with torch.no_grad():
        for first in (1, 1, 2, 5, 0, 3, 1):
            _check(runner, program, x, torch.tensor(first))


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_other_lists(backend: str) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[[True, False, True, False]], x[list(range(4)) * 5], x[:, []], x[[[0, 1]], [[2, 3]]]

    runner = _runner(program, backend)
    with torch.no_grad():
        for _ in range(3):
            _check(runner, program, torch.randn(4, 4))


def test_an_index_that_is_not_there() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x[[0, 4]] * 2

    runner = native(program)
    for rows in (5, 5, 6, 3):
        x = torch.randn(rows, 2)
        try:
            wanted = program(x)
        except IndexError as error:
            with pytest.raises(IndexError) as found:
                runner(x)
            assert str(found.value) == str(error)
        else:
            assert_values(runner(x), wanted)


def test_gradients() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x[:, [2, 0]] * x[[1, 3]][:, :2].sum()).sum()

    check_gradient_of_ones(program, 4, 4, calls=3)
