"""torch.func's transforms, alone and inside one another: recorded below the transform, equal to eager mode.

What a transform runs are operations on plain tensors, so each program is one trace without a break, for every backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import describe
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)

import kintsugi

Program = Callable[..., Any]
weight = torch.nn.Parameter(torch.randn(3, 3))
layer = torch.nn.Linear(3, 3)
parameters = dict(layer.named_parameters())


def square(x: torch.Tensor) -> torch.Tensor:
    return (x**2).sum()


def loss_of(values: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((functional_call(layer, values, (x,)) - y) ** 2).mean()


def without_gradient(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.detach() + x.cos().data).sum()


# All but the second half are recorded without a break; those take eager mode's way in part.
WHOLE: dict[str, Program] = {
    "grad": lambda x: grad(square)(x),
    "grad of grad": lambda x: grad(lambda y: grad(square)(y).sum())(x),
    "grad of a parameter's function": lambda x: grad(lambda y: (y @ weight).sin().sum())(x),
    "argnums": lambda x: grad(lambda a, b: (a * b.sin()).sum(), argnums=(0, 1))(x, x + 1),
    "aux": lambda x: grad(lambda y: (square(y), y * 2), has_aux=True)(x),
    "grad and value": lambda x: grad_and_value(square)(x),
    "detach": lambda x: grad(without_gradient)(x),
    "unused": lambda x: grad(lambda a, b: a.sum(), argnums=1)(x, x),
    "keywords": lambda x: grad(lambda a, scale: (a * scale).sum())(x, scale=x),
    "jvp": lambda x: jvp(lambda y: y.sin() * y, (x,), (x + 1,)),
    "jvp of many": lambda x: jvp(lambda a, b: (a * b, a.sin()), (x, x + 1), (x * 2, x)),
    "jacrev": lambda x: jacrev(torch.sin)(x),
    "jacrev by chunks": lambda x: jacrev(torch.sin, chunk_size=2)(x),
    "jacfwd": lambda x: jacfwd(torch.sin)(x),
    "jacobians of dicts": lambda x: jacrev(lambda d: {"y": d["a"] * d["b"]})({"a": x, "b": x + 1}),
    "hessian": lambda x: hessian(lambda y: (y**3).sum())(x),
    "reverse over reverse": lambda x: jacrev(jacrev(lambda y: (y**3).sum()))(x),
    "forward over forward": lambda x: jacfwd(jacfwd(lambda y: (y**3).sum()))(x),
    "vmap": lambda x: vmap(lambda a: a.sin() * 2)(x),
    "vmap of grad": lambda x: vmap(grad(square))(x),
    "vmap in grad": lambda x: grad(lambda y: vmap(lambda a: a.exp().sum())(y).sum())(x),
    "in the middle": lambda x: grad(square)(x.relu() + 1) * x,
}
IN_PART: dict[str, Program] = {
    "gradients of each sample": lambda x: vmap(grad(loss_of), in_dims=(None, 0, 0))(parameters, x, x + 1),
    "vjp": lambda x: (lambda pair: (pair[0], pair[1](x)))(vjp(lambda y: y.sin(), x)),
    "no_grad inside": lambda x: grad(lambda y: (y * torch.no_grad()(torch.sin)(y)).sum())(x),
}


def ways() -> list[Any]:
    return [pytest.param(backend, id=backend) for backend in ("eager", "native")]


def same(backend: str, got: Any, want: Any) -> None:
    """Bit for bit in replay, up to rounding where there is native code."""
    close = backend == "native"
    assert describe(got, close=close) == describe(want, close=close)


@pytest.mark.parametrize("backend", ways())
@pytest.mark.parametrize("name", WHOLE)
def test_whole(name: str, backend: str) -> None:
    program = WHOLE[name]
    compiled = kintsugi.compile(program, backend=backend)
    for _ in range(4):
        x = torch.randn(3, 3)
        same(backend, compiled(x), program(x))
        kintsugi.wait()
    stats = compiled.stats()
    assert stats.graph_break_count == 0 and stats.hits == 3, stats


@pytest.mark.parametrize("backend", ways())
@pytest.mark.parametrize("name", IN_PART)
def test_in_part(name: str, backend: str) -> None:
    program = IN_PART[name]
    compiled = kintsugi.compile(program, backend=backend)
    for _ in range(4):
        x = torch.randn(3, 3)
        same(backend, compiled(x), program(x))
        kintsugi.wait()


@pytest.mark.parametrize("name", [*WHOLE, *IN_PART])
@pytest.mark.parametrize("mode", ["no_grad", "follows", "inference"])
def test_modes_outside(name: str, mode: str) -> None:
    """The gradient mode of the caller is that of what lies below the transform, in a replay as well."""
    backend = "native" if name in ("grad", "hessian", "jvp") else "eager"
    program = {**WHOLE, **IN_PART}[name]
    compiled = kintsugi.compile(program, backend=backend)
    for _ in range(4):
        x = torch.randn(3, 3, requires_grad=mode == "follows")
        manager = {
            "no_grad": torch.no_grad,
            "follows": torch.enable_grad,
            "inference": torch.inference_mode,
        }[mode]
        with manager():
            try:
                want = program(x)
            except RuntimeError as error:  # eager mode refuses some in inference mode
                with pytest.raises(RuntimeError) as caught:
                    compiled(x)
                assert str(caught.value) == str(error)
                continue
            got = compiled(x)
        same(backend, got, want)
        if mode == "follows":
            leaves = [t for t in torch.utils._pytree.tree_leaves(want) if t.requires_grad]
            mine = [t for t in torch.utils._pytree.tree_leaves(got) if t.requires_grad]
            assert len(leaves) == len(mine)
            if leaves:
                wanted = torch.autograd.grad(sum(t.sum() for t in leaves), x, allow_unused=True)
                given = torch.autograd.grad(sum(t.sum() for t in mine), x, allow_unused=True)
                same("native", given, wanted)
        kintsugi.wait()


@pytest.mark.parametrize("backend", ways())
def test_what_is_read_inside_is_guarded(backend: str) -> None:
    scale = [2.0]
    offset = torch.ones(3)

    def program(x: torch.Tensor) -> torch.Tensor:
        return grad(lambda y: (y * scale[0] + offset).sin().sum())(x)

    compiled = kintsugi.compile(program, backend=backend)
    x = torch.randn(3)
    for value in (2.0, 2.0, 3.0, 3.0, 2.0):
        scale[0] = value
        offset = offset + 1
        same(backend, compiled(x), program(x))
        kintsugi.wait()


@pytest.mark.parametrize("backend", ways())
def test_errors_inside(backend: str) -> None:
    """What raises inside leaves no transform behind, and the calls after it are right."""

    def program(x: torch.Tensor, fails: bool) -> torch.Tensor:
        def inner(y: torch.Tensor) -> torch.Tensor:
            if fails:
                raise ValueError("inside")
            return (y @ y).sum()

        return grad(inner)(x) + hessian(inner)(x).sum()

    compiled = kintsugi.compile(program, backend=backend)
    for round_ in range(6):
        x = torch.randn(3, 3) if round_ != 4 else torch.randn(3, 2)
        try:
            want = program(x, round_ % 3 == 1)
        except (ValueError, RuntimeError) as error:
            with pytest.raises(type(error)) as caught:
                compiled(x, round_ % 3 == 1)
            assert str(caught.value) == str(error)
            continue
        same(backend, compiled(x, round_ % 3 == 1), want)
    assert torch._C._functorch.maybe_current_level() is None
    assert torch.autograd.forward_ad._current_level == -1
    assert torch._functorch.eager_transforms.JVP_NESTING == 0


def test_one_graph_for_other_backends() -> None:
    for name, program in WHOLE.items():
        graphs: list[torch.fx.GraphModule] = []

        def backend(module: torch.fx.GraphModule, _: Any, graphs: Any = graphs) -> Any:
            graphs.append(module)
            return module

        compiled = kintsugi.compile(program, backend=backend, fullgraph=True)
        x = torch.randn(3, 3)
        for _ in range(2):
            same("eager", compiled(x), program(x))
        assert len(graphs) == compiled.stats().graph_count == 1, name
