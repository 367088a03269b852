"""A whole training step inside one compiled function: forward, backward and the optimizer."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import Case, Suite, check, check_captured
from torch import nn, optim

import kintsugi

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, 1e-2),
    "momentum": lambda p: optim.SGD(p, 1e-2, momentum=0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, 1e-2),
    "amsgrad": lambda p: optim.Adam(p, 1e-2, amsgrad=True, weight_decay=0.1),
    "adamw": lambda p: optim.AdamW(p, 1e-2),
    "foreach": lambda p: optim.Adam(p, 1e-2, foreach=True),
    "foreach_sgd": lambda p: optim.SGD(p, 1e-2, momentum=0.9, foreach=True),
    "foreach_adamax": lambda p: optim.Adamax(p, 1e-2, foreach=True),
    "foreach_nadam": lambda p: optim.NAdam(p, 1e-2, foreach=True),
    "foreach_radam": lambda p: optim.RAdam(p, 1e-2, foreach=True),
    "foreach_rmsprop": lambda p: optim.RMSprop(p, 1e-2, foreach=True),
    "foreach_adagrad": lambda p: optim.Adagrad(p, 1e-2, foreach=True),
    "foreach_adadelta": lambda p: optim.Adadelta(p, 1e-2, foreach=True),
    "foreach_asgd": lambda p: optim.ASGD(p, 1e-2, foreach=True),
    "foreach_rprop": lambda p: optim.Rprop(p, 1e-2, foreach=True),
    "fused": lambda p: optim.Adam(p, 1e-2, fused=True),
    "adamax": lambda p: optim.Adamax(p, 1e-2),
    "nadam": lambda p: optim.NAdam(p, 1e-2),
    "radam": lambda p: optim.RAdam(p, 1e-2),
    "rmsprop": lambda p: optim.RMSprop(p, 1e-2),
    "adagrad": lambda p: optim.Adagrad(p, 1e-2),
    "adadelta": lambda p: optim.Adadelta(p, 1e-2),
    "asgd": lambda p: optim.ASGD(p, 1e-2),
    "rprop": lambda p: optim.Rprop(p, 1e-2),
}


def _step(make: Callable[[Any], optim.Optimizer]) -> tuple[Any, nn.Module, optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = make(model.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, model, optimizer


def _state(optimizer: optim.Optimizer) -> list[torch.Tensor]:
    return [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]


@pytest.mark.parametrize(
    "compiling", [False, True], ids=["eager", "compiling"]
)  # torch.optim has branches for that
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_step_is_one_trace(name: str, compiling: bool) -> None:
    eager, model, optimizer = _step(OPTIMIZERS[name])
    step, twin, twin_optimizer = _step(OPTIMIZERS[name])
    compiled = kintsugi.compile(step, backend="eager")
    exits = []
    with kintsugi.config.patch(report_compiling=compiling):
        for turn in range(10):
            torch.manual_seed(turn)
            x, y = torch.randn(4, 8), torch.randn(4, 1)
            assert torch.equal(eager(x, y), compiled(x, y))
            for first, second in zip(model.parameters(), twin.parameters(), strict=True):
                assert torch.equal(first, second)
            for first, second in zip(_state(optimizer), _state(twin_optimizer), strict=True):
                assert torch.equal(first, second)
            exits.append(compiled.stats().side_exits)
    stats = compiled.stats()
    assert stats.misses <= 2, compiled.recompiles()  # the first call makes the optimizer's state
    assert exits[-1] == exits[-4], "an exit in each call"
    codes = {found["code"] for found in compiled.breaks()}
    assert codes <= {"KTG0107", "KTG0108"}  # zero_grad() is disabled by torch, and backward() is one step


SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


@factory(traces=None)
def make_dict_by_tensors():
    kept = torch.ones(3, 4)
    table = {kept: 2.0}

    def program(x):
        table[x] = x * 2
        found = table[kept]
        return x * found, x in table, len(table)

    return program


@factory()
def make_defaultdict_by_tensors():
    key = torch.ones(2)
    table = collections.defaultdict(dict)

    def program(x):
        state = table[key]
        if len(state) == 0:
            state["sum"] = torch.zeros_like(x)
        state["sum"] += x
        return state["sum"] * 2

    return program, table


@factory(traces=None, breaks=None)
def make_missing_tensor():
    table = {torch.ones(1): 1}

    def program(x):
        try:
            return table[x]
        except KeyError as error:
            return error.args[0] is x, len(table)

    return program


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)
