"""The kintsugi command, run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("typer")

from cli_runner import run, sentence

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


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def test_version() -> None:
    done = run("--version", real=True)
    assert done.returncode == 0 and done.stdout.startswith("kintsugi 0.")


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0 and "doctor" in done.stdout and "explain" in done.stdout


def test_unknown_command() -> None:
    done = run("explode")
    assert done.returncode == 2 and "explode" in done.stderr


def test_doctor() -> None:
    done = run("doctor", real=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert torch.__version__ in done.stdout and "equal to eager" in done.stdout
    found = json.loads(run("doctor", "--json").stdout)
    assert found["versions"]["torch"] == torch.__version__
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
    assert run("explain", script, "--fail", real=True).returncode == 3
    done = run("explain", script, "--raise", real=True)
    assert done.returncode == 1 and "ValueError: from the script" in done.stderr and "== f" in done.stdout
    assert "runpy" not in done.stderr and "kintsugi" not in done.stderr, "the script's own frames alone"


def test_a_text_given_to_exit_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "exits.py"
    path.write_text("raise SystemExit('enough')")
    done = run("explain", str(path))
    assert done.returncode == 1 and "enough" in done.stderr


def test_missing_script_and_nothing_compiled(tmp_path: Path) -> None:
    done = run("explain", str(tmp_path / "nope.py"))
    assert done.returncode == 2 and "can't be read: No such file" in sentence(done)
    done = run("explain", str(tmp_path))
    assert done.returncode == 2 and "can't be read: Is a directory" in sentence(done)
    empty = tmp_path / "empty.py"
    empty.write_text("print(1)")
    assert "compiled nothing" in run("explain", str(empty)).stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\x00\x01\x02", "is no Python program"),
        (b"\x89PNG\r\n\xff\xfe", "is no Python program: line 1"),
        (b"x = 1\ndef f(:\n", "is no Python program: line 2: invalid syntax"),
    ],
)
@pytest.mark.parametrize("command", [["explain"], ["explain", "--under", "torch"], ["bench"], ["advise"]])
def test_junk_for_a_script(tmp_path: Path, command: list[str], text: bytes, said: str) -> None:
    path = tmp_path / "junk.py"
    path.write_bytes(text)
    done = run(*command, str(path))
    assert done.returncode == 2 and said in sentence(done) and done.stdout == ""


def test_advice_in_both_languages(tmp_path: Path) -> None:
    path = tmp_path / "breaks.py"
    path.write_text(
        "import torch, zlib\n@torch.compile\ndef f(x):\n    return x + zlib.crc32(b'a') % 3\nf(torch.ones(2))\n"
    )
    english, chinese = run("explain", str(path)), run("explain", "--lang", "zh", str(path))
    assert "KTG0101" in english.stdout and "What helps:" in english.stdout and "works in" in english.stdout
    assert "KTG0101" in chinese.stdout and "建议" in chinese.stdout and "成功率" in chinese.stdout
    done = run("explain", "--lang", "fr", str(path))
    assert done.returncode == 2 and "unknown language 'fr'" in sentence(done)


def test_what_became_of_the_traces_is_told(tmp_path: Path) -> None:
    path = tmp_path / "grows.py"
    path.write_text(
        "import torch\n@torch.compile\ndef f(x):\n    return x + 1 if x.sum() > 0 else x\n"
        "for n in (2, 3, 4):\n    f(torch.ones(n))\n    f(-torch.ones(n))\n"
    )
    text = run("explain", str(path)).stdout
    assert (
        "size 0 of x" in text
        and "Second paths recorded" in text
        and "expected x: f32[2] cpu, saw f32[3] cpu" in text
    )
