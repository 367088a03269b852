"""Audit mode: a call that runs twice leaves eager's result and effects; a trace that differs is taken out of use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kintsugi

FACTOR = 2.0


@kintsugi.assume_constant_result
def promised() -> float:
    """Breaks the promise of the decorator when FACTOR changes: the way to a wrong trace that is the user's fault."""
    return FACTOR


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * promised()


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 2.0)
    with kintsugi.config.patch(cache_dir=tmp_path):
        yield


def test_equal_calls_stay_compiled(capfd: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    log: list[int] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        print("call", len(log))
        log.append(len(log))
        return model(x) + torch.rand(1)

    compiled = kintsugi.compile(f, options={"audit": 3})
    for _ in range(9):
        compiled(torch.randn(3, 4))
    assert compiled.breaks() == []
    assert log == list(range(9))
    assert capfd.readouterr().out == "".join(f"call {i}\n" for i in range(9))
    stats = compiled.stats()
    assert stats.hits + stats.misses == 6  # the others ran in eager mode here


def test_a_difference_is_found(capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    compiled = kintsugi.compile(scaled, options={"audit": 4})
    x = torch.ones(3)
    for _ in range(3):
        assert torch.equal(compiled(x), x * 2)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3.0)
    assert torch.equal(compiled(x), x * 3)  # eager's result
    warning = capsys.readouterr().err
    assert "KTG0401" in warning and "result: values, by up to 1" in warning
    assert [b["code"] for b in compiled.breaks()] == ["KTG0401"]
    assert torch.equal(compiled(x), x * 3)
    assert compiled.stats().trace_count == 0

    (folder,) = (tmp_path / "audit").iterdir()
    assert "values, by up to 1" in (folder / "differences.txt").read_text()
    assert "aten.mul" in (folder / "traces.txt").read_text()
    assert "'scaled'" in (folder / "reproduce.py").read_text()
    (loaded,), named = torch.load(folder / "inputs.pt")
    assert torch.equal(loaded, x) and named == {}

    compiled.reset()
    compiled(x)
    assert compiled.stats().trace_count == 1


@pytest.mark.parametrize("what", ["argument", "attribute", "list", "print", "exception", "random"])
def test_each_kind_of_effect_is_compared(what: str, monkeypatch: Any) -> None:
    class Holder:
        count = 0

    holder, items = Holder(), [1]

    def f(x: torch.Tensor) -> torch.Tensor:
        n = promised()
        if what == "argument":
            x.add_(n)
        elif what == "attribute":
            holder.count = n
        elif what == "list":
            items.append(n)
        elif what == "print":
            print(n)
        elif what == "random" and n == 3:
            torch.rand(1)
        elif what == "exception" and n == 3:
            raise ValueError("three")
        return torch.ones(2)

    compiled = kintsugi.compile(f, options={"audit": 3})
    for _ in range(2):
        compiled(torch.ones(2))
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3.0)
    if what == "exception":
        with pytest.raises(ValueError, match="three"):
            compiled(torch.ones(2))
    else:
        compiled(torch.ones(2))
    assert [b["code"] for b in compiled.breaks()] == ["KTG0401"]


def test_exceptions_of_audited_calls_are_the_program_s() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    compiled = kintsugi.compile(f, options={"audit": 1})
    with pytest.raises(RuntimeError, match="shapes"):
        compiled(torch.ones(2, 3))
    assert compiled.breaks() == []


def test_the_environment_sets_it() -> None:
    with kintsugi.config.patch(audit=2):
        compiled = kintsugi.compile(lambda x: x + 1)
        for _ in range(6):
            compiled(torch.ones(2))
    stats = compiled.stats()
    assert stats.hits + stats.misses == 3


def test_files_of_the_parent_are_left_alone(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:

        def f(x: torch.Tensor) -> torch.Tensor:
            file.write("line\n")
            file.flush()
            return x + 1

        compiled = kintsugi.compile(f, options={"audit": 1})
        for _ in range(3):
            compiled(torch.ones(2))
    assert (tmp_path / "log").read_text() == "line\n" * 3


def test_options_of_one_callable() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = x + 1
        return x

    short = kintsugi.compile(f, options={"trace_length_limit": 10})
    assert torch.equal(short(torch.zeros(2)), torch.full((2,), 20.0))
    assert [b["code"] for b in short.breaks()] == ["KTG0104"]
    assert kintsugi.compile(f, options={"trace_length_limit": 1000})(torch.zeros(2)).sum() == 40


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_every_call_is_recorded_and_audited(backend: str, monkeypatch: Any) -> None:
    audited: list[int] = []
    from kintsugi import _audit

    original = _audit.run
    monkeypatch.setattr(_audit, "run", lambda *a: audited.append(1) or original(*a))
    log: list[int] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        log.append(1)
        if x.sum() > 0:
            return x * 2
        return x - 1

    with kintsugi.config.patch(audit=1):
        compiled = kintsugi.compile(f, backend=backend)
        for sign in (1, 1, 1, -1, -1, 1, -1, 1, -1, 1):
            x = torch.full((3,), float(sign))
            assert torch.equal(compiled(x), x * 2 if sign > 0 else x - 1)
            kintsugi.wait()
        assert len(audited) == len(log) == 10
        stats = compiled.stats()
        assert (
            stats.trace_count == 1 and stats.side_traces == 1
        )  # paths that only a child has seen are recorded too
        if backend == "native":
            assert stats.native_ready == stats.native_segments > 0
        assert compiled.breaks() == [] or backend == "eager"


def test_alternating_calls_are_all_recorded() -> None:
    """One that is always in the parent's turn, and one that never is."""
    with kintsugi.config.patch(audit=1):
        compiled = kintsugi.compile(lambda x, flag: x + 1 if flag else x - 1, backend="eager")
        for turn in range(24):
            compiled(torch.ones(2), bool(turn % 2))
        assert compiled.stats().trace_count == 2


def test_a_difference_in_the_parents_turn_is_found(capsys: Any, monkeypatch: Any) -> None:
    with kintsugi.config.patch(audit=1):
        compiled = kintsugi.compile(scaled, backend="eager")
        for _ in range(3):
            compiled(torch.ones(3))
        assert compiled.stats().trace_count == 1
        monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3.0)
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
    assert "KTG0401" in capsys.readouterr().err
