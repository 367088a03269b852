"""Function modes of the program's, entered in compiled code: their Python code is recorded, call by call."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

import kintsugi

X = torch.linspace(-1, 2, 9).reshape(3, 3)
ALL = ["own", "eager", "native", "aot_eager"]


class Backend:
    """Keeps the graphs, and runs them through torch's Python functions: modes must not see these."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, _examples: list[Any]) -> Any:
        self.graphs.append(gm)
        return gm.forward


def compiled_with(f: Callable[..., Any], name: str) -> tuple[Any, Backend]:
    backend = Backend()
    return kintsugi.compile(f, backend=backend if name == "own" else name), backend


def depth() -> int:
    return torch._C._len_torch_function_stack()  # type: ignore[no-any-return]


def same(f: Callable[..., Any], name: str, *inputs: Any, graphs: int = 1, breaks: int = 0) -> Any:
    compiled, backend = compiled_with(f, name)
    before = depth()
    for _call in range(4):
        torch.testing.assert_close(compiled(*inputs), f(*inputs), rtol=1e-6, atol=1e-6)
        assert depth() == before
    assert compiled.stats().graph_break_count == breaks, compiled.breaks()
    if name == "own":
        assert len(backend.graphs) == graphs
    return compiled


class Plain(TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Counting(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Doubling(TorchFunctionMode):  # type: ignore[misc]
    """Changes results, of some functions only."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        return out * 2 if func in (torch.sin, torch.Tensor.sin, torch.Tensor.add) else out


class Wide(TorchFunctionMode):  # type: ignore[misc]
    """Changes dtypes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = [arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args]
        return func(*args, **(kwargs or {}))


def several(x: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x) + 1
    z = 1 - y.cos()
    return F.relu(z @ x).sum(dim=0, keepdim=True) * y[0] / torch.ones(3)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("mode", [Plain, Doubling, Wide, BaseTorchFunctionMode])
def test_modes(name: str, mode: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with mode():
            y = x.sin() + 1
        return y.cos()

    same(f, name, X)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("mode", [Plain, Doubling])
def test_many_kinds_of_calls(name: str, mode: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with mode():
            return several(x)

    same(f, name, X)


@pytest.mark.parametrize("name", ALL)
def test_two_modes(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with Doubling(), Plain():
            y = x.sin() + 1
            with Wide():
                y = y.cos() * 3
        return y.cos()

    same(f, name, X)


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_what_a_mode_keeps(name: str) -> None:
    def f(x: torch.Tensor) -> Any:
        counting = Counting()
        with counting:
            y = torch.sin(x) + 1
            z = F.relu(y)
        return z, counting.names

    compiled, _ = compiled_with(f, name)
    for _call in range(4):
        (ours, said), (theirs, expected) = compiled(X), f(X)
        torch.testing.assert_close(ours, theirs)
        assert said == expected


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_a_mode_of_the_outside(name: str) -> None:
    counting = Counting()

    def f(x: torch.Tensor) -> torch.Tensor:
        with counting:
            return torch.sin(x) + 1

    compiled, _ = compiled_with(f, name)
    for _call in range(4):
        seen = []
        for g in (compiled, f):
            counting.names.clear()
            out = g(X)
            seen.append((out, list(counting.names)))
        torch.testing.assert_close(seen[0][0], seen[1][0])
        assert seen[0][1] == seen[1][1]


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_exceptions_restore_the_stack(name: str) -> None:
    class Refusing(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.cos:
                raise ValueError("no cosines")
            return func(*args, **(kwargs or {}))

    def f(x: torch.Tensor, cosine: bool) -> Any:
        try:
            with Plain(), Refusing():
                y = torch.sin(x)
                return torch.cos(y) if cosine else torch.tan(y)
        except ValueError:
            return x + 1

    compiled, _ = compiled_with(f, name)
    for cosine in (False, True, True, False, True):
        torch.testing.assert_close(compiled(X, cosine), f(X, cosine))
        assert depth() == 0

    def leaves(x: torch.Tensor) -> Any:
        with Plain(), Refusing():
            return torch.cos(torch.sin(x))

    compiled, _ = compiled_with(leaves, name)
    for _call in range(3):
        with pytest.raises(ValueError, match="no cosines"):
            compiled(X)
        assert depth() == 0


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_a_decision_under_a_mode(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with Doubling():
            y = torch.sin(x)
            if y.sum().item() > 0:
                y = y + 1
            else:
                y = y.cos()
            z = y.exp()
        return z + 1

    compiled, _ = compiled_with(f, name)
    for sign in (1, 1, -1, 1, -1, -1, 1):
        torch.testing.assert_close(compiled(X * sign), f(X * sign))
        assert depth() == 0


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_not_implemented(name: str) -> None:
    class Silent(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    silent = Silent()

    def f(x: torch.Tensor) -> Any:
        with silent:
            return torch.sin(x)

    compiled, _ = compiled_with(f, name)
    for _call in range(3):
        said = []
        for g in (compiled, f):
            with pytest.raises(TypeError) as raised:
                g(X)
            said.append(str(raised.value))
        assert said[0] == said[1]
        assert depth() == 0


@pytest.mark.parametrize("name", ALL)
def test_gradients(name: str) -> None:
    weight = nn.Parameter(torch.linspace(-1, 1, 3))

    def f(x: torch.Tensor) -> torch.Tensor:
        with Doubling():
            y = torch.sin(x * weight)
        return y.cos()

    compiled, _ = compiled_with(f, name)
    for _call in range(4):
        seen = []
        for g in (compiled, f):
            weight.grad = None
            x = X.clone().requires_grad_()
            out = g(x)
            out.sum().backward()
            seen.append((out.detach(), x.grad, weight.grad))
        torch.testing.assert_close(seen[0], seen[1])


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_writes_and_items(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        with Plain():
            y[0] = 3
            y.add_(1)
            y[1:, 0] *= 2
            y += x.shape[0]
        return y

    compiled, _ = compiled_with(f, name)
    for _call in range(4):
        torch.testing.assert_close(compiled(X), f(X))


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_modes_around_the_call(name: str) -> None:
    compiled, _ = compiled_with(several, name)
    for _call in range(3):
        torch.testing.assert_close(compiled(X), several(X))
        with Doubling():
            torch.testing.assert_close(compiled(X), several(X))
        counts = []
        for g in (compiled, several):
            with Counting() as counting:
                g(X)
            counts.append(counting.names)
        assert counts[0] == counts[1]


@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_devices(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.device("cpu"):
            y = torch.ones(3) + x
        with torch.device("meta"):
            z = torch.zeros(3)
        return y.sin() + len(z)

    compiled, _ = compiled_with(f, name)
    for _call in range(4):
        torch.testing.assert_close(compiled(X), f(X))
        assert depth() == 0


@pytest.mark.parametrize("warm", [0, 1, 3])
@pytest.mark.parametrize("name", ["own", "eager", "native"])
def test_tracebacks_have_torchs_frames(name: str, warm: int) -> None:
    """Torch's Python code asks the mode: its frames are there in the call that is recorded as well."""
    norm = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))

    def f(x: torch.Tensor) -> torch.Tensor:
        with Plain(), Doubling():
            return norm(x)

    def frames(function: Any, x: torch.Tensor) -> Any:
        try:
            function(x)
        except ValueError as error:
            return [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)][1:]
        return None

    compiled, _ = compiled_with(f, name)
    for rows in range(2, 2 + warm):
        compiled(torch.randn(rows, 4))
    for _ in range(3):
        expected = frames(f, torch.randn(1, 4))
        assert expected is not None and ("handle_torch_function" in {place[0] for place in expected})
        assert frames(compiled, torch.randn(1, 4))[-len(expected) :] == expected


SEEN: list[Any] = []


class Logging(TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        SEEN.append(func.__name__)
        return func(*args, **(kwargs or {}))


@torch.compiler.disable  # type: ignore[untyped-decorator]
def looking(x: torch.Tensor) -> torch.Tensor:
    SEEN.append(depth())
    if x.sum() > 100:
        raise ValueError("too much")
    return x.cos()


def steps_under_no_mode(x: torch.Tensor) -> Any:
    y = looking(torch.relu(x) + 1)
    print(end="")
    return torch.sin(y).add(2) * torch.ones(3)


def steps_under_one_mode(x: torch.Tensor) -> Any:
    with Doubling():
        y = looking(torch.sin(x) + 1)
        y = looking(torch.sin(y))
    return torch.sin(y)


def steps_under_two_modes(x: torch.Tensor) -> Any:
    with Logging():
        with Doubling():
            y = looking(x)
            y = torch.sin(y)
        y = looking(torch.sin(y))
    return torch.sin(y)


def steps_among_nested_modes(x: torch.Tensor) -> Any:
    y = torch.relu(x)
    with Doubling():
        a = torch.sin(y) + 1
        with Logging():
            a = looking(a)
            b = torch.relu(a).add(3)
        c = torch.sin(b)
        print(end="")
        c = torch.sin(c)
    return torch.sin(c)


def steps_that_raise(x: torch.Tensor) -> Any:
    y = torch.relu(x) + 1
    try:
        with Logging(), Doubling():
            a = torch.sin(y)
            b = looking(x * 2)
            return torch.relu(b) + a
    except ValueError:
        return torch.sin(y)


def steps_on_a_device(x: torch.Tensor) -> Any:
    with torch.device("meta"):
        made = torch.ones(3)
        looking(x)
        other = torch.zeros(2)
    return len(made), len(other), torch.ones(2), looking(x) + 1


AROUND: dict[str, Callable[[], Any]] = {
    "nothing": contextlib.nullcontext,
    "logging": Logging,
    "doubling": Doubling,
    "device": lambda: torch.device("cpu"),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(
    "f",
    [
        steps_under_no_mode,
        steps_under_one_mode,
        steps_under_two_modes,
        steps_among_nested_modes,
        steps_that_raise,
        steps_on_a_device,
    ],
)
def test_steps_between_graphs(f: Any, around: str, name: str) -> None:
    """Modes see what they see in eager mode, once; steps find the modes on the stack; so does code behind the call."""

    def outcome(function: Any, x: torch.Tensor) -> Any:
        SEEN.clear()
        with AROUND[around]():
            try:
                result = function(x)
            except ValueError as error:
                result = str(error)
            SEEN.append(depth())
        assert depth() == 0
        return result, list(SEEN)

    compiled, _ = compiled_with(f, name)
    for scale in (1, 1, 50, 1, 50):
        (ours, said), (theirs, expected) = outcome(compiled, X * scale), outcome(f, X * scale)
        assert said == expected
        if isinstance(theirs, str):
            assert ours == theirs
        else:
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
