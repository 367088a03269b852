"""The recursion limit, and trace and profile functions: as in eager mode, whether there are traces or not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

import kintsugi

BACKENDS = pytest.mark.parametrize("backend", ["eager", "native"])

DEPTH = """
import sys, torch, kintsugi
backend, shape, limit, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
deepest = 0
def body(x, n):
    global deepest
    deepest = max(deepest, n)
    return x if n >= wanted else name(x + 1, n + 1)
class Module(torch.nn.Module):
    def forward(self, x, n):
        return body(x, n)
class Object:
    def method(self, x, n):
        return body(x, n)
class Called:
    def __call__(self, x, n):
        return body(x, n)
original = {"function": body, "module": Module(), "method": Object().method, "object": Called()}[shape]
def measure(called):
    global name, deepest
    name, seen = called, []
    for _ in range(4):
        deepest = 0
        try:
            result = called(torch.zeros(1), 0).item()
        except RecursionError:
            result = "RecursionError"
        seen.append((deepest, result))
    return seen
sys.setrecursionlimit(limit)
print(measure(original))
print(measure(kintsugi.compile(original, backend=backend)))
"""


def depths(*arguments: object) -> tuple[list[Any], list[Any]]:
    done = subprocess.run(
        [sys.executable, "-c", DEPTH, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    eager, ours = map(eval, done.stdout.splitlines())
    return eager, ours


@BACKENDS
@pytest.mark.parametrize("shape", ["function", "module", "method", "object"])
def test_recursion_through_a_compiled_name_comes_as_deep(backend: str, shape: str) -> None:
    eager, ours = depths(backend, shape, 1000, 10**6)
    for (wanted, error), (reached, other) in zip(eager, ours, strict=True):
        assert error == other == "RecursionError"
        assert reached >= wanted
        # CPython's slot of `__call__` takes a level of its own, which a compiled module or object does without: four
        # levels where a module takes five, two where an object takes three.
        assert reached <= wanted * (1 if shape in ("function", "method") else 1.5) + 5


# CPython 3.12.1 allows 1,500 levels of C code, whatever the limit is. A call in a recording, or by a compiled name, is
# two of them.
C_LEVELS = 700 if sys.version_info[:2] == (3, 12) else None


@BACKENDS
@pytest.mark.parametrize(
    ("limit", "wanted"), [(1000, 900), (200, 150), (3000, 2000 if C_LEVELS is None else C_LEVELS)]
)
def test_what_ends_in_time_ends(backend: str, limit: int, wanted: int) -> None:
    eager, ours = depths(backend, "function", limit, wanted)
    assert eager == ours == [(wanted, float(wanted))] * 4


@pytest.mark.parametrize("limit", [10**5, 10**6])
def test_a_limit_beyond_the_c_stack_is_no_crash(limit: int) -> None:
    _, ours = depths("eager", "function", limit, limit // 2)
    for reached, result in ours:
        assert result == "RecursionError" and reached > (C_LEVELS or 3000) or result == reached


@BACKENDS
def test_a_limit_that_is_lowered_is_obeyed(backend: str) -> None:
    def deep(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else deep(x + 1, n - 1)

    compiled = kintsugi.compile(deep, backend=backend)
    for _ in range(4):
        assert compiled(torch.zeros(1), 300).item() == 300
    hits = compiled.stats().hits
    before = sys.getrecursionlimit()
    frames = 0
    frame = sys._getframe()
    while frame is not None:
        frames, frame = frames + 1, frame.f_back  # type: ignore[assignment]
    try:
        sys.setrecursionlimit(frames + 200)
        for call in (deep, compiled):
            with pytest.raises(RecursionError):
                call(torch.zeros(1), 300)
        assert compiled(torch.zeros(1), 20).item() == 20
    finally:
        sys.setrecursionlimit(before)
    assert compiled(torch.zeros(1), 300).item() == 300
    assert compiled.stats().hits > hits


def test_steps_see_the_frames_of_the_trace() -> None:
    """A step that recurses comes as deep as below the frames that the trace stands for."""

    @kintsugi.disable
    def down(n: int = 0) -> int:
        try:
            return down(n + 1)
        except RecursionError:
            return n

    def inner(x: torch.Tensor, k: int) -> int:
        return down() if k == 0 else inner(x, k - 1)

    def f(x: torch.Tensor) -> int:
        return inner(x * 2, 100)

    compiled = kintsugi.compile(f, backend="eager")
    wanted = f(torch.ones(1))
    reached = [compiled(torch.ones(1)) for _ in range(5)]
    assert all(abs(depth - wanted) <= 4 for depth in reached[0 if C_LEVELS is None else 1 :])
    assert compiled.stats().hits >= 2


def body(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return y + 1


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return body(x)


@BACKENDS
@pytest.mark.parametrize("what", ["function", "module"])
@pytest.mark.parametrize("switch", ["settrace", "setprofile"])
def test_tracers_see_the_program_when_there_is_a_trace(switch: str, what: str, backend: str) -> None:
    compiled = kintsugi.compile(body if what == "function" else Net(), backend=backend)
    x = torch.ones(3)
    for _ in range(4):
        compiled(x)
    stats = compiled.stats()
    lines: list[tuple[str, int]] = []

    def tracer(frame: Any, event: str, argument: object) -> Any:
        if frame.f_code is body.__code__:
            lines.append((event, frame.f_lineno - body.__code__.co_firstlineno))
        return tracer

    getattr(sys, switch)(tracer)
    try:
        result = compiled(x)
    finally:
        getattr(sys, switch)(None)
    assert torch.equal(result, x * 2 + 1)
    if switch == "settrace":
        assert lines == [("call", 0), ("line", 1), ("line", 2), ("return", 2)]
    else:
        assert lines == [("call", 0), ("return", 2)]
    assert compiled.stats().hits == stats.hits
    compiled(x)
    assert compiled.stats().hits == stats.hits + 1


def later(x: torch.Tensor) -> torch.Tensor:
    return x - 1


def test_a_tracer_that_a_step_sets_sees_what_follows() -> None:
    seen: list[str] = []
    on = [False]

    def tracer(frame: Any, event: str, argument: object) -> None:
        if event == "call":
            seen.append(frame.f_code.co_name)

    @kintsugi.disable
    def maybe() -> None:
        if on[0]:
            sys.settrace(tracer)

    def f(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        maybe()
        return later(x + 1)

    compiled = kintsugi.compile(f, backend="eager")
    x = torch.ones(3)
    for _ in range(4):
        compiled(x)
    results = []
    for call in (f, compiled):
        seen.clear()
        on[0] = True
        try:
            value = call(x)
        finally:
            sys.settrace(None)
            on[0] = False
        results.append((value.tolist(), [name for name in seen if name == "later"]))
    assert results[0] == results[1] == ([2.0, 2.0, 2.0], ["later"])


def test_a_debugger_stops_in_the_function() -> None:
    import bdb

    class Stops(bdb.Bdb):
        def __init__(self) -> None:
            super().__init__()
            self.lines: list[int] = []

        def user_line(self, frame: Any) -> None:
            if frame.f_code is body.__code__:
                self.lines.append(frame.f_lineno - body.__code__.co_firstlineno)

    compiled = kintsugi.compile(body, backend="eager")
    for _ in range(4):
        compiled(torch.ones(2))
    debugger = Stops()
    debugger.runcall(compiled, torch.ones(2))
    assert debugger.lines == [1, 2]
