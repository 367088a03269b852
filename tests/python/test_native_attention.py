"""backend="native", attention as one kernel: the operator and what programs write out, beside eager mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from native_harness import assert_same, assert_values, check, in_threads, native

import kintsugi

sdpa = F.scaled_dot_product_attention

# Batch, heads, queries, keys, size of a head.
SHAPES = [
    (1, 2, 128, 128, 64),
    (1, 2, 97, 197, 64),
    (1, 2, 1, 300, 64),
    (2, 3, 10, 9, 16),
    (2, 2, 3, 130, 16),
    (2, 1, 200, 200, 16),
    (1, 1, 33, 97, 13),
    (1, 2, 50, 10, 13),
    (1, 2, 1, 1, 13),
]


def _heads(batch: int, heads: int, rows: int, size: int) -> torch.Tensor:
    return torch.randn(batch, rows, heads, size).transpose(1, 2)


def _inputs(shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, heads, queries, keys, size = shape
    return (
        _heads(batch, heads, queries, size),
        _heads(batch, heads, keys, size),
        _heads(batch, heads, keys, size),
    )


def _log(fn: Callable[..., Any], *inputs: torch.Tensor, capsys: pytest.CaptureFixture[str]) -> str:
    """What the operators became."""
    kintsugi.set_logs("perf")
    try:
        runner = native(fn)
        with torch.no_grad():
            runner(*inputs)
    finally:
        kintsugi.set_logs()
    return capsys.readouterr().err


@pytest.mark.parametrize("shape", SHAPES)
def test_operator(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    q, k, v = _inputs(shape)
    batch, heads, queries, keys, _ = shape
    some = torch.rand(queries, keys) > 0.5
    some[0] = False
    check(lambda q, k, v: sdpa(q, k, v) * 2, q, k, v)
    check(lambda q, k, v: sdpa(q, k, v, is_causal=True) * 2, q, k, v)
    check(lambda q, k, v: sdpa(q, k, v, scale=0.3) * 2, q.contiguous(), k.contiguous(), v.contiguous())
    for mask in (
        torch.randn(batch, 1, 1, keys),
        torch.randn(batch, heads, queries, keys),
        torch.randn(queries, 1),
        torch.randn(keys, queries).t(),
        torch.randn(1, 1, queries, 2 * keys)[..., ::2],
        some,
        torch.rand(batch, 1, 1, keys) > 0.3,
        some[:1].expand(queries, keys),
    ):
        check(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m) * 2, q, k, v, mask)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 2, 40, 131, 64), (2, 2, 2, 37, 24), (1, 1, 8, 8, 7)])
def test_small_floats(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    inputs = [x.to(dtype) for x in _inputs(shape)]
    mask = torch.randn(shape[2], shape[3], dtype=dtype)
    check(lambda q, k, v: sdpa(q, k, v), *inputs)
    check(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), *inputs, mask)
    check(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), *inputs, mask > 0)


@pytest.mark.parametrize("queries", [1, 5, 40])
@pytest.mark.parametrize("shared", [1, 2, 3])
def test_heads_that_share_keys(queries: int, shared: int) -> None:
    torch.manual_seed(0)
    q = _heads(2, 2 * shared, queries, 16)
    k, v = _heads(2, 2, 50, 16), _heads(2, 2, 50, 16)
    mask = torch.randn(2, 2 * shared, queries, 50)
    check(lambda q, k, v: sdpa(q, k, v, enable_gqa=True) + 1, q, k, v)
    check(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m, enable_gqa=True) + 1, q, k, v, mask)


def test_other_ranks_and_values_of_another_size() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 20, 16), torch.randn(3, 30, 16), torch.randn(3, 30, 16)
    check(lambda q, k, v: sdpa(q, k, v) + 1, q, k, v)
    check(lambda q, k, v: sdpa(q[0], k[0], v[0]) + 1, q, k, v)
    check(lambda q, k, v: sdpa(q, k, v) + 1, q, k, torch.randn(3, 30, 24))
    check(lambda q, k, v: sdpa(q, k, v) + 1, q, k, torch.randn(3, 30, 200))
    check(lambda q, k, v: sdpa(q, k, v) + 1, q[..., :1], k[..., :1], v)
    check(lambda q, k, v: sdpa(q[None, None], k[None, None], v[None, None]) + 1, q, k, v)


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0)])
def test_nothing_to_look_at(sizes: tuple[int, int]) -> None:
    q, k = torch.randn(1, 2, sizes[0], 8), torch.randn(1, 2, sizes[1], 8)
    check(lambda q, k: sdpa(q, k, k) + 1, q, k)


@pytest.mark.parametrize("queries", [2, 24])
def test_special_numbers(queries: int) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 2, queries, 16), torch.randn(1, 2, 130, 16), torch.randn(1, 2, 130, 16)
    nothing = torch.zeros(queries, 130)
    nothing[1] = -math.inf
    nothing[0, :110] = -math.inf  # whole blocks of keys
    check(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m) + 1, q, k, v, nothing)
    check(lambda q, k, v, m: F.softmax(q @ k.mT + m, -1) @ v, q, k, v, nothing)
    far = nothing.clone()
    far[0, 110:] = -1e30
    check(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m) + 1, q, k, v, far)
    for number in (math.nan, math.inf):
        spoiled = q.clone()
        spoiled[0, 0, 0, 3] = number
        check(lambda q, k, v: sdpa(q, k, v) + 1, spoiled, k, v)
    bad = v.clone()
    bad[0, 1, 100, 3] = math.nan
    check(lambda q, k, v: sdpa(q, k, v) + 1, q, k, bad)
    # Differences that no power can be told from 0, and scores beyond what a power can be of.
    check(lambda q, k, v: sdpa(q * 300, k * 30, v) + 1, q, k, v)


def _split(x: torch.Tensor, heads: int = 4) -> torch.Tensor:
    return x.view(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)


def _join(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def _plain(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    q, k, v = _split(x), _split(x * 2), _split(x - 1)
    return F.softmax(q @ k.transpose(-1, -2) / math.sqrt(8), -1) @ v


def _masked(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    q, k, v = _split(x), _split(x * 2), _split(x - 1)
    scores = (q @ k.transpose(-1, -2) / math.sqrt(8)).masked_fill(m > 0, -math.inf)
    return _join(F.dropout(F.softmax(scores, -1), 0.1, False) @ v)


def _biased(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    q, k, v = _split(x), _split(x * 2), _split(x - 1)
    weights = F.softmax(torch.matmul(q, k.mT) * 0.3 + m, dim=-1, dtype=torch.float32).to(x.dtype)
    return torch.matmul(weights, v).transpose(1, 2).contiguous().view(x.shape) * 2


def _flat(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    n, length = x.shape[0], x.shape[1]
    q, k, v = (_split(t).reshape(n * 4, length, -1) for t in (x, x * 2, x - 1))
    scores = (torch.bmm(q, k.transpose(1, 2)).view(n, 4, length, length) + m).view(n * 4, length, length)
    return _join(torch.bmm(F.softmax(scores, -1), v).view(n, 4, length, -1)) + 1


def _capped(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    q, k, v = _split(x), _split(x * 2), _split(x - 1)
    scores = torch.tanh((q @ k.mT) / 30) * 30
    return F.softmax(torch.where(m < 1, scores, torch.full([], -3e38)), -1) @ v


def _biased_by_a_product(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    q, k, v = _split(x), _split(x * 2), _split(x - 1)
    return F.softmax(q @ k.mT + (q * 0.1) @ v.mT, -1) @ v


def _weights_returned(x: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    q, k, v = _split(x), _split(x * 2), _split(x - 1)
    weights = F.softmax(q @ k.mT, -1)
    return weights @ v, weights


def _scores_used_twice(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    q, k, v = _split(x), _split(x * 2), _split(x - 1)
    scores = q @ k.mT
    return F.softmax(scores, -1) @ v + scores.sum()


def _copy_returned(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    q, k, v = _split(x), _split(x * 2), _split(x - 1)
    return (F.softmax(q @ k.mT, -1) @ v).transpose(1, 2).contiguous()


def _view_of_the_copy_returned(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    q, k, v = _split(x), _split(x * 2), _split(x - 1)
    return (F.softmax(q @ k.mT, -1) @ v).transpose(1, 2).contiguous().view(-1)


WRITTEN = [
    _plain,
    _masked,
    _biased,
    _flat,
    _capped,
    _biased_by_a_product,
    _weights_returned,
    _scores_used_twice,
    _copy_returned,
    _view_of_the_copy_returned,
]


@pytest.mark.parametrize("length", [1, 2, 15, 48])
@pytest.mark.parametrize("fn", WRITTEN)
def test_written_out(fn: Callable[..., Any], length: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, length, 32)
    for mask in (
        torch.randn(2, 1, length, length),
        torch.randn(2, 1, 1, length),
        torch.randn(1, 4, length, 1),
    ):
        check(fn, x, mask)


def test_what_is_written_out_is_one_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    log = _log(_plain, torch.randn(2, 48, 32), torch.randn(2, 1, 1, 48), capsys=capsys)
    assert "became 2 kernels and 0 calls" in log, log  # one of them for what is computed of x before


def _growing(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    q, k, v = (_split(t) for t in (x, x * 2, x - 1))
    return _join(sdpa(q, k, v)) + _join(sdpa(q, k, v, is_causal=True)) + _join(sdpa(q, k, v, attn_mask=m))


@pytest.mark.parametrize("fn", [_growing, _masked, _biased])
def test_sizes_that_vary(fn: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    runner = kintsugi.compile(fn, backend="native", dynamic=True, options={"sync": True})
    with torch.no_grad():
        for length in (5, 9, 64, 130, 1, 0, 3, 97):
            x, mask = torch.randn(2, length, 32), torch.randn(2, 1, length, length)
            assert_same(runner(x, mask), fn(x, mask))
    assert runner._kintsugi_compiled.stats()["native_runs"] >= 5


def test_a_cache_that_grows() -> None:
    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return sdpa(q, k, v, enable_gqa=True).transpose(1, 2).reshape(1, 1, -1) + 1

    torch.manual_seed(0)
    runner = kintsugi.compile(fn, backend="native", options={"sync": True})
    k, v = torch.randn(1, 2, 300, 32), torch.randn(1, 2, 300, 32)
    with torch.no_grad():
        for length in (17, 18, 19, 20, 127, 128, 129, 300):
            q = torch.randn(1, 6, 1, 32)
            inputs = (q, k[:, :, :length], v[:, :, :length])
            assert_same(runner(*inputs), fn(*inputs))


def test_threads_give_the_same_bits() -> None:
    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return sdpa(q, k, v, is_causal=True) * 2

    torch.manual_seed(0)
    inputs = _inputs((2, 5, 333, 333, 32))
    runner = native(fn)
    before = torch.get_num_threads()
    got = []
    try:
        with torch.no_grad():
            for threads in (1, 2, 3, 7):
                torch.set_num_threads(threads)
                runner(*inputs)
                got.append(runner(*inputs))
    finally:
        torch.set_num_threads(before)
    for other in got[1:]:
        assert torch.equal(got[0], other)
    # A query's result does not depend on what else is computed.
    with torch.no_grad():
        whole = native(lambda q, k, v: sdpa(q, k, v) * 2)(*inputs)
        part = native(lambda q, k, v: sdpa(q, k, v) * 2)(inputs[0][:, :, 32:96], *inputs[1:])
    assert torch.equal(whole[:, :, 32:96], part)


def test_many_at_once() -> None:
    torch.manual_seed(0)
    inputs = _inputs((1, 4, 70, 70, 32))

    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return sdpa(q, k, v) * 2

    runner = native(fn)
    wanted = fn(*inputs)
    with torch.no_grad():
        runner(*inputs)

    def work(_: int) -> None:
        for _ in range(20):
            assert_same(runner(*inputs), wanted)

    in_threads(work, 4)


def test_what_stays_a_call() -> None:
    q = torch.randn(1, 2, 16, 8, dtype=torch.float64)
    check(lambda q: sdpa(q, q, q) * 2, q)
    x = torch.randn(1, 2, 16, 300)
    check(lambda x: sdpa(x, x, x) * 2, x)
    y = torch.randn(1, 2, 16, 8)
    strict = kintsugi.compile(
        lambda y: sdpa(y, y, y) * 2, backend="native", options={"sync": True, "strict": True}
    )
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(strict(y), sdpa(y, y, y) * 2)
    torch.manual_seed(1)
    runner = native(lambda y: sdpa(y, y, y, dropout_p=0.5) * 2)
    with torch.no_grad():
        torch.manual_seed(1)
        wanted = sdpa(y, y, y, dropout_p=0.5) * 2
        torch.manual_seed(1)
        assert_same(runner(y), wanted)
        torch.manual_seed(1)
        assert_same(runner(y), wanted)


def test_training_goes_through() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 12, 32, requires_grad=True)
    mask = torch.randn(2, 1, 12, 12)
    runner = native(_growing)
    for _ in range(3):
        got = torch.autograd.grad(runner(x, mask).square().sum(), x)[0]
        wanted = torch.autograd.grad(_growing(x, mask).square().sum(), x)[0]
        assert_values(got, wanted)
