"""backend="native": kernels that do not follow from each other made one, and the order in which all run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from native_harness import assert_same, assert_values, check

import kintsugi

TOGETHER: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "reductions": lambda x, y: (x.sum(-1), x.amax(-1), x.mean(-1), x.argmax(-1)),
    "reductions_of_columns": lambda x, y: (x.sum(0), x.amax(0), x * 2),
    "other_dimensions": lambda x, y: (x.sum(0), x.sum(1), x.sum()),
    "rows_and_points": lambda x, y: (x.softmax(-1), x * 2, y.exp(), y.softmax(-1)),
    "broadcast": lambda x, y: (x + y[0], x * y[:, :1], y + x[0, 0]),
    "waits_for_a_call": lambda x, y: (x * 2, (x * 3).sin() * 2, ((x + 1).sin() + y).cos() * x, x - 1),
    "waits_for_two": lambda x, y: (
        (a := (x * 2).sin()) + 1,
        (b := (y * 3).cos()) + a.cumsum(0) * 2,
        x * 2 + b,
    ),
    "memory_lies_otherwise": lambda x, y: (x.t() * 2, (y.t().contiguous() + 1).t(), x + 1, y.t() * 3),
    "types": lambda x, y: (x.double() * 2, y.bfloat16() + 1, x > y, (x * 4).bool().logical_not()),
    "lookups": lambda x, y: (x[torch.tensor([1, 0] * (x.shape[0] // 2))] * 2, y * 2, y + 1),
    "padding": lambda x, y: (F.pad(x, (1, 1))[:, 1:-1] * 2, y * 2, x + 1),
    "chain_and_leaves": lambda x, y: ((a := x.exp()).sum(-1), a.amax(-1), (y * 2).amax(-1), a * y, a - y),
    "many": lambda x, y: [x * k + y / (k + 1) for k in range(40)],
    "gates": lambda x, y: torch.sigmoid(x) * torch.tanh(y) + torch.sigmoid(y) * torch.tanh(x),
    "norms": lambda x, y: (
        F.layer_norm(x, x.shape[1:]),
        F.layer_norm(y, y.shape[1:]),
        F.layer_norm(x, (x.shape[1],)),
    ),
    "same_every_run": lambda x, y: (torch.arange(x.numel()).view_as(x) * 2 + x, x * 2, y * 3),
}


@pytest.mark.parametrize("shape", [(4, 6), (64, 100), (200, 64)])
@pytest.mark.parametrize("name", TOGETHER)
def test_together(name: str, shape: tuple[int, int]) -> None:
    torch.manual_seed(5)
    check(TOGETHER[name], torch.randn(shape), torch.randn(shape))
    check(TOGETHER[name], torch.randn(shape[::-1]).t(), torch.randn(shape))


def test_sizes_that_vary() -> None:
    fn = lambda x, y: (x.sum(-1), x.amax(-1), x * 2, y + 1, (x + y).softmax(-1))
    runner = kintsugi.compile(fn, backend="native", dynamic=True, options={"sync": True})
    for rows in (3, 40, 7, 500, 1):
        x, y = torch.randn(rows, 24), torch.randn(rows, 24)
        for got, wanted in zip(runner(x, y), fn(x, y), strict=True):
            assert_values(got, wanted)
    assert runner._kintsugi_compiled.stats()["native_runs"] > 0


def test_optimizer_over_many_parameters() -> None:
    """Functional Adam: parameters of one shape share kernels."""

    def adam(*tensors: torch.Tensor) -> list[torch.Tensor]:
        out = []
        for k in range(0, len(tensors), 4):
            p, g, m, v = tensors[k : k + 4]
            m = m * 0.9 + g * 0.1
            v = v * 0.999 + g * g * 0.001
            out += [p - 0.01 * m / (v.sqrt() + 1e-8), m, v]
        return out

    torch.manual_seed(6)
    shapes = [(8, 8), (8,), (8, 8), (8,), (16, 8), (8, 8), (8,), (8, 8)]
    check(adam, *(torch.rand(s) for s in shapes for _ in range(4)))


def test_order_of_calls_and_what_frees_memory() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        parts = []
        for k in range(6):
            z = (x + k).sin()
            parts.append((z.t() @ y).sum(-1) if k % 2 else z.cos().view(-1, 10).sum(-1)[: x.shape[1]])
        return sum(parts)

    check(fn, torch.randn(30, 20), torch.randn(30, 25))


def test_writes_behind_readers() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x * 2
        s = a.sum(-1)
        b = a.index_add(0, i, y)
        c = b.index_copy(0, i, y * 2)
        return s + 1, b.sum(0), c, a.amax(-1)

    check(fn, torch.randn(50, 300), torch.tensor([1, 4]), torch.randn(2, 300))


OVERWRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "behind_a_call": lambda x, y: F.relu(x.sin()) + 1,
    "two_from_one": lambda x, y: ((a := x.sin()) + y, a * y, a.t().contiguous()),
    "input_is_not": lambda x, y: (x * 2, F.relu(y)),
    "view_is_left": lambda x, y: ((a := x.sin()).t(), a * 2),
    "view_is_used_later": lambda x, y: ((a := x.sin()) * 2, a.t()[1:].cos()),
    "other_place": lambda x, y: (a := x.sin()) + a.flip(0) + a[:1] + F.pad(a, (1, 0))[:, :-1],
    "other_layout": lambda x, y: x.sin().t().contiguous() + 1,
    "softmax": lambda x, y: (x.sin() * 2).softmax(-1),
    "norm": lambda x, y: F.layer_norm((a := x.sin()) + y, x.shape[1:]) + a,
    "early_store": lambda x, y: ((a := x.sin()) + 1, (a + y).softmax(-1), (a * y).sum(-1)),
    "neighbours": lambda x, y: ((a := x.sin()) * 2, (b := y.cos()) * 2, a + b, b - a),
    "lookup": lambda x, y: (a := x.sin()).gather(1, torch.zeros(a.shape, dtype=torch.long)) + a,
    "chain_of_calls": lambda x, y: ((((x.sin() + 1).cos() * 2).sin() - 1).cos() / 2) + y,
    "products": lambda x, y: F.gelu((x.sin() @ y.t()) / 300 + 1).sin() * 2,
    "writes": lambda x, y: (x * 2).index_add(0, torch.tensor([0]), y[:1]).relu() * 3,
    "types": lambda x, y: (x.sin().to(torch.float16) * 2, x.cos().double() + 1),
}


@pytest.mark.parametrize("name", OVERWRITES)
def test_memory_that_is_written_over(name: str) -> None:
    torch.manual_seed(8)
    for shape in ((200, 300), (3, 7)):
        x, y = torch.randn(shape), torch.randn(shape)
        before = x.clone(), y.clone()
        runner = check(OVERWRITES[name], x, y)
        kept = [runner(x, y) for _ in range(2)]
        wanted = OVERWRITES[name](x, y)
        for got in kept:
            assert_same(got, wanted)
        assert torch.equal(x, before[0]) and torch.equal(y, before[1])


def test_written_over_with_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    check(lambda x, y: F.gelu(x.sin() + y).cos() * 2 - y, torch.randn(700, 300), torch.randn(700, 300))
    torch.set_num_threads(before)
