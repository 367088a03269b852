"""TorchScript's functions and modules inside compiled code: recorded operator by operator, beside eager mode."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

import kintsugi


def own(gm: torch.fx.GraphModule, _examples: list[Any]) -> Any:
    return gm.forward


BACKENDS: list[Any] = [own, "eager", "native"]

pytestmark = pytest.mark.usefixtures("calls_of_scripts")


@torch.jit.script
def looped(x: torch.Tensor, y: torch.Tensor, k: float = 2.0):  # type: ignore[no-untyped-def]
    z = x * k + y
    if x.size(0) > 2:
        z = z.relu()
    out = []
    for i in range(x.shape[0]):
        out.append(z[i] * i)
    n = 0
    while n < 3:
        z = z + n
        n += 1
    return torch.cat([z, torch.stack(out)], dim=-1), z.shape[0]


@torch.jit.script
def gelu(x):  # type: ignore[no-untyped-def]
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


@torch.jit.script
def decides(x):  # type: ignore[no-untyped-def]
    if x.sum() > 0:
        return x + 1
    else:
        return x - 1


@torch.jit.script
def picky(x):  # type: ignore[no-untyped-def]
    if x.dim() != 2:
        raise ValueError("no {} dimensions".format(x.dim()))
    return x.t()


@torch.jit.script
def optional(a: torch.Tensor | None, b: torch.Tensor):  # type: ignore[no-untyped-def]
    if a is None:
        return b
    return a + b.to(torch.float64).transpose(0, 1)


@torch.jit.script
def snake(x, alpha):  # type: ignore[no-untyped-def]
    shape = x.shape
    x = x.reshape(shape[0], shape[1], -1)
    x = x + (alpha + 1e-9).reciprocal() * torch.sin(alpha * x).pow(2)
    return x.reshape(shape)


@torch.jit.script
def gated(a, b, n: int):  # type: ignore[no-untyped-def]
    s = a + b
    return torch.tanh(s[:, :n]) * torch.sigmoid(s[:, n:])


@torch.jit.script
def written(x):  # type: ignore[no-untyped-def]
    y = x.clone()
    y.add_(1)
    if y.size(0) == 5:
        raise ValueError("five")
    return y[0] + torch.nn.functional.dropout(y, 0.5)


@torch.jit.script
def printing(x):  # type: ignore[no-untyped-def]
    print("seen")
    return x + 1


traced = torch.jit.trace(lambda x: x.view(x.size(0), -1).softmax(-1), torch.randn(3, 2, 2))


def caught(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = a.sin()
    try:
        return gated(x, b, 2)  # type: ignore[no-any-return]
    except RuntimeError as error:
        return x + len(str(error))


def r(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes)


CASES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]], bool]] = {
    "looped": (lambda x, y: looped(x.sin(), y)[0].cos(), lambda _: (r(3, 3), r(3, 3)), True),
    "keywords": (lambda x, y: looped(x=x.sin(), y=y, k=3.0), lambda _: (r(3, 3), r(3, 3)), True),
    "gelu": (lambda x: gelu(x + 1) * gelu(x), lambda i: (r(3 + i % 2, 4),), True),
    "decides": (lambda x: decides(x.sin()).cos(), lambda i: (r(4) * 0.1 + (-1) ** i,), False),
    "picky": (lambda x: picky(x.sin()).cos(), lambda i: (r(2, 3) if i % 3 else r(2, 3, 4),), False),
    "optional": (lambda a, b: optional(a, b) + optional(None, b).sum(), lambda _: (r(3, 2), r(2, 3)), True),
    "snake": (lambda x, alpha: snake(x, alpha), lambda _: (r(2, 3, 4), r(1, 3, 1)), True),
    "gated": (lambda a, b: gated(a, b, 2) + gated(b, a, 2), lambda _: (r(2, 4), r(2, 4)), True),
    "written": (lambda x: written(x.sin()), lambda _: (r(3),), True),
    "traced": (lambda x: traced(x) + 1, lambda _: (r(5, 2, 2),), True),
    "sizes that do not fit": (
        lambda a, b: gated(a, b, 2) + 1,
        lambda i: (r(2, 4), r(2, 4) if i % 2 else r(3, 5)),
        False,
    ),
    "an argument of another type": (lambda a, b: gated(a, b, 2.5), lambda _: (r(2, 4), r(2, 4)), False),
    "too few": (lambda a: gated(a), lambda _: (r(2, 4),), False),
    "as a callback": (lambda a, b: list(map(gelu, [a, b]))[1], lambda _: (r(2, 4), r(2, 4)), True),
    "caught": (caught, lambda i: (r(2, 4), r(2, 4) if i % 2 else r(3, 5)), False),
    "printing": (lambda x: printing(x.sin()), lambda _: (r(3),), False),
}


def outcome(f: Callable[..., Any], args: tuple[Any, ...], grad: bool, seed: int) -> Any:
    leaves = [arg.clone().requires_grad_(grad) for arg in args]
    torch.manual_seed(seed)
    try:
        result = f(*leaves)
        if grad:
            (result[0] if isinstance(result, tuple) else result).square().sum().backward()
    except Exception as error:
        # The lambda, or what eager mode enters of it; frames of the script leave no mark.
        lines = [entry.lineno for entry in traceback.extract_tb(error.__traceback__)][1:]
        return type(error), str(error), lines
    return result, [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_functions(backend: Any, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    f, arguments, whole = CASES[name]
    for grad in (False, True):
        compiled = kintsugi.compile(f, backend=backend)
        for call in range(5):
            torch.manual_seed(call)
            args = arguments(call)
            seen = outcome(compiled, args, grad, call)
            expected = outcome(f, args, grad, call)
            if isinstance(expected[0], type):
                assert seen == expected
            else:
                torch.testing.assert_close(seen, expected, rtol=1e-5, atol=1e-6, check_stride=True)
            kintsugi.wait()
        if whole:
            assert compiled.stats().graph_break_count == 0, compiled.breaks()
            if backend is own and name != "gelu":  # of two sizes
                assert compiled.stats().graph_count == 1
    out = capfd.readouterr().out
    assert out.count("seen") == (20 if name == "printing" else 0)


def test_an_error_behind_a_write() -> None:
    """The script can't be called again: the error's type is TorchScript's, its message lacks the traceback."""
    compiled = kintsugi.compile(lambda x: written(x), backend="eager")
    for _ in range(3):
        with pytest.raises(torch.jit.Error, match="five"):
            compiled(torch.ones(5))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.k = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)) * self.k  # type: ignore[no-any-return]


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 3))
        self.norm = nn.LayerNorm(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = self.norm(x + self.inner(x))
        return x


class Around(nn.Module):
    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x.sin()).cos()  # type: ignore[no-any-return]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [Normed, Deep])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_modules(backend: Any, make: type[nn.Module], train: bool, inside: bool) -> None:
    """Parameters are trained, replaced and read anew; `train()` and `eval()` are seen."""
    torch.manual_seed(0)
    made = make().train(train)
    pair: list[Any] = [torch.jit.script(module) for module in (copy.deepcopy(made), made)]
    if inside:
        pair = [Around(module) for module in pair]
    compiled = kintsugi.compile(pair[0], backend=backend)
    optimizers = [torch.optim.SGD(module.parameters(), 0.05) for module in pair]
    for call in range(6):
        x = torch.randn(8, 3)
        if call == 3:
            for module in pair:
                first = next(module.parameters())
                first.data = torch.linspace(-1, 1, first.numel()).reshape(first.shape)
        if call == 5:
            for module in pair:
                module.train(not train)
        seen = []
        for f, module, optimizer in zip((compiled, pair[1]), pair, optimizers, strict=True):
            torch.manual_seed(call)
            leaf = x.clone().requires_grad_()
            optimizer.zero_grad()
            out = f(leaf)
            out.square().sum().backward()
            optimizer.step()
            state = [t.detach().clone() for t in (*module.parameters(), *module.buffers())]
            seen.append((out.detach(), leaf.grad, state))
        # Norms of a batch amplify rounding.
        rtol, atol = (5e-2, 1e-3) if backend == "native" else (0, 0)
        torch.testing.assert_close(seen[0], seen[1], rtol=rtol, atol=atol)
        kintsugi.wait()
    assert compiled.stats().graph_break_count == 0


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_in_checkpoints(backend: Any, around: bool) -> None:
    """What is run again in the backward has to save as many tensors as the forward did."""
    torch.manual_seed(0)
    inner = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)))

    def run(x: torch.Tensor) -> torch.Tensor:
        return inner(x) * x

    def checkpointed(x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(run, x.sin(), use_reentrant=False).sum()

    def warm(x: torch.Tensor) -> None:
        run(x).sum().backward()

    for _ in range(4):  # TorchScript looks at its first calls
        warm(torch.rand(3, 4, requires_grad=True))
    if around:
        compiled = kintsugi.compile(run, backend=backend)

        def called(x: torch.Tensor) -> torch.Tensor:
            return torch.utils.checkpoint.checkpoint(compiled, x.sin(), use_reentrant=False).sum()
    else:
        called = kintsugi.compile(checkpointed, backend=backend)
    for _ in range(5):
        x = torch.rand(3, 4, requires_grad=True)
        wanted = torch.autograd.grad(checkpointed(x), [x, *inner.parameters()])
        got = torch.autograd.grad(called(x), [x, *inner.parameters()])
        for a, b in zip(got, wanted, strict=True):
            torch.testing.assert_close(a, b)
