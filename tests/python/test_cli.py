"""The kintsugi command, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")

SCRIPT = """
import sys
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1

@torch.compile(backend="eager")
def f(x):
    print("in f")
    return x * 2

f(torch.ones(3))
torch.compile(Net())(torch.ones(2))
print("args", sys.argv[1:])
if "--fail" in sys.argv:
    raise SystemExit(3)
if "--raise" in sys.argv:
    raise ValueError("from the script")
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kintsugi.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120"},
    )


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def test_version() -> None:
    done = run("--version")
    assert done.returncode == 0 and done.stdout.startswith("kintsugi 0.")


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0 and "doctor" in done.stdout and "explain" in done.stdout


def test_unknown_command() -> None:
    done = run("explode")
    assert done.returncode == 2 and "explode" in done.stderr


def test_doctor() -> None:
    done = run("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2.13.0" in done.stdout and "equal to eager" in done.stdout
    found = json.loads(run("doctor", "--json").stdout)
    assert found["versions"]["torch"].startswith("2.13.0")
    assert all(check["ok"] for check in found["checks"])


def test_explain_runs_the_script_and_reports(script: str) -> None:
    done = run("explain", script, "--epochs", "1")
    assert done.returncode == 0, done.stderr
    assert "args ['--epochs', '1']" in done.stdout and "in f" in done.stdout
    assert "== f (" in done.stdout and "== Net" in done.stdout and "Graph count: 1" in done.stdout


def test_explain_as_json(script: str) -> None:
    done = run("explain", "--json", script)
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["status"] == 0
    assert [c["name"].split(" ")[0] for c in found["compiled"]] == ["f", "Net"]
    assert all(c["graph_break_count"] == 0 for c in found["compiled"])


def test_exit_code_is_the_scripts(script: str) -> None:
    assert run("explain", script, "--fail").returncode == 3
    done = run("explain", script, "--raise")
    assert done.returncode == 1 and "ValueError: from the script" in done.stderr and "== f" in done.stdout


def test_missing_script_and_nothing_compiled(tmp_path: Path) -> None:
    done = run("explain", str(tmp_path / "nope.py"))
    assert done.returncode == 2 and "there is no file" in done.stderr
    empty = tmp_path / "empty.py"
    empty.write_text("print(1)")
    assert "compiled nothing" in run("explain", str(empty)).stdout
