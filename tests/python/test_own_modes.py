"""Modes and forward-mode derivatives that a program enters inside of a compiled function, or its caller around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as fa
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import kintsugi

LOG: list[str] = []


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(str(func))
        return func(*args, **(kwargs or {}))


class Function(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


def branch(x: torch.Tensor) -> Any:
    return x + 1 if x.sum() > 0 else x - 1


def operators(x: torch.Tensor) -> Any:
    first, *rest = x
    flag = bool(x.any()) and not x.min() > 5 and (x.max() or 3)
    y = -x * 2 + first
    y[0] = x[1].item()
    y += len(rest)
    return y, flag, int(x[0]), [v * 2 for v in x], x.tolist(), (x > 0).all() or None, 1 in x, x[-1] == 2


def unpacked(x: torch.Tensor) -> Any:
    a, b, c = x
    return c, a + b


def loop(x: torch.Tensor) -> Any:
    n = 0
    while x.sum() > 1 and n < 4:
        x = x / 2
        n += 1
    return x, n


def raises(x: torch.Tensor) -> Any:
    if x > 0:  # ambiguous
        return x
    return None


BODIES = {body.__name__: body for body in (branch, operators, unpacked, loop, raises)}


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.stride(), value.tolist()
    return [plain(part) for part in value] if isinstance(value, tuple | list) else value


def outcome(function: Callable[..., Any], x: torch.Tensor) -> Any:
    LOG.clear()
    try:
        result = plain(function(x))
    except Exception as error:
        return type(error), str(error), list(LOG)
    return result, list(LOG)


def compile_for(backend: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return kintsugi.compile(
        function, backend=backend, options={"sync": True} if backend == "native" else None
    )


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "around"])
@pytest.mark.parametrize("mode", [Dispatch, Function])
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_modes_see_what_they_see_in_eager_mode(backend: str, name: str, mode: Any, inside: bool) -> None:
    body = BODIES[name]

    def entered(x: torch.Tensor) -> Any:
        with mode():
            return body(x)

    compiled = compile_for(backend, entered if inside else body)

    def around(x: torch.Tensor) -> Any:
        with mode():
            return compiled(x)

    for k in range(5):
        x = torch.tensor([1.0, 2.0, 3.0]) * (k - 1)
        assert outcome(compiled if inside else around, x) == outcome(entered, x), k
        if not inside:
            assert outcome(compiled, x) == outcome(body, x), k


def tangent_inside(x: torch.Tensor) -> Any:
    with fa.dual_level():
        return fa.unpack_dual(fa.make_dual(x, torch.ones_like(x)).sigmoid() * 2).tangent


def tangent_of_a_write(x: torch.Tensor) -> Any:
    with fa.dual_level():
        y = fa.make_dual(x, torch.ones_like(x)).tanh()
        y.mul_(3).add_(x)
        return tuple(fa.unpack_dual(y))


def tangent_of_a_chain(x: torch.Tensor) -> Any:
    with fa.dual_level():
        y = fa.make_dual(x, x.cos())
        for _ in range(4):
            y = (y * 2).tanh().exp() - y
        return fa.unpack_dual(y @ torch.ones(3)).tangent, torch.relu(x) * 2 + 1


def jvp(x: torch.Tensor) -> Any:
    return torch.func.jvp(lambda v: (v * 2).tanh() * v, (x,), (torch.ones_like(x),))


def chain(x: torch.Tensor) -> Any:
    return ((x * 2).tanh() * x).exp()


@pytest.mark.parametrize("program", [tangent_inside, tangent_of_a_write, tangent_of_a_chain, jvp])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_tangents_inside(backend: str, program: Callable[..., Any]) -> None:
    compiled = compile_for(backend, program)
    for k in range(5):
        x = torch.tensor([0.1, -0.2, 0.3]) * k
        torch.testing.assert_close(compiled(x), program(x))


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_tangents_of_arguments(backend: str) -> None:
    compiled = compile_for(backend, chain)
    for k in range(6):
        x = torch.tensor([0.1, -0.2, 0.3]) * k
        if k % 2:
            torch.testing.assert_close(compiled(x), chain(x))
            continue
        with fa.dual_level():
            dual = fa.make_dual(x, torch.ones(3))
            mine, theirs = fa.unpack_dual(compiled(dual)), fa.unpack_dual(chain(dual))
            assert mine.tangent is not None
            torch.testing.assert_close(mine.tangent, theirs.tangent)
            torch.testing.assert_close(mine.primal, theirs.primal)
