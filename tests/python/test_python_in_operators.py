"""Python code of the program's that operators call: hooks for saved tensors, dispatch modes, kernels in Python.

What it raises is the program's, and nothing of it runs a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import kintsugi


def own(gm: torch.fx.GraphModule, _examples: list[Any]) -> Any:
    return gm.forward


BACKENDS: list[Any] = [own, "eager", "native", "aot_eager"]
log: list[str] = []
state = {"n": 0}
fails: dict[str, int | None] = {"at": None}


class Stop(Exception):
    pass


def called(what: str) -> None:
    log.append(what)
    if fails["at"] == len(log):
        raise Stop(what)


def pack(tensor: torch.Tensor) -> torch.Tensor:
    called(f"pack {tuple(tensor.shape)}")
    return tensor


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        called(str(func))
        return func(*args, **(kwargs or {}))


library = torch.library.Library("kintsugi_test_python", "DEF")
library.define("bar(Tensor x, int n) -> Tensor")


def bar(x: torch.Tensor, n: int) -> torch.Tensor:
    called(f"bar {n}")
    return x + n


library.impl("bar", bar, "CompositeExplicitAutograd")
library.impl("bar", lambda x, n: torch.empty_like(x), "Meta")


def body(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    try:
        state["n"] += 1
        z = (y * y).exp()
        state["n"] += 10
        z = z.tanh()
    except Stop:
        state["n"] += 100
        return y + 1
    return z * 2


def hooks_inside(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    state["n"] += 1
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        z = (y * y).exp()
        state["n"] += 10
        z = z.tanh()
    return z * 2


def mode_inside(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    with Mode():
        y = y.cos()
        state["n"] += 1
        y = y.exp()
    return y + 1


def kernels(x: torch.Tensor) -> torch.Tensor:
    y = torch.ops.kintsugi_test_python.bar(x.detach().sin(), 1)
    state["n"] += 1
    try:
        y = torch.ops.kintsugi_test_python.bar(y.cos(), 2)
    except Stop:
        y = y - 1
    return torch.ops.kintsugi_test_python.bar(y, 3)


@torch.library.custom_op("kintsugi_test_python::doubled", mutates_args=())
def doubled(x: torch.Tensor, n: int) -> torch.Tensor:
    called(f"doubled {n}")
    return x * 2


doubled.register_fake(lambda x, n: torch.empty_like(x))
doubled.register_autograd(lambda ctx, g: (g * 2, None), setup_context=lambda ctx, inputs, output: None)


def trained(x: torch.Tensor) -> torch.Tensor:
    y = doubled(x.sin(), 1)
    y = doubled(y.cos() + y, 2)
    try:
        y = doubled(y.exp() * y, 3)
    except Stop:
        y = y - 1
    return y * 2


def plain(call: Callable[[], Any]) -> Any:
    return call()


def under_hooks(call: Callable[[], Any]) -> Any:
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        return call()


def under_mode(call: Callable[[], Any]) -> Any:
    with Mode():
        return call()


def frames(error: BaseException) -> Iterator[tuple[str, int]]:
    entry = error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code in (
            body.__code__,
            hooks_inside.__code__,
            mode_inside.__code__,
            kernels.__code__,
            trained.__code__,
        ):
            yield entry.tb_frame.f_code.co_name, entry.tb_lineno
        entry = entry.tb_next


def outcome(f: Callable[..., Any], around: Callable[..., Any], fails_at: int | None) -> Any:
    log.clear()
    state["n"] = 0
    x = torch.linspace(-1, 1, 4).requires_grad_()
    fails["at"] = fails_at
    try:
        result: Any = around(lambda: f(x)).tolist()
    except Stop as error:
        result = ("raised", str(error), list(frames(error)))
    finally:
        fails["at"] = None
    return result, list(log), dict(state)


@pytest.mark.parametrize("backend", BACKENDS[:3])
@pytest.mark.parametrize(
    "f, around",
    [
        (body, under_hooks),
        (hooks_inside, plain),
        (mode_inside, plain),
        (body, under_mode),
    ],
)
def test_each_place(backend: Any, f: Callable[..., Any], around: Callable[..., Any]) -> None:
    compiled = kintsugi.compile(f, backend=backend)
    for fails_at in [None, None, 1, 2, 3, 4, 5, None]:
        expected = outcome(f, around, fails_at)
        assert outcome(compiled, around, fails_at) == expected
        kintsugi.wait()


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("f", [kernels, trained])
def test_kernels_in_python(f: Callable[..., Any], backend: Any) -> None:
    compiled = kintsugi.compile(f, backend=backend)
    for fails_at in [None, None, None, None, 1, 2, 3, None, None]:
        assert outcome(compiled, plain, fails_at) == outcome(f, plain, fails_at)
        kintsugi.wait()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("early_stop", [True, False])
def test_checkpoint_around(backend: Any, early_stop: bool) -> None:
    """A recomputation ends by an exception of its hook for saved tensors."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    compiled = kintsugi.compile(module, backend=backend)
    for call in range(5):
        x = torch.randn(3, 8)
        gradients = []
        for f in (compiled, module):
            leaf = x.clone().requires_grad_()
            module.zero_grad()
            with set_checkpoint_early_stop(early_stop):
                checkpoint(f, leaf, use_reentrant=False).sin().sum().backward()
            gradients.append([leaf.grad, *(p.grad.clone() for p in module.parameters())])
        torch.testing.assert_close(gradients[0], gradients[1], msg=f"call {call}")
        kintsugi.wait()


def test_no_hook_is_called_while_a_graph_is_compiled() -> None:
    compiled = kintsugi.compile(body, backend=own)
    for around in (under_hooks, under_mode, under_hooks):
        assert outcome(compiled, around, None) == outcome(body, around, None)
    assert outcome(compiled, plain, None) == outcome(body, plain, None)
    # `state` is read again behind operators that have called a hook.
    assert compiled.stats().graph_count == 3
