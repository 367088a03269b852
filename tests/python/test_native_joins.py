"""backend="native", concatenations: parts that are computed where they belong, and those that can't be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from native_harness import assert_values, check, native

import kintsugi

W = torch.randn(16, 24, generator=torch.Generator().manual_seed(5))

JOINS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "rows": lambda x, y: torch.cat([x.exp(), y * 2], 0),
    "columns": lambda x, y: torch.cat([x.exp(), y * 2], -1),
    "middle": lambda x, y: torch.cat([x.exp().unsqueeze(0), (y * 2).unsqueeze(0)], 1),
    "stack_first": lambda x, y: torch.stack([x.exp(), y * 2]),
    "stack_last": lambda x, y: torch.stack([x.exp(), y * 2], -1),
    "stack_middle": lambda x, y: torch.stack([x.exp(), y * 2, x], 1),
    "inputs": lambda x, y: torch.cat([x, y], 1),
    "inputs_and_one": lambda x, y: torch.cat([x, y, x.exp(), y], 1),
    "one_alone": lambda x, y: (torch.cat([x * 2]), torch.cat([y])),
    "twice": lambda x, y: torch.cat([p := x.exp(), y, p, p], 1),
    "in_two": lambda x, y: (torch.cat([p := x.exp(), y], 1), torch.cat([y, p], 0)),
    "part_is_seen": lambda x, y: (p := x.exp(), torch.cat([p, y], 1)),
    "view_is_seen": lambda x, y: ((p := x.exp()).t(), torch.cat([p, y], 1)),
    "part_is_read": lambda x, y: (torch.cat([p := x.exp(), y], 1), p * y, p.sum(-1), p.sum(0)),
    "part_is_called": lambda x, y: (torch.cat([p := x.exp(), y], 1), p.sin(), torch.cumsum(p * 2, 1)),
    "slice_of_part": lambda x, y: (torch.cat([p := x.exp(), y], 1), p[:, 2:5] * 2, p[1:3, 1:] + 1, p.t() + 1),
    "part_reshaped": lambda x, y: (torch.cat([p := x.exp(), y], 1), p.view(2, 6, 16) * 2, p.view(-1) * 2),
    "reshape_is_part": lambda x, y: torch.cat([x.exp().view(2, 6, 16), y.view(2, 6, 16) * 2], 1),
    "flat_is_part": lambda x, y: torch.cat([x.exp().view(-1), y.sum(-1)], 0).sin(),
    "transposed_part": lambda x, y: torch.cat([x.exp().t(), y.t() * 2], 0),
    "reduced_over_two": lambda x, y: (
        torch.cat([p := (x * 2).view(2, 6, 16), y.view(2, 6, 16)], 2),
        p.sum((1, 2)),
        p.mean((0, 1)),
    ),
    "nested": lambda x, y: torch.cat([torch.cat([x.exp(), y], 1), torch.cat([y * 2, x], 1)], 0).sin(),
    "nested_other_dim": lambda x, y: torch.cat([torch.cat([x.exp(), y], 0), torch.cat([y * 2, x], 0)], 1),
    "nested_read": lambda x, y: (
        torch.cat([p := torch.cat([q := x.exp(), y], 1), y * 3], 1),
        p * 2,
        q + 1,
        p[:, 4:20] - 1,
        p.sum(-1),
    ),
    "nested_seen": lambda x, y: (p := torch.cat([x.exp(), y], 1), torch.cat([p, y], 1)),
    "padded_part": lambda x, y: (torch.cat([p := x.exp(), y], 1), F.pad(p, (1, 2)) * 2),
    "pooled_part": lambda x, y: (torch.cat([p := x.exp(), y], 1), F.max_pool2d(p[None, None], 2, padding=1)),
    "products": lambda x, y: torch.cat([x @ W, y @ W], 1),
    "products_below": lambda x, y: torch.cat([x @ W, (y @ W).relu()], 0) * 2,
    "product_of_part": lambda x, y: (torch.cat([p := x.exp(), y], 1), p @ W, p.t() @ y),
    "product_of_join": lambda x, y: torch.cat([x.exp(), y * 2], 0) @ W,
    "in_place_behind": lambda x, y: (torch.cat([p := x.exp(), y], 1).mul_(2), p + 1),
    "written_behind": lambda x, y: (
        torch.cat([p := x.exp(), y]).index_add(0, torch.tensor([1, 2]), y[:2]),
        p + 1,
    ),
    "argmax": lambda x, y: torch.cat([x.argmax(-1), y.argmax(-1)]),
    "bools": lambda x, y: torch.cat([x > 0, y > 0], 1),
    "rows_of_softmax": lambda x, y: torch.cat([x.softmax(-1), y.softmax(0)], 1),
    "kv": lambda x, y: torch.cat([y, (x @ W)[:, :16]], 0),
    "constant": lambda x, y: torch.cat([torch.arange(16.0).exp().expand(12, 16), x.exp()], 1),
    "table": lambda x, y: (
        x * (e := torch.cat([f := (torch.arange(8.0) / 8).exp(), f], -1)).cos()
        + y * e.sin()
        + torch.cat([f, x[0]])[:16]
    ),
    "gathered_part": lambda x, y: (
        torch.cat([p := x.exp(), y], 1),
        p.gather(1, torch.tensor([[3, 0]]).expand(12, 2)) * 2,
        p[torch.tensor([2, 2])] * 2,
    ),
    "attention_of_parts": lambda x, y: F.scaled_dot_product_attention(
        (p := torch.cat([x * 2, y], 0))[None, None], p[None, None], (x + y)[None, None].repeat(1, 1, 2, 1)
    ),
    "attention_is_part": lambda x, y: torch.cat(
        [F.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None]) * 1, y[None, None]], -1
    ),
    "heads": lambda x, y: torch.cat([(x * 2).view(3, 4, 16).transpose(0, 1), y.view(4, 3, 16)], 0),
}


@pytest.mark.parametrize("name", JOINS)
def test_joins(name: str) -> None:
    torch.manual_seed(2)
    check(JOINS[name], torch.randn(12, 16), torch.randn(12, 16))
    check(lambda x, y: JOINS[name](x * 2, y), torch.randn(12, 32)[:, ::2], torch.randn(16, 12).t())


@pytest.mark.parametrize("name", JOINS)
def test_joins_with_gradients(name: str) -> None:
    torch.manual_seed(3)
    inputs = [torch.randn(12, 16, requires_grad=True) for _ in range(2)]

    def step(fn: Callable[..., object]) -> list[torch.Tensor]:
        out = fn(*inputs)
        found = [t for t in (out if isinstance(out, tuple) else (out,)) if isinstance(t, torch.Tensor)]
        loss = sum(t.double().sum() for t in found if t.requires_grad)
        if isinstance(loss, torch.Tensor):
            loss.backward()
        grads = [torch.zeros(1) if x.grad is None else x.grad.clone() for x in inputs]
        for x in inputs:
            x.grad = None
        return [t.detach() for t in found] + grads

    wanted = step(JOINS[name])
    runner = native(JOINS[name])
    for _ in range(3):
        for mine, theirs in zip(step(runner), wanted, strict=True):
            assert_values(mine, theirs)


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_dimensions_and_layouts(dim: int) -> None:
    torch.manual_seed(4)
    x = torch.randn(2, 8, 5, 6)
    for form in (torch.contiguous_format, torch.channels_last):
        a = x.to(memory_format=form)
        check(lambda a, d=dim: torch.cat([a.exp(), a, a.relu()], d), a)
        check(lambda a, d=dim: (torch.cat([p := a.exp(), a], d), p * 2, p.flatten(1) + 1, p.mean((2, 3))), a)
    check(lambda a, d=dim: torch.cat([a.exp(), a.to(memory_format=torch.channels_last) * 2], d), x)


def test_types() -> None:
    x = torch.randn(6, 16)
    for dtype in (
        torch.bfloat16,
        torch.float16,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.bool,
    ):
        y = (x * 3).to(dtype)
        check(lambda a, b: torch.cat([a * 2, b], 1), x, y)
        check(lambda a, b: torch.cat([b, a.abs(), b], 0), x, y)
        check(lambda a: torch.stack([a, a ^ a] if a.dtype == torch.bool else [a, a + a], 1), y)
    check(lambda a, b: torch.cat([a > 0, b], 1), x, torch.randint(5, (6, 3)))


@pytest.mark.parametrize("strict", [False, True])
def test_special_numbers_and_strict(strict: bool) -> None:
    x = torch.tensor([[0.0, -0.0, float("inf"), float("nan"), 1e-40, -1e-40, 3e38, -1.0]] * 3)
    check(lambda a: (torch.cat([-a, a, a * 2], 1), torch.stack([a.abs(), a])), x, exact=True, strict=strict)


@pytest.mark.parametrize("count", [3, 9, 20, 70])
def test_many_parts(count: int) -> None:
    x = torch.randn(4, 8)
    check(lambda a: torch.cat([a * k for k in range(count)], 1), x)
    check(lambda a: torch.cat([a.exp(), *([a] * count)], 0) + 1, x)
    check(lambda a: torch.stack([a.exp()[k % 4] + k for k in range(count)], 0), x)


def test_odd_shapes() -> None:
    x, none = torch.randn(3, 4), torch.randn(0)
    check(lambda a, b: torch.cat([a * 2, b, a], 0) * 2, x, none)
    check(lambda a: torch.cat([a * 2, a[:, :0]], 1).exp(), x)
    check(lambda a: torch.cat([a.sum().reshape(1), a.amax().reshape(1)]), x)
    check(lambda a: torch.stack([a.sum(), a.amax(), a[0, 0] * 2]), x)
    check(lambda a: torch.cat([a.unsqueeze(-1).exp(), a.unsqueeze(-1)], -1) * 1, torch.randn(200, 300))
    check(lambda a: torch.stack([a.exp(), a], -1).sum(0), torch.randn(200, 300))
    check(lambda a: torch.cat([a[:, :1].exp(), a.sum(1, keepdim=True), a], 1).sin(), x)


def test_large_and_with_threads() -> None:
    x, y = torch.randn(400, 300), torch.randn(400, 100)
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        check(lambda a, b: torch.cat([a.exp(), b * 2], 1), x, y)
        check(lambda a, b: torch.cat([a, b], 1), x, y, compiled=False)
        check(
            lambda a, b: torch.cat([a @ b / 300, b.softmax(1)[:300], a.t()[:, :100].tanh()], 0),
            torch.randn(300, 300),
            y[:300],
        )
    torch.set_num_threads(before)


def test_memory_is_kept() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.cat([x.exp(), x.tanh(), x], 1).sin()[:, 4:12].cumsum(1) / 8
        return x

    x = torch.randn(6, 8)
    check(fn, x)
    compiled = native(fn, keep_memory=True)
    wanted = fn(x)
    kept = [compiled(x) for _ in range(4)]
    for got in kept:
        assert_values(got, wanted)


def test_rows_that_vary() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        p = x.exp()
        return torch.cat([p, y * 2], 1), p + 1, torch.stack([p, x], 1), torch.cat([p, y[:2, :16]], 0)

    runner = kintsugi.compile(fn, backend="native", dynamic=True, options={"sync": True})
    for rows in (5, 7, 2, 9, 1, 7):
        x, y = torch.randn(rows, 16), torch.randn(rows, 24)
        for got, wanted in zip(runner(x, y), fn(x, y), strict=True):
            assert_values(got, wanted)
    assert runner._kintsugi_compiled.stats()["native_runs"] > 0


def test_parts_of_a_stack_that_belong_elsewhere() -> None:
    """Each state is a part of the next step's input, so the stack of all of them is not worth computing in place."""
    weight = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))

    def program(x: torch.Tensor) -> object:
        h, seen = x[:, 0], []
        for k in range(x.shape[1]):
            h = torch.tanh(F.linear(torch.cat([x[:, k], h], -1), weight))
            seen.append(h)
        return torch.stack(seen, 1), torch.stack(seen), h

    with torch.no_grad():
        for length in (2, 5, 12):
            compiled = check(program, torch.randn(3, length, 8))
            assert compiled.stats().native_runs > 0
