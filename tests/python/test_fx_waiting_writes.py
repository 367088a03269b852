"""Writes to older tensors in graphs of FX backends, behind and in front of decisions on contents.

A decision waits for the end of the graph. Where it is another one than it was, what the graph has written behind it is
restored, and the program goes on in front of it. After each call results, buffers with their versions, gradients and
the next random numbers are compared with eager mode's, in calls in which each decision changes alone and together with
others.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from fx_recorder import Recorder
from harness import describe
from torch import nn

import kintsugi

Tensor = torch.Tensor


class Buffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("ready", torch.tensor(False))
        self.register_buffer("mean", torch.ones(3, 3))
        self.register_buffer("size", torch.zeros(3))


def _count(m: Any, y: Tensor) -> Tensor:
    m.count += 1
    return y


def _ready(m: Any, y: Tensor) -> Tensor:
    m.ready.copy_(torch.tensor(True))
    return y


def _average(m: Any, y: Tensor) -> Tensor:
    with torch.no_grad():
        m.mean.mul_(0.9).add_(y.detach(), alpha=0.1)
        m.size.lerp_(y.detach().sum(0), 0.5)
    return y + m.mean


def _view(m: Any, y: Tensor) -> Tensor:
    m.mean[1].fill_(3)
    m.mean.t()[2].add_(1)
    return y * m.mean


def _rows(m: Any, y: Tensor) -> Tensor:
    m.mean.index_add_(0, torch.tensor([0, 2, 0]), y.detach())
    m.size[torch.tensor([1])] = 7.0
    return y + m.size


def _drawn(m: Any, y: Tensor) -> Tensor:
    m.mean.add_(torch.rand(3, 3))
    return F.dropout(y, 0.5)


def _own(m: Any, y: Tensor) -> Tensor:
    z = y * 2
    z += 1
    z[0] = 3
    return z


WRITES: list[Callable[[Any, Tensor], Tensor]] = [_count, _ready, _average, _view, _rows, _drawn, _own]


def _by_made(m: Any, y: Tensor, x: Tensor) -> int:
    return 1 if x.sum() > 0 else 2


def _by_count(m: Any, y: Tensor, x: Tensor) -> int:
    if m.count >= 3:
        m.count.zero_()
        return 3
    return 4


def _by_flag(m: Any, y: Tensor, x: Tensor) -> int:
    return 5 if m.ready else 6


def _by_view(m: Any, y: Tensor, x: Tensor) -> int:
    return 7 if m.mean[1, 1] > 2 else 8


def _by_element(m: Any, y: Tensor, x: Tensor) -> float:
    n = m.size[0].item()
    return n if n > 0.5 else -n


def _raises(m: Any, y: Tensor, x: Tensor) -> int:
    if (x < -2).any():
        raise ValueError("negative")
    return 9


DECISIONS = [_by_made, _by_count, _by_flag, _by_view, _by_element, _raises]
SCALES = [1, 1, 1, -1, 1, -3, 1, 1, -1]


def _called(function: Any, m: Any, call: int, scale: float, grad: bool) -> Any:
    x = torch.full((3, 3), float(scale))
    x[0] += call * 0.01
    torch.manual_seed(call)
    if call == 6:
        m.ready.zero_()
    made: Any = None
    with torch.set_grad_enabled(grad):
        try:
            made = function(x, m)
            if grad:
                made[0].sum().backward()
        except (ValueError, RuntimeError) as error:
            made = (type(error), error.args)
    versions = [b._version for b in m.buffers()]
    return describe((made, m.state_dict(), versions, [p.grad for p in m.parameters()], torch.rand(2)))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("decide", DECISIONS)
@pytest.mark.parametrize("write", WRITES)
def test_decisions_and_writes(write: Any, decide: Any, grad: bool) -> None:
    for other, second in list(itertools.product(WRITES, DECISIONS))[::4]:

        def f(x: Tensor, m: Any, other: Any = other, second: Any = second) -> Any:
            y = m.linear(x).relu()
            a = decide(m, y, x)
            y = write(m, y + 1)
            b = second(m, y, x)
            y = other(m, y * 2)
            c = decide(m, y, x)
            return y * 2, a, b, c

        compiled = kintsugi.compile(f, backend=Recorder())
        model = Buffers()
        mine, theirs = copy.deepcopy(model), copy.deepcopy(model)
        for call, scale in enumerate(SCALES):
            expected = _called(f, theirs, call, scale, grad)
            assert _called(compiled, mine, call, scale, grad) == expected, (other, second, call)


@pytest.mark.parametrize("grad", [False, True])
def test_a_counter_behind_its_question_is_one_graph(grad: bool) -> None:
    def f(x: Tensor, m: Any) -> Any:
        y = m.linear(x)
        if m.count >= 4:
            m.count.zero_()
            return y, 0
        m.count += 1
        return (y.relu() * m.count).sum(1), 1

    backend = Recorder()
    compiled, model = kintsugi.compile(f, backend=backend), Buffers()
    mine, theirs = copy.deepcopy(model), copy.deepcopy(model)
    for call in range(4):
        assert _called(compiled, mine, call, 1, grad) == _called(f, theirs, call, 1, grad)
    assert len(backend.graphs) == 1
    for call in range(4, 14):
        assert _called(compiled, mine, call, 1, grad) == _called(f, theirs, call, 1, grad)


def test_averages_behind_a_flag_are_one_graph() -> None:
    def f(x: Tensor, m: Any) -> Any:
        y = x @ m.mean
        if not m.ready:
            m.ready.fill_(True)
            m.mean.copy_(x)
        m.mean.mul_(0.9).add_(y, alpha=0.1)
        m.size.mul_(0.5).add_(y.sum(0))
        if (m.size < -100).any():
            m.mean.zero_()
        return y + m.mean

    backend = Recorder()
    compiled, model = kintsugi.compile(f, backend=backend), Buffers()
    mine, theirs = copy.deepcopy(model), copy.deepcopy(model)
    for m in (mine, theirs):
        m.ready.fill_(True)
    for call, scale in enumerate([1, 2, 1, -1]):
        assert _called(compiled, mine, call, scale, False) == _called(f, theirs, call, scale, False)
    assert len(backend.graphs) == 1
    for call, scale in enumerate([-90, 1, 90, -90, 1, 1, 1]):
        assert _called(compiled, mine, call, scale, False) == _called(f, theirs, call, scale, False)


def test_what_is_asked_may_be_the_memory_that_is_written_to() -> None:
    def f(x: Tensor, flag: Tensor, total: Tensor) -> Any:
        y = x * 2
        if flag:
            total.add_(y.sum())
            return y + total, 1
        return y, 2

    compiled = kintsugi.compile(f, backend=Recorder())
    for call in range(10):
        results = []
        for function in (f, compiled):
            x, both = torch.ones(3) * (call % 3 - 1), torch.tensor([float(call % 2), -6.0])
            flag = both[0]
            total = both[0] if call % 3 == 2 else both[1]
            made = function(x, flag, total)
            results.append(describe((made, both, both._version)))
        assert results[0] == results[1], call


def test_without_version_counters() -> None:
    def f(x: Tensor, m: Tensor) -> Any:
        y = x + 1
        if y.sum() > 0:
            m.add_(y.sum())
        return y * m

    compiled = kintsugi.compile(f, backend=Recorder())
    for call in range(8):
        results = []
        for function in (f, compiled):
            with torch.inference_mode(call % 4 != 1):
                x, m = torch.ones(3) * (-3 if call % 3 == 2 else call), torch.tensor(2.0)
                made = function(x, m)
            results.append(describe((made, m)))
        assert results[0] == results[1], call


def test_large_tensors_are_not_copied_in_each_run() -> None:
    def f(x: Tensor, m: Tensor) -> Any:
        y = x + 1
        if y.sum() > 0:
            m.add_(1)
        return y * 2

    backend = Recorder()
    compiled = kintsugi.compile(f, backend=backend)
    m, other = torch.zeros(1 << 19), torch.zeros(1 << 19)
    for call in range(5):
        x = torch.ones(3) * (-3 if call % 3 == 2 else call)
        assert torch.equal(compiled(x, m), f(x, other)) and torch.equal(m, other)
    assert all(len(targets) <= 3 for targets in backend.targets())


class _Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x * 3
        y /= 6
        ctx.save_for_backward(x)
        return y.clamp(min=-10)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x.sign().abs() * 0.5


def test_functions_with_own_gradients_that_write_to_their_own_tensors_are_one_graph() -> None:
    def f(x: Tensor, m: Any) -> Any:
        y = _Halved.apply(m.linear(x))
        z = _Halved.apply(y.relu() + m.linear(y))
        return z.sin(), y

    backend = Recorder()
    compiled, model = kintsugi.compile(f, backend=backend), Buffers()
    mine, theirs = copy.deepcopy(model), copy.deepcopy(model)
    for call, scale in enumerate(SCALES):
        assert _called(compiled, mine, call, scale, True) == _called(f, theirs, call, scale, True)
    assert len(backend.graphs) == 1


@pytest.mark.parametrize("grad", [False, True])
def test_decisions_behind_writes_to_own_tensors_are_in_the_graph(grad: bool) -> None:
    def f(x: Tensor, m: Any) -> Any:
        y = m.linear(x)
        y += 1
        z = F.relu_(m.linear(y))
        if z.sum() < 0.5:
            y = y * 2
        if (y > 3).any():
            return z - y, 1
        z = z * 2
        z[0] = 2
        return z * y, 2

    backend = Recorder()
    compiled, model = kintsugi.compile(f, backend=backend), Buffers()
    mine, theirs = copy.deepcopy(model), copy.deepcopy(model)
    assert _called(compiled, mine, 0, 1, grad) == _called(f, theirs, 0, 1, grad)
    assert len(backend.graphs) == 1
    for call, scale in enumerate([1, -1, 1, 3, -3, 40, 1, -40, 5, 1]):
        assert _called(compiled, mine, call, scale, grad) == _called(f, theirs, call, scale, grad), call


def _into(p: Tensor) -> None:
    F.dropout(p, 0.5, True, True)


def _uniform_and_more(p: Tensor) -> None:
    p.uniform_()
    p.mul_(0).add_(3)


RANDOM_WRITES: list[Callable[[Tensor], Any]] = [
    _into,
    _uniform_and_more,
    lambda p: p.normal_(),
    lambda p: p[1:].bernoulli_(0.5),
    lambda p: p.mul_(2).exponential_(),
]


@pytest.mark.parametrize("raising", [False, True])
@pytest.mark.parametrize("write", RANDOM_WRITES)
def test_random_numbers_in_older_tensors_are_written_once(write: Any, raising: bool) -> None:
    class Box:
        table: dict[str, list[Tensor]]
        key: str

    def f(x: Tensor, p: Tensor, q: Tensor, box: Any) -> Any:
        y = x * 2
        write(p)
        q.mul_(2)
        if raising:
            box.table[box.key].append(y)
        if y.sum() > 0:
            y = y + 1
        return y + p.sum()

    compiled = kintsugi.compile(f, backend=Recorder())
    for call, scale in enumerate([1, 1, -1, 1, -1, -1, 1]):
        results = []
        for function in (f, compiled):
            torch.manual_seed(call)
            p, box = torch.ones(4), Box()
            box.table, box.key = {"a": []}, "b" if call in (3, 6) else "a"
            q = p[1:] if call % 2 else torch.ones(3)
            made: Any
            try:
                made = function(torch.full((4,), float(scale)), p, q, box)
            except KeyError as error:
                made = repr(error)
            results.append(describe((made, p, p._version, q, q._version, torch.rand(2))))
        assert results[0] == results[1], call


@pytest.mark.parametrize("share", [torch.from_numpy, torch.frombuffer])
def test_memory_of_two_storages_is_one(share: Any) -> None:
    def f(x: Tensor, a: Tensor, b: Tensor) -> Any:
        y = x * 2
        if bool(a):
            y = y + 1
        b.add_(1)
        return y

    outcomes = []
    for function in (f, kintsugi.compile(f, backend=Recorder())):
        array = numpy.zeros(1, dtype=numpy.float32)
        kinds = {"dtype": torch.float32} if share is torch.frombuffer else {}
        a, b = share(array, **kinds), share(array, **kinds)
        results = []
        for call in range(6):
            if call >= 2:
                array[:] = 0
            results.append(function(torch.ones(1), a, b).item())
        outcomes.append(results)
    assert outcomes[0] == outcomes[1]


def test_what_is_asked_behind_its_write_is_in_a_graph_that_runs() -> None:
    def f(x: Tensor, m: Any) -> Any:
        y = m.linear(x)
        m.count += 1
        if m.count > 6:
            y = y + 1
        m.size.add_(1)
        return y * m.size

    runs = []

    def backend(gm: Any, _: Any) -> Any:
        def run(*args: Any) -> Any:
            runs.append(gm)
            return gm.forward(*args)

        return run

    compiled, model = kintsugi.compile(f, backend=backend), Buffers()
    mine, theirs = copy.deepcopy(model), copy.deepcopy(model)
    for call in range(5):
        before = len(runs)
        assert _called(compiled, mine, call, 1, False) == _called(f, theirs, call, 1, False)
        assert call == 0 or len(runs) > before
    for call in range(5, 10):
        assert _called(compiled, mine, call, 1, False) == _called(f, theirs, call, 1, False)
