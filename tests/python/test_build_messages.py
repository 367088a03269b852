"""What configuring a build says when something is missing; `pip install .` shows it as well."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import nanobind
import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent
CMAKE, NINJA = (
    shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}") for name in ("cmake", "ninja")
)
COMPILER = shutil.which(os.environ.get("CXX", "c++"))

pytestmark = pytest.mark.skipif(not (CMAKE and NINJA and COMPILER), reason="there is nothing to build with")


def configured(folder: Path, **settings: str) -> str:
    """What CMake writes when it refuses, as one line."""
    assert CMAKE and NINJA and COMPILER
    settings = {
        "CMAKE_MAKE_PROGRAM": NINJA,
        "CMAKE_CXX_COMPILER": COMPILER,
        "KINTSUGI_TESTS": "OFF",
    } | settings
    done = subprocess.run(
        [
            CMAKE,
            "-S",
            ROOT,
            "-B",
            folder,
            "-G",
            "Ninja",
            *(f"-D{name}={value}" for name, value in settings.items()),
        ],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode != 0, done.stdout
    return " ".join(done.stderr.split())


def test_a_library_of_llvm_is_missed_before_anything_is_compiled(tmp_path: Path) -> None:
    text = configured(
        tmp_path,
        KINTSUGI_EXTENSION="OFF",
        CMAKE_FIND_USE_CMAKE_SYSTEM_PATH="OFF",
        CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH="OFF",
    )
    assert "libz, which LLVM asks for, is missing: install the package zlib1g-dev." in text


def test_another_llvm_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "llvm-config"
    other.write_text("#!/bin/sh\necho 14.0.6\n")
    other.chmod(0o755)
    text = configured(tmp_path / "build", KINTSUGI_EXTENSION="OFF", KINTSUGI_LLVM_CONFIG=str(other))
    assert "Kintsugi needs LLVM 19, found 14.0.6: install the package llvm-19-dev." in text


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    text = configured(tmp_path, Python_EXECUTABLE=str(tmp_path / "python"))
    assert "CPython 3.11 or newer is missing." in text


def test_a_python_without_what_builds(tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / "bin" / "python"
    text = configured(tmp_path / "build", Python_EXECUTABLE=str(python))
    assert f"nanobind is missing from {python}: pip install nanobind." in text


def test_a_torch_that_is_in_no_pair(tmp_path: Path) -> None:
    """The environment has what builds, and a folder that says it is another torch."""
    venv.create(tmp_path / "other", with_pip=False)
    (packages,) = (tmp_path / "other").glob("lib/python*/site-packages")
    (packages / "nanobind").symlink_to(Path(nanobind.__file__).parent)
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").touch()
    (packages / "torch" / "version.py").write_text("__version__ = '1.13.1'\n")
    text = configured(tmp_path / "build", Python_EXECUTABLE=str(tmp_path / "other" / "bin" / "python"))
    number = "{}.{}".format(*sys.version_info)
    rows = [line.split() for line in (ROOT / "requirements" / "pairs.txt").read_text().splitlines()]
    torches = " or ".join(row[1] for row in rows if row[0] == number)
    assert f"Kintsugi needs torch {torches} with CPython {number}, found" in text
