"""backend="native" with sizes that vary: one compilation for all of them, replay where they are of another kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from native_harness import assert_same, in_threads, shared_storages

import kintsugi

SIZES = [5, 7, 2, 1, 0, 3, 64, 17, 5, 129]

Function = Callable[..., Any]


def _compiled(fn: Function, **options: Any) -> Any:
    return kintsugi.compile(fn, backend="native", dynamic=True, options={"sync": True, **options})


def _stats(runner: Any) -> dict[str, int]:
    stats: dict[str, int] = runner._kintsugi_compiled.stats()
    return stats


def _compare(fn: Function, make: Callable[[int], tuple[Any, ...]], *, least: int, sizes: list[int]) -> Any:
    """All sizes equal to eager; at least `least` runs of native code."""
    runner = _compiled(fn)
    with torch.no_grad():
        for size in sizes:
            inputs = make(size)
            wanted = fn(*inputs)
            got = runner(*inputs)
            assert_same(got, wanted)
            assert shared_storages(got, inputs) == shared_storages(wanted, inputs)
    assert _stats(runner)["native_runs"] >= least, _stats(runner)
    return runner


W, B = torch.randn(16), torch.randn(16)
LINEAR = torch.nn.Linear(16, 16)


def _reshaped(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    y = F.gelu(x) * 2
    return y.view(n, 4, 4).transpose(1, 2) + 1


PROGRAMS: dict[str, Function] = {
    "chain": lambda x: F.gelu(x * 2 + 1) * x,
    "layer_norm": lambda x: F.layer_norm(x + 1, (16,), W, B) * 2,
    "rms_norm": lambda x: F.rms_norm(x, (16,), W) + x,
    "linear_gelu": lambda x: F.gelu(LINEAR(x)) + x,
    "broadcast": lambda x: (x * W + B).relu() - x.sum(-1, keepdim=True),
    "reduced": lambda x: (x * x).sum(-1) + 1,
    "softmax_rows": lambda x: F.softmax(x * 0.5, -1) * 2,
    "softmax_varying": lambda x: F.softmax((x @ x.t()) * 0.25 + 1, -1),
    "shape_as_number": lambda x: x * 2 + x.shape[0],
    "view": _reshaped,
    "transposed": lambda x: (x.t() * 2 + 1).exp().clamp(max=9),
    "mixed_dtypes": lambda x: (x > 0).float() * x.double(),
    "two_results": lambda x: (x.tanh() * 2, (x + 1).sigmoid()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_vary(name: str) -> None:
    # Results of arguments that are not contiguous are left to ATen.
    least = 0 if name == "transposed" else 5
    _compare(PROGRAMS[name], lambda n: (torch.randn(n, 16),), least=least, sizes=SIZES)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64])
def test_other_types(dtype: torch.dtype) -> None:
    def make(n: int) -> tuple[torch.Tensor]:
        return ((torch.randn(n, 6) * 3).to(dtype),)

    _compare(lambda x: (x * 2 + x).relu() - 1, make, least=5, sizes=SIZES)


def test_arguments_that_broadcast_in_some_calls_only() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y) * 2 - y

    runner = _compiled(fn)
    shapes = [(5, 5), (3, 3), (5, 1), (1, 4), (1, 1), (0, 1), (0, 0), (7, 7), (2, 2)]
    with torch.no_grad():
        for a, b in shapes:
            x, y = torch.randn(a, 6), torch.randn(b, 6)
            assert_same(runner(x, y), fn(x, y))
        with pytest.raises(RuntimeError, match="must match"):
            runner(torch.randn(3, 6), torch.randn(4, 6))
    assert _stats(runner)["native_runs"] >= 3


def test_strides_that_differ_between_calls() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y + x).exp() - y

    runner = _compiled(fn)
    with torch.no_grad():
        for n in (4, 6, 3, 9):
            base = torch.randn(2 * n, 12)
            for x in (base[:n], base[::2], base[:n].t().contiguous().t(), base[:n, ::2].repeat(1, 2)):
                y = torch.randn(n, 12)
                assert_same(runner(x, y), fn(x, y))
                assert_same(runner(y, x), fn(y, x))
                assert_same(runner(x, x), fn(x, x))
    assert _stats(runner)["native_runs"] >= 4


def test_both_dimensions_vary() -> None:
    sizes = [(3, 5), (5, 3), (4, 4), (2, 7), (7, 2), (1, 5), (5, 1), (0, 3), (3, 0), (33, 65)]
    for fn in (
        lambda x: F.softmax(x * 2, -1) + x,
        lambda x: (x + x.sum(-1, keepdim=True)) * 3,
        lambda x: F.gelu(x)[:, None] * x,
    ):
        runner = _compiled(fn)
        with torch.no_grad():
            for shape in sizes:
                x = torch.randn(shape)
                assert_same(runner(x), fn(x))
        assert _stats(runner)["native_runs"] >= 4


def test_numbers_that_vary() -> None:
    def fn(x: torch.Tensor, k: int) -> torch.Tensor:
        return torch.add(x * 2, x, alpha=k) + k

    runner = _compiled(fn)
    x = torch.randn(5, 4)
    with torch.no_grad():
        for k in (1, 2, 3, -4, 0, 1, 7):
            assert_same(runner(x, k), fn(x, k))


def _compilations() -> tuple[int, ...]:
    """Of this process: files of the cache on disk may be other processes' work."""
    info = kintsugi.cache_info()
    return info.kernels, info.compiled, info.reused, info.loaded


def test_nothing_is_compiled_for_another_size() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.gelu(x) + x, (24,)) * 3

    runner = _compiled(fn)
    with torch.no_grad():
        runner(torch.randn(4, 24))
        runner(torch.randn(6, 24))
        before = _compilations()
        for n in range(2, 40):
            x = torch.randn(n, 24)
            assert_same(runner(x), fn(x))
        after = _compilations()
    assert before == after
    assert _stats(runner)["native_runs"] >= 38


def test_a_cache_that_grows() -> None:
    torch.manual_seed(3)
    q, k, v = (torch.nn.Linear(16, 16) for _ in range(3))

    def step(x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        keys = torch.cat([keys, k(x)], 1)
        values = torch.cat([values, v(x)], 1)
        scores = q(x) @ keys.transpose(1, 2) / 4.0
        out = F.layer_norm(F.softmax(scores, -1) @ values + x, (16,))
        return out, keys, values

    runner = _compiled(step)
    x = torch.randn(2, 1, 16)
    mine = theirs = (torch.randn(2, 3, 16), torch.randn(2, 3, 16))
    with torch.no_grad():
        for _ in range(12):
            got, wanted = runner(x, *mine), step(x, *theirs)
            assert_same(got, wanted)
            mine, theirs = got[1:], wanted[1:]
    assert _stats(runner)["native_runs"] >= 8


def test_training_is_left_to_autograd() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x * 2) + x

    runner = _compiled(fn)
    for n in (3, 5, 8):
        x = torch.randn(n, 4, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        runner(x).sum().backward()
        fn(y).sum().backward()
        assert torch.equal(x.grad, y.grad)
    assert _stats(runner)["native_runs"] == 0


def test_threads_with_other_sizes() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(LINEAR(x), -1) * x + 1

    runner = kintsugi.compile(fn, backend="native", dynamic=True)

    def work(seed: int) -> None:
        for turn in range(60):
            x = torch.randn((seed * 7 + turn * 5) % 23, 16)
            assert_same(runner(x), fn(x))

    in_threads(work, 4)
