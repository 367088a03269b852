"""Compiled callables inside compiled callables, ours and torch's, and beside each other."""

from __future__ import annotations

import torch
from torch import nn

import kintsugi


def test_compiled_calls_compiled_and_itself() -> None:
    inner = kintsugi.compile(lambda x: x * 2, backend="eager")

    @kintsugi.compile(backend="eager")
    def outer(x, depth):
        return inner(x) + 1 if depth == 0 else outer(x + 1, depth - 1)

    for depth in (0, 2, 2):
        assert torch.equal(outer(torch.ones(2), depth), (torch.ones(2) + depth) * 2 + 1)


def test_beside_torch_compile() -> None:
    def f(x):
        return x.relu() + 1

    ours = kintsugi.compile(f, backend="eager")
    theirs = torch.compile(f, backend="eager")
    x = torch.linspace(-1, 1, 5)
    for _ in range(3):
        assert torch.equal(ours(x), theirs(x))
    around = torch.compile(lambda v: ours(v) * 2, backend="eager")
    inside = kintsugi.compile(lambda v: theirs(v) * 2, backend="eager")
    for _ in range(3):
        assert torch.equal(around(x), f(x) * 2)
        assert torch.equal(inside(x), f(x) * 2)
    torch._dynamo.reset()
    assert torch.equal(ours(x), f(x))


def test_compiled_module_inside_a_compiled_module() -> None:
    torch.manual_seed(0)
    inner = nn.Linear(3, 3)
    whole = kintsugi.compile(
        nn.Sequential(kintsugi.compile(inner, backend="eager"), nn.ReLU()), backend="eager"
    )
    for call in range(3):
        x = torch.full((2, 3), float(call), requires_grad=True)
        y = whole(x)
        assert torch.equal(y, inner(x).relu())
        y.sum().backward()


def test_decorated_method_inside_a_compiled_function() -> None:
    class A:
        k = 2

        @kintsugi.compile(backend="eager")
        def scale(self, x):
            return x * self.k

    a = A()
    outer = kintsugi.compile(lambda x: a.scale(x) + 1, backend="eager")
    for k in (2, 2, 3, 3):
        a.k = k
        assert torch.equal(outer(torch.ones(2)), torch.ones(2) * k + 1)


def test_compiled_inside_eager_callback_of_compiled() -> None:
    inner = kintsugi.compile(lambda x: x + 1, backend="eager")
    outer = kintsugi.compile(lambda xs: [v * 2 for v in map(inner, xs)], backend="eager")
    for call in range(3):
        xs = [torch.full((2,), float(call + i)) for i in range(3)]
        assert all(torch.equal(a, (x + 1) * 2) for a, x in zip(outer(xs), xs, strict=True))


def test_compiling_inside_a_compiled_function() -> None:
    def f(x):
        inner = kintsugi.compile(lambda v: v * 3, backend="eager")
        return inner(x) + 1

    outer = kintsugi.compile(f, backend="eager")
    for _ in range(3):
        assert torch.equal(outer(torch.ones(2)), torch.ones(2) * 3 + 1)
