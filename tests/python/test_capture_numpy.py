"""numpy inside compiled functions: its functions, ufuncs and methods are steps of the trace, not breaks in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from harness import Case, Suite, check, check_captured

import kintsugi

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


@case()
def functions_and_methods(x):
    grid = np.arange(6).reshape(2, 3)
    joined = np.concatenate([grid, np.ones((1, 3), dtype=grid.dtype) * 7])
    return x + torch.from_numpy(joined.astype(np.float32)).sum(), joined.max().item(), joined.shape


@factory()
def make_random_numbers_of_numpy():
    generator = np.random.RandomState(5)

    def program(x):
        scale = generator.rand(1).item()
        chosen = generator.choice(np.arange(10), 3, replace=False)
        return x * scale, chosen

    return program, generator


@case()
def items_are_stored(x):
    mask = np.zeros((3, 4), dtype=bool)
    mask[1] = True
    mask[:, 0] = True
    mask[mask] = mask[mask] ^ (np.arange(6) > 2)
    return torch.where(torch.from_numpy(mask), x, -x), mask


@case()
def decided_by_an_array(x):
    sizes = np.array(x.shape)
    if (sizes % np.power(2, 3) > 0).any():
        return x + 1
    return x - 1


@case()
def known_numbers_stay_known(x):
    half = np.log(4.0) / np.log(16.0)
    y = torch.zeros_like(x).uniform_(-half, half)
    return x.new_full((int(np.ceil(2.5)) * 2,), float(-half)), y.abs().max() <= 0.5


def array_that_came_in(call):
    return torch.ones(3, 4), np.full((4,), call, dtype=np.float32)


@case(inputs=array_that_came_in)
def argument_is_changed(x, a):
    a += 1
    np.multiply(a, 2, out=a)
    return x * torch.from_numpy(a), a.sum().item()


class Listed:
    """Python code that numpy runs: its step can change anything."""

    def __init__(self):
        self.asked = 0

    def __array__(self, dtype=None, copy=None):
        self.asked += 1
        return np.arange(3.0)


@factory(breaks=None, traces=None)
def make_python_inside_numpy():
    listed = Listed()

    def program(x):
        before = listed.asked
        total = np.sum(listed).item()
        return x * total, before, listed.asked

    return program, listed


@factory(breaks=None, traces=None)
def make_ufunc_of_python():
    seen = []
    double = np.frompyfunc(lambda n: (seen.append(n), 2 * n)[1], 1, 1)

    def program(x):
        doubled = double(np.arange(3))
        return x + len(seen), doubled.tolist()

    return program, seen


@factory(breaks=None, traces=None)
def make_array_is_resized():
    held = np.arange(4)

    def program(x):
        before = held.shape
        held.resize((held.shape[0] + 1,), refcheck=False)
        return x + held.shape[0], before, held.shape

    return program, held


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)


def test_an_array_that_decides_leaves_the_trace_when_it_says_otherwise() -> None:
    def program(x: torch.Tensor, a: np.ndarray) -> torch.Tensor:
        return x + 1 if (a > 0).any() else x - 1

    compiled = kintsugi.compile(program, backend="eager")
    x = torch.zeros(2)
    for number in (1, -1, 1, -1, 1):
        a = np.array([number, -5])
        assert torch.equal(compiled(x, a), program(x, a))
    assert compiled.stats().misses == 1


def test_tensors_are_indexed_by_arrays_that_a_call_makes() -> None:
    def program(x: torch.Tensor, rows: Any) -> Any:
        order = np.random.permutation(len(x))
        y = x.clone()
        for at in range(0, len(order), 2):
            batch = order[at : at + 2]
            y[batch] = y[batch] * 2 + x[batch, 0:1]
        return y, x[rows], x[rows, :1], x[np.array([True, False] * (len(x) // 2))], (y[order] ** 2).sum()

    compiled = kintsugi.compile(program, backend="eager")
    for turn in range(8):
        results = []
        for function in (program, compiled):
            np.random.seed(turn)
            x = torch.arange(18.0).reshape(6, 3).requires_grad_()
            out = function(x, np.array([turn % 6, 1, 2]))
            out[-1].backward()
            results.append([*out, x.grad])
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert compiled.stats().side_exits == 0 and compiled.stats().trace_count == 1
