"""Twenty steps of training: the losses, the weights and the optimizer's state equal eager's in every bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kintsugi
from bench import compare
from bench.models import REGISTRY

STEPS = 20


class Net(nn.Module):
    """Convolution, BatchNorm (buffers that a call changes) and dropout (the random generator)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(6 * 16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        return self.fc(self.drop(torch.flatten(x, 1)))


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd-momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True),
}


def _net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net().train()


def _batches(count: int = STEPS) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    return [
        (torch.randn(8, 3, 8, 8, generator=generator), torch.randint(0, 4, (8,), generator=generator))
        for _ in range(count)
    ]


Step = Callable[[nn.Module, Any, torch.optim.Optimizer, torch.Tensor, torch.Tensor], torch.Tensor]


def _plain_step(
    _: nn.Module, call: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(call(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def _run(
    module: nn.Module, call: Any, make: Callable[[Any], torch.optim.Optimizer], step: Step = _plain_step
) -> dict[str, Any]:
    optimizer = make(module.parameters())
    torch.manual_seed(3)
    losses = [step(module, call, optimizer, x, y) for x, y in _batches()]
    return {
        "losses": torch.stack(losses),
        "state": module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.random.get_rng_state(),
    }


def _assert_same(expected: dict[str, Any], actual: dict[str, Any]) -> None:
    found = compare.differences(expected, actual, "training")
    assert not found, "\n".join(found[:8])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_loss_curve(optimizer: str) -> None:
    expected = _run(module := _net(), module, OPTIMIZERS[optimizer])
    module = _net()
    compiled = kintsugi.compile(module, backend="eager")
    _assert_same(expected, _run(module, compiled, OPTIMIZERS[optimizer]))
    assert expected["losses"][-1] < expected["losses"][0]
    assert compiled.stats().hits >= STEPS - 2, compiled.stats()


def test_whole_step_compiled() -> None:
    """Zeroing, forward, backward and the optimizer's step inside the compiled function."""

    def compiled_step(
        module: nn.Module, call: Any, optimizer: Any, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        return whole(module, call, optimizer, x, y)

    whole = kintsugi.compile(_plain_step, backend="eager")
    expected = _run(module := _net(), module, OPTIMIZERS["sgd-momentum"])
    _assert_same(expected, _run(module := _net(), module, OPTIMIZERS["sgd-momentum"], compiled_step))


def test_loss_inside_and_gradient_clipping() -> None:
    def clipped(
        module: nn.Module, call: Any, optimizer: Any, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = call(module, x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    def objective(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(module(x), y) + 1e-3 * sum(p.square().sum() for p in module.parameters())

    expected = _run(_net(), objective, OPTIMIZERS["sgd"], clipped)
    compiled = kintsugi.compile(objective, backend="eager")
    _assert_same(expected, _run(_net(), compiled, OPTIMIZERS["sgd"], clipped))


def test_accumulated_gradients() -> None:
    def accumulate(_: nn.Module, call: Any, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        losses = []
        for half in (slice(0, 4), slice(4, 8)):
            loss = F.cross_entropy(call(x[half]), y[half]) / 2
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
        return torch.stack(losses).sum()

    expected = _run(module := _net(), module, OPTIMIZERS["adam"], accumulate)
    module = _net()
    _assert_same(
        expected, _run(module, kintsugi.compile(module, backend="eager"), OPTIMIZERS["adam"], accumulate)
    )


def test_train_and_eval_take_turns() -> None:
    """Both modes have their trace; BatchNorm's statistics are read where they were written."""

    def run(module: nn.Module, call: Any) -> list[Any]:
        torch.manual_seed(11)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        seen: list[Any] = []
        for x, y in _batches(6):
            module.train()
            seen.append(_plain_step(module, call, optimizer, x, y))
            module.eval()
            with torch.no_grad():
                seen.append(call(x))
        return [*seen, dict(module.named_buffers())]

    expected = run(module := _net(), module)
    module = _net()
    compiled = kintsugi.compile(module, backend="eager")
    found = compare.differences(expected, run(module, compiled), "turns")
    assert not found, "\n".join(found[:8])
    assert compiled.stats().trace_count <= 2, compiled.stats()


def test_weights_loaded_and_replaced_between_calls() -> None:
    """Parameters are inputs of a trace: neither a load, nor an in-place change, nor a new object leaves it stale."""

    def run(module: nn.Module, call: Any) -> list[torch.Tensor]:
        module.eval()
        x = _batches(1)[0][0]
        seen = [call(x), call(x)]
        module.load_state_dict(_net(5).state_dict())
        seen += [call(x), call(x)]
        with torch.no_grad():
            module.fc.weight.mul_(2)
        seen += [call(x), call(x)]
        module.fc.weight = nn.Parameter(torch.ones_like(module.fc.weight))
        seen += [call(x), call(x)]
        module.fc.weight.data = torch.full_like(module.fc.weight, 0.5)
        seen += [call(x), call(x)]
        module.fc = nn.Linear(6 * 16, 2)
        nn.init.constant_(module.fc.weight, 0.1)
        nn.init.zeros_(module.fc.bias)
        return [*seen, call(x), call(x)]

    expected = run(module := _net(), module)
    module = _net()
    found = compare.differences(expected, run(module, kintsugi.compile(module, backend="eager")), "call")
    assert not found, "\n".join(found[:8])


def test_hooks_and_double_backward() -> None:
    def run(module: nn.Module, call: Any) -> dict[str, Any]:
        norms: list[torch.Tensor] = []
        handle = module.fc.register_forward_hook(lambda _m, _i, out: out * 2)
        grad_handle = module.fc.weight.register_hook(lambda grad: norms.append(grad.norm()))
        x = _batches(1)[0][0].requires_grad_()
        torch.manual_seed(1)
        for _ in range(2):
            (first,) = torch.autograd.grad(call(x).square().mean(), x, create_graph=True)
            first.square().sum().backward()
        handle.remove()
        grad_handle.remove()
        plain = call(x)
        return {"x": x.grad, "norms": norms, "plain": plain, "grads": [p.grad for p in module.parameters()]}

    expected = run(module := _net(), module)
    module = _net()
    found = compare.differences(expected, run(module, kintsugi.compile(module, backend="eager")), "run")
    assert not found, "\n".join(found[:8])


@pytest.mark.parametrize("name", ["mlp", "bert", "gpt2", "resnet18"])
def test_registry_models_learn_the_same(name: str) -> None:
    spec = REGISTRY[name]

    def run(module: nn.Module, call: Any) -> dict[str, Any]:
        optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
        torch.manual_seed(2)
        losses = []
        for turn in range(5):
            args, kwargs = copy.deepcopy(spec.inputs(module, "tiny", turn))
            optimizer.zero_grad()
            parts = [t.square().mean() for t in compare.tensors(call(*args, **kwargs)) if t.requires_grad]
            loss = torch.stack(parts).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return {"losses": losses, "state": module.state_dict(), "random": torch.random.get_rng_state()}

    with kintsugi.config.patch(report_compiling=False):
        module = spec.build().train()
        expected = run(module, module)
        module = spec.build().train()
        _assert_same(expected, run(module, kintsugi.compile(module, backend="eager")))
