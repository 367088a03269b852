"""How long calls of a program take beside eager mode, from the first on, in windows of ten calls.

Each system has a child process for each repetition, and eager mode runs beside it there: both have an instance of the
program of their own, and make the k-th call in turn. Another instance runs before, in eager mode, so that what is
imported and filled when a program first runs is in no column. A call's time is the processor time of the calling
thread, which other work on the machine adds little to, and the median over the repetitions: what happens once goes,
and what belongs to the call (recording, compiling) stays.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from bench import measure
from bench.programs import Program, load
from bench.systems import EAGER, System

WINDOW = 10
WARM_CALLS = 3


@dataclasses.dataclass(frozen=True)
class Calls:
    """Seconds of each call in eager mode and of the system; `differs`: the first call whose result was another."""

    eager: list[float]
    system: list[float]
    differs: int | None
    counts: dict[str, int]


def differ(left: Any, right: Any) -> bool:
    """Are two results different, but for rounding?"""
    if type(left) is not type(right):
        return True
    if isinstance(left, torch.Tensor):
        return left.shape != right.shape or not torch.allclose(left, right, 1e-3, 1e-5, equal_nan=True)
    if isinstance(left, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) != math.isnan(right)
        return not math.isclose(left, right, rel_tol=1e-3, abs_tol=1e-5)
    if isinstance(left, (list, tuple)):
        return len(left) != len(right) or any(map(differ, left, right))
    if isinstance(left, Mapping):
        return list(left) != list(right) or any(differ(left[key], right[key]) for key in left)
    return bool(left != right)


def _timed(step: Callable[[int], Any], k: int) -> tuple[float, Any]:
    start = time.thread_time()
    result = step(k)
    return time.thread_time() - start, result


def one_run(program: Program, system: System, calls: int) -> Calls:
    """Makes the calls in this process."""
    compiled: list[Any] = []

    def compile_with(function: Any) -> Any:
        compiled.append(system.compile(function))
        return compiled[-1]

    warm_step = program.make(lambda function: function)
    for k in range(WARM_CALLS):
        warm_step(k)
    torch.manual_seed(0)
    eager_step = program.make(lambda function: function)
    torch.manual_seed(0)
    system_step = program.make(compile_with)
    result = Calls([], [], None, {})
    with measure.no_collection():
        for k in range(calls):
            turns = [(result.eager, eager_step), (result.system, system_step)]
            answers = {}
            for times, step in turns if k % 2 else reversed(turns):
                spent, answers[id(times)] = _timed(step, k)
                times.append(spent)
            if result.differs is None and differ(answers[id(result.eager)], answers[id(result.system)]):
                result = dataclasses.replace(result, differs=k)
    return dataclasses.replace(result, counts=system.counts(compiled[0]))


def summarize(runs: Sequence[Calls]) -> dict[str, Any]:
    """`first`: of the first call, times eager. `windows`: eager's time as a multiple of the system's, behind the tenth
    call. `steady`: the median of the last three windows."""
    eager = [statistics.median(times) for times in zip(*(run.eager for run in runs), strict=True)]
    system = [statistics.median(times) for times in zip(*(run.system for run in runs), strict=True)]
    windows = [
        sum(eager[at : at + WINDOW]) / sum(system[at : at + WINDOW])
        for at in range(WINDOW, len(eager) - WINDOW + 1, WINDOW)
    ]
    differs = [run.differs for run in runs if run.differs is not None]
    return {
        "eager_us": 1e6 * statistics.median(eager[WINDOW:]),
        "first": system[0] / eager[0],
        "first_ms": 1e3 * system[0],
        "early": sum(eager[1:WINDOW]) / sum(system[1:WINDOW]),
        "windows": windows,
        "worst": min(windows),
        "steady": statistics.median(windows[-3:]),
        "differs": min(differs, default=None),
        "counts": runs[-1].counts,
    }


def measure_program(
    name: str, systems: Sequence[System], calls: int, repeats: int, child: Callable[[Callable[[], Any]], Any]
) -> dict[str, Any]:
    """A row for each system but eager mode. `child` runs its argument in a process of its own and returns
    `{"rows": result}`, or says why there is none."""
    program = load()[name]
    if missing := program.missing():
        return {"failed": "skipped", "why": f"needs {', '.join(missing)}"}
    rows: dict[str, Any] = {}
    for system in systems:
        if system is EAGER:
            continue
        runs = []
        for _ in range(repeats):
            answer = child(lambda system=system: dataclasses.asdict(one_run(program, system, calls)))
            if "rows" not in answer:
                rows[system.name] = answer
                break
            runs.append(Calls(**answer["rows"]))
        else:
            rows[system.name] = summarize(runs)
    return {"group": program.group, "rows": rows}
