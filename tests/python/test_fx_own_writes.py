"""FX graphs that write to tensors of their own: effects wait behind them, unless they look at what is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kintsugi

X = torch.linspace(-2, 2, 32).reshape(1, 2, 4, 4)
W = nn.Parameter(torch.linspace(-1, 1, 36).reshape(2, 2, 3, 3))


class Backend:
    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        self.graphs.append(gm)
        return gm.forward


class Box:
    """What a program keeps."""

    def __init__(self) -> None:
        self.count = 0
        self.kept: Any = None
        self.more: Any = None


def conv(x: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, W, padding=1)


def check(f: Callable[[torch.Tensor, Box], Any], graphs: int, *, grad: bool = False) -> None:
    """The same results, kept tensors, aliases and gradients as in eager mode, from `graphs` graphs."""
    backend = Backend()
    compiled = kintsugi.compile(f, backend=backend)
    with torch.set_grad_enabled(grad):
        for call in range(4):
            x, y = ((X + 0.25 * call).requires_grad_(grad) for _ in range(2))
            seen, expected = Box(), Box()
            out, right = compiled(x, seen), f(y, expected)
            torch.testing.assert_close(out, right, rtol=0, atol=0)
            assert seen.count == expected.count
            for name in ("kept", "more"):
                ours, theirs = getattr(seen, name), getattr(expected, name)
                assert (ours is out) == (theirs is right)
                if isinstance(theirs, torch.Tensor):
                    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
                    assert ours._version == theirs._version
                else:
                    assert ours == theirs
            if grad:
                given = [torch.autograd.grad(o.sum(), (z, W)) for o, z in ((out, x), (right, y))]
                torch.testing.assert_close(given[0], given[1])
    assert len(backend.graphs) == graphs, [str(gm.graph) for gm in backend.graphs]
    assert compiled.stats().graph_break_count == 0


def store_between(x: torch.Tensor, box: Box) -> torch.Tensor:
    y = conv(x)
    y.relu_()
    box.count += 1
    z = conv(y)
    z.add_(1)
    box.kept = z.sin()
    return conv(z).neg_()


def view_written(x: torch.Tensor, box: Box) -> torch.Tensor:
    y = conv(x).flatten(1)
    box.count += 1
    y.mul_(2)
    return y.sin()


def kept_then_written(x: torch.Tensor, box: Box) -> torch.Tensor:
    """What is kept is the tensor itself, which is written to later: two graphs."""
    y = conv(x)
    box.kept = y
    y.relu_()
    return y.sum()


def value_then_written(x: torch.Tensor, box: Box) -> torch.Tensor:
    y = conv(x)
    if y.sum() > 0:
        box.count += 1
    y.relu_()
    return y.sin()


def written_then_asked(x: torch.Tensor, box: Box) -> torch.Tensor:
    y = conv(x)
    y.relu_()
    if y.sum() > 20:
        box.count += 1
        y = y + 1
    return y.sin()


def asked_of_another(x: torch.Tensor, box: Box) -> torch.Tensor:
    """The frames hold nothing that is written to: one graph."""

    def written(t: torch.Tensor) -> torch.Tensor:
        t = conv(t)
        t.relu_()
        return t * 2

    z = written(x)
    if (x.sum() > 3).item():
        box.count += 1
        z = z + 1
    return written(z)


def input_written(x: torch.Tensor, box: Box) -> torch.Tensor:
    """What is written to is kept before something is made of it: two graphs."""
    y = x.clone()
    box.count += 1
    y.add_(1)
    box.more = y
    return conv(y).sin()


def aliased(x: torch.Tensor, box: Box) -> torch.Tensor:
    """The attribute is stored, then the tensor is written to: two graphs. What is stored behind the write waits."""
    y = conv(x)
    v = y[0]
    box.kept = v
    y.mul_(3)
    box.more = v
    return y.cos()


@pytest.mark.parametrize(
    ("f", "graphs"),
    [
        (store_between, 1),
        (view_written, 1),
        (kept_then_written, 2),
        (aliased, 2),
        (input_written, 2),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_effects_and_writes(f: Callable[..., Any], graphs: int, grad: bool) -> None:
    check(f, graphs, grad=grad)


@pytest.mark.parametrize("f", [value_then_written, written_then_asked, asked_of_another])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "own"])
def test_decisions_and_writes(f: Callable[..., Any], grad: bool, backend: str) -> None:
    """Either way, again and again, with frames that are left behind the graph."""
    compiled = kintsugi.compile(f, backend=Backend() if backend == "own" else backend)
    for call in range(8):
        x = (X + (call % 3 - 1) * 0.5).requires_grad_(grad)
        y = x.detach().clone().requires_grad_(grad)
        seen, expected = Box(), Box()
        with torch.set_grad_enabled(grad):
            out, right = compiled(x, seen), f(y, expected)
        torch.testing.assert_close(out, right, rtol=0, atol=0)
        assert seen.count == expected.count
        if grad:
            out.sum().backward()
            right.sum().backward()
            torch.testing.assert_close(x.grad, y.grad)
    W.grad = None


def test_a_decision_behind_writes_of_others_cuts_nothing() -> None:
    backend = Backend()
    compiled = kintsugi.compile(asked_of_another, backend=backend)
    for _ in range(3):
        compiled(X + 1, Box())
    assert len(backend.graphs) == 1


def test_an_effect_that_raises_leaves_what_was_written() -> None:
    class Picky:
        def __init__(self) -> None:
            self.items: list[int] = []

    def f(x: torch.Tensor, picky: Picky, limit: int) -> torch.Tensor:
        def written(t: torch.Tensor) -> torch.Tensor:
            return conv(t).relu_() * 2

        z = written(x)
        picky.items.append(limit)
        try:
            if (z.sum() > limit).item():
                raise ValueError(limit)
        except ValueError:
            z = z + 1
        return written(z).add_(1)

    compiled = kintsugi.compile(f, backend=Backend())
    for limit in (0, 10**6, 0, 10**6):
        seen, expected = Picky(), Picky()
        torch.testing.assert_close(compiled(X, seen, limit), f(X, expected, limit), rtol=0, atol=0)
        assert seen.items == expected.items


def test_a_graph_that_raises_is_run_again_one_by_one() -> None:
    """Its own tensors are made anew, so nothing is written twice, and effects before the error happen."""

    def f(x: torch.Tensor, box: Box, n: int) -> torch.Tensor:
        y = conv(x)
        y.add_(1)
        box.count += 1
        z = y * 2
        box.more = "reached"
        return z.reshape(-1)[torch.tensor([n])].neg_()

    compiled = kintsugi.compile(f, backend=Backend())
    for n in (3, 3, 10**6, 3):
        seen, expected = Box(), Box()
        outcomes = []
        for call, box in ((compiled, seen), (f, expected)):
            try:
                outcomes.append(call(X, box, n))
            except (IndexError, RuntimeError) as error:
                outcomes.append(type(error))
        if isinstance(outcomes[1], torch.Tensor):
            torch.testing.assert_close(outcomes[0], outcomes[1], rtol=0, atol=0)
        else:
            assert outcomes[0] is outcomes[1]
        assert (seen.count, seen.more) == (expected.count, expected.more)


class Keeps(nn.Module):
    """Attributes of modules are stored behind the graph, as those of any object."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.seen: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        self.seen = y
        self.seen = self.seen.sin() if self.training else None
        return y * 2


@pytest.mark.parametrize("backend", ["own", "native", "eager"])
@pytest.mark.parametrize("train", [False, True])
def test_attributes_of_modules(backend: str, train: bool) -> None:
    module, twin = Keeps().train(train), Keeps().train(train)
    twin.load_state_dict(module.state_dict())
    own = Backend()
    compiled = kintsugi.compile(module, backend=own if backend == "own" else backend)
    for _ in range(4):
        x = torch.randn(3, 4)
        out, right = compiled(x), twin(x)
        kintsugi.wait()
        torch.testing.assert_close(out, right)
        torch.testing.assert_close(module.seen, twin.seen)
        out.sum().backward()
        right.sum().backward()
        torch.testing.assert_close(module.inner.weight.grad, twin.inner.weight.grad)
    if backend == "own":
        assert len(own.graphs) == 1


def test_a_store_and_the_grad_mode() -> None:
    def f(x: torch.Tensor, box: Box) -> torch.Tensor:
        y = conv(x)
        box.kept = y
        with torch.no_grad():
            z = (y > 0).float()
        return y * z

    check(f, 1, grad=True)
