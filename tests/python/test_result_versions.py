"""Version counters of results, and of views of tensors that a call has written to: as in eager mode, where each write
counts when it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

F = torch.nn.functional
WEIGHT = torch.rand(4, 4)


def relu(a: torch.Tensor) -> Any:
    y = F.linear(a, WEIGHT)
    y.relu_()
    return y


def twice(a: torch.Tensor) -> Any:
    y = a * 2
    y.add_(1)
    y.mul_(2)
    return y, y.t(), y + 1


def view_before(a: torch.Tensor) -> Any:
    y = a * 2
    v = y.t()
    y.add_(1)
    return v


def part(a: torch.Tensor) -> Any:
    y = a.clone()
    y[0].mul_(2)
    return y, y[0]


def operator(a: torch.Tensor) -> Any:
    y = a * 2
    y += 1
    w = y * 3
    y += w
    return y, w


def seen_otherwise(a: torch.Tensor) -> Any:
    y = a * 2
    y.add_(1)
    return y.view(16), y.detach(), y.unsqueeze(0).neg_()


def filled(a: torch.Tensor) -> Any:
    y = torch.empty(4, 4)
    y.fill_(2)
    y.copy_(a)
    return y


def given_back(a: torch.Tensor) -> Any:
    y = a.abs()
    return y.sqrt_(), F.relu_(a + 1), torch.clamp_(a - 1, 0)


def foreach(a: torch.Tensor) -> Any:
    y, z = a * 2, a * 3
    torch._foreach_add_([y, z], 1)
    y.sub_(1)
    return y, z


def view_behind(p: torch.Tensor) -> Any:
    p.clamp_(-1, 1)
    return p.view(-1)


def views_behind(p: torch.Tensor) -> Any:
    p.mul_(2)
    v = p[0]
    return p.t(), v, v[1:], p.view(-1).view(2, 8)


def view_between(p: torch.Tensor) -> Any:
    p.mul_(2)
    v = p[0]
    p.add_(1)
    return v, p.view(-1)


def view_ahead(p: torch.Tensor) -> Any:
    v = p[0]
    p.mul_(2)
    return v


def detached(p: torch.Tensor) -> Any:
    p.mul_(2)
    return p.detach().view(-1), p


def made_like(a: torch.Tensor) -> Any:
    y = torch.empty_like(a)
    y.copy_(a * 2)
    y.add_(1)
    z = a.new_empty(4, 4)
    z.fill_(2)
    z[1] = a[0]
    return y, y.view(-1), y[0], z


def made_of_numbers(a: torch.Tensor) -> Any:
    y = torch.tensor([1.0, 2.0, 3.0, 4.0])
    y.add_(a[0])
    z = torch.as_tensor([[1.0, 2.0]])
    z[0] = a[0, :2]
    w = a.new_tensor([1.0, 2.0]).mul_(3)
    n = torch.tensor([1, 2]).to(a.dtype)
    n.mul_(a[0, :2])
    return y, z, w, n


def results_of_others(a: torch.Tensor) -> Any:
    largest, at = a.max(dim=1)
    largest.mul_(2)
    at.add_(1)
    hot = F.one_hot(torch.arange(4)).float()
    hot.add_(a)
    return largest, at, hot, a.sort()[0].add_(1)


def copies(a: torch.Tensor) -> Any:
    y, z, w = (a * 2).to(torch.float64), a.t().contiguous(), (a + 1).t().reshape(2, 8)
    return y.add_(1), z.add_(1), w.add_(1)


def no_copies(a: torch.Tensor) -> Any:
    y = a * 2
    z, w, v = y.contiguous(), y.to(a.dtype), y.reshape(2, 8)
    y.add_(1)
    return z, w, v


def factories(a: torch.Tensor) -> Any:
    y = torch.zeros(4, 4)
    y.add_(a)
    return (
        y,
        torch.eye(4),
        torch.zeros_like(a).add_(a),
        torch.linspace(0, 1, 4),
        torch.full((2,), 3.0).mul_(a[0, :2]),
    )


OWN: list[Callable[..., Any]] = [
    *(relu, twice, view_before, part, operator, seen_otherwise, filled, given_back, foreach),
    *(made_like, made_of_numbers, results_of_others, copies, no_copies, factories),
]


def norm(a: torch.Tensor) -> Any:
    return F.batch_norm(a, None, None, training=True).relu_()


def layers(a: torch.Tensor) -> Any:
    y = F.linear(a, WEIGHT)
    y += 1
    y.relu_()
    z = F.linear(y, WEIGHT).tanh_()
    return y, z.view(-1), z.t()


# Autograd follows these.
FOLLOWED: list[Callable[..., Any]] = [relu, layers, norm, factories, results_of_others, operator]
PARAMETERS: list[Callable[..., Any]] = [view_behind, views_behind, view_between, view_ahead, detached]


def told(result: torch.Tensor) -> Any:
    try:
        followed = (result * 2).requires_grad
    except RuntimeError as error:
        followed = str(error).split(" and its base")[0]
    return result._version if not result.is_inference() else None, followed, result.requires_grad


def outcomes(function: Callable[..., Any], make: Callable[[], torch.Tensor], scope: Any) -> Any:
    tensor = make()
    with scope():
        made = function(tensor)
    results = made if isinstance(made, tuple) else (made,)
    return [told(result) for result in results], tensor._version


def compare(function: Callable[..., Any], backend: str, make: Callable[[], torch.Tensor], scope: Any) -> None:
    options = {"sync": True} if backend == "native" else {}
    compiled = kintsugi.compile(function, backend=backend, options=options)
    for call in range(4):
        assert outcomes(compiled, make, scope) == outcomes(function, make, scope), call


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("scope", [torch.no_grad, torch.enable_grad], ids=["no_grad", "enable_grad"])
@pytest.mark.parametrize("function", OWN, ids=lambda f: f.__name__)
def test_own_tensors(function: Callable[..., Any], scope: Any, backend: str) -> None:
    compare(function, backend, lambda: torch.rand(4, 4) + 2, scope)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("function", FOLLOWED, ids=lambda f: f.__name__)
def test_own_tensors_that_autograd_follows(function: Callable[..., Any], backend: str) -> None:
    compare(function, backend, lambda: (torch.rand(4, 4) + 2).requires_grad_(), torch.enable_grad)


def test_writes_behind_the_forward() -> None:
    """What was written in the call is none of the writes that a backward complains of."""
    compiled = kintsugi.compile(layers, backend="native", options={"sync": True})
    for _ in range(4):
        found = []
        for function in (layers, compiled):
            a = torch.ones(4, 4, requires_grad=True)
            y, z, _ = function(a)
            (y.sum() + z.sum()).backward()
            y, z, _ = function(a)
            with torch.no_grad():
                y.mul_(2)
            try:
                z.sum().backward()
                found.append("no error")
            except RuntimeError as error:
                found.append(str(error).split("at version")[1].split(";")[0])
            found.append(a.grad)
        assert found[0] == found[2]
        torch.testing.assert_close(found[3], found[1])


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("scope", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference"])
@pytest.mark.parametrize("function", PARAMETERS, ids=lambda f: f.__name__)
def test_views_of_parameters(function: Callable[..., Any], scope: Any, backend: str) -> None:
    compare(function, backend, lambda: torch.nn.Parameter(torch.rand(4, 4)), scope)
