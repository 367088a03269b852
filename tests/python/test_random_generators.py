"""Generators of random numbers as arguments: a new one in each call is no other trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from harness import describe

import kintsugi

DRAWS: dict[str, Callable[[torch.Tensor, torch.Generator], Any]] = {
    "functions": lambda x, g: x + torch.randn(x.shape, generator=g) * torch.rand(4, generator=g),
    "in_place": lambda x, g: (
        x.clone().normal_(generator=g).uniform_(0, 1, generator=g).exponential_(generator=g)
    ),
    "choices": lambda x, g: (torch.randperm(7, generator=g), torch.multinomial(x.abs(), 2, generator=g)),
    "integers": lambda x, g: x[torch.randint(0, 3, (5,), generator=g)],
    "bernoulli": lambda x, g: torch.bernoulli(x.sigmoid(), generator=g),
    "parameters": lambda x, g: torch.nn.init.xavier_uniform_(torch.empty_like(x), generator=g),
    "seeded_inside": lambda x, g: torch.rand(2, generator=g.manual_seed(int(x.sum().abs().item() * 100))),
    "state": lambda x, g: (g.initial_seed(), g.get_state().sum(), F.dropout(x, 0.0)),
    "made_inside": lambda x, g: torch.rand(3, generator=torch.Generator().manual_seed(g.initial_seed())),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_new_generator_in_each_call(name: str) -> None:
    function = DRAWS[name]
    compiled = kintsugi.compile(lambda x, g: function(x, g))
    for seed in range(6):
        x = torch.randn(3, 4)
        mine, theirs = (torch.Generator().manual_seed(seed) for _ in range(2))
        expected = describe(function(x, theirs), theirs.get_state())
        assert describe(compiled(x, mine), mine.get_state()) == expected
    assert (compiled.stats().misses, compiled.stats().side_exits) == (1, 0)


def test_none_and_a_generator_are_two_traces() -> None:
    def function(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return x + torch.randn(x.shape, generator=generator)

    compiled = kintsugi.compile(function)
    x = torch.ones(3)
    for seed in range(4):
        torch.manual_seed(seed)
        expected = function(x), function(x, torch.Generator().manual_seed(seed))
        torch.manual_seed(seed)
        assert describe((compiled(x), compiled(x, torch.Generator().manual_seed(seed)))) == describe(expected)
    assert compiled.stats().misses == 2


def test_one_generator_in_two_arguments() -> None:
    def function(a: torch.Generator, b: torch.Generator) -> torch.Tensor:
        return torch.rand(2, generator=a) - torch.rand(2, generator=b) + (1 if a is b else 0)

    compiled = kintsugi.compile(function)
    for alike in (False, True, False, True):
        pairs = []
        for _ in range(2):
            a = torch.Generator().manual_seed(3)
            pairs.append((a, a if alike else torch.Generator().manual_seed(3)))
        assert describe(compiled(*pairs[0])) == describe(function(*pairs[1]))
