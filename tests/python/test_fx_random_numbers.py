"""Random numbers and writes in graphs beside what a graph may be left at: effects that wait for it, steps, guards.

A graph that is left computes what its frames need once more. The generator is put back for that, so the numbers are
those that eager mode draws, and where the program goes on it draws the same ones. What is written to older tensors is
never written twice: all that frames hold behind it is an output. After each call results, effects, gradients, buffers
and the next numbers of the generator are compared.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fx_recorder import Recorder
from harness import describe
from torch import nn

import kintsugi

Tensor = torch.Tensor
SIGNS = [1, 1, 1, -1, 1, -1]


class Box:
    def __init__(self, number: int) -> None:
        self.number = number
        self.items: list[Any] = []


def _drop_path(x: Tensor) -> Tensor:
    kept = x.new_empty((x.shape[0], 1)).bernoulli_(0.5)
    return x * kept / 0.5


DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda t: F.dropout(t, 0.5),
    "rand": lambda t: t + torch.rand(t.shape),
    "drop_path": _drop_path,
    "uniform_": lambda t: t + torch.zeros(3, 3).uniform_(),
    "randperm": lambda t: t[torch.randperm(3)],
    "multinomial": lambda t: t + torch.multinomial(torch.rand(3), 3, True),
}


def _store(box: Any, made: Tensor, given: Tensor) -> None:
    box.made = made


def _append(box: Any, made: Tensor, given: Tensor) -> None:
    box.items.append(made)
    box.count = getattr(box, "count", 0) + 1


def _decide(box: Any, made: Tensor, given: Tensor) -> None:
    if given.sum() > 0:
        box.positive = True


def _decide_by_drawn(box: Any, made: Tensor, given: Tensor) -> None:
    if made.sum() > 9:
        box.large = made


def _step(box: Any, made: Tensor, given: Tensor) -> None:
    box.sorted = sorted([3, 1, 2], key=lambda k: -k)
    box.made = made


def _raise(box: Any, made: Tensor, given: Tensor) -> None:
    if given.sum() < 0:
        raise ValueError("negative")


def _seed(box: Any, made: Tensor, given: Tensor) -> None:
    torch.manual_seed(box.number)


def _state(box: Any, made: Tensor, given: Tensor) -> None:
    box.state = torch.get_rng_state()


EFFECTS = [_store, _append, _decide, _decide_by_drawn, _step, _raise, _seed, _state]


def _outcome(function: Any, call: int, sign: int, grad: bool, close: bool) -> Any:
    x, box = torch.full((3, 3), float(sign)), Box(call)
    x[0] += call * 0.01
    weight = torch.eye(3, requires_grad=grad)
    torch.manual_seed(call)
    made: Any = None
    try:
        made = function(x, box, weight)
        if grad and made[0].requires_grad:
            made[0].sum().backward()
    except ValueError as error:
        made = (type(error), error.args)
    return describe((made, vars(box), weight.grad, torch.rand(2)), close=close)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("native", [False, True])
def test_graphs_that_are_left(name: str, grad: bool, native: bool) -> None:
    draw = DRAWS[name]
    for first, second in list(itertools.product(EFFECTS, EFFECTS))[::3]:

        def f(x: Tensor, box: Any, weight: Tensor, first: Any = first, second: Any = second) -> Any:
            a = (x @ weight).relu() + 0.1
            y = draw(a * 2)
            first(box, y, x)
            z = draw(y + 1)
            second(box, z, x)
            return draw(z) + y, a

        compiled = kintsugi.compile(f, backend="native" if native else Recorder())
        for call, sign in enumerate(SIGNS):
            expected = _outcome(f, call, sign, grad, native)
            assert _outcome(compiled, call, sign, grad, native) == expected, (first, second, call)
            if native and call == 2:
                kintsugi.wait()


class Writer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.ones(3, 3))


def _count(m: Any, t: Tensor) -> Tensor:
    m.count += 1
    return t * m.count


def _average(m: Any, t: Tensor) -> Tensor:
    with torch.no_grad():
        m.mean.mul_(0.9).add_(t.detach(), alpha=0.1)
    return t + m.mean


def _row(m: Any, t: Tensor) -> Tensor:
    m.mean[1] = t.detach()[0]
    return t + m.mean[1]


def _own(m: Any, t: Tensor) -> Tensor:
    y = t * 2
    y += 1
    y[0] = 3
    return y


WRITES: list[Callable[[Any, Tensor], Tensor]] = [lambda m, t: m.norm(t), _count, _average, _row, _own]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("first", EFFECTS)
def test_graphs_that_write_and_are_left(first: Any, grad: bool) -> None:
    for write, other, second in list(itertools.product(WRITES, WRITES, EFFECTS))[::7]:

        def f(
            x: Tensor, box: Any, m: Any, write: Any = write, other: Any = other, second: Any = second
        ) -> Any:
            y = write(m, F.dropout(m.linear(x), 0.5) * 2)
            first(box, y, x)
            z = other(m, F.dropout(y + 1, 0.5))
            second(box, z, x)
            return F.dropout(z, 0.5) + y

        compiled = kintsugi.compile(f, backend=Recorder())
        model = Writer()
        mine, theirs = copy.deepcopy(model), copy.deepcopy(model)  # versions that errors name are equal
        for call, sign in enumerate(SIGNS):
            described = []
            for function, m in ((f, theirs), (compiled, mine)):
                x, box = torch.full((3, 3), float(sign)), Box(call)
                x[0] += call * 0.01
                torch.manual_seed(call)
                made: Any = None
                with torch.set_grad_enabled(grad):
                    try:
                        made = function(x, box, m)
                        if grad:
                            made.sum().backward()
                    except (ValueError, RuntimeError) as error:
                        made = (type(error), error.args)
                gradients = [p.grad for p in m.parameters()]
                described.append(describe((made, vars(box), m.state_dict(), gradients, torch.rand(2))))
            assert described[0] == described[1], (write, other, second, call)


def test_norms_that_keep_are_one_graph() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(8)
            self.kept: Any = None

        def forward(self, x: Tensor) -> Tensor:
            self.kept = self.norm(x)
            return self.kept.relu()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.seen = Norm(), 0

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(x * 2)
            self.seen += 1
            return F.dropout(y + 1, 0.1)

    backend = Recorder()
    model = Net()
    compiled = kintsugi.compile(model, backend=backend)
    for _ in range(3):
        compiled(torch.randn(4, 8))
    assert len(backend.graphs) == 1
    assert model.seen == int(model.norm.norm.num_batches_tracked) == 3


class Layer(nn.Module):
    """Keeps what it has computed, asks a cache of functools, and drops."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.kept: Any = None
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        y = F.dropout(self.linear(x), 0.5, self.training)
        self.kept = y
        self.calls += 1
        return F.dropout(y.reshape(_plan(2, 4)), 0.1, self.training).flatten(1) + x


@functools.lru_cache
def _plan(heads: int, size: int) -> list[int]:
    return [-1, heads, size]


def test_layers_that_keep_and_drop_are_one_graph() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer() for _ in range(3)))
    backend = Recorder()
    compiled = kintsugi.compile(model, backend=backend)
    for call in range(4):
        x = torch.randn(4, 8)
        torch.manual_seed(call)
        expected = describe((model(x), [layer.kept for layer in model], torch.rand(1)))
        torch.manual_seed(call)
        assert describe((compiled(x), [layer.kept for layer in model], torch.rand(1))) == expected
    assert [layer.calls for layer in model] == [8, 8, 8]
    assert len(backend.graphs) == 1
    assert compiled.stats().side_exits == 0


def test_hits_of_caches_do_not_end_graphs_that_write() -> None:
    """Batch norm counts its calls: it writes to a buffer, behind the look-up of a cache."""

    def f(x: Tensor, norm: nn.Module) -> Tensor:
        y = x.reshape(_plan(2, 4)).flatten(1)
        return norm(y).reshape(_plan(2, 4)) * 2

    backend = Recorder()
    compiled = kintsugi.compile(f, backend=backend)
    mine, other = nn.BatchNorm1d(8), nn.BatchNorm1d(8)
    _plan(2, 4)
    for _ in range(4):
        x = torch.randn(4, 8)
        before = _plan.cache_info().hits
        expected = f(x, other)
        between = _plan.cache_info().hits
        assert torch.equal(compiled(x, mine), expected)
        assert _plan.cache_info().hits - between == between - before == 2
        assert describe(mine.state_dict()) == describe(other.state_dict())
    assert len(backend.graphs) == 1


def test_a_cache_that_is_emptied_in_between() -> None:
    """Another thread may do that: then the function runs again, and what it raises reaches nobody."""
    ran: list[int] = []

    @functools.lru_cache
    def once(n: int) -> int:
        ran.append(n)
        if len(ran) > 2:
            raise ValueError("no more")
        return n + 1

    def f(x: Tensor) -> Tensor:
        return F.dropout(x * once(3), 0.5)

    compiled = kintsugi.compile(f, backend=Recorder())
    compiled(torch.ones(3))
    compiled(torch.ones(3))
    once.cache_clear()
    compiled(torch.ones(3))
    assert ran == [3, 3]
    once.cache_clear()
    with pytest.raises(ValueError, match="no more"):
        compiled(torch.ones(3))
