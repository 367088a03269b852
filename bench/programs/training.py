"""Training as it is written by hand: loaders, old optimizers, policies, metrics."""

from __future__ import annotations

import collections
import math
import random
from typing import Any

import torch
from torch import nn

from bench.programs import Compile, Step, program


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))


def _batch(k: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(-1, 1, 128).view(16, 8) * (1 + k % 7 / 7)
    return x, torch.arange(16) % 3


def _loss(net: nn.Module, k: int) -> torch.Tensor:
    x, y = _batch(k)
    return nn.functional.cross_entropy(net(x), y)


@program
def loader_and_steps(compile: Compile) -> Step:
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    data = [(torch.full((8,), i / 40), i % 3) for i in range(40)]
    loader = torch.utils.data.DataLoader(data, batch_size=8)  # type: ignore[arg-type]

    @compile
    def epoch() -> float:
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total

    return lambda _: epoch()


@program
def adam_by_hand(compile: Compile) -> Step:
    net = _net()
    moments: dict[nn.Parameter, Any] = {}

    @compile
    def step(k: int) -> torch.Tensor:
        loss = _loss(net, k)
        grads = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for parameter, grad in zip(net.parameters(), grads, strict=True):
                state = moments.setdefault(parameter, {"step": 0, "m": 0.0, "v": 0.0})
                state["step"] += 1
                state["m"] = 0.9 * state["m"] + 0.1 * grad
                state["v"] = 0.99 * state["v"] + 0.01 * grad * grad
                rate = 1e-3 * math.sqrt(1 - 0.99 ** state["step"]) / (1 - 0.9 ** state["step"])
                parameter -= rate * state["m"] / (state["v"].sqrt() + 1e-8)
        return loss.detach()

    return step


def _with_optimizer(compile: Compile, make: Any) -> Step:
    net = _net()
    optimizer = make(net.parameters())

    @compile
    def step(k: int) -> torch.Tensor:
        optimizer.zero_grad()
        loss = _loss(net, k)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@program(needs=("torch_optimizer",))
def optimizer_radam(compile: Compile) -> Step:
    import torch_optimizer

    return _with_optimizer(compile, lambda p: torch_optimizer.RAdam(p, lr=1e-3))


@program(needs=("torch_optimizer",))
def optimizer_lookahead_yogi(compile: Compile) -> Step:
    import torch_optimizer

    return _with_optimizer(
        compile, lambda p: torch_optimizer.Lookahead(torch_optimizer.Yogi(p, lr=1e-3), k=5)
    )


@program(needs=("torch_optimizer",))
def optimizer_shampoo(compile: Compile) -> Step:
    import torch_optimizer

    return _with_optimizer(compile, lambda p: torch_optimizer.Shampoo(p, lr=1e-2))


@program
def schedule_and_clipping(compile: Compile) -> Step:
    net = _net()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=10_000)

    @compile
    def step(k: int) -> torch.Tensor:
        loss = _loss(net, k)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


@program
def accumulated_gradients(compile: Compile) -> Step:
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)

    @compile
    def step(k: int) -> torch.Tensor:
        loss = _loss(net, k) / 4
        loss.backward()
        if (k + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step


@program
def averaged_weights(compile: Compile) -> Step:
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    average = {name: value.detach().clone() for name, value in net.state_dict().items()}

    @compile
    def step(k: int) -> torch.Tensor:
        loss = _loss(net, k)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for name, value in net.state_dict().items():
                average[name].mul_(0.99).add_(value, alpha=0.01)
        return sum(value.sum() for value in average.values())

    return step


@program
def mixed_up_batches(compile: Compile) -> Step:
    net, rng = _net(), random.Random(0)
    torch.manual_seed(1)

    @compile
    def step(k: int) -> torch.Tensor:
        x, y = _batch(k)
        share = rng.betavariate(0.4, 0.4)
        order = torch.tensor(rng.sample(range(len(x)), len(x)))
        out = net(share * x + (1 - share) * x[order])
        first = nn.functional.cross_entropy(out, y)
        return share * first + (1 - share) * nn.functional.cross_entropy(out, y[order])

    return step


@program
def policy_gradient(compile: Compile) -> Step:
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)

    @compile
    def episode(k: int) -> torch.Tensor:
        state, logs, rewards = torch.full((4,), k % 5 / 5), [], []
        for _ in range(6):
            chosen = torch.distributions.Categorical(logits=policy(state))
            action = chosen.sample()
            logs.append(chosen.log_prob(action))
            rewards.append(1.0 if action.item() == k % 2 else -0.5)
            state = state.roll(1) * 0.9
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + 0.95 * total
            returns.insert(0, total)
        loss = -(torch.stack(logs) * torch.tensor(returns)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def step(k: int) -> torch.Tensor:
        torch.manual_seed(k)
        return episode(k)

    return step


@program
def metrics_and_patience(compile: Compile) -> Step:
    net = _net()
    history: dict[str, Any] = collections.defaultdict(list)
    best = {"loss": math.inf, "wait": 0}

    @compile
    def evaluate(k: int) -> dict[str, float]:
        x, y = _batch(k)
        with torch.no_grad():
            out = net(x)
            loss = nn.functional.cross_entropy(out, y).item()
            hits = (out.argmax(-1) == y).float().mean().item()
        history["loss"].append(loss)
        history["hits"].append(hits)
        if loss < best["loss"] - 1e-4:
            best.update(loss=loss, wait=0)
        else:
            best["wait"] += 1
        return {"loss": loss, "hits": hits, "mean": sum(history["loss"][-10:]) / len(history["loss"][-10:])}

    return evaluate
