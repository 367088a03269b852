"""The event stream: what is in it, that it loses nothing, and what it costs."""

from __future__ import annotations

import os
import statistics
import threading
import time
import zlib

import pytest
import torch

import kintsugi
from kintsugi import _C, _logs, _profiler
from kintsugi._events import EventLog


def program(x, name):
    y = x + 1
    if y.sum() > 0:
        y = y * 2
    return y + zlib.crc32(name.encode()) % 3


def kinds(log: EventLog) -> list[str]:
    return [event.kind for event in log.events]


def test_off_by_default_and_off_again() -> None:
    assert not _C.events_on()
    with EventLog() as outer:
        assert _C.events_on()
        with EventLog():
            pass
        assert _C.events_on(), "another log is still open"
        assert outer.events == []
    assert not _C.events_on()


def test_a_call_is_recorded_then_replayed() -> None:
    compiled = kintsugi.compile(program, backend="eager")
    with EventLog() as log:
        for _ in range(3):
            compiled(torch.ones(3), "a")
    assert kinds(log) == ["record", "break", *["call", "opaque"] * 2]
    record, reason, call, opaque = log.events[:4]
    assert record.name == "recorded" and record.extra > 3 and record.duration_ns > 0
    assert reason.name == "KTG0101" and "crc32" in reason.text and reason.more
    assert record.start_ns <= reason.start_ns <= record.end_ns
    assert call.trace == record.trace > 0
    assert 0 < call.extra <= call.duration_ns, "the guards' share"
    assert opaque.name == "crc32" and call.start_ns <= opaque.start_ns and opaque.end_ns <= call.end_ns
    assert opaque.place[0] == __file__ and opaque.place[2] == "program"


def test_exits_side_traces_recompiles_and_evictions() -> None:
    compiled = kintsugi.compile(program, backend="eager", options={"recompile_limit": 1})
    with EventLog() as log:
        compiled(torch.ones(3), "a")
        compiled(-torch.ones(3) * 3, "a")
        compiled(torch.ones(4, dtype=torch.float64), "a")
    found = kinds(log)
    assert found.count("exit") == found.count("side_trace") == found.count("evict") == 1
    recompile = next(e for e in log if e.kind == "recompile")
    assert recompile.name and recompile.text and recompile.more and recompile.text != recompile.more
    exit = next(e for e in log if e.kind == "exit")
    side = next(e for e in log if e.kind == "side_trace")
    assert exit.place[1] == side.place[1] == program.__code__.co_firstlineno + 2
    assert side.name == str(exit.trace)


def test_an_exit_behind_a_step_says_which_guard() -> None:
    state = {"mode": "train"}

    @kintsugi.disable
    def step() -> None:
        pass

    def looks_behind(x: torch.Tensor) -> torch.Tensor:
        step()
        return x + 1 if state["mode"] == "train" else x - 1

    compiled = kintsugi.compile(looks_behind, backend="eager")
    with EventLog() as log:
        compiled(torch.ones(2))
        state["mode"] = "eval"
        compiled(torch.ones(2))
    exit = next(e for e in log if e.kind == "exit")
    assert "mode" in exit.name and "train" in exit.text and "eval" in exit.more


def test_sizes_that_vary_are_told_once() -> None:
    compiled = kintsugi.compile(lambda x, n: x * n, backend="eager")
    with EventLog() as log:
        for rows, number in ((2, 3.0), (3, 3.0), (4, 3.0), (4, 5.0), (6, 7.0)):
            compiled(torch.ones(rows, 5), number)
    found = [(e.name, e.text) for e in log if e.kind == "dynamic"]
    assert found == [("x", "size 0"), ("n", "value")]
    assert kinds(log).count("record") == 3, "and then no more"


def test_compilations_and_kernels_from_the_cache(tmp_path) -> None:
    def f(x):
        return torch.relu(x) * 3 + 1

    with kintsugi.config.patch(cache_dir=tmp_path):
        with EventLog() as log:
            for where in ("compiled", "memory", "disk"):
                if where == "disk":
                    kintsugi.clear_cache(disk=False)
                compiled = kintsugi.compile(f, backend="native")
                for _ in range(2):
                    compiled(torch.ones(4, 5))
                assert kintsugi.wait(60)
        compiles = [e for e in log if e.kind == "compile"]
        assert [e.name for e in compiles] == ["native"] * 3
        assert all(
            "operators became 1 kernels" in e.text and e.extra == 1 and e.duration_ns > 0 for e in compiles
        )
        call = next(e for e in log if e.kind == "call")
        assert all(e.thread != call.thread for e in compiles), "compiled in the background"
        assert [(e.name, e.extra) for e in log if e.kind == "cache_hit"] == [("memory", 1), ("disk", 1)]
    profile = _profiler.profile(log.events)
    assert profile.background_ms > 0 and profile.compile_ms == 0
    assert profile.cache_hits == {"memory": 1, "disk": 1}
    parts = profile.captured_ms + profile.guard_ms + profile.record_ms + profile.compile_ms + profile.break_ms
    assert parts == pytest.approx(profile.total_ms, rel=0.001), (
        "what runs in the background is no part of the calls"
    )


def test_fx_backends_are_named() -> None:
    compiled = kintsugi.compile(lambda x: x + 1, backend="aot_eager")
    with EventLog() as log:
        compiled(torch.ones(2))
        compiled(torch.ones(2))
    (event,) = [e for e in log if e.kind == "compile"]
    assert event.name == "aot_eager" and event.place[0] == __file__


def test_effects_and_modelled_steps() -> None:
    state = type("State", (), {})()

    def write(x):
        state.last = 3
        print("seen")
        return x + 1

    compiled = kintsugi.compile(write, backend="eager")
    compiled(torch.ones(2))
    with EventLog() as log:
        compiled(torch.ones(2))
    named = {(e.kind, e.name.split(".")[-1]) for e in log}
    assert ("effect", "last") in named and ("step", "print") in named


def test_eager_calls_say_why() -> None:
    @kintsugi.compile(backend="eager")
    def f(x):
        return x + 1

    import sys

    with EventLog() as log:
        sys.settrace(lambda frame, event, arg: None)
        try:
            f(torch.ones(2))
        finally:
            sys.settrace(None)
    assert [e.name for e in log if e.kind == "eager"] == ["sys.settrace or sys.setprofile is on"]


def test_exceptions_are_the_users_and_leave_events() -> None:
    def fails(x, n):
        y = x + 1
        return y[zlib.crc32(b"a") % 1 + n]

    compiled = kintsugi.compile(fails, backend="eager")
    with EventLog() as log:
        assert compiled(torch.ones(3), 1).shape == ()
        with pytest.raises(IndexError):
            compiled(torch.ones(3), 7)
        with pytest.raises(IndexError):
            compiled(torch.ones(3), 7)
    assert "record" in kinds(log)
    assert not _C.events_on()


def test_an_exception_while_recording_is_logged() -> None:
    def refuses(x):
        raise ValueError("never")

    lines: list[str] = []
    with _logs.collecting(lines), pytest.raises(ValueError, match="never"):
        kintsugi.compile(refuses, backend="eager")(torch.ones(2))
    (line,) = [line for line in lines if "KTG0111" in line]
    assert "exception ValueError left the function" in line and __file__ in line


@pytest.mark.skipif(bool(os.environ.get("KINTSUGI_EXT_DIR")), reason="a debug build aborts at a failed check")
def test_a_failed_check_of_ours_costs_nothing_but_speed() -> None:
    compiled = kintsugi.compile(program, backend="eager")
    _C._fail_at("recorder")
    x = torch.ones(3)
    with EventLog() as log:
        for _ in range(3):
            assert torch.equal(compiled(x, "a"), program(x, "a"))
    (reason,) = [e for e in log if e.kind == "break"]
    assert reason.name == "KTG0000" and "a failure that was asked for" in reason.text
    assert [b["code"] for b in compiled.breaks()] == ["KTG0000"]
    compiled.reset()
    compiled(x, "a")
    assert compiled.stats().trace_count == 1 and "KTG0000" not in str(compiled.breaks())


def test_a_full_ring_counts_what_it_loses() -> None:
    compiled = kintsugi.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(2))
    log = EventLog(capacity=16)

    def work() -> None:  # a thread of its own has a ring of its own
        for _ in range(100):
            compiled(torch.ones(2))

    with log:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(log.events) == 16 and log.dropped == 84


def test_the_limit_of_a_log_is_kept() -> None:
    compiled = kintsugi.compile(lambda x: x + 1, backend="eager")
    with EventLog(limit=5) as log:
        for _ in range(20):
            compiled(torch.ones(2))
    assert len(log.events) == 5 and log.dropped == 15


def test_threads_are_told_apart() -> None:
    compiled = kintsugi.compile(lambda x: x * 2, backend="eager")
    compiled(torch.ones(2))
    with EventLog() as log:
        threads = [
            threading.Thread(target=lambda: [compiled(torch.ones(2)) for _ in range(50)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert kinds(log).count("call") == 200
    assert len({e.thread for e in log}) == 4


def _per_call(compiled, x, calls: int = 2000) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        compiled(x)
    return (time.perf_counter() - start) / calls


@pytest.mark.slow
def test_off_costs_next_to_nothing() -> None:
    """The check that stands before every event, against a tiny call: at most 0.5 % (the issue's budget)."""
    compiled = kintsugi.compile(lambda x: x + 1, backend="eager")
    x = torch.ones(4)
    _per_call(compiled, x)
    call = min(_per_call(compiled, x, 200) for _ in range(50))
    stream, both = (
        min(_C.bench_events_off(1_000_000, profiler) for _ in range(5)) / 1e9 for profiler in (False, True)
    )
    print(
        f"a call {call * 1e9:.0f} ns; the stream's check {stream * 1e9:.2f} ns, {100 * stream / call:.3f} %; "
        f"with torch's profiler asked {both * 1e9:.2f} ns, {100 * both / call:.3f} %"
    )
    assert stream <= 0.005 * call
    assert both <= 0.01 * call


@pytest.mark.slow
def test_what_it_costs() -> None:
    """On: at most 5 % of a tiny call (the issue's budget), and a margin for the machine's noise."""
    compiled = kintsugi.compile(lambda x: x + 1, backend="eager")
    x = torch.ones(4)
    _per_call(compiled, x)
    off, on = [], []
    for _ in range(150):  # rounds shorter than a time slice: the best ones were not interrupted
        off.append(_per_call(compiled, x, 200))
        with EventLog():
            on.append(_per_call(compiled, x, 200))
    ratio = min(on) / min(off)
    print(
        f"off {statistics.median(off) * 1e9:.0f} ns, on {statistics.median(on) * 1e9:.0f} ns, best ratio {ratio:.3f}"
    )
    assert ratio < 1.15
