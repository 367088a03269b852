"""Pairs of CPython and torch: which module the import takes, what it says where there is none, and the list of them."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from harness import SANITIZER
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import kintsugi
from kintsugi import _C, _built_with, _requirements

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    line.split() for line in (ROOT / "requirements" / "pairs.txt").read_text().splitlines() if line[:1] != "#"
]
SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
TORCH_FOLDER = Path(torch.__file__).parent


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


def pair(folder: Path, minor: str, release: str, headers: str = "") -> Path:
    """A module for a minor version of torch; nothing here loads it."""
    module = folder / f"torch{minor.replace('.', '')}" / f"_C{SUFFIX}"
    module.parent.mkdir()
    module.touch()
    _built_with.beside(module).write_text(json.dumps({"release": release, "headers": headers}))
    return module


def import_error(code: str) -> str:
    """The line that an import ends with."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    return done.stderr.strip().splitlines()[-1]


def is_one_sentence(text: str) -> bool:
    return "\n" not in text and re.search(r"[.!?] [A-Z]", text) is None


def test_the_module_is_that_of_this_torch() -> None:
    minor = _built_with.minor_of(torch.__version__)
    assert Path(_C.__file__).parent.name == f"torch{minor.replace('.', '')}"
    assert _built_with.read(_built_with.beside(Path(_C.__file__))).release.startswith(f"{minor}.")


def test_names_do_not_say_which_folder() -> None:
    assert _C.__name__ == "kintsugi._C" and kintsugi._C is _C is sys.modules["kintsugi._C"]
    assert _C.__spec__.name == "kintsugi._C" and importlib.util.find_spec("kintsugi._C") is _C.__spec__
    assert repr(_C.Compiled) == "<class 'kintsugi._C.Compiled'>"
    assert pickle.loads(pickle.dumps(_C.Compiled)) is _C.Compiled
    assert importlib.import_module("kintsugi._C") is _C


def test_import_refuses_another_torch_with_one_sentence() -> None:
    last = import_error("import torch; torch.__version__ = '2.9.1'\nimport kintsugi")
    assert last.startswith("ImportError: kintsugi") and "torch 2.9.1 is installed" in last
    minor = _built_with.minor_of(torch.__version__)
    assert re.search(rf"needs torch .*\b{re.escape(minor)}\b", last)
    assert re.search(r"pip install torch==\d+\.\d+\.\*$", last) and is_one_sentence(last)


def test_import_refuses_another_python_with_one_sentence() -> None:
    last = import_error("import sys, torch; sys.version_info = (3, 99, 1, 'final', 0)\nimport kintsugi")
    wanted = " or ".join(".".join(map(str, python)) for python in _requirements.PYTHONS)
    assert last.startswith("ImportError: kintsugi") and f"CPython {wanted}" in last and "3.99" in last


def test_import_refuses_a_free_threaded_build_with_one_sentence() -> None:
    last = import_error("import sys, torch; sys.abiflags = 't'\nimport kintsugi")
    assert (
        last.startswith("ImportError: kintsugi") and "free-threaded build" in last and is_one_sentence(last)
    )


def test_import_without_torch_says_what_to_install() -> None:
    last = import_error("import sys; sys.modules['torch'] = None\nimport kintsugi")
    assert re.search(r"which is not installed: pip install torch==\d+\.\d+\.\*$", last) and is_one_sentence(
        last
    )


def test_the_sentence_lists_what_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair(tmp_path, "2.9", "2.9.0")
    newer = pair(tmp_path, "2.10", "2.10.0")
    monkeypatch.setattr(torch, "__version__", "2.11.0")
    with pytest.raises(
        ImportError, match=r"needs torch 2\.9 or 2\.10, and torch 2\.11\.0 .*torch==2\.10\.\*"
    ):
        _requirements.check([str(tmp_path)])
    monkeypatch.setattr(torch, "__version__", "2.10.0+cpu")
    assert _requirements.check([str(tmp_path)]) == newer


def test_modules_of_other_pythons_do_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "torch210"
    folder.mkdir()
    (folder / "_C.cpython-30-x86_64-linux-gnu.so").touch()
    (tmp_path / "torchdynamo.py").touch()
    with pytest.raises(ImportError, match=r"no extension module for this Python: run make build"):
        _requirements.check([str(tmp_path)])


def test_the_first_folder_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    pair(second, "2.10", "2.10.0")
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    assert second in _requirements.check([str(first), str(second)]).parents
    pair(first, "2.10", "2.10.0")
    assert first in _requirements.check([str(first), str(second)]).parents


@pytest.mark.parametrize("version", ["2.10.1", "2.10.1+cu130", "2.10.0a0+git123", "2.10.0.dev20260101"])
def test_another_release_is_taken_if_its_headers_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    module = pair(tmp_path, "2.10", "2.10.0", _built_with.headers_of(TORCH_FOLDER))
    assert _requirements.check([str(tmp_path)]) == module
    _built_with.beside(module).write_text(json.dumps({"release": "2.10.0", "headers": "another"}))
    with pytest.raises(ImportError, match=r"headers of torch 2\.10.* differ: pip install torch==2\.10\.0$"):
        _requirements.check([str(tmp_path)])


def test_a_torch_without_headers_is_not_taken_for_an_equal_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.10.1")
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "torch" / "__init__.py"))
    for headers in ("", "some"):
        folder = tmp_path / f"of-{headers}"
        folder.mkdir()
        pair(folder, "2.10", "2.10.0", headers)
        with pytest.raises(ImportError, match=r"headers of torch 2\.10\.1"):
            _requirements.check([str(folder)])


def test_the_digest_is_one_of_layouts(tmp_path: Path) -> None:
    def digest(**headers: str) -> str:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in headers.items():
            path = root / "include" / name.replace("__", "/").replace("_h", ".h")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return _built_with.headers_of(root)

    one = digest(c10__core__A_h="int a;")
    assert one == digest(c10__core__A_h="int a;") != ""
    assert one != digest(c10__core__A_h="long a;") and one != digest(c10__core__B_h="int a;")
    # The number of the release is in a header of its own.
    assert one == digest(c10__core__A_h="int a;", torch__headeronly__version_h="2")
    assert digest() == ""


@pytest.mark.skipif(SANITIZER, reason="a build in another folder")
def test_a_module_that_does_not_load_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    pair(tmp_path, "2.10", "2.10.0")
    package: Any = ModuleType("broken")
    package.__path__ = [str(tmp_path)]
    with pytest.raises(ImportError):
        _requirements.load(package)
    assert "broken._C" not in sys.modules and not hasattr(package, "_C")


def torches(rows: list[list[str]]) -> list[str]:
    """The minor versions of torch that rows have, the oldest first."""
    return sorted({torch for _, torch, *_ in rows}, key=_requirements._as_numbers)


def limits(minors: list[str]) -> str:
    """A range of versions that has these minor ones and no other."""
    first, last = (_requirements._as_numbers(minor) for minor in (minors[0], minors[-1]))
    assert [_requirements._as_numbers(minor) for minor in minors] == [
        (first[0], number) for number in range(first[1], last[1] + 1)
    ]
    return f">={minors[0]},<{last[0]}.{last[1] + 1}"


def test_what_is_packaged_is_what_is_tested() -> None:
    """pyproject.toml lets in the torches that pairs.txt has for a Python; the releases there are of these versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [Requirement(text) for text in project["project"]["dependencies"]]
    for python in {row[0] for row in ROWS}:
        (torch,) = (
            each for each in asked if each.marker and each.marker.evaluate({"python_version": python})
        )
        assert torch.name == "torch"
        assert torch.specifier == SpecifierSet(limits(torches([row for row in ROWS if row[0] == python])))
    built_with = [text for text in project["build-system"]["requires"] if text.startswith("torch")]
    assert built_with == project["project"]["dependencies"]
    minors = torches(ROWS)
    assert all(release.startswith(f"{torch}.") for _, torch, release, _ in ROWS)
    assert {tests for *_, tests in ROWS} <= {"whole", "smoke"}
    assert ROWS[0][3] == "whole"
    pythons = sorted({python for python, *_ in ROWS}, key=_requirements._as_numbers)
    assert [tuple(map(int, python.split("."))) for python in pythons] == list(_requirements.PYTHONS)
    newest = _requirements.PYTHONS[-1]
    assert project["project"]["requires-python"] == f">={pythons[0]},<{newest[0]}.{newest[1] + 1}"
    classifiers = project["project"]["classifiers"]
    assert all(f"Programming Language :: Python :: {python}" in classifiers for python in pythons)
    support = (ROOT / "docs" / "support.md").read_text()
    assert f"| Python | CPython {', '.join(pythons[:-1])} and {pythons[-1]} |" in support
    assert f"| torch | {', '.join(minors[:-1])} and {minors[-1]}" in support


def test_smoke_tests_exist() -> None:
    names = [line for line in (ROOT / "tests" / "smoke.txt").read_text().splitlines() if line[:1] != "#"]
    assert names and all((ROOT / name).exists() for name in names)


def run_pair(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "scripts" / "pair.sh"), *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def test_pair_reads_the_rows() -> None:
    listed = run_pair("list").stdout.split()
    assert listed == [f"{python}-{torch}" for python, torch, _, _ in ROWS]
    for name, (_, _, release, tests) in zip(listed, ROWS, strict=True):
        assert run_pair("torch", name).stdout.strip() == release
        assert run_pair("tests", name).stdout.strip() == tests
    assert run_pair("torch").stdout.strip() == ROWS[0][2]
    unknown = run_pair("torch", "3.9-1.0")
    assert (
        unknown.returncode == 1 and "has no row for 3.9-1.0" in unknown.stderr and listed[0] in unknown.stderr
    )


def test_pair_finds_a_python() -> None:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    name = next(f"{python}-{torch}" for python, torch, _, _ in ROWS if python == here)
    assert run_pair("python", name, KINTSUGI_PYTHON=sys.executable).stdout.strip() == sys.executable


def test_a_missing_python_is_a_row_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = script("test_matrix")

    def ask(*words: str) -> tuple[bool, str]:
        said = {"torch": (True, "2.14.1"), "tests": (True, "whole")}
        return said.get(words[0], (False, "pair: CPython 3.99 is not on this machine: install it."))

    monkeypatch.setattr(matrix, "ask", ask)
    (row,) = matrix.rows(["3.99-2.14"])
    matrix.run(row)
    assert row.result == "missing" and not row.good
    assert "| 3.99-2.14 | 2.14.1 | whole | missing | CPython 3.99 is not on this machine" in matrix.table(
        [row]
    )


def test_the_table_adds_both_halves_up() -> None:
    matrix = script("test_matrix")
    text = (
        "....\n10 passed, 2 skipped in 3.10s\n....\n=== 1 failed, 5 passed, 1 error in 61.00s (0:01:01) ===\n"
    )
    assert matrix.counts(text) == {"passed": 15, "failed": 1, "error": 1, "skipped": 2}
    assert matrix.counts("nothing\n") == {}


def test_continuous_integration_builds_each_pair(tmp_path: Path) -> None:
    """The gate has the default pair, the matrix all others: the command of the workflow lists them."""
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    (step,) = [step for step in jobs["pairs"]["steps"] if step.get("id") == "list"]
    output = tmp_path / "output"
    environment = {**os.environ, "GITHUB_OUTPUT": str(output)}
    subprocess.run(["sh", "-euc", step["run"]], cwd=ROOT, env=environment, check=True)
    name, _, others = output.read_text().strip().partition("=")
    assert name == "others" and jobs["pairs"]["outputs"] == {name: "${{ steps.list.outputs.others }}"}
    assert json.loads(others) == [{"pair": f"{row[0]}-{row[1]}", "python": row[0]} for row in ROWS[1:]]
    commands = [step.get("run", "") for step in jobs["gate"]["steps"]]
    assert {"make lint", "make test"} <= set(commands)
    assert any(
        'make test-matrix ARGS="${{ matrix.pair }} ' in step.get("run", "") for step in jobs["pair"]["steps"]
    )
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert used and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in used)
