"""Activation checkpoints in graphs: one graph, gradients and memory as eager mode's, and what runs again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import kintsugi


class Backend:
    """Keeps the graphs, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, _examples: list[Any]) -> Any:
        self.graphs.append(gm)
        return gm.forward

    def checkpoints(self) -> list[str]:
        return [
            n.target for gm in self.graphs for n in gm.graph.nodes if str(n.target).startswith("checkpoint_")
        ]


W = nn.Parameter(torch.linspace(-1, 1, 3))
X = torch.linspace(-1, 2, 9).reshape(3, 3)
ALL = ["own", "eager", "native", "aot_eager"]


def compiled_with(f: Callable[..., Any], name: str) -> tuple[Any, Backend]:
    backend = Backend()
    return kintsugi.compile(f, backend=backend if name == "own" else name), backend


def same_steps(f: Callable[..., Any], compiled: Any, exact: bool = True) -> None:
    """Results and gradients are eager mode's, call by call, and random numbers are the same."""
    for call in range(4):
        seen = []
        for g in (compiled, f):
            torch.manual_seed(call)
            x = X.clone().requires_grad_()
            W.grad = None
            out = g(x)
            out.sum().backward()
            seen.append((out.detach(), x.grad, W.grad, torch.rand(1)))
        limits = {"rtol": 0, "atol": 0} if exact else {}
        torch.testing.assert_close(seen[0], seen[1], **limits)
    W.grad = None


def body(a: torch.Tensor) -> torch.Tensor:
    return (a * W).sin() * 2


def one(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(body, x.cos(), use_reentrant=False) + 1  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ALL)
def test_gradients(name: str) -> None:
    compiled, backend = compiled_with(one, name)
    same_steps(one, compiled, exact=name != "native")
    assert compiled.stats().graph_break_count == 0
    if name == "own":
        assert len(backend.graphs) == 1
        assert backend.checkpoints() == ["checkpoint_0"]


@pytest.mark.parametrize("name", ALL)
def test_reentrant(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(body, x.cos(), use_reentrant=True) + 1  # type: ignore[no-any-return]

    compiled, backend = compiled_with(f, name)
    same_steps(f, compiled, exact=name != "native")
    assert compiled.stats().graph_break_count == 0
    assert name != "own" or len(backend.graphs) == 1


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("preserve", [True, False])
def test_random_numbers_are_drawn_again(name: str, preserve: bool) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(x, 0.3)
        z = checkpoint(
            lambda a: F.dropout(a * W, 0.5).sin(), y, use_reentrant=False, preserve_rng_state=preserve
        )
        return F.dropout(z, 0.1)

    compiled, backend = compiled_with(f, name)
    if preserve:
        same_steps(f, compiled, exact=name != "native")
    else:
        compiled(X.clone().requires_grad_()).sum().backward()
    assert name != "own" or len(backend.graphs) == 1


@pytest.mark.parametrize("name", ALL)
def test_nested(name: str) -> None:
    def inner(a: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda b: (b * W).tanh(), a, use_reentrant=False).exp()  # type: ignore[no-any-return]

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda a: inner(a.sin()) * W, x, use_reentrant=False) * 2  # type: ignore[no-any-return]

    compiled, backend = compiled_with(f, name)
    same_steps(f, compiled, exact=name != "native")
    assert name != "own" or backend.checkpoints() == ["checkpoint_0"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("reentrant", [False, True])
def test_sequential(name: str, reentrant: bool) -> None:
    layers = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Sigmoid())

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint_sequential(layers, 2, x * W, use_reentrant=reentrant)  # type: ignore[no-any-return]

    compiled, backend = compiled_with(f, name)
    same_steps(f, compiled, exact=name != "native")
    assert compiled.stats().graph_break_count == 0
    assert name != "own" or len(backend.graphs) == 1


@pytest.mark.parametrize("name", ALL)
def test_a_partial_of_checkpoint(name: str) -> None:
    call = partial(checkpoint, use_reentrant=False)

    def f(x: torch.Tensor) -> torch.Tensor:
        return call(partial(torch.mul, other=W), x).sin()  # type: ignore[no-any-return]

    compiled, backend = compiled_with(f, name)
    same_steps(f, compiled, exact=name != "native")
    assert name != "own" or len(backend.graphs) == 1


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_effects_happen_again(name: str) -> None:
    log: list[str] = []

    def loud(a: torch.Tensor) -> torch.Tensor:
        log.append("run")
        return (a * W).sin()

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(loud, x * 2, use_reentrant=False).cos()  # type: ignore[no-any-return]

    compiled, _ = compiled_with(f, name)
    for _call in range(4):
        seen = []
        for g in (compiled, f):
            log.clear()
            x = X.clone().requires_grad_()
            g(x).sum().backward()
            assert log == ["run", "run"]
            seen.append(x.grad)
        torch.testing.assert_close(seen[0], seen[1])


@pytest.mark.parametrize("name", ALL)
def test_batch_norm_counts_twice(name: str) -> None:
    def steps(compile_it: bool) -> Any:
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(3)

        def f(x: torch.Tensor) -> torch.Tensor:
            return checkpoint(norm, x * 2, use_reentrant=False).sin()  # type: ignore[no-any-return]

        g = compiled_with(f, name)[0] if compile_it else f
        grads = []
        for _call in range(3):
            x = X.clone().requires_grad_()
            g(x).sum().backward()
            grads.append(x.grad)
        return grads, dict(norm.named_buffers()), norm.weight.grad

    torch.testing.assert_close(steps(True), steps(False))


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_decisions_inside(name: str) -> None:
    def inside(a: torch.Tensor) -> torch.Tensor:
        b = (a * W).sin()
        return b * 2 if b.sum() > 0 else b * 3

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(inside, x, use_reentrant=False).cos()  # type: ignore[no-any-return]

    compiled, _ = compiled_with(f, name)
    for sign in (1, 1, -1, 1, -1, -1):
        seen = []
        for g in (compiled, f):
            x = (X * sign).requires_grad_()
            W.grad = None
            out = g(x)
            out.sum().backward()
            seen.append((out.detach(), x.grad, W.grad))
        torch.testing.assert_close(seen[0], seen[1])
    W.grad = None


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_exceptions_inside(name: str) -> None:
    def inside(a: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return (a * W)[at].sin()

    def f(x: torch.Tensor, at: torch.Tensor) -> Any:
        try:
            return checkpoint(inside, x, at, use_reentrant=False) + 1
        except IndexError as error:
            return str(error), (x * 2).sin()

    compiled, _ = compiled_with(f, name)
    good, bad = torch.tensor([0, 2]), torch.tensor([0, 7])
    for at in (good, good, bad, good, bad, good):
        seen = []
        for g in (compiled, f):
            x = X.clone().requires_grad_()
            out = g(x, at)
            result = out if isinstance(out, torch.Tensor) else out[1]
            result.sum().backward()
            assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None
            seen.append((result, x.grad, W.grad))
            W.grad = None
            assert isinstance(out, torch.Tensor) or "out of bounds" in out[0]
        torch.testing.assert_close(seen[0], seen[1])


@pytest.mark.parametrize("name", ["own", "eager"])
def test_nothing_inside_is_kept(name: str) -> None:
    """What eager mode does not keep for the backward is not kept."""
    kept: list[tuple[int, ...]] = []

    def pack(value: torch.Tensor) -> torch.Tensor:
        kept.append(tuple(value.shape))
        return value

    def inside(a: torch.Tensor) -> torch.Tensor:
        return (a.repeat(7, 1).sin().exp().cos() * 2).reshape(7, 3, 3).sum(0)

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(inside, x * W, use_reentrant=False).sin()  # type: ignore[no-any-return]

    compiled, _ = compiled_with(f, name)
    compiled(X.clone().requires_grad_()).sum().backward()
    for _call in range(3):
        seen = []
        for g in (compiled, f):
            kept.clear()
            x = X.clone().requires_grad_()
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
                out = g(x)
            assert (21, 3) not in kept and len(kept) == 4
            out.sum().backward()
            seen.append((out.detach(), x.grad))
        torch.testing.assert_close(seen[0], seen[1], rtol=0, atol=0)
    W.grad = None


def test_a_write_between_forward_and_backward_is_an_error() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        return checkpoint(body, y, use_reentrant=False).sum(), y

    compiled = kintsugi.compile(f, backend=Backend())
    for g in (f, compiled, compiled):
        out, y = g(X.clone().requires_grad_())
        with torch.no_grad():
            y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward()


@pytest.mark.parametrize("name", ALL)
def test_options(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(body, x, use_reentrant=False, determinism_check="none", early_stop=False)
        return y.sin()  # type: ignore[no-any-return]

    compiled, backend = compiled_with(f, name)
    same_steps(f, compiled, exact=name != "native")
    assert name != "own" or backend.checkpoints() == ["checkpoint_0"]


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_selective_checkpoints_are_torchs(name: str) -> None:
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    contexts = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])

    def f(x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(lambda a: (a @ a * W).sin(), x, use_reentrant=False, context_fn=contexts)
        return y.cos()  # type: ignore[no-any-return]

    same_steps(f, compiled_with(f, name)[0], exact=name != "native")


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_what_saves_otherwise_inside(name: str) -> None:
    """Operators with gradients of their own, and Functions of the program's, run again as in the forward."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2 + 0 * ctx.saved_tensors[0]

    def inside(a: torch.Tensor) -> torch.Tensor:
        b = Doubled.apply(a * W)
        _unused = b.sin().exp()
        return torch.func.vmap(lambda row: row.cos() * row)(b.tanh())  # type: ignore[no-any-return]

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(inside, x, use_reentrant=False) * 2  # type: ignore[no-any-return]

    same_steps(f, compiled_with(f, name)[0], exact=name != "native")


def test_a_backend_that_drops_what_nobody_uses() -> None:
    def backend(gm: torch.fx.GraphModule, _examples: list[Any]) -> Any:
        for module in gm.modules():
            if isinstance(module, torch.fx.GraphModule):
                module.graph.eliminate_dead_code()
                module.recompile()
        return gm.forward

    def inside(a: torch.Tensor) -> torch.Tensor:
        _unused = (a.exp() * a).tanh()
        return (a * W).sin()

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(inside, x, use_reentrant=False) * 2  # type: ignore[no-any-return]

    same_steps(f, kintsugi.compile(f, backend=backend))


@pytest.mark.parametrize("name", ["own", "eager"])
def test_nothing_leaks(name: str) -> None:
    compiled, _ = compiled_with(one, name)
    compiled(X.clone().requires_grad_()).sum().backward()
    x = X.clone().requires_grad_()
    out = compiled(x)
    gone = weakref.ref(out)
    del out
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", ["own", "native", "aot_eager"])
def test_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=32, n_positions=16, resid_pdrop=0.1, use_cache=False
    )
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    ids = torch.arange(8).reshape(1, 8)

    def f(ids: torch.Tensor) -> torch.Tensor:
        return model(ids, labels=ids).loss  # type: ignore[no-any-return]

    compiled, backend = compiled_with(f, name)
    for call in range(3):
        seen = []
        for g in (compiled, f):
            torch.manual_seed(call)
            model.zero_grad()
            loss = g(ids)
            loss.backward()
            seen.append((loss.detach(), [p.grad for p in model.parameters()]))
        torch.testing.assert_close(seen[0], seen[1])
    if name == "own":
        assert compiled.stats().graph_break_count == 0
        assert backend.checkpoints() == ["checkpoint_0", "checkpoint_1"]
