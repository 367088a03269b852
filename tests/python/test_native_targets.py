"""Machine code for each level of vector instructions that the machine has: `KINTSUGI_TARGET`, and what doctor says."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import torch
from native_harness import assert_values, native

import kintsugi
from kintsugi import _C

HERE = pathlib.Path(__file__).parent
LEVELS = _C.target_levels()
MACHINE = _C.target_info()["machine"]


def child(level: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process whose code is for no more than a level, with its own cache of kernels off."""
    paths = [str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "KINTSUGI_TARGET": level,
        "KINTSUGI_DISK_CACHE_LIMIT": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def at_most(level: str) -> str:
    return LEVELS[min(LEVELS.index(level), LEVELS.index(MACHINE))]


@pytest.mark.parametrize("level", LEVELS)
def test_kernels_of_every_kind(level: str) -> None:
    done = child(level, str(HERE / "target_programs.py"), level)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == [at_most(level)]


@pytest.mark.parametrize("level", LEVELS)
def test_stated_accuracy(level: str) -> None:
    """csrc/ops/operators.def states one bound for all levels, those without fma included."""
    if at_most(level) == MACHINE and level != MACHINE:
        pytest.skip(f"this machine has no {level}")
    if level == MACHINE:
        pytest.skip("test_native_accuracy.py runs it")
    file = HERE / "test_native_accuracy.py"
    done = child(level, "-m", "pytest", "-q", "-x", "-k", "float32", "-p", "no:cacheprovider", str(file))
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_setting_counts_from_then_on() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 3 - 1

    x = torch.randn(100)
    wanted = program(x)
    for level in (*LEVELS, "native"):
        with kintsugi.config.patch(target=level):
            assert _C.target_info()["level"] == (MACHINE if level == "native" else at_most(level))
            kintsugi.clear_cache()
            compiled = native(program)
            for _ in range(2):
                assert_values(compiled(x), wanted)
            assert kintsugi.cache_info().compiled >= 1
    assert _C.target_info()["level"] == MACHINE


def test_kernels_of_different_targets_are_kept_apart() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x) + 2

    kintsugi.clear_cache()
    x = torch.randn(64)
    smaller = LEVELS[: LEVELS.index(MACHINE) + 1]
    for count, level in enumerate(smaller, 1):
        with kintsugi.config.patch(target=level):
            native(program)(x)
            native(program)(x)
            assert kintsugi.cache_info().kernels == count


def test_a_name_that_no_level_has() -> None:
    done = child("avx3", "-c", "import kintsugi")
    assert done.returncode != 0
    names = ", ".join(map(repr, ["native", *LEVELS][:-1]))
    assert f"KINTSUGI_TARGET=avx3 in the environment: expected {names} or {LEVELS[-1]!r}" in done.stderr
    with pytest.raises(ValueError, match="kintsugi.config.target: expected 'native'"):
        kintsugi.config.target = "fast"


def test_doctor_shows_the_target() -> None:
    done = child(LEVELS[0], "-m", "kintsugi.cli", "doctor")
    line = next(line for line in done.stdout.splitlines() if line.startswith("target"))
    assert LEVELS[0] in line and "registers" in line
    if MACHINE != LEVELS[0]:
        assert f"the machine has {MACHINE}" in done.stdout.replace("\n", " ")
