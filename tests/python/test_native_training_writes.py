"""Training with native code where programs write: in-place operators, running statistics, counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from native_harness import native, tensors_in
from torch import nn
from training_harness import Fn, check, close, rand, run

import kintsugi


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    torch.manual_seed(0)
    yield


WRITES: dict[str, Fn] = {
    "activation": lambda x, w: F.linear(x, w).relu_() * 2,
    "residual": lambda x, w: F.leaky_relu_(F.linear(x, w).add_(x, alpha=0.5), 0.2).sum(),
    "scores": lambda x, w: torch.softmax((x @ w).add_(w[0]).mul_(0.5), -1),
    "by what is followed": lambda x, w: (x * w[1]).mul_(w[0]).add_(1) * x,
    "mask": lambda x, w: (x - w[0]).masked_fill_(w[1] > 0, -3.0).tanh(),
    "zeros": lambda x, w: torch.zeros(5, 8).add_(x).mul_(w[0]) * 2,
    "not followed": lambda x, w: F.gelu(x * w[0]) * torch.ones(8).mul_(0.3),
    "returned": lambda x, w: (lambda y: (y.relu_(), y * 2))(F.linear(x, w)),
    "convolution": lambda x, w: F.relu(F.conv1d(x[None], w[:5, :5, None]), inplace=True) * 0.5,
    "numbers": lambda x, w: F.linear(x, w).clamp_(-0.5, 0.5).sub_(1).div_(3) * x,
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_own_tensors(name: str) -> None:
    check(WRITES[name], rand(5, 8), rand(8, 8))


LEFT: dict[str, Fn] = {
    "wider": lambda x, w: (x * 2).add_(w.double()[0]) * 3,
    "turned": lambda x, w: (x.t() * 2).add_(w[:, :5]) * 3,
    "read before": lambda x, w: (lambda y: (y.sum(), y.add_(1) * 3))(x * 2),
    "view": lambda x, w: (lambda y: y[0].add_(1) * 3 + y.sum())(x * 2),
}


@pytest.mark.parametrize("name", LEFT)
def test_writes_that_are_left_to_replay(name: str) -> None:
    runner, fn = native(LEFT[name]), LEFT[name]
    for _ in range(4):
        x, w = rand(5, 8), rand(8, 8)
        (wanted, theirs), (got, mine) = run(fn, (x, w)), run(runner, (x, w))
        for a, b in zip([*tensors_in(got), *mine], [*tensors_in(wanted), *theirs], strict=True):
            if a is not None and b is not None:
                close(a.detach(), b.detach(), 4)


OVERWRITTEN: dict[str, Fn] = {
    "own result": lambda x: x.exp().add_(1).sum(),
    "own result of a write": lambda x: (x * 2).relu_().mul_(2).tanh_().add_(1).sum(),
    "by itself": lambda x: (lambda y: (y.mul_(y) * x).sum())(x + 1),
    "kept by another": lambda x: (lambda y: (y * y).sum() + y.add_(1).sum())(x * 2),
}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_what_the_backward_needs_is_overwritten_in_the_segment(name: str) -> None:
    runner = native(OVERWRITTEN[name])
    for step in (OVERWRITTEN[name], runner, runner, runner):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            step(rand(5, 7)).backward()


def test_writes_and_the_gradient_of_the_gradient() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh((x @ w).add_(x).mul_(x)).square().sum()

    runner = native(fn)
    x, w = rand(4, 4), rand(4, 4)
    results = []
    for step in (fn, runner, runner):
        first = torch.autograd.grad(step(x, w), (x, w), create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in first), (x, w)))
    for got in results[1:]:
        for a, b in zip(got, results[0], strict=True):
            close(a, b, 32)


def test_batch_norm_with_fixed_statistics() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3)
    ).eval()
    model[1].running_mean.uniform_()

    def fn(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return F.gelu(model(x)) * 2

    check(fn, rand(2, 3, 9, 9))


class Twice(nn.Module):
    """One norm for two tensors: the second one goes on from what the first one has left."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(F.relu(self.norm(self.first(x)))) * 2


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 2, 3),
        nn.BatchNorm2d(2, momentum=0.3),
    )


def _shared() -> nn.Module:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
    model[2].running_mean = model[0].running_mean
    return model


NORMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "convolutions": (_convolutions, (2, 3, 9, 9), True),
    "twice": (Twice, (2, 3, 5, 5), True),
    "rows": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2)),
        (7, 6),
        True,
    ),
    "three dimensions": (lambda: nn.Sequential(nn.BatchNorm1d(4), nn.GELU()), (3, 4, 6), True),
    "no statistics": (
        lambda: nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.GELU()),
        (2, 3, 4, 4),
        False,
    ),
    "not affine": (
        lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, affine=False)),
        (2, 3, 4, 4),
        False,
    ),
    "cumulative": (
        lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, momentum=None), nn.Linear(3, 2)),
        (5, 6),
        False,
    ),
    "shared statistics": (_shared, (2, 3, 4, 4), False),
}


@pytest.mark.parametrize("name", NORMS)
def test_batch_norm(name: str) -> None:
    make, sizes, compiled = NORMS[name]
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(make())

    def step_of(model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: (F.gelu(model(x)) * 2).square().mean()

    runner, eager = native(step_of(models[0])), step_of(models[1])
    for turn in range(8):
        torch.manual_seed(turn)
        x = torch.randn(sizes)
        for model in models:
            model.train(turn != 5)
            for parameter in model.parameters():
                parameter.grad = None
        losses = [runner(x), eager(x)]
        for mine, theirs in zip(models[0].buffers(), models[1].buffers(), strict=True):
            assert mine._version == theirs._version and mine.dtype == theirs.dtype
            close(mine, theirs, 4)
        for loss in losses:
            loss.backward()
        close(losses[0].detach(), losses[1].detach(), 4)
        for mine, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
            assert mine.grad is not None and theirs.grad is not None
            close(mine.grad, theirs.grad, 8)
    if compiled:
        assert runner._kintsugi_compiled.stats()["native_backwards"] > 2


def test_batch_norm_keeps_the_faster_way_and_stores_once() -> None:
    torch.manual_seed(0)
    model, twin = _convolutions(), _convolutions()
    twin.load_state_dict(model.state_dict())
    runner = kintsugi.compile(lambda x: F.gelu(model(x)).sum(), backend="native")
    for turn in range(60):
        x = torch.randn(2, 3, 9, 9)
        for loss in (runner(x), F.gelu(twin(x)).sum()):
            loss.backward()
        if turn == 1:
            assert kintsugi.wait(60)
        assert int(model[1].num_batches_tracked) == turn + 1
        close(model[1].running_var, twin[1].running_var, 4)
        close(model[4].running_mean, twin[4].running_mean, 4)


def test_batch_norm_and_the_gradient_of_the_gradient() -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh())

    models = [make(), make()]
    steps = [native(lambda x: models[0](x).square().sum()), lambda x: models[1](x).square().sum()]
    for turn in range(4):
        torch.manual_seed(turn)
        data, results = torch.randn(6, 4), []
        for step in steps:
            x = data.clone().requires_grad_()
            (first,) = torch.autograd.grad(step(x), x, create_graph=True)
            results.append(torch.autograd.grad(first.square().sum(), x)[0])
        close(results[0], results[1], 64)
        for mine, theirs in zip(models[0].buffers(), models[1].buffers(), strict=True):
            assert mine._version == theirs._version
            close(mine, theirs, 4)


def test_statistics_that_are_also_read_are_left_to_replay() -> None:
    models = [nn.BatchNorm1d(3), nn.BatchNorm1d(3)]

    def step_of(model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: (F.gelu(model(x)) * model.running_mean).sum()

    runner, eager = native(step_of(models[0])), step_of(models[1])
    for turn in range(5):
        torch.manual_seed(turn)
        x = torch.randn(6, 3)
        mine, theirs = runner(x), eager(x)
        mine.backward()
        theirs.backward()
        close(mine.detach(), theirs.detach(), 4)
        close(models[0].running_mean, models[1].running_mean, 4)
