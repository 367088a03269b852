"""Steps that give back objects which the trace knows: in later calls it may be another one."""

from __future__ import annotations

import collections
import itertools
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import describe

import kintsugi


def first_part(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    buffer.append((x, given))
    return buffer[0][0] + 1, buffer[0][1]


def iterated(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    buffer.append((x, len(buffer)))
    return next(iter(buffer))[0] * 1, [n for _, n in buffer], list(itertools.islice(buffer, 0, 3))


def callers_list(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    buffer.append(given)
    return buffer[0], buffer[0] is given, buffer[0][0] * x


def written(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    buffer.append(given)
    oldest = buffer[0]
    oldest.append(7)
    return len(oldest), len(given)


def written_where_made(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    made = [x, given]
    buffer.append(made)
    oldest = buffer[0]
    oldest.append(7)
    return len(oldest), len(made), oldest


def in_a_container(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    buffer.append(given)
    held = {"oldest": buffer[0], "newest": buffer[-1]}
    held["oldest"].append(len(held["newest"]))
    return held, [held["oldest"], given]


def returned(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    buffer.append(given)
    return buffer[0]


PROGRAMS: list[Callable[..., Any]] = [
    first_part,
    iterated,
    callers_list,
    written,
    written_where_made,
    in_a_container,
    returned,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_oldest_of_a_deque(program: Callable[..., Any]) -> None:
    mine: Any = collections.deque(maxlen=4)
    theirs: Any = collections.deque(maxlen=4)
    compiled = kintsugi.compile(lambda x, given: program(mine, x, given))
    for turn in range(8):
        x = torch.full((2,), float(turn))
        expected = describe(program(theirs, x, [turn]), theirs)
        assert describe(compiled(x, [turn]), mine) == expected
    assert compiled.stats().misses <= 2


def test_numbers_that_vary_behind_a_step() -> None:
    """The text of a traceback: what `id` says of the exception is another number in each call."""

    def text_of(x: torch.Tensor, n: int) -> Any:
        try:
            raise KeyError(n)
        except KeyError:
            return x + n, traceback.format_exc().splitlines()[-1]

    compiled = kintsugi.compile(text_of)
    kept = []
    for turn in range(24):
        x = torch.randn(2)
        expected = text_of(x, turn)
        kept.append((expected, compiled(x, turn)))
        assert describe(kept[-1][1]) == describe(expected)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("stepped", [False, True])
def test_gradients_that_a_step_drops(frozen: bool, stepped: bool) -> None:
    def made() -> Any:
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 3)
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

        def train(x: torch.Tensor, turn: int) -> Any:
            net.bias.requires_grad_(not frozen or turn % 3 != 1)
            net(x).square().mean().backward()
            if turn % 2:
                if stepped:
                    optimizer.step()
                optimizer.zero_grad(set_to_none=turn % 4 == 1)
            return net.weight.detach().clone(), None if net.bias.grad is None else net.bias.grad.clone()

        return train

    mine, theirs = made(), made()
    compiled = kintsugi.compile(mine)
    with kintsugi.config.patch(report_compiling=False):
        for turn in range(16):
            x = torch.randn(2, 3)
            assert describe(compiled(x, turn)) == describe(theirs(x, turn))


def test_gradients_and_bases_that_are_arguments_too() -> None:
    def looked_at(p: torch.Tensor, g: torch.Tensor) -> Any:
        return None if p.grad is None else p.grad + g, p.grad is g, None if g._base is None else g._base * 2

    compiled = kintsugi.compile(looked_at)
    for turn in range(8):
        g = torch.full((3,), float(turn))
        p = torch.ones(3, requires_grad=True)
        given = [g, g[:], torch.ones(6)[:3]][turn % 3]
        p.grad = [g, given, None, torch.zeros(3)][turn % 4]
        assert describe(compiled(p, given)) == describe(looked_at(p, given))
