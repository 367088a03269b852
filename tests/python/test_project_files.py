"""Files for people and services that stand beside the Makefile say what the Makefile and the package say."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from kintsugi import _requirements

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def recipe(target: str) -> list[str]:
    """The commands of a target."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None, target
    return [line.strip().removeprefix("@") for line in found.group(1).splitlines()]


@pytest.mark.parametrize("target", ["check-tree", "lint-cpp", "lint-python"])
def test_hooks_run_what_lint_runs(target: str) -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    for command in recipe(target):
        # Without the variables that name the tool's place, and without the list of files.
        words = [word for word in re.sub(r"\$\(\w+\)/?", " ", command).split() if word != "bin/"]
        text = " ".join(words).removeprefix("bin/")
        assert text and text in hooks, command


def pairs() -> list[str]:
    listed = subprocess.run(["scripts/pair.sh", "list"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


def test_the_gate_of_the_service_is_ours() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    wanted = re.search(r"exec make (.*)", (ROOT / ".ci" / "run").read_text()).group(1).split()
    for target in wanted:
        assert f"run: make {target}\n" in workflow


def test_versions_are_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == _requirements.VERSION
    oldest, newest = _requirements.PYTHONS[0], _requirements.PYTHONS[-1]
    assert project["requires-python"] == f">={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}"
    pythons = [f"{major}.{minor}" for major, minor in _requirements.PYTHONS]
    support = (ROOT / "docs" / "support.md").read_text()
    assert f"| Python | CPython {', '.join(pythons[:-1])} and {pythons[-1]} |" in support
    assert {pair.split("-")[0] for pair in pairs()} == set(pythons)
    assert f"The version is {_requirements.VERSION} today." in (ROOT / "SECURITY.md").read_text()


def test_every_feature_has_a_row_and_its_tests() -> None:
    page = (ROOT / "docs" / "internals" / "features.md").read_text()
    rows = dict(re.findall(r"^\| ([A-E]\d+) \| .*? \| (.*?) \| .*\|$", page, re.MULTILINE))
    counts = {"A": 21, "B": 8, "C": 12, "D": 9, "E": 10}
    assert list(rows) == [f"{letter}{k + 1}" for letter, count in counts.items() for k in range(count)]
    missing = []
    for row, tests in rows.items():
        names = re.findall(r"`([a-z_0-9]+\.py)(?:::(\w+))?`", tests)
        assert names or tests == "not there", row
        for file, function in names:
            path = ROOT / "tests" / "python" / file
            text = path.read_text() if path.exists() else ""
            found = text and (not function or f"def {function}(" in text)
            missing += [] if found else [f"{row}: {file}::{function}"]
    assert missing == []
