"""Steps of training: an optimizer alone, and forward, backward and optimizer in one function (`--only training`).

Every system has a model and an optimizer of its own, made from the same seed, and trains on the same batch in every
call, so that a call is a step. `difference`: of the parameters after the first steps from those of eager mode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn, optim

from bench import compare, measure, models
from bench.systems import EAGER, OUR_ALLOCATOR, System, in_our_memory, warm_up_all

Data = dict[str, Any]
Step = Callable[[], Any]
STEPS = 8  # after which parameters are compared; some of them by compiled code


@dataclasses.dataclass(frozen=True)
class Case:
    """`make()`: a new model's parameters, and what one step does to them."""

    name: str
    make: Callable[[], tuple[list[nn.Parameter], Step]]


OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, 1e-3, momentum=0.9),
    "adamw": lambda p: optim.AdamW(p, 1e-4),
    "adamw-foreach": lambda p: optim.AdamW(p, 1e-4, foreach=True),
    "rmsprop": lambda p: optim.RMSprop(p, 1e-4),
}


def _optimizer_alone(name: str) -> tuple[list[nn.Parameter], Step]:
    """30 parameters: weights of 128 x 128 with their biases."""
    torch.manual_seed(0)
    sizes = [(128, 128), (128,)] * 15
    parameters = [nn.Parameter(torch.randn(size)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = OPTIMIZERS[name](parameters)
    return parameters, lambda: optimizer.step()


def _mlp() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    layers = [layer for _ in range(4) for layer in (nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(128, 10))
    x, y = torch.randn(64, 128), torch.randint(10, (64,))
    return model, lambda m: nn.functional.cross_entropy(m(x), y)


def _registered(name: str) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    spec = models.REGISTRY[name]
    model = spec.build()
    args, kwargs = spec.inputs(model)

    def loss(m: nn.Module) -> torch.Tensor:
        return m(*args, **kwargs)[0].square().mean()

    return model, loss


def _whole(make: Callable[[], Any], name: str) -> tuple[list[nn.Parameter], Step]:
    torch.manual_seed(0)
    model, loss_of = make()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = OPTIMIZERS[name](parameters)

    def step() -> torch.Tensor:
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return parameters, step


def cases() -> list[Case]:
    alone = [Case(f"{name}, 30 parameters", lambda name=name: _optimizer_alone(name)) for name in OPTIMIZERS]
    whole = [
        Case("mlp, adamw", lambda: _whole(_mlp, "adamw")),
        Case("bert, adamw", lambda: _whole(lambda: _registered("bert"), "adamw")),
        Case("gpt2, adamw", lambda: _whole(lambda: _registered("gpt2"), "adamw")),
    ]
    return [*alone, *whole]


def select(pattern: str | None = None) -> list[Case]:
    """Cases whose name contains one of the comma-separated parts of `pattern`."""
    parts = [part.strip() for part in (pattern or "").split(",") if part.strip()]
    return [case for case in cases() if not parts or any(part in case.name for part in parts)]


def measure_case(case: Case, systems: Sequence[System], rounds: int) -> Data:
    """Medians of interleaved rounds of all systems."""
    thunks: dict[str, measure.Thunk] = {}
    rows: Data = {}
    with torch.enable_grad():
        expected: list[torch.Tensor] = []
        for system in systems:
            system.reset()
            parameters, step = case.make()
            call = step if system is EAGER else system.compile(step)
            for turn in range(STEPS):
                call()
                if turn < STEPS // 2:
                    system.wait()
            after = [parameter.detach().clone() for parameter in parameters]
            expected = expected or after
            gap = max(compare.distance(a, b) for a, b in zip(expected, after, strict=True))
            rows[system.name] = {"difference": gap}
            thunks[system.name] = measure.loop(call, (), {})
            if not system.runs:
                pooled = f"{system.name}{OUR_ALLOCATOR}"
                rows[pooled], thunks[pooled] = {}, measure.loop(in_our_memory(call), (), {})
        # A step has many segments, and some traces before the last one: each of them is compared for itself.
        for _ in range(3):
            warm_up_all(systems, {name: (lambda thunk=thunk: thunk(1)) for name, thunk in thunks.items()})
        times = measure.interleaved(thunks, rounds, measure.calls_for(thunks["eager"], 2e-2))
    for name, row in measure.summarize(times).items():
        rows[name] |= row
    return rows
