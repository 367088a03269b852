"""Some of the generated programs (tests/fuzz/programs.py), a sample of them in `make test`.

`make test-long` runs all that are named here, `make fuzz` as many as there is time for.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fuzz"))

import program_reduction
import programs

BATCH = 20
LONG = pytest.mark.long


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For programs that read and write files. Programs set flags of torch.backends, which torch's own tests, once they
    are imported, let nobody set."""
    monkeypatch.setenv("GENERATED_FOLDER", str(tmp_path))
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
    programs.warm_up()


# The sample has replay, what ships, and the same with wait() between the calls (programs.backend_of).
@pytest.mark.parametrize("batch", [k if k in (1, 4) else pytest.param(k, marks=LONG) for k in range(15)])
def test_programs_equal_eager(batch: int) -> None:
    """By replay, and in the configuration that ships: see programs.backend_of."""
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        backend = programs.backend_of(seed)
        program = programs.Program.generated(seed, programs.CALLS[backend])
        problem = programs.compare(program, backend).problem
        different = problem not in (None, programs.ILL_CONDITIONED)
        assert not different, f"seed {seed}, {backend}: {problem}\n{program.source}"


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(5003, 5006), id="sample"),
        pytest.param(range(5000, 5012), id="all", marks=LONG),
    ],
)
def test_every_guard_may_fail(seeds: range) -> None:
    guards = met = 0
    for seed in seeds:
        program = programs.Program.generated(seed, programs.CALLS["replay"])
        found = programs.compare(program, stress=True, most_guards=40)
        assert found.problem is None, f"seed {seed}: {found.problem}\n{program.source}"
        guards, met = guards + found.guards, met + found.met
    assert met > guards / 4, f"calls came to {met} of {guards} guards"  # not every trace is run again


def test_programs_are_reduced_and_read_again() -> None:
    """A program that fails is cut down to the statement, the call and the part of the prelude that it takes."""
    program = programs.Program.generated(31, 4)
    wrong = program.source.replace(
        "    global COUNT\n", "    global COUNT\n    log.append(Countdown(3))\n", 1
    )

    def fails(smaller: programs.Program) -> bool:
        return "Countdown(3)" in smaller.source and "class Countdown" in smaller.prelude

    started = dataclasses.replace(program, source=wrong)
    small = program_reduction.Reduction(started, fails, seconds=60).run()
    function = ast.parse(small.source).body[0]
    assert small.calls == () and "Box" not in small.prelude
    assert isinstance(function, ast.FunctionDef) and len(function.body) == 1
    again, settings = programs.Program.read(small.text(backend="replay"))
    assert (again.seed, again.source, again.calls) == (31, small.source, ()) and settings == {
        "backend": "replay"
    }
    assert "class Countdown" in again.prelude
