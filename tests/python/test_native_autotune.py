"""mode="max-autotune": ways to compile a segment are tried on the program's own runs, and the choice is remembered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from native_harness import assert_same, in_threads

import kintsugi

# Eight runs of each of at most seven ways.
ENOUGH = 60

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    before = kintsugi.config.cache_dir
    kintsugi.config.cache_dir = tmp_path
    kintsugi.clear_cache()
    yield
    kintsugi.set_logs()
    kintsugi.clear_cache()
    kintsugi.config.cache_dir = before


def _tuned(fn: Function) -> Any:
    return kintsugi.compile(fn, backend="native", options={"sync": True, "autotune": True})


def _block(x: torch.Tensor, w: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    q, k, v = ((x @ w).view(2, 40, 4, 16).transpose(1, 2) * scale for scale in (1, 2, 3))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=m)
    scores = F.softmax(q @ k.mT + m, -1) @ v
    return F.gelu((y + scores).transpose(1, 2).reshape(2, 40, 64) @ w) + x


def _inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 40, 64), torch.randn(64, 64) / 8, torch.randn(2, 1, 40, 40)


def _choice(log: str) -> str:
    found = re.search(r"\] (.+) is the fastest:", log)
    assert found, log
    return found.group(1)


def test_every_way_gives_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    inputs = _inputs()
    kintsugi.set_logs("perf")
    runner = _tuned(_block)
    with torch.no_grad():
        wanted = _block(*inputs)
        for _ in range(ENOUGH):
            assert_same(runner(*inputs), wanted)
    log = capsys.readouterr().err
    assert _choice(log)
    for way in (
        "the usual way",
        "products by the library",
        "attention by the library",
        "tiles of another shape",
    ):
        assert f"{way} " in log.split("is the fastest:")[1], log


def test_the_choice_is_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    inputs = _inputs()
    kintsugi.set_logs("perf")
    with torch.no_grad():
        wanted = _block(*inputs)
        runner = _tuned(_block)
        for _ in range(ENOUGH):
            runner(*inputs)
        choice = _choice(capsys.readouterr().err)
        for _ in ("in memory", "on disk"):
            again = _tuned(_block)
            for _ in range(3):
                assert_same(again(*inputs), wanted)
            log = capsys.readouterr().err
            assert f"{choice}, as remembered" in log and "is the fastest" not in log
            kintsugi.clear_cache(disk=False)
        kintsugi.clear_cache()
        forgotten = _tuned(_block)
        for _ in range(ENOUGH):
            forgotten(*inputs)
        assert "as remembered" not in capsys.readouterr().err


def test_nothing_to_choose_from(capsys: pytest.CaptureFixture[str]) -> None:
    kintsugi.set_logs("perf")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        runner = _tuned(lambda x: F.gelu(x) * 2)
        with torch.no_grad():
            for _ in range(ENOUGH):
                assert_same(runner(torch.ones(33)), F.gelu(torch.ones(33)) * 2)
    finally:
        torch.set_num_threads(before)
    assert "fastest" not in capsys.readouterr().err


def test_sizes_that_vary() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ w) + 1

    runner = kintsugi.compile(fn, backend="native", dynamic=True, options={"sync": True, "autotune": True})
    w = torch.randn(32, 48)
    with torch.no_grad():
        for k in range(ENOUGH):
            x = torch.randn(12 + k % 7 * 5, 32)
            assert_same(runner(x, w), fn(x, w))


def test_by_many_threads() -> None:
    inputs = _inputs()
    runner = kintsugi.compile(_block, backend="native", mode="max-autotune")
    with torch.no_grad():
        wanted = _block(*inputs)
        for _ in range(3):
            runner(*inputs)
    assert kintsugi.wait()

    def work(_: int) -> None:
        for _ in range(60):
            assert_same(runner(*inputs), wanted)

    in_threads(work, 3)
