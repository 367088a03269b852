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
        return "RuntimeError", "modified by an inplace operation" in str(error)
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
