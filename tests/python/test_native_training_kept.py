"""What is changed between forward and backward: errors and gradients are those of eager mode, natively too.

Autograd keeps some inputs and results of an operator for its backward. A write to one of them is an error of the
backward; other memory (`weight.data = other`) is followed where the tensor itself is kept, and not where a view of it
is. Native segments keep less, and have to behave the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kintsugi

Change = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]

FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "exp": lambda x, w: torch.exp(x * w),
    "sigmoid": lambda x, w: torch.sigmoid(x * w),
    "relu": lambda x, w: (x * w).relu(),
    "softmax": lambda x, w: (x * w).softmax(1),
    "log_softmax": lambda x, w: (x * w).log_softmax(1),
    "sqrt of a square": lambda x, w: (x * x * w).sqrt(),
    "rsqrt": lambda x, w: (x * x * w + 1).rsqrt(),
    "tanh of tanh": lambda x, w: (x * w).tanh().tanh(),
    "detached factor": lambda x, w: x.detach() * x * w,
    "linear": lambda x, w: F.linear(x, w),
    "linear and relu": lambda x, w: F.linear(x, w).relu(),
    "sum": lambda x, w: x + w,
    "silu": lambda x, w: F.silu(x) + w,
    "batch norm": lambda x, w: F.batch_norm(x, None, None, w[0], training=True),
    "layer norm": lambda x, w: F.layer_norm(x, (3,)) * w,
}

WRITES: dict[str, Change] = {
    "nothing": lambda x, w, y: None,
    "the input": lambda x, w, y: x.mul_(3),
    "the weight": lambda x, w, y: w.mul_(3),
    "the result": lambda x, w, y: y.mul_(3),
}


def outcome(f: Callable[..., torch.Tensor], change: Change) -> tuple[str, Any]:
    torch.manual_seed(3)
    leaf = torch.rand(3, 3, requires_grad=True)
    w = torch.rand(3, 3, requires_grad=True)
    x = leaf * 1
    y = f(x, w)
    z = y * 1
    with torch.no_grad():
        change(x, w, y)
    try:
        z.sum().backward()
    except RuntimeError as error:
        # Which of two stale tensors is named may differ.
        return "RuntimeError", (
            "modified by an inplace operation" in str(error),
            str(error).partition(" Hint: ")[2],
        )
    return "gradients", (leaf.grad, w.grad)


def check(f: Callable[..., torch.Tensor], change: Change, calls: int = 14) -> None:
    compiled = kintsugi.compile(f, backend="native")
    for call in range(calls):
        kind, expected = outcome(f, change)
        seen, actual = outcome(compiled, change)
        assert seen == kind, f"call {call}: {seen} {actual}, in eager mode {kind} {expected}"
        if kind == "gradients":
            torch.testing.assert_close(actual, expected, msg=lambda text, call=call: f"call {call}: {text}")
        else:
            assert actual == expected
        if call == 2:
            kintsugi.wait()


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_writes_before_the_backward(name: str, write: str) -> None:
    check(FUNCTIONS[name], WRITES[write])


@pytest.mark.parametrize("name", ["linear", "linear and relu", "detached factor", "sum"])
def test_a_weight_is_given_other_memory(name: str) -> None:
    def change(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> None:
        w.data = torch.full_like(w, 4.0)

    check(FUNCTIONS[name], change)


def test_weights_of_a_module_are_given_other_memory() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 6))
    compiled = kintsugi.compile(model, backend="native")
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def gradients(f: Callable[..., torch.Tensor]) -> list[torch.Tensor | None]:
        model.load_state_dict(before)
        model.zero_grad()
        x = torch.ones(2, 6, requires_grad=True)
        out = f(x)
        for parameter in model.parameters():
            parameter.data = parameter.data * 2
        out.sum().backward()
        return [x.grad, *(parameter.grad for parameter in model.parameters())]

    for call in range(14):
        torch.testing.assert_close(gradients(compiled), gradients(model))
        if call == 2:
            kintsugi.wait()


def both(model: torch.nn.Module, run: Callable[[Callable[..., Any], int], Any], calls: int = 14) -> None:
    """`run(f, call)` with the model and with the compiled one gives the same."""
    compiled = kintsugi.compile(model, backend="native")
    for call in range(calls):
        expected, actual = run(model, call), run(compiled, call)
        torch.testing.assert_close(
            actual, expected, equal_nan=True, msg=lambda text, call=call: f"call {call}: {text}"
        )
        if call == 2:
            kintsugi.wait()


class Heads(torch.nn.Module):
    """Two outputs, each with a layer of its own behind a common one."""

    def __init__(self, common: bool) -> None:
        super().__init__()
        self.common = torch.nn.Linear(3, 3) if common else torch.nn.Identity()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.common(x)
        return self.first(h).tanh(), self.second(h).exp()


@pytest.mark.parametrize("common", [False, True])
def test_layers_of_an_output_that_is_not_asked_for_get_no_gradient(common: bool) -> None:
    """None, not zeros: optimizers leave such parameters alone."""
    model = Heads(common)

    def run(f: Callable[..., Any], call: int) -> list[torch.Tensor | None]:
        model.zero_grad()
        f(torch.ones(2, 3))[call % 2].sum().backward()
        return [parameter.grad for parameter in model.parameters()]

    both(model, run)


def test_an_infinite_derivative_of_another_output_is_no_nan() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.log(), x * w

    def run(f: Callable[..., Any], call: int) -> Any:
        x, w = torch.tensor([0.0, 1.0], requires_grad=True), torch.ones(2, requires_grad=True)
        f(x, w)[1 if call % 3 else 0].sum().backward()
        return x.grad, w.grad

    both(Model(), run)


@pytest.mark.parametrize("common", [False, True])
def test_two_backwards_one_behind_the_other(common: bool) -> None:
    """Without retain_graph: an error where the outputs share what is kept, and only there."""
    model = Heads(common)

    def run(f: Callable[..., Any], call: int) -> Any:
        model.zero_grad()
        first, second = f(torch.ones(2, 3, requires_grad=True))
        try:
            (first if call % 2 else second).sum().backward()
            (second if call % 2 else first).sum().backward()
        except RuntimeError as error:
            return "second time" in str(error)
        return [parameter.grad for parameter in model.parameters()]

    both(model, run)


def test_a_write_to_an_output_is_no_error_of_another_one_s_backward() -> None:
    class Model(torch.nn.Module):
        def forward(
            self, x: torch.Tensor, w: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            h = x * w
            return h.exp(), h.sigmoid(), x + 1

    def run(f: Callable[..., Any], call: int) -> Any:
        torch.manual_seed(1)
        x, w = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
        outputs = f(x, w)
        with torch.no_grad():
            outputs[0].mul_(2)
        try:
            return torch.autograd.grad(outputs[call % 3].sum(), x)[0]
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)

    both(Model(), run, 24)


@pytest.mark.parametrize("shape", [(0,), (9, 9)])
def test_a_weight_of_another_size(shape: tuple[int, ...]) -> None:
    """The backward does not read beyond its memory: it raises, as eager mode does."""

    def change(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> None:
        w.data = torch.ones(shape)

    def outcome_of(f: Callable[..., torch.Tensor]) -> str:
        try:
            return outcome(f, change)[0]
        except Exception as error:
            return type(error).__name__

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * w + x

    compiled = kintsugi.compile(f, backend="native")
    for call in range(14):
        assert (outcome_of(compiled) == "gradients") == (outcome_of(f) == "gradients"), call
        if call == 2:
            kintsugi.wait()


def test_gradients_of_steps_are_zeros_and_not_missing() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return x.sign() + x.floor() + x.round() + w * 2

    def run(f: Callable[..., Any], call: int) -> Any:
        x, w = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
        f(x, w).sum().backward()
        return x.grad, w.grad

    both(Model(), run)
