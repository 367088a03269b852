"""Calls that take longer along their traces than in eager mode are left to eager mode, and only those."""

from __future__ import annotations

import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kintsugi

BACKENDS = ("eager", "native")


@pytest.fixture(autouse=True)
def _as_it_ships(_fresh_state: None) -> Iterator[None]:
    with kintsugi.config.patch(eager_when_faster=True):
        yield


def of_lines(path: pathlib.Path) -> Callable[[torch.Tensor], torch.Tensor]:
    """Python's work, in steps that are not looked into."""
    path.write_text("1,22,333\n" * 200)

    def f(x: torch.Tensor) -> torch.Tensor:
        lengths = [[len(part) for part in line.strip().split(",")] for line in open(path)]
        return x + torch.tensor(lengths).sum()

    return f


def raising(x: torch.Tensor) -> torch.Tensor:
    y = x * 2 * 3 * 4 * 5
    raise ValueError(y.shape)


def outcome(f: Callable[..., Any], *args: Any) -> Any:
    try:
        return f(*args)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("backend", BACKENDS)
def test_steps_that_cost_more_than_they_save(backend: str, tmp_path: pathlib.Path) -> None:
    f = of_lines(tmp_path / "lines")
    compiled = kintsugi.compile(f, backend=backend)
    for k in range(40):
        x = torch.full((3,), float(k))
        assert torch.equal(compiled(x), f(x))
    assert compiled.stats().left_to_eager == 1
    hits = compiled.stats().hits
    assert hits <= 20
    compiled(torch.ones(3))
    assert compiled.stats().hits == hits


@pytest.mark.parametrize("backend", BACKENDS)
def test_exceptions_that_leave_the_function(backend: str) -> None:
    """Such a call makes no trace. Few are recorded: they are compared with eager mode, or wait until they are paid."""
    compiled = kintsugi.compile(raising, backend=backend)
    with kintsugi.CompilationProfiler() as profiler:
        for _ in range(60):
            assert outcome(compiled, torch.ones(3)) == outcome(raising, torch.ones(3))
    assert 2 <= profiler.profile().recordings <= 15


@pytest.mark.parametrize("backend", BACKENDS)
def test_plain_graphs_are_not_compared(backend: str) -> None:
    compiled = kintsugi.compile(lambda x: (x * 2 + 1).relu(), backend=backend)
    for _ in range(40):
        compiled(torch.ones(3))
    assert compiled.stats().hits == 39
    assert compiled.stats().left_to_eager == 0


def test_steps_that_pay_stay(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(300):
            x = x + 1
        print("half")
        for _ in range(300):
            x = x * 0.5
        return x

    compiled = kintsugi.compile(f)
    for _ in range(60):
        compiled(torch.ones(3))
    assert compiled.stats().left_to_eager == 0
    assert capsys.readouterr().out == "half\n" * 60  # none runs twice, none is lost


def test_what_must_not_leave_its_traces(tmp_path: pathlib.Path) -> None:
    graphs = 0

    def backend(module: Any, _inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            nonlocal graphs
            graphs += 1
            return module(*args)

        return run

    f = of_lines(tmp_path / "lines")
    through_backend = kintsugi.compile(f, backend=backend)
    off = kintsugi.compile(f)
    for _ in range(20):
        through_backend(torch.ones(3))
        with kintsugi.config.patch(eager_when_faster=False):
            off(torch.ones(3))
    assert graphs >= 15
    assert through_backend.stats().left_to_eager == 0
    assert off.stats().left_to_eager == 0
    whole = kintsugi.compile(lambda x: x.relu() + x.sum().item(), fullgraph=True)
    for _ in range(40):
        whole(torch.ones(3))
    assert whole.stats().hits == 39


def test_breaks_that_are_errors_are_found_in_eager_mode_too(tmp_path: pathlib.Path) -> None:
    compiled = kintsugi.compile(of_lines(tmp_path / "lines"))
    for _ in range(30):
        compiled(torch.ones(3))
    assert compiled.stats().left_to_eager == 1
    before = compiled.stats().hits
    with kintsugi.error_on_graph_break(True):
        compiled(torch.ones(3))  # its trace is there, and has been recorded before breaks were errors
    assert compiled.stats().hits == before + 1


def test_reset_begins_anew(tmp_path: pathlib.Path) -> None:
    compiled = kintsugi.compile(of_lines(tmp_path / "lines"))
    for _ in range(30):
        compiled(torch.ones(3))
    compiled.reset()
    assert compiled.stats().left_to_eager == 0
    compiled(torch.ones(3))
    compiled(torch.ones(3))
    assert compiled.stats().hits >= 1


def test_the_log_says_so(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    kintsugi.set_logs(perf=True)
    try:
        compiled = kintsugi.compile(of_lines(tmp_path / "lines"))
        for _ in range(30):
            compiled(torch.ones(3))
    finally:
        kintsugi.set_logs()
    assert "KTG0114 left-to-eager" in capfd.readouterr().err


def test_many_threads(tmp_path: pathlib.Path) -> None:
    f = of_lines(tmp_path / "lines")
    compiled = kintsugi.compile(f)
    wrong = []

    def work(seed: int) -> None:
        for k in range(40):
            x = torch.full((3,), float(seed * 100 + k))
            if not torch.equal(compiled(x), f(x)):
                wrong.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_recursion_within_a_compared_call() -> None:
    def f(x: torch.Tensor, depth: int) -> torch.Tensor:
        if depth == 0:
            return x + len(sorted(set("".join(map(str, range(300))))))
        return compiled(x, depth - 1) * 2

    compiled = kintsugi.compile(f)
    for k in range(40):
        x = torch.full((3,), float(k))
        assert torch.equal(compiled(x, 4), (x + 10) * 16)


def texts() -> Callable[[str, torch.Tensor], torch.Tensor]:
    """Each text is a way of its own: what is recorded of one call fits no other."""

    def f(text: str, x: torch.Tensor) -> torch.Tensor:
        for word in text.split():
            if word in ("ab", "ba", "abba", "baab"):
                x = x + len(word)
        return x

    return f


def recorded(stats: kintsugi.Stats) -> int:
    return stats.trace_count + stats.side_traces


def varied(k: int) -> str:
    return " ".join("ab" if k >> bit & 1 else "ba" * (bit % 3) for bit in range(8))


@pytest.mark.parametrize("backend", BACKENDS)
def test_recordings_are_paid_from_the_time_that_goes_by(backend: str) -> None:
    f = texts()
    compiled = kintsugi.compile(f, backend=backend)
    start = time.perf_counter()
    for k in range(200):
        x = torch.full((3,), float(k))
        assert torch.equal(compiled(varied(k), x), f(varied(k), x))
    elapsed = time.perf_counter() - start
    stats = compiled.stats()
    # A recording takes a tenth of a millisecond at the least, of which a twentieth of the time is left.
    assert 2 <= recorded(stats) <= 5 + elapsed / 20 / 1e-4
    with kintsugi.config.patch(eager_when_faster=False):
        for k in range(200, 206):
            compiled(varied(k), torch.ones(3))
        assert recorded(compiled.stats()) >= recorded(stats) + 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_traces_that_are_missing_are_not_looked_for(backend: str) -> None:
    """Each call is another one, and recordings have taken their share: most calls do not even look for a trace."""
    f = texts()
    compiled = kintsugi.compile(f, backend=backend)
    for k in range(200):
        x = torch.full((3,), float(k))
        assert torch.equal(compiled(varied(k), x), f(varied(k), x))
    stats = compiled.stats()
    assert stats.hits + stats.misses <= 80


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_go_where_they_are_faster_while_they_are_compared(backend: str, tmp_path: pathlib.Path) -> None:
    compiled = kintsugi.compile(of_lines(tmp_path / "lines"), backend=backend)
    for _ in range(12):
        compiled(torch.ones(3))
    before = compiled.stats().hits
    for _ in range(60):
        compiled(torch.ones(3))
    assert compiled.stats().hits - before <= 12


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_operators_pay_for_their_recordings(backend: str) -> None:
    """The fourth size of a model is recorded soon: the recording takes little longer than the call."""
    weight = torch.randn(700, 700)

    def f(x: torch.Tensor, way: str) -> torch.Tensor:
        for _ in range(4):
            x = (x @ weight).relu()
        return x + len(way)

    compiled = kintsugi.compile(f, backend=backend)
    x = torch.ones(700, 700)
    ways = ["a", "bb", "ccc", "dddd"]
    for k in range(20):
        compiled(x, ways[k % 4])
    assert compiled.stats().trace_count == 4


def test_reset_forgets_what_recordings_have_taken() -> None:
    f = texts()
    compiled = kintsugi.compile(f, backend="eager")
    for k in range(20):
        compiled(varied(k), torch.ones(3))
    compiled.reset()
    for k in range(2):
        compiled(varied(2 * k + 1), torch.ones(3))
    assert recorded(compiled.stats()) >= 2
