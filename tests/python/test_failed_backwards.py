"""A backward pass that fails in the middle leaves what eager mode leaves.

Gradients of the leaves that were reached before the failure, hooks that were called before it, and the next passes,
whether the pass runs inside the compiled function or outside of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

log: list[Any] = []
fails = [False]


class Bad(torch.autograd.Function):
    """Its backward raises in some calls."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raising(gradient)
        return gradient


def raising(gradient: torch.Tensor) -> None:
    log.append("raising")
    if fails[0]:
        raise ValueError("no gradient")


def function_inside(x: Any, a: Any, b: Any, c: Any) -> Any:
    n = Bad.apply(((x * a).sin() * b).cos()) * c
    caught = None
    try:
        n.sum().backward()
    except ValueError as error:
        caught = str(error)
    return n.detach(), caught, [leaf.grad is not None for leaf in (a, b, c)]


def hook_inside(x: Any, a: Any, b: Any, c: Any) -> Any:
    k = ((x * a).sin() * b).cos()
    k.register_hook(raising)
    n = k * c
    caught = None
    try:
        n.sum().backward()
    except ValueError as error:
        caught = str(error)
    return n.detach(), caught, [leaf.grad is not None for leaf in (a, b, c)]


def raised_inside(x: Any, a: Any, b: Any, c: Any) -> Any:
    k = ((x * a).sin() * b).cos()
    k.register_hook(raising)
    n = k * c
    n.sum().backward()
    return n.detach()


def function_outside(x: Any, a: Any, b: Any, c: Any) -> Any:
    return Bad.apply(((x * a).sin() * b).cos()) * c


def hook_outside(x: Any, a: Any, b: Any, c: Any) -> Any:
    k = ((x * a).sin() * b).cos()
    k.register_hook(raising)
    return k * c


def leaves_alone(x: Any, a: Any, b: Any, c: Any) -> Any:
    return (((x * a).sin() * b).cos() * c).tanh()


def written_to(x: Any, a: Any, b: Any, c: Any) -> Any:
    k = ((x * a).sin() * b).exp()
    return k * c, k


PROGRAMS = [
    function_inside,
    hook_inside,
    raised_inside,
    function_outside,
    hook_outside,
    leaves_alone,
    written_to,
]


def outcomes(
    function: Callable[..., Any], program: Callable[..., Any], hooked: int | None, failing: set[int]
) -> Any:
    found = []
    for call in range(8):
        generator = torch.Generator().manual_seed(call)
        fails[0] = call in failing
        x, *leaves = (torch.randn(5, generator=generator) for _ in range(4))
        for number, leaf in enumerate(leaves):
            leaf.requires_grad_()
            leaf.register_post_accumulate_grad_hook(lambda _, number=number: log.append(number))
        if hooked is not None:
            leaves[hooked].register_hook(raising)
        log.clear()
        result = raised = None
        try:
            result = function(x, *leaves)
            if program is written_to:
                result, k = result
                if fails[0]:
                    with torch.no_grad():
                        k.add_(1)
            if isinstance(result, torch.Tensor) and result.requires_grad:
                result.sum().backward()
        except (ValueError, RuntimeError) as error:
            raised = type(error).__name__, str(error).partition(":")[0]
        result = result.detach() if isinstance(result, torch.Tensor) else result
        found.append((repr(result), raised, list(log), [repr(leaf.grad) for leaf in leaves]))
    return found


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("hooked", [None, 0, 1, 2])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_failed_backward_leaves(program: Callable[..., Any], hooked: int | None, backend: str) -> None:
    options = {"sync": True} if backend == "native" else None
    for failing in ({2, 4, 5}, {0, 3, 4, 6}, {7}):
        compiled = kintsugi.compile(program, backend=backend, options=options)
        expected = outcomes(program, program, hooked, failing)
        assert any(raised is not None or "no gradient" in result for result, raised, *_ in expected) or (
            program is leaves_alone and hooked is None
        )
        assert outcomes(compiled, program, hooked, failing) == expected
