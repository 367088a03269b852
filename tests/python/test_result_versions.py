"""Version counters of results, and of views of tensors that a call has written to, where autograd follows nothing: as
in eager mode, where each write counts when it is made."""

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


def empty(a: torch.Tensor) -> Any:
    y = torch.empty_like(a)
    y.fill_(2)
    y.add_(a)
    z = a.new_empty(4, 4).copy_(a)
    w = torch.empty_strided((4, 4), (1, 4))
    w.zero_().sub_(a)
    return y, z, w, y._version, w._version


def literals(a: torch.Tensor) -> Any:
    y = torch.tensor([1.0, 2.0, 3.0, 4.0])
    y.mul_(a[0])
    z = torch.tensor(3.0)
    z += 1
    return y, z, y._version, z._version


def made_full(a: torch.Tensor) -> Any:
    made = [
        *(torch.zeros(4), torch.ones(4), torch.full((4,), 2.0), torch.arange(4.0), torch.linspace(0, 1, 4)),
        *(torch.zeros_like(a[0]), torch.ones_like(a[0]), torch.full_like(a[0], 3), a.new_zeros(4)),
        *(a.new_ones(4), a.new_full((4,), 2), torch.eye(4), torch.rand(4), torch.randn(4)),
    ]
    before = [one._version for one in made]
    for one in made:
        one[0] = a[0, 0]
    return (*made, *before)


def made_kept(a: torch.Tensor) -> Any:
    return torch.zeros(4), torch.ones(2, 2), torch.zeros_like(a), a.new_ones(3), torch.full((2,), 1.0)


def converted(a: torch.Tensor) -> Any:
    made = [
        *(
            a.to("cpu", torch.float64),
            a.to(torch.float64),
            a.to(torch.ones(2, dtype=torch.float64)),
            a.double(),
        ),
        *(a.to("cpu", copy=True), a.to(torch.float32, copy=True), a.type_as(torch.ones(1).double())),
        *(a.t().contiguous(), a.to(memory_format=torch.contiguous_format, copy=True)),
        *(a.to("cpu", torch.float64, True, True), torch.as_tensor(a, dtype=torch.float64)),
    ]
    for one in made:
        one.add_(1)
    return tuple(made)


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


OWN: list[Callable[..., Any]] = [
    *(relu, twice, view_before, part, operator, seen_otherwise, filled, given_back, foreach),
    *(empty, literals, made_full, made_kept, converted),
]
PARAMETERS: list[Callable[..., Any]] = [view_behind, views_behind, view_between, view_ahead, detached]


def rows(p: torch.Tensor) -> Any:
    index = torch.tensor([0, 1])
    p.index_add_(0, index, torch.ones(2, 4))
    p[0] = 1.0
    p[1, :2] = p[2, :2]
    return p._version, p


def stored_in(p: torch.Tensor) -> Any:
    torch.add(p, 1, out=p)
    torch._foreach_mul_([p, p[0]], 2)
    return p.detach().zero_()


def behind_its_back(p: torch.Tensor) -> Any:
    p.data.add_(1)
    return p + 1, p._version


def normed(p: torch.Tensor) -> Any:
    mean, var = torch.zeros(4), torch.ones(4)
    y = F.batch_norm(p, mean, var, training=True)
    return y, mean, var, mean._version


def decided(p: torch.Tensor) -> Any:
    before = p._version
    if p.add_(1).sum() > 0:
        p.mul_(2)
    return p._version - before, p.t()


WRITTEN: list[Callable[..., Any]] = [*PARAMETERS, rows, stored_in, behind_its_back, normed, decided]


def plain(graph: Any, _: Any) -> Any:
    return graph


BACKENDS: list[Any] = ["eager", "native", pytest.param(plain, id="fx"), "aot_eager"]


def told(result: Any) -> Any:
    if not isinstance(result, torch.Tensor):
        return result
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


def compare(function: Callable[..., Any], backend: Any, make: Callable[[], torch.Tensor], scope: Any) -> None:
    options = {"sync": True} if backend == "native" else {}
    compiled = kintsugi.compile(function, backend=backend, options=options)
    for call in range(4):
        assert outcomes(compiled, make, scope) == outcomes(function, make, scope), call


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scope", [torch.no_grad, torch.enable_grad], ids=["no_grad", "enable_grad"])
@pytest.mark.parametrize("function", OWN, ids=lambda f: f.__name__)
def test_own_tensors(function: Callable[..., Any], scope: Any, backend: Any) -> None:
    compare(function, backend, lambda: torch.rand(4, 4) + 2, scope)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("scope", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference"])
@pytest.mark.parametrize("function", PARAMETERS, ids=lambda f: f.__name__)
def test_views_of_parameters(function: Callable[..., Any], scope: Any, backend: str) -> None:
    compare(function, backend, lambda: torch.nn.Parameter(torch.rand(4, 4)), scope)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scope", [torch.no_grad, torch.enable_grad], ids=["no_grad", "enable_grad"])
@pytest.mark.parametrize("function", WRITTEN, ids=lambda f: f.__name__)
def test_tensors_that_are_given(function: Callable[..., Any], scope: Any, backend: Any) -> None:
    compare(function, backend, lambda: torch.rand(4, 4), scope)
