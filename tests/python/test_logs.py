"""KINTSUGI_LOGS and set_logs: names, format, and silence when off."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

import pytest
import torch

import kintsugi
from kintsugi import _logs


@pytest.fixture(autouse=True)
def _off():
    yield
    kintsugi.set_logs()


def f(x, k):
    y = x + 1
    return y * k


def run_both_ways() -> None:
    compiled = kintsugi.compile(f, backend="eager")
    compiled(torch.ones(2), 2)
    compiled(torch.ones(2), 2)
    compiled(torch.ones(2, dtype=torch.float64), 2)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["trace"], ("trace",)),
        (["+trace", "guards"], ("trace", "guards")),
        (["all"], tuple(_logs.CHANNELS)),
        (["+all", "-guards"], tuple(c for c in _logs.CHANNELS if c != "guards")),
        ([], ()),
    ],
)
def test_channel_names(names, expected) -> None:
    assert _logs.parse_channels(names) == expected


def test_set_logs_takes_names_and_switches() -> None:
    assert kintsugi.set_logs("trace") == ("trace",)
    assert kintsugi.set_logs(guards=True, trace=False) == ("guards",)
    assert kintsugi.set_logs(all=True) == tuple(_logs.CHANNELS)
    assert kintsugi.set_logs() == ()


def test_unknown_names_are_refused_with_the_list() -> None:
    for call in (lambda: kintsugi.set_logs("trce"), lambda: kintsugi.set_logs(trce=True)):
        with pytest.raises(ValueError, match="unknown log channel 'trce'. Did you mean 'trace'") as caught:
            call()
        for name in _logs.CHANNELS:
            assert name in str(caught.value)
    assert _logs.enabled() == ()


def test_every_channel_is_known_to_the_core() -> None:
    for name in _logs.CHANNELS:
        assert kintsugi.set_logs(name) == (name,)


def test_silent_by_default(capfd) -> None:
    run_both_ways()
    captured = capfd.readouterr()
    assert captured.out == "" and captured.err == ""


def test_trace_is_one_line_a_trace(capsys) -> None:
    kintsugi.set_logs("trace")
    run_both_ways()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert re.match(r"\[TRACE \d+ .*test_logs\.py:\d+.*\]", line), line


def test_recompiles_name_the_guard(capsys) -> None:
    kintsugi.set_logs("recompiles")
    run_both_ways()
    err = capsys.readouterr().err
    assert "KTG0201" in err and "test_logs.py" in err


def test_guards_and_graph_code(capsys) -> None:
    kintsugi.set_logs("guards", "graph_code")
    run_both_ways()
    err = capsys.readouterr().err
    assert "[GUARDS" in err and "aten.add.Tensor" in err


def test_effects_and_perf(capsys) -> None:
    seen: list[int] = []

    def counts(x):
        print("in counts")
        seen.append(x.dim())
        return x + 1

    kintsugi.set_logs("effects", "perf")
    kintsugi.compile(counts, backend="eager")(torch.ones(2))
    err = capsys.readouterr().err
    assert "[EFFECTS test_logs.py:" in err and "call" in err.split("[EFFECTS", 1)[1]
    assert re.search(r"\[PERF\] .*test_logs\.py:\d+ \(counts\) was recorded in \d+ us", err)


def test_graph_breaks_name_code_file_line(capsys) -> None:
    @kintsugi.disable(reason="because")
    def off(x):
        return x.sum()

    kintsugi.set_logs("graph_breaks")
    kintsugi.compile(lambda x: x * off(x), backend="eager")(torch.ones(2))
    err = capsys.readouterr().err
    assert "[GRAPH_BREAKS" in err and "KTG0107" in err and "because" in err and "test_logs.py:" in err


def test_lines_go_to_the_programs_own_handlers() -> None:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name} {record.getMessage()}")

    handler = Keep()
    logger = logging.getLogger("kintsugi.trace")
    logger.addHandler(handler)
    try:
        kintsugi.set_logs("trace")
        run_both_ways()
    finally:
        logger.removeHandler(handler)
    assert len(lines) == 2 and lines[0].startswith("kintsugi.trace [TRACE")


def test_turned_off_again(capsys) -> None:
    kintsugi.set_logs("all")
    kintsugi.set_logs()
    run_both_ways()
    assert capsys.readouterr().err == ""


def test_environment_variable() -> None:
    import os

    code = "import torch, kintsugi\nkintsugi.compile(lambda x: x + 1)(torch.ones(2))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "KINTSUGI_LOGS": "+trace"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and "[TRACE" in done.stderr
