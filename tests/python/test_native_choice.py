"""backend="native": grad modes inside a segment, metadata that guards tell of, replay or code, whichever is faster."""

from __future__ import annotations

import io
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from native_harness import assert_same, assert_values, check, in_threads, native

import kintsugi
from kintsugi import _progress


def test_grad_mode_is_switched_between_operators() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = F.gelu(x) * 2
        with torch.no_grad():
            table = (y + 1).cos()
        with torch.enable_grad():
            z = table * y + x
        return z, table.view(-1)

    check(fn, torch.randn(3, 5))


def test_operators_with_the_grad_mode_on_are_followed() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            y = F.gelu(x) * 2
        return y

    x = torch.randn(3, 5, requires_grad=True)
    runner = native(fn)
    with torch.no_grad():
        for _ in range(3):
            got = runner(x)
            assert got.requires_grad and not torch.is_grad_enabled()
            assert_values(got.detach(), (F.gelu(x) * 2).detach())
    with torch.enable_grad():
        assert torch.autograd.grad(got.sum(), x)[0].shape == x.shape


def test_views_remember_the_grad_mode_that_they_were_made_in() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x * 2
        with torch.no_grad():
            v = y.view(-1)
        return v

    x, w = torch.randn(3, 4), torch.randn(3, 4)
    runner = native(fn)
    for _ in range(3):
        got, wanted = runner(x, w), fn(x, w)
        assert_same(got, wanted)
        for view in (got, wanted):
            try:
                view.mul_(torch.ones(12, requires_grad=True))
                outcome = "fine"
            except RuntimeError as error:
                outcome = str(error)[:40]
            if view is got:
                mine = outcome
        assert mine == outcome


def test_metadata_that_a_guard_tells_of() -> None:
    def fn(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        chosen = x[mask]
        if chosen.shape[0] > 2:
            chosen = F.gelu(chosen) * 2 + 1
        return chosen

    runner = native(fn)
    x = torch.randn(8, 4)
    with torch.no_grad():
        for count in (3, 3, 5, 1, 3, 0, 8):
            mask = torch.arange(8) < count
            assert_same(runner(x, mask), fn(x, mask))


def test_what_is_faster_is_kept() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x * 2 + 1) * x - 3

    runner = kintsugi.compile(fn, backend="native")
    x = torch.randn(64, 300)
    with torch.no_grad():
        wanted = fn(x)
        runner(x)
        runner(x)
        assert kintsugi.wait(60)
        for _ in range(20):
            assert_same(runner(x), wanted)
        stats = runner._kintsugi_compiled.stats()
        assert stats["native_runs"] >= 4
        assert stats["native_refused"] + stats["native_ready"] == stats["native_segments"]
        if not stats["native_refused"]:
            assert stats["native_runs"] >= 12


def test_threads_call_while_replay_and_code_are_compared() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x * 2 + 1, -1) * x

    runner = kintsugi.compile(fn, backend="native")
    inputs = [torch.randn(5, 40) for _ in range(4)]
    with torch.no_grad():
        wanted = [fn(x) for x in inputs]
        runner(inputs[0])

    def work(k: int) -> None:
        for _ in range(100):
            assert_same(runner(inputs[k]), wanted[k])

    in_threads(work, 4)


def test_memory_that_is_kept_between_calls() -> None:
    layers = [torch.nn.Linear(24, 24) for _ in range(3)]

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        held = None
        for layer in layers:
            x = F.layer_norm(F.gelu(layer(x)) + x, (24,))
            view = (x * 2).view(-1, 12)
            held = view if held is None else held + view.sum(0)
        return x, held

    for mode in ("reduce-overhead", "max-autotune"):
        runner = kintsugi.compile(fn, backend="native", mode=mode)
        results = []
        with torch.no_grad():
            inputs = [torch.randn(5, 24) for _ in range(40)]
            runner(inputs[0])
            runner(inputs[0])
            assert kintsugi.wait(60)
            for x in inputs:
                results.append(runner(x))
            for x, got in zip(inputs, results, strict=True):
                assert_same(got, fn(x))
        assert runner._kintsugi_compiled.stats()["native_runs"] >= 4


def test_kept_memory_is_not_shared_by_runs_at_one_time() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = F.softmax(x * 2 + 1, -1)
        return (y @ x.t()).relu() * 2

    runner = native(fn, keep_memory=True)
    inputs = [torch.randn(64, 40) for _ in range(4)]
    with torch.no_grad():
        wanted = [fn(x) for x in inputs]
        runner(inputs[0])

    def work(k: int) -> None:
        for _ in range(100):
            assert_same(runner(inputs[k]), wanted[k])

    in_threads(work, 4)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_wait_shows_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    waits, backlog = iter([False, False, True]), iter([3, 2, 1])
    queue = types.SimpleNamespace(wait=lambda timeout: next(waits), native_backlog=lambda: next(backlog))
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(_progress, "_C", queue)
    assert kintsugi.wait()
    shown = terminal.getvalue()
    assert "] 1/3" in shown and "] 2/3" in shown and shown.endswith("\r")
