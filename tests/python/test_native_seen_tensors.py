"""Native training: tensors that the program sees while others are made of them keep their place in autograd's graph.

A hook, retain_grad() and autograd.grad() of such a tensor concern what comes from everything that was made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from native_harness import native
from torch import nn

import kintsugi

Seen = tuple[torch.Tensor, torch.Tensor]


class Keeper:
    kept: Any = None


KEEPER = Keeper()
KEPT: list[torch.Tensor] = []


def _returned(x: torch.Tensor) -> Seen:
    a = x * 2
    return a, (a * 3).sin()


def _view(x: torch.Tensor) -> Seen:
    a = (x * 2).view(-1)
    return a, (a.view(3, 2) * 3).sin()


def _view_of_the_argument(x: torch.Tensor) -> Seen:
    a = x.view(-1)
    return a, (a * 3).sin()


def _base(x: torch.Tensor) -> Seen:
    a = x * 2
    return a, a[1:].exp() + a[:1]


def _in_an_attribute(x: torch.Tensor) -> Seen:
    a = x.exp() + 1
    KEEPER.kept = a
    return KEEPER.kept, a.log() * a


def _in_a_list(x: torch.Tensor) -> Seen:
    a = x.exp() + 1
    KEPT[:] = [a]
    return KEPT[0], a.log() * 2


def _written_to_and_returned(x: torch.Tensor) -> Seen:
    a = (x * 2 - 1).relu_()
    return a, a.exp() * 2


def _two(x: torch.Tensor) -> Seen:
    a = x * 2
    c = a.exp()
    return a, (c + a * c).sin() + c.sum()


def _branch(x: torch.Tensor) -> Seen:
    a = x * 2
    b = (a + 1).exp()
    if a.sum() > 100:
        b = b * 2
    return a, b


PROGRAMS = (
    _returned,
    _view,
    _view_of_the_argument,
    _base,
    _in_an_attribute,
    _in_a_list,
    _written_to_and_returned,
    _two,
    _branch,
)


def _hooked(run: Callable[[torch.Tensor], Seen]) -> list[torch.Tensor]:
    x = torch.linspace(0.1, 1.3, 6).view(3, 2).requires_grad_()
    a, b = run(x)
    a.retain_grad()
    seen = []
    a.register_hook(lambda g: seen.append(g.clone()) or g * 10)
    (a.sum() + b.sum()).backward()
    return [a, b, a.grad, x.grad, *seen]


def _between(run: Callable[[torch.Tensor], Seen]) -> list[torch.Tensor]:
    x = torch.linspace(0.1, 1.3, 6).view(3, 2).requires_grad_()
    a, b = run(x)
    return [*torch.autograd.grad(b.sum(), [a], retain_graph=True), *torch.autograd.grad(b.sum(), [x])]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_tensor_that_is_seen(program: Callable[[torch.Tensor], Seen]) -> None:
    compiled = native(program)
    for _ in range(4):
        for use in (_hooked, _between):
            wanted, got = use(program), use(compiled)
            assert len(wanted) == len(got)
            for mine, theirs in zip(wanted, got, strict=True):
                torch.testing.assert_close(theirs, mine)
    assert compiled.stats().native_runs > 0, compiled.stats()


def test_features_beside_logits() -> None:
    """As Grad-CAM reads them."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

        def forward(self, x: torch.Tensor) -> Seen:
            features = self.conv(x).relu()
            return features, self.head(features.mean((2, 3)))

    torch.manual_seed(0)
    net = Net()
    compiled = native(net)
    x = torch.randn(2, 3, 8, 8)
    for _ in range(4):
        found = []
        for call in (net, compiled):
            features, logits = call(x)
            features.retain_grad()
            logits[:, 1].sum().backward()
            found.append(features.grad)
        assert found[1] is not None
        torch.testing.assert_close(found[1], found[0])


def test_what_nobody_sees_stays_in_one_segment() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        a = x * 2
        b = (a * 3).sin()
        return (a + b).exp()

    compiled = kintsugi.compile(program, backend="native", options={"sync": True})
    for _ in range(3):
        compiled(torch.ones(3, requires_grad=True)).sum().backward()
    stats = compiled.stats()
    assert stats.native_segments == 1 and stats.native_runs > 0, stats
