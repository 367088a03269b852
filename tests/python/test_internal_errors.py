"""A bug of ours, at each place where one is caught: the program gets eager's result and KTG0000, and whatever else is
compiled in the process stays so.

The places are calls of `faultPoint()` in csrc/; ALL_PLACES has each of them, which a test checks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kintsugi
from kintsugi import _C
from kintsugi._callable import core_of

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("KINTSUGI_EXT_DIR")), reason="a debug build aborts at a failed check"
)

ROOT = Path(__file__).parents[2]

# While a call is recorded, or before: the call is eager's.
PLACES = [
    "recorder",
    "enter",
    "step",
    "executed",
    "raised",
    "again",
    "caught",
    "left",
    "drain",
    "finish",
    "install",
    "side",
    "look-up",
    "learn",
    "conclude",
    "side exit",
]
# While a trace runs: the call is made again in eager mode if nothing has happened yet, and raises if something has.
RUNS = ["guard", "materialize", "exit"]
# Where code is made or run: the segment is left to replay.
NATIVE = ["native code", "kernel", "native run", "training run", "folded convolution", "tape"]
# Where a trace of another process is installed: it is not used.
ELSEWHERE = ["package"]
# Where the extension describes traces: a RuntimeError.
DESCRIBED = ["described"]
ALL_PLACES = PLACES + RUNS + NATIVE + ELSEWHERE + DESCRIBED
LATER = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]  # which of the times that the place is reached fails


def items(x: torch.Tensor) -> Any:
    for k in range(3):
        yield x * k


class Doubling:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __enter__(self) -> Doubling:
        self.x = self.x * 2
        return self

    def __exit__(self, *args: Any) -> bool:
        self.x = self.x + 1
        return True


def program(x: torch.Tensor, seen: list[Any]) -> tuple[Any, ...]:
    total = x.sum()
    for part in items(x):
        total = total + part.sum()
    if total > 10:
        seen.append("large")
        total = total * 2
    try:
        if x.shape[0] > 3:
            raise KeyError("long")
        total = total - 1
    except KeyError as error:
        seen.append(str(error))
    for at in (1, int(x.sum()) + 100):
        try:
            total = total + x.t()[at % 200].sum()
        except IndexError as error:
            seen.append(str(error))
    with Doubling(x) as doubled:
        seen.append(float(doubled.x[0]))
        raise ValueError("ended")
    rows = sorted([row.sum() for row in x], key=lambda row: -row)
    return total, doubled.x, rows, [k for k, row in enumerate(rows) if row > 1]


def outcomes(called: Callable[..., Any]) -> list[Any]:
    found = []
    for k in range(6):
        seen: list[Any] = []
        x = torch.arange(2.0 + 2 * k).reshape(1 + k, 2)
        total, doubled, rows, at = called(x, seen)
        found.append((total.tolist(), doubled.tolist(), [row.tolist() for row in rows], at, seen))
    return found


@dataclasses.dataclass
class Fault:
    """`failed`: has the check come to fail? Said when the block has ended."""

    failed: bool = False


@contextlib.contextmanager
def failing(place: str, after: int = 0) -> Iterator[Fault]:
    """A check fails at the place, once, after so many passes."""
    fault = Fault()
    _C._fail_at(place, after)
    try:
        yield fault
    finally:
        fault.failed = _C._has_failed()
        _C._fail_at("")


def codes(compiled: Any) -> list[str]:
    return [row["code"] for row in compiled.breaks()]


def test_the_table_has_every_place() -> None:
    found = {
        name
        for path in (ROOT / "csrc").rglob("*.cc")
        for name in re.findall(r'^\s*faultPoint\("([^"]+)"\)', path.read_text(), re.MULTILINE)
    }
    assert found == set(ALL_PLACES) and len(ALL_PLACES) == len(found)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("place", PLACES)
def test_costs_nothing_but_speed(place: str, backend: str) -> None:
    want = outcomes(program)
    reached = 0
    for after in LATER:
        compiled = kintsugi.compile(program, backend=backend)
        with failing(place, after) as fault:
            got = outcomes(compiled)
        assert got == want, (place, after)
        assert codes(compiled).count("KTG0000") == fault.failed, (place, after)
        other = kintsugi.compile(lambda x: x + 1, backend=backend)
        for _ in range(3):
            assert torch.equal(other(torch.ones(2)), torch.full((2,), 2.0))
        assert other.stats().trace_count == 1, (place, after)
        compiled.reset()
        assert outcomes(compiled) == want
        reached += fault.failed
    assert reached > 0, "nothing gets to this place"


def test_an_exception_of_the_program_is_passed_on() -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            raise LookupError("the program's own")
        return x

    for place in PLACES:
        compiled = kintsugi.compile(raises, backend="eager")
        with failing(place), pytest.raises(LookupError, match="the program's own"):
            compiled(torch.ones(2))


def pure(x: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
    y = (x * 2).sum(0)
    if y.sum() > 4:
        return y.exp(), [float(y.max()), 1.5]
    return y - 1, []


def pure_outcomes(called: Callable[..., Any]) -> list[Any]:
    found = []
    for k in (1.0, 2.0, 0.5, 3.0, -1.0, 2.5, 0.25, 4.0):
        y, numbers = called(torch.full((2, 3), k))
        found.append((y.tolist(), numbers))
    return found


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("place", RUNS)
def test_a_run_that_has_changed_nothing_is_repeated_in_eager_mode(place: str, observed: bool) -> None:
    watched = kintsugi.CompilationProfiler if observed else contextlib.nullcontext
    want = pure_outcomes(pure)
    reached = 0
    for after in LATER:
        compiled = kintsugi.compile(pure, backend="eager")
        with failing(place, after) as fault, watched():
            got = pure_outcomes(compiled)
        assert got == want, (place, after)
        assert codes(compiled).count("KTG0000") == fault.failed, (place, after)
        compiled.reset()
        assert pure_outcomes(compiled) == want and "KTG0000" not in codes(compiled)
        reached += fault.failed
    assert reached > 0, "nothing gets to this place"


@pytest.mark.parametrize("change", ["list", "tensor", "random"])
def test_a_run_that_has_changed_something_raises_and_is_not_repeated(change: str) -> None:
    def changes(x: torch.Tensor, seen: list[int], total: torch.Tensor) -> list[torch.Tensor]:
        if change == "list":
            seen.append(1)
        elif change == "tensor":
            total.add_(1)
        else:
            x = x + torch.rand(3)
        return [x + 1]

    raised = 0
    for after in range(6):
        compiled = kintsugi.compile(changes, backend="eager")
        seen: list[int] = []
        total = torch.zeros(())
        compiled(torch.ones(3), seen, total)
        compiled(torch.ones(3), seen, total)
        with failing("materialize", after) as fault:
            try:
                compiled(torch.ones(3), seen, total)
            except RuntimeError as error:
                assert re.match("kintsugi: KTG0000 .*a failure that was asked for", str(error))
                assert codes(compiled) == ["KTG0000"]
                raised += 1
        assert len(seen) <= 3 * (change == "list") and total.item() <= 3 * (change == "tensor")
        if not fault.failed:
            assert len(seen) == 3 * (change == "list") and total.item() == 3 * (change == "tensor")
        (out,) = compiled(torch.ones(3), seen, total)  # the trace is gone, the callable is not
        assert change == "random" or torch.equal(out, torch.full((3,), 2.0))
    assert raised > 0


def test_the_grad_mode_is_restored() -> None:
    @kintsugi.compile(backend="eager")
    def f(x: torch.Tensor) -> list[torch.Tensor]:
        with torch.no_grad():
            y = x * 2
            if y.sum() > 100:
                y = y + 1
        return [y * x]

    x = torch.ones(3, requires_grad=True)
    f(x), f(x)
    for after in range(4):
        with failing("guard", after):
            (out,) = f(x)
        assert out.requires_grad and torch.is_grad_enabled()
        f.reset()
        f(x)


@pytest.mark.parametrize("place", NATIVE)
def test_native_code_is_left_to_replay(place: str) -> None:
    training = place in ("training run", "tape")
    layers = torch.nn.Conv2d(3, 24, 3), torch.nn.BatchNorm2d(24), torch.nn.ReLU()
    convolutions = torch.nn.Sequential(*layers).eval().requires_grad_(False)

    def f(x: torch.Tensor) -> torch.Tensor:
        if place == "folded convolution":
            return convolutions(x)
        if place == "tape":
            return (torch.nn.functional.softplus(x * 2).exp() + x).sum()
        return ((x * 2).exp() + x).sum() if training else (x * 2).exp() + 0.123

    shape = (2, 3, 8, 8) if place == "folded convolution" else (64,)
    x = torch.linspace(0, 1, math.prod(shape)).reshape(shape).requires_grad_(training)
    kintsugi.clear_cache(disk=True)
    compiled = kintsugi.compile(f, backend="native", options={"sync": True})
    if place not in ("native code", "kernel"):
        compiled(x)
    with failing(place) as fault:
        for _ in range(3):
            got = compiled(x)
            torch.testing.assert_close(got, f(x))
            if training:
                (gradient,) = torch.autograd.grad(got, x)
                torch.testing.assert_close(gradient, torch.autograd.grad(f(x), x)[0])
    assert fault.failed
    assert codes(compiled) == ["KTG0000"]
    if place != "tape":  # of a backward, which is run by its operators from now on; the forward stays native
        assert compiled.stats().native_refused == 1
        assert torch.equal(compiled(x), f(x))  # by its operators
    compiled.reset()
    assert codes(compiled) == []
    torch.testing.assert_close(compiled(x), f(x))


def packed(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def test_a_trace_of_a_package_is_not_used(tmp_path: Path) -> None:
    x = torch.ones(3)
    first = kintsugi.compile(packed, backend="eager")
    first(x)
    assert kintsugi.package(first, tmp_path / "packed.kpkg").traces == 1
    first.reset()
    compiled = kintsugi.load_package(kintsugi.compile(packed, backend="eager"), tmp_path / "packed.kpkg")
    with failing("package") as fault:
        for _ in range(3):
            assert torch.equal(compiled(x), packed(x))
    assert fault.failed
    assert codes(compiled) == ["KTG0000"]
    assert compiled.stats().trace_count == 1  # recorded


def test_functions_of_the_extension_raise() -> None:
    compiled = kintsugi.compile(packed, backend="eager")
    compiled(torch.ones(3))
    said = r"^kintsugi: KTG0000 a failure that was asked for \(described\)"
    with failing("described"), pytest.raises(RuntimeError, match=said):
        core_of(compiled)._segments()


@pytest.mark.parametrize("place", ["recorder", "install", "native code", "guard", "look-up"])
def test_debugging_aborts_with_the_place(place: str) -> None:
    program = f"""
import torch, kintsugi
from kintsugi import _C

@kintsugi.compile(backend="native", options={{"sync": True}})
def f(x):
    return x.sum() + 1 if x.sum() > 0 else x

_C._fail_at({place!r})
for _ in range(3):
    f(torch.ones(3))
print("went on")
"""
    env = {**os.environ, "KINTSUGI_VERIFY": "abort"}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=300
    )
    assert ran.returncode == -signal.SIGABRT, ran.stderr
    assert f"kintsugi: a failure that was asked for ({place})" in ran.stderr
    assert "went on" not in ran.stdout
