"""backend="native": matrix products in kernels, with what is made of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from native_harness import assert_values, check, native

import kintsugi

EPILOGUES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "nothing": lambda y, r: y,
    "relu": lambda y, r: F.relu(y),
    "gelu": lambda y, r: F.gelu(y),
    "gelu_tanh": lambda y, r: F.gelu(y, approximate="tanh"),
    "residual": lambda y, r: y * 0.5 + r,
    "gate": lambda y, r: F.silu(y) * r,
    "norm": lambda y, r: F.layer_norm(y + r, (y.shape[-1],)),
    "softmax": lambda y, r: F.softmax(y * 0.125, -1),
    "two": lambda y, r: y.sigmoid() + (y * r).sum(-1, keepdim=True),
    "view": lambda y, r: (y.reshape(y.shape[0], -1) + 1).reshape(r.shape) * r,
    "heads": lambda y, r: (y.unflatten(-1, (2, -1)).transpose(-3, -2) * 2).contiguous(),
}


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize(
    "sizes", [(12, 8, 8), (16, 40, 33), (37, 18, 24), (300, 66, 20), (24, 130, 600)], ids=str
)
def test_sizes_and_what_is_made_of_products(name: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    make = EPILOGUES[name]
    x, w, b, r = torch.randn(m, k), torch.randn(n, k) / k**0.5, torch.randn(n), torch.randn(m, n)
    check(lambda x, w, b, r: make(F.linear(x, w, b), r), x, w, b, r)


def test_products_of_every_kind() -> None:
    x, y, z = torch.randn(3, 8, 24), torch.randn(24, 40) / 5, torch.randn(40)
    check(lambda x, y: x @ y, x, y)
    check(lambda x, y, z: torch.addmm(z, x.flatten(0, 1), y).relu(), x, y, z)
    check(lambda x, y: torch.mm(x[0].repeat(2, 1), y), x, y)
    check(lambda x, y: F.linear(x, y.t()), x, y)
    check(lambda x, y: F.linear(x[:, :, 4:20], y.t()[:, 4:20]) + 1, x, y)
    check(lambda x, y: x[:, ::2] @ y[:, 8:24], x, y)
    check(lambda x, y: F.linear(F.linear(x, y.t()), y) * x, x, y)


def test_special_numbers_stay_in_their_rows_and_columns() -> None:
    x, w = torch.randn(20, 16), torch.randn(17, 16)
    x[3, 4], w[16, 2], w[7, 0] = float("nan"), float("inf"), -float("inf")
    check(lambda x, w: F.linear(x, w), x, w)


def test_memory_behind_the_last_row_is_not_read_or_written() -> None:
    base = torch.full((64, 32), float("nan"))
    base[:13, :16] = torch.randn(13, 16)
    check(lambda base, w: F.linear(base[:13, :16], w).relu(), base, torch.randn(19, 16))


def test_weights_may_change_in_any_way() -> None:
    layer = torch.nn.Linear(16, 24)
    compiled = native(lambda x: F.relu(layer(x)))
    x = torch.randn(32, 16)
    with torch.no_grad():
        for change in (lambda w: w.mul_(2), lambda w: w.data.add_(1), lambda w: w.data.numpy().fill(0.5)):
            assert_values(compiled(x), F.relu(layer(x)))
            change(layer.weight)
            assert_values(compiled(x), F.relu(layer(x)))


def test_rows_that_vary() -> None:
    w, b = torch.randn(40, 24), torch.randn(40)
    compiled = kintsugi.compile(
        lambda x: F.gelu(F.linear(x, w, b)), backend="native", dynamic=True, options={"sync": True}
    )
    with torch.no_grad():
        for rows in (16, 17, 2, 600, 31):
            x = torch.randn(rows, 24)
            assert_values(compiled(x), F.gelu(F.linear(x, w, b)))


def test_the_number_of_threads_changes_nothing() -> None:
    x, w = torch.randn(500, 200), torch.randn(300, 200)
    compiled = native(lambda x, w: F.gelu(F.linear(x, w)))
    before = torch.get_num_threads()
    results = []
    try:
        with torch.no_grad():
            compiled(x, w)  # the recording
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                results += [compiled(x, w), compiled(x, w)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(results[0], result) for result in results)


@pytest.mark.parametrize("rows", [12, 25, 300])
def test_many_products(rows: int) -> None:
    q, k, v = (torch.randn(2, rows, 3, 24).transpose(1, 2) for _ in range(3))
    mask = torch.ones(rows, rows, dtype=torch.bool).triu(1)

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = (q @ k.transpose(-2, -1) / 24**0.5).masked_fill(mask, float("-inf"))
        return (F.softmax(scores, -1) @ v).transpose(1, 2).reshape(2, rows, -1)

    check(attention, q, k, v, mask)
    check(lambda q, k, b: q @ k.transpose(-2, -1) + b, q, k, torch.randn(3, 1, rows))
    x, y, z = torch.randn(4, rows, 17), torch.randn(4, 17, 40), torch.randn(4, 1, 40)
    check(lambda x, y: torch.bmm(x, y).relu(), x, y)
    check(lambda x, y, z: torch.baddbmm(z, x, y) * 2, x, y, z)
    check(lambda x, y: torch.bmm(x[:1], y[:1]), x, y)
    check(lambda x, y: x @ y[:1].expand(4, -1, -1), x, y)
    check(lambda x, y: (x[:1] @ y) + 1, x, y)
    check(lambda x, y: x[:, :, 1:9] @ y[:, 2:10, 4:20] - 1, x, y)
