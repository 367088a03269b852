"""A few of the generated programs (tests/fuzz/programs.py); `make fuzz` runs as many as there is time for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fuzz"))

import programs

BATCH = 20


@pytest.mark.parametrize("batch", range(15))
def test_programs_equal_eager(batch: int) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        source = programs.Generator(seed).generate()
        difference = programs.compare(source, f"program_{seed}", calls=4).problem
        assert difference is None, f"seed {seed}: {difference}\n{source}"


@pytest.mark.parametrize("seed", range(5000, 5012))
def test_every_guard_may_fail(seed: int) -> None:
    source = programs.Generator(seed).generate()
    found = programs.compare(source, f"program_{seed}", calls=6, stress=True)
    assert found.problem is None, f"seed {seed}: {found.problem}\n{source}"
    assert found.met or not found.guards, "no guard was asked when it was forced to fail"
