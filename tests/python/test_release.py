"""The scripts that make and try wheels (scripts/wheels.py, scripts/wheel_test.py), without building anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from script_loader import load

ROOT = Path(__file__).resolve().parents[2]


wheels = load("wheels")
wheel_test = load("wheel_test")


def stage(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_what_two_pairs_have_is_packed_once(tmp_path: Path) -> None:
    first = stage(tmp_path / "a", {"kintsugi/core.so": "core", "kintsugi/torch213/_C.so": "one"})
    second = stage(tmp_path / "b", {"kintsugi/core.so": "core", "kintsugi/torch214/_C.so": "two"})
    wheels.merge([first, second], tmp_path / "out")
    root = tmp_path / "out" / "kintsugi"
    found = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.so")}
    assert found == {"core.so": "core", "torch213/_C.so": "one", "torch214/_C.so": "two"}


def test_pairs_that_differ_where_they_should_not_are_no_wheel(tmp_path: Path) -> None:
    first = stage(tmp_path / "a", {"kintsugi/core.so": "core"})
    second = stage(tmp_path / "b", {"kintsugi/core.so": "another"})
    with pytest.raises(SystemExit, match="should be the same"):
        wheels.merge([first, second], tmp_path / "out")


def test_the_readme_has_a_program_that_runs(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(wheel_test.program())
    environment = {**os.environ, "KINTSUGI_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=240, env=environment
    )
    assert done.returncode == 0 and "graph_count=1" in done.stdout, done.stderr


@pytest.mark.parametrize("name", ["wheels", "wheel_sources"])
def test_what_builds_wheels_is_pinned(name: str) -> None:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().replace("\\\n", " ").splitlines()
    wanted = [line for line in lines if line and not line.startswith(("#", "-r"))]
    assert wanted and all(
        re.match(r"[\w.-]+==[\w.]+(\s+--hash=sha256:[0-9a-f]{64})+$", line) for line in wanted
    )


def test_every_row_of_the_list_of_parts_says_what_it_is() -> None:
    rows = tomllib.loads((ROOT / "licenses" / "third_party.toml").read_text())["library"]
    for row in rows:
        assert re.fullmatch(r"(generic|pypi)/[\w-]+", row["package"]), row
        assert isinstance(row["version"], str) or all(isinstance(part, str) for part in row["version"]), row
