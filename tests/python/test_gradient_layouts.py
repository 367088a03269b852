"""Strides of gradients are eager mode's, given out by `torch.autograd.grad()`, seen by hooks, or added up in leaves,
whatever the layout of the gradient that arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kintsugi

Case = tuple[Callable[..., torch.Tensor], list[torch.Tensor]]


def values(*sizes: int) -> torch.Tensor:
    return torch.linspace(-1, 2, int(torch.tensor(sizes).prod())).reshape(sizes)


WIDE, TALL = values(3, 4), values(4, 3).t()
CASES: dict[str, Case] = {
    "sum": (lambda w: w.sum(), [WIDE]),
    "mean": (lambda w: w.mean() * 2, [WIDE]),
    "sum of rows": (lambda w: w.sum(1, keepdim=True), [WIDE]),
    "sum of columns": (lambda w: w.sum(0), [TALL]),
    "two sums": (lambda w: w.sum(0) + w.sum(), [values(3, 3)]),
    "add": (lambda a, b: a + b, [WIDE, values(4)]),
    "nothing": (lambda a: a + 0, [WIDE]),
    "clone": (lambda a: a.clone(), [TALL]),
    "transposed": (lambda a: a.t() + 1, [WIDE]),
    "transposed row": (lambda a: a.t() * 2, [values(1, 4)]),
    "transposed column": (lambda a: a.t().sin(), [values(4, 1)]),
    "permuted": (lambda a: a.permute(2, 0, 1).sin(), [values(2, 3, 4)]),
    "of permuted": (lambda a: a.sin(), [values(2, 3, 4).permute(2, 0, 1)]),
    "of transposed": (F.gelu, [TALL]),
    "of every second": (lambda a: a.exp(), [values(3, 8)[:, ::2]]),
    "of expanded": (lambda a: a.exp(), [values(4).expand(3, 4)]),
    "channels last": (F.relu, [values(2, 3, 4, 4).to(memory_format=torch.channels_last)]),
    "prelu": (F.prelu, [values(2, 3, 4), values(3)]),
    "prelu of one": (F.prelu, [values(2, 3, 4), values(1)]),
    "linear": (F.linear, [WIDE, values(5, 4), values(5)]),
    "linear of one row": (F.linear, [values(1, 4), values(5, 4), values(5)]),
    "linear to one": (F.linear, [WIDE, values(1, 4), values(1)]),
    "linear of many": (F.linear, [values(2, 3, 4), values(5, 4), values(5)]),
    "product": (lambda a, b: a @ b, [WIDE, values(4, 5)]),
    "product of transposed": (lambda a, b: a @ b.t(), [WIDE, values(5, 4)]),
    "products": (lambda a, b: a @ b, [values(2, 3, 4), values(2, 4, 5)]),
    "expanded": (lambda a: a.expand(3, 4) * 2, [values(1, 4)]),
    "unsqueezed": (lambda a: a.unsqueeze(1).sin(), [WIDE]),
    "squeezed": (lambda a: a.squeeze(1) * 2, [values(3, 1)]),
    "column": (lambda a: a[:, 1].sin(), [WIDE]),
    "cat": (lambda a, b: torch.cat([a, b], 1), [WIDE, values(3, 2)]),
    "stack": (lambda a, b: torch.stack([a, b], 1), [WIDE, WIDE]),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), [WIDE, values(4), values(4)]),
    "softmax": (lambda x: x.t().softmax(-1), [WIDE]),
    "outer": (lambda a, b: a * b, [values(3, 1), values(1, 4)]),
    "times a number": (lambda a, b: a * b, [WIDE, values()]),
    "where": (lambda a, b: torch.where(a > 1, a, b), [WIDE, values()]),
    "embedding": (lambda w: F.embedding(torch.tensor([1, 2]), w), [WIDE]),
    "cross entropy": (lambda x: F.cross_entropy(x.sin(), torch.tensor([1, 2, 0])), [WIDE]),
    "convolution": (
        lambda x, w, b: F.conv2d(x, w, b).sin(),
        [values(1, 1, 5, 5), values(1, 1, 3, 3), values(1)],
    ),
    "largest": (lambda a: a.sin().amax(1), [WIDE]),
    "attention": (F.scaled_dot_product_attention, [values(1, 2, 3, 4)] * 3),
}


def layout(tensor: torch.Tensor | None) -> Any:
    return None if tensor is None else (tuple(tensor.shape), tensor.stride())


def arriving(how: str, output: torch.Tensor) -> torch.Tensor:
    if how == "expanded":
        return torch.ones(()).expand(output.shape)
    if how == "turned":
        order = list(reversed(range(output.dim())))
        return torch.linspace(0, 1, output.numel()).reshape([output.shape[k] for k in order]).permute(order)
    return torch.linspace(0, 1, output.numel()).reshape(output.shape)


def run(fn: Any, inputs: list[torch.Tensor], how: str) -> list[Any]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    given = torch.autograd.grad(output := fn(*leaves), leaves, arriving(how, output))
    seen: list[Any] = [layout(x) for x in given]
    output = fn(*leaves)
    output.backward(arriving(how, output))
    seen += [layout(x.grad) for x in leaves]
    first = leaves[0] * 1.0
    first.register_hook(lambda gradient: seen.append(layout(gradient)))
    output = fn(first, *leaves[1:])
    output.backward(arriving(how, output))
    numbers = [x for leaf, g in zip(leaves, given, strict=True) for x in (leaf.grad, g)]
    return [seen, [None if x is None else [round(v, 3) for v in x.flatten().tolist()] for x in numbers]]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("compare", [False, True])
def test_strides(name: str, compare: bool) -> None:
    fn, inputs = CASES[name]
    compiled = kintsugi.compile(fn, backend="native", options=None if compare else {"sync": True})
    for _ in range(3):
        for how in ("packed", "expanded", "turned"):
            assert run(compiled, inputs, how) == run(fn, inputs, how), how
        if compare:
            kintsugi.wait()


def test_only_what_is_seen_is_known_once() -> None:
    """The backward is run by autograd once for each layout that arrives."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x * w).sum(0)

    compiled: Any = kintsugi.compile(f, backend="native", options={"sync": True})
    x, w = (values(3, 4).requires_grad_() for _ in range(2))
    for _ in range(40):
        output = compiled(x, w)
        got = torch.autograd.grad(output, [x, w], torch.rand(8)[:4])
        assert [g.stride() for g in got] == [(4, 1), (4, 1)]
    stats = compiled._kintsugi_compiled.stats()
    assert stats["native_backwards"] == stats["native_runs"] > 30
