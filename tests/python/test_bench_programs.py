"""The programs of `bench/programs`: compiled, each gives what it gives in eager mode, call by call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kintsugi
from bench import programs
from bench.programs import windows
from bench.programs.table import summarize_programs
from bench.systems import EAGER

PROGRAMS = programs.load()


@pytest.fixture(autouse=True)
def _as_it_ships(_fresh_state: None) -> Any:
    """Whether a function is left to eager mode is decided by time, which is no matter of results."""
    with kintsugi.config.patch(eager_when_faster=True):
        yield


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs_give_what_they_give_in_eager_mode(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    if missing := program.missing():
        pytest.skip(f"needs {', '.join(missing)}")
    torch.manual_seed(0)
    expected = program.make(lambda function: function)
    torch.manual_seed(0)
    actual = program.make(lambda function: kintsugi.compile(function, backend=backend))
    for k in range(14):
        if k == 6:
            kintsugi.wait()
        want, got = expected(k), actual(k)
        assert not windows.differ(want, got), (k, want, got)


def test_there_are_sixty() -> None:
    assert len(PROGRAMS) >= 60


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="two programs are called words"):
        for _ in range(2):

            @programs.program
            def words(compile: Any) -> Any:
                return compile

    del PROGRAMS["words"]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1.0, 1.0000001, False),
        (1.0, 1.1, True),
        (1, 1.0, True),
        (float("nan"), float("nan"), False),
        (float("nan"), 1.0, True),
        (1.0, float("nan"), True),
        (float("inf"), float("-inf"), True),
        ([1.0, "a"], [1.0, "a"], False),
        ([1.0], [1.0, 2.0], True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (torch.ones(2), torch.ones(1, 2), True),
        (torch.ones(2), torch.ones(2) + 1e-7, False),
        (torch.tensor([float("nan")]), torch.tensor([1.0]), True),
    ],
)
def test_results_that_differ(left: Any, right: Any, expected: bool) -> None:
    assert windows.differ(left, right) is expected


def test_windows_are_medians_over_runs() -> None:
    quick = windows.Calls([1e-3] * 30, [2e-3] + [0.5e-3] * 29, None, {})
    disturbed = windows.Calls([1e-3] * 30, [9e-3] + [0.5e-3] * 28 + [80e-3], None, {})
    slow = windows.Calls([1e-3] * 30, [4e-3] * 30, 7, {})
    row = windows.summarize([quick, disturbed, quick])
    assert row["first"] == pytest.approx(2)
    assert row["windows"] == pytest.approx([2, 2])
    assert row["differs"] is None
    row = windows.summarize([slow])
    assert row["worst"] == pytest.approx(0.25)
    assert row["differs"] == 7


def test_figures_that_fall_short_are_named() -> None:
    row = windows.summarize([windows.Calls([1e-3] * 30, [9e-3] * 30, 3, {})])
    found: dict[str, Any] = {}

    def add(name: str, value: float, goal: float, at_most: bool, short: list[str]) -> None:
        found[name] = (value > goal if at_most else value < goal, short)

    summarize_programs({"programs": {"p": {"rows": {"kintsugi": row}}}}, add)
    assert all(missed for missed, _ in found.values())
    assert all(short[0].startswith("p") for _, short in found.values())


def test_a_run_of_eager_mode_beside_itself() -> None:
    result = windows.one_run(PROGRAMS["word-lengths"], EAGER, 12)
    assert (len(result.eager), len(result.system), result.differs) == (12, 12, None)


def test_what_is_missing_is_said() -> None:
    made = programs.Program("p", "g", lambda compile: compile, ("no_such_package",))
    assert made.missing() == ["no_such_package"]
