"""What does not cut an FX graph (decisions on data, their sizes, steps), and when backends are called."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import kintsugi


class Backend:
    """Keeps the graphs, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []
        self.examples: list[list[Any]] = []
        self.modes: list[bool] = []

    def __call__(self, gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        self.graphs.append(gm)
        self.examples.append(examples)
        self.modes.append(torch.is_grad_enabled())
        return gm.forward

    def calls(self) -> list[list[str]]:
        return [[str(n.target) for n in gm.graph.nodes if n.op.startswith("call")] for gm in self.graphs]


W = nn.Parameter(torch.linspace(-1, 1, 3))
X = torch.linspace(-1, 2, 9).reshape(3, 3)


def in_one_graph(f: Callable[..., Any], *inputs: Any, graphs: int = 1) -> Backend:
    """Compiles f, calls it some times, and compares."""
    backend = Backend()
    compiled = kintsugi.compile(f, backend=backend)
    for call in range(4):
        torch.testing.assert_close(compiled(*inputs), f(*inputs), rtol=0, atol=0)
        assert len(backend.graphs) == graphs, (call, backend.calls())
    assert compiled.stats().graph_break_count == 0
    assert compiled.stats().graph_count == graphs
    return backend


def same_gradients(f: Callable[..., torch.Tensor], backend: Any) -> None:
    compiled = kintsugi.compile(f, backend=backend)
    for _ in range(4):
        seen = []
        for g in (compiled, f):
            x = X.clone().requires_grad_()
            out = g(x)
            out.sum().backward()
            seen.append((out.detach(), x.grad, W.grad))
            W.grad = None
        torch.testing.assert_close(seen[0], seen[1])


# --- decisions on data ---


def branch(x: torch.Tensor) -> torch.Tensor:
    y = (x * W).sin()
    y = y + 1 if y.sum() > 0 else y - 1
    return y * 2


def test_a_branch_on_data_is_decided_behind_the_graph() -> None:
    backend = in_one_graph(branch, X.abs())
    (calls,) = backend.calls()
    assert "aten.add.Tensor" in calls and calls[-1] == "aten.mul.Tensor"


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
def test_the_other_side_of_a_branch(name: str) -> None:
    compiled = kintsugi.compile(branch, backend=name)
    for sign in (1, 1, -1, 1, -1, -1, 1, -1, 1):
        x = (X.abs() * sign).requires_grad_()
        other = x.detach().clone().requires_grad_()
        torch.testing.assert_close(compiled(x), branch(other))
        compiled(x).sum().backward()
        branch(other).sum().backward()
        torch.testing.assert_close(x.grad, other.grad)
        W.grad = None


def test_frames_behind_a_decision_have_what_the_program_made() -> None:
    """The other side reads what the graph has made and nobody else needed; gradients go through all of it."""

    def f(x: torch.Tensor) -> Any:
        y = x * 2
        y.retain_grad()
        z = y.sin()
        if z.sum() > 0:
            return z * 3, y
        return z * y, y

    compiled = kintsugi.compile(f, backend=Backend())
    for sign in (1, 1, -1, -1, 1, -1):
        grads = []
        for g in (compiled, f):
            x = (X.abs() * 0.1 * sign).requires_grad_()
            out, y = g(x)
            out.sum().backward()
            grads += [out.detach(), y.grad, x.grad]
        for ours, theirs in zip(grads[:3], grads[3:], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_what_a_decision_protects_does_not_raise() -> None:
    def f(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        y = x * 1
        if at.max() < 3:
            return y[at]
        return y[:1]

    backend = Backend()
    compiled = kintsugi.compile(f, backend=backend)
    good, bad = torch.tensor([0, 2]), torch.tensor([0, 7])
    for at in (good, good, bad, good, bad, bad, good):
        assert torch.equal(compiled(X, at), f(X, at))


def test_effects_keep_their_order_around_decisions() -> None:
    log: list[Any] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        log.append("a")
        if y.sum() > 0:
            log.append("b")
            return y + 1
        log.append("c")
        return y - 1

    compiled = kintsugi.compile(f, backend=Backend())
    for sign in (1, 1, -1, 1, -1, -1):
        seen = []
        for g in (compiled, f):
            log.clear()
            g(X.abs() * 0.1 * sign)
            seen.append(list(log))
        assert seen[0] == seen[1]


def test_a_write_behind_a_decision_is_not_made_too_early() -> None:
    def f(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        if y.sum() > 0:
            state.add_(1)
        return y * state

    compiled = kintsugi.compile(f, backend=Backend())
    ours, theirs = torch.zeros(3), torch.zeros(3)
    for sign in (1, 1, -1, 1, -1, -1, 1):
        x = X.abs() * 0.1 * sign
        torch.testing.assert_close(compiled(x, ours), f(x, theirs), rtol=0, atol=0)
        assert torch.equal(ours, theirs)


def test_random_numbers_behind_a_decision() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        if y.sum() > 0:
            y = y + torch.rand(3)
        return y * torch.rand(3)

    compiled = kintsugi.compile(f, backend=Backend())
    for sign in (1, 1, -1, 1, -1, -1, 1):
        x = X.abs() * 0.1 * sign
        torch.manual_seed(3)
        got = [compiled(x), torch.rand(1)]
        torch.manual_seed(3)
        torch.testing.assert_close(got, [f(x), torch.rand(1)], rtol=0, atol=0)


def test_a_graph_that_is_left_in_most_runs_runs_step_by_step() -> None:
    runs: list[int] = []

    def backend(gm: torch.fx.GraphModule, _examples: Any) -> Any:
        def run(*inputs: Any) -> Any:
            runs.append(1)
            return gm(*inputs)

        return run

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        return y + 1 if y.sum() > 0 else y

    compiled = kintsugi.compile(f, backend=backend)
    compiled(X.abs() * 0.1)
    for _ in range(100):
        torch.testing.assert_close(compiled(-X.abs() * 0.1), f(-X.abs() * 0.1), rtol=0, atol=0)
    assert len(runs) < 100


def test_while_loop() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        loop = torch._higher_order_ops.while_loop
        return loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x))[1]  # type: ignore[no-any-return]

    in_one_graph(f, X)


# --- sizes of data ---


def masked(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0.5].sum() + x.sum()


def test_boolean_mask() -> None:
    backend = in_one_graph(masked, X)
    index = next(n for n in backend.graphs[0].graph.nodes if str(n.target) == "aten.index.Tensor")
    assert "u0" in str(index.meta["val"].shape)  # an unbacked size


@pytest.mark.parametrize("name", ["eager", "aot_eager", "inductor"])
def test_sizes_of_data_with_torchs_backends(name: str) -> None:
    def f(x: torch.Tensor) -> Any:
        y = x[x > 0.5]
        at = (x > 0).nonzero()
        return y * 2, at + 1, y.sum() + x.sum()

    compiled = kintsugi.compile(f, backend=name)
    for scale in (1, 1, -1, 0, 3, 1):
        torch.testing.assert_close(compiled(X * scale), f(X * scale))


def test_a_decision_on_sizes_is_made_before_what_it_keeps_small() -> None:
    largest = [0]

    def backend(gm: torch.fx.GraphModule, _examples: Any) -> Any:
        def run(*inputs: Any) -> Any:
            out = gm(*inputs)
            largest[0] = max(largest[0], *(t.numel() for t in out if isinstance(t, torch.Tensor)))
            return out

        return run

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x[x > 0]
        if y.numel() < 5:
            return y[:, None] * y[None]
        return y + 1

    compiled = kintsugi.compile(f, backend=backend)
    few, many = torch.tensor([1.0, -1, 2, -1]), torch.arange(1.0, 1001)
    for x in (few, few, many, few, many):
        torch.testing.assert_close(compiled(x), f(x), rtol=0, atol=0)
    assert largest[0] <= 1000


def test_sizes_of_data_in_training() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = (x * W).masked_select(x > 0)
        return y.sin().sum()

    for backend in (Backend(), "aot_eager"):
        same_gradients(f, backend)


def test_a_backend_that_can_not_take_such_sizes_gets_pieces() -> None:
    seen: list[list[str]] = []

    def backend(gm: torch.fx.GraphModule, _examples: Any) -> Any:
        targets = [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
        if "aten.nonzero.default" in targets:
            raise RuntimeError("no sizes of data here")
        seen.append(targets)
        return gm.forward

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.sin().nonzero() * 2).float().sum() + x.cos().sum()

    compiled = kintsugi.compile(f, backend=backend)
    for scale in (1, 1, 0, 2):
        torch.testing.assert_close(compiled(X * scale), f(X * scale))
    assert ["aten.sin.default"] in seen and any("aten.cos.default" in each for each in seen)


# --- steps of the program ---


class Doubled(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        Doubled.calls += 1
        return grad * 2 + 0 * ctx.saved_tensors[0]


def through_function(x: torch.Tensor) -> torch.Tensor:
    return Doubled.apply(x * W).sin() + 1  # type: ignore[no-any-return]


def test_autograd_function() -> None:
    backend = in_one_graph(through_function, X.clone().requires_grad_())
    assert any("step" in call for call in backend.calls()[0])


@pytest.mark.parametrize("name", ["eager", "aot_eager", "inductor"])
def test_autograd_function_with_torchs_backends(name: str) -> None:
    compiled = kintsugi.compile(through_function, backend=name)
    for _ in range(4):
        grads = []
        for f in (compiled, through_function):
            before = Doubled.calls
            x = X.clone().requires_grad_()
            f(x).sum().backward()
            assert Doubled.calls == before + 1  # the program's own backward, in each run
            grads.append((x.grad, W.grad))
            W.grad = None
        torch.testing.assert_close(grads[0], grads[1])


def hooked(x: torch.Tensor, log: list[torch.Tensor]) -> torch.Tensor:
    y = (x * W).sin()

    def hook(grad: torch.Tensor) -> torch.Tensor:
        log.append(grad.clone())
        return grad * 2

    y.register_hook(hook)
    return (y * y).sum()


@pytest.mark.parametrize("name", ["own", "eager", "aot_eager"])
def test_register_hook(name: str) -> None:
    compiled = kintsugi.compile(hooked, backend=Backend() if name == "own" else name)
    for _ in range(4):
        seen = []
        for f in (compiled, hooked):
            log: list[torch.Tensor] = []
            x = X.clone().requires_grad_()
            f(x, log).backward()
            seen.append((log, x.grad, W.grad))
            W.grad = None
        torch.testing.assert_close(seen[0], seen[1])


def test_register_hook_is_one_graph() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = (x * W).sin()
        y.register_hook(lambda grad: grad * 2)
        return y.sum()

    in_one_graph(f, X)


def test_a_hook_that_is_removed() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = (x * W).sin()
        handle = y.register_hook(lambda grad: grad * 2)
        z = y * 3
        handle.remove()
        return z.sum()

    for backend in (Backend(), "aot_eager"):
        same_gradients(f, backend)


def test_hooks_are_what_the_program_reads_of_them() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        before = y._backward_hooks is None
        y.register_hook(lambda grad: grad)
        return y + 1, before, y._backward_hooks is None

    compiled = kintsugi.compile(f, backend=Backend())
    for _ in range(3):
        x = X.clone().requires_grad_()
        assert compiled(x)[1:] == f(x)[1:]


def test_exceptions_behind_a_step() -> None:
    """What follows a step raises: the step is not made again, and handlers are the program's."""
    made: list[int] = []

    @kintsugi.allow_in_graph
    def step(x: torch.Tensor) -> torch.Tensor:
        made.append(1)
        return x * 2

    def f(x: torch.Tensor, at: torch.Tensor) -> Any:
        y = x.sin()
        z = step(y)
        try:
            return z[at] + 1
        except IndexError:
            return z - 1

    compiled = kintsugi.compile(f, backend=Backend())
    good, bad = torch.tensor([0, 2]), torch.tensor([0, 7])
    for at in (good, good, bad, good, bad):
        made.clear()
        got = compiled(X, at)
        assert made == [1]
        assert torch.equal(got, f(X, at))


def test_a_step_that_raises() -> None:
    allowed = [True]

    @kintsugi.allow_in_graph
    def step(x: torch.Tensor) -> torch.Tensor:
        if not allowed[0]:
            raise ValueError("no")
        return x * 2

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        try:
            z = step(y)
        except ValueError:
            z = y - 1
        return z + y

    compiled = kintsugi.compile(f, backend=Backend())
    for allowed[0] in (True, True, False, True, False):
        torch.testing.assert_close(compiled(X), f(X), rtol=0, atol=0)


def test_a_step_whose_result_is_another_one() -> None:
    size = [3]

    @kintsugi.allow_in_graph
    def step(x: torch.Tensor) -> torch.Tensor:
        return x[: size[0]]

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        return step(y) * 2 + y.sum()

    compiled = kintsugi.compile(f, backend=Backend())
    for size[0] in (3, 3, 2, 3, 1, 2):
        torch.testing.assert_close(compiled(X), f(X), rtol=0, atol=0)


def test_a_step_that_writes_is_made_once_and_nothing_before_it_is_computed_again() -> None:
    @kintsugi.allow_in_graph
    def step(x: torch.Tensor) -> None:
        x.add_(1)

    def f(x: torch.Tensor, at: torch.Tensor) -> Any:
        y = x.sin()
        z = y * 2
        step(x)
        if z.sum() > 100:
            return z
        try:
            return z[at] + x[at], y
        except IndexError:
            return z - x, y

    compiled = kintsugi.compile(f, backend=Backend())
    good, bad = torch.tensor([0, 2]), torch.tensor([0, 7])
    for at, scale in (
        (good, 1),
        (good, 1),
        (bad, 1),
        (good, 1),
        (bad, 1),
        (good, 100),
        (bad, 1),
        (good, 100),
    ):
        ours, theirs = X * scale, X * scale
        torch.testing.assert_close(compiled(ours, at), f(theirs, at), rtol=0, atol=0)
        assert torch.equal(ours, theirs)


def test_what_goes_into_a_step_is_let_go() -> None:
    kept: list[weakref.ref[torch.Tensor]] = []

    @kintsugi.allow_in_graph
    def step(x: torch.Tensor) -> torch.Tensor:
        kept.append(weakref.ref(x))
        return x * 2

    def f(x: torch.Tensor) -> torch.Tensor:
        return step(x.sin()) + step(x.cos() * 2)

    compiled = kintsugi.compile(f, backend=Backend())
    for _ in range(4):
        kept.clear()
        compiled(X)
        gc.collect()
        assert len(kept) == 2 and all(ref() is None for ref in kept)


def test_threads_and_recursion_through_steps() -> None:
    @kintsugi.allow_in_graph
    def step(x: torch.Tensor, depth: int) -> torch.Tensor:
        return compiled(x, depth - 1) if depth else x

    def f(x: torch.Tensor, depth: int) -> torch.Tensor:
        return step(x.sin(), depth) * 2 + x

    compiled = kintsugi.compile(f, backend=Backend())

    def plain(x: torch.Tensor, depth: int) -> torch.Tensor:
        return (plain(x.sin(), depth - 1) if depth else x.sin()) * 2 + x

    wrong: list[Any] = []

    def many() -> None:
        for _ in range(30):
            for depth in (0, 1, 2):
                if not torch.equal(compiled(X, depth), plain(X, depth)):
                    wrong.append(depth)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- when backends are called ---


def test_graphs_behind_a_break_are_compiled_in_the_first_call() -> None:
    @kintsugi.disable
    def opaque() -> None:
        pass

    def f(x: torch.Tensor) -> torch.Tensor:
        y = (x * W).sin()
        opaque()
        with torch.no_grad():
            z = y.cos()
            opaque()
            u = z + 1
        return u + y

    backend = Backend()
    compiled = kintsugi.compile(f, backend=backend)
    compiled(X)
    first = len(backend.graphs)
    assert first == 3
    for _ in range(3):
        torch.testing.assert_close(compiled(X), f(X))
    assert len(backend.graphs) == first
    looks = [[(t.shape, t.stride(), t.dtype, t.requires_grad) for t in each] for each in backend.examples]
    assert looks[1] == [(X.shape, X.stride(), X.dtype, True)]
    assert compiled.stats().graph_count == 3
    assert backend.modes[:2] == [True, True] and backend.modes[2] is False


def test_a_tensor_of_constants_whose_type_is_an_attribute() -> None:
    class Cache(torch.nn.Module):
        kind = torch.float32

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            keys = torch.tensor([], dtype=self.kind, device=x.device)
            return torch.cat([keys, x.to(self.kind)]) * torch.tensor([2, 3], dtype=self.kind)

    seen: list[Any] = []
    model = Cache()
    compiled = kintsugi.compile(model, backend=lambda gm, inputs: (seen.append(gm), gm.forward)[1])
    x = torch.randn(3, 2)
    for kind in (torch.float32, torch.float64, torch.float32, torch.float16):
        model.kind = kind
        for _ in range(2):
            got, wanted = compiled(x), model(x)
            assert got.equal(wanted) and got.dtype == wanted.dtype == kind
    assert len(seen) == 3
