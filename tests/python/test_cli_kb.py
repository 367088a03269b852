"""`kintsugi kb`, `report`, `bench` and `advise`, as a user runs them; bad input gets one clear sentence."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("pydantic")

from cli_runner import run, sentence

ERROR = "RuntimeError: torch.compile: function 'step' failed with a graph break. Falling back to eager mode. "
ERROR += "Consider rewriting the function to avoid Python control flow.\n"


def matcher_is_there() -> bool:
    try:
        from kintsugi import _kb  # noqa: F401
    except ImportError:
        return False
    return True


needs_matcher = pytest.mark.skipif(not matcher_is_there(), reason="built without RE2")


@needs_matcher
def test_match_from_stdin_in_both_languages() -> None:
    done = run("kb", "match", "-", input=ERROR.encode(), real=True)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "torch-compile-graph-break-fallback" in text and "torch.where" in text and "n = 9" in text
    done = run("kb", "match", "-", "--lang", "zh", input=ERROR.encode())
    assert done.returncode == 0 and "根因分析" in done.stdout


@needs_matcher
def test_match_as_json(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"\x00\xff\xfejunk\n" * 1000 + ERROR.encode() + b"x" * 3_000_000)
    done = run("kb", "match", str(log), "--json")
    (found,) = json.loads(done.stdout)
    assert done.returncode == 0 and found["line"] == 1001 and found["groups"]["function"] == "step"
    assert found["workarounds"][0]["zh"] and found["workarounds"][0]["success_rate"] == 1


@needs_matcher
def test_match_finds_nothing_or_no_file(tmp_path: Path) -> None:
    assert run("kb", "match", "-", input=b"all is well").returncode == 3
    done = run("kb", "match", str(tmp_path / "no.log"))
    assert done.returncode == 2 and "can't be read: No such file" in sentence(done)
    done = run("kb", "match", str(tmp_path))
    assert done.returncode == 2 and "can't be read: Is a directory" in sentence(done)
    assert run("kb", "match", "-").returncode == 3


@needs_matcher
def test_a_broken_entry_of_ones_own_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    done = run("kb", "match", "-", "--kb", str(tmp_path), "--json", input=ERROR.encode())
    assert done.returncode == 4 and "bad.json" in sentence(done)
    assert len(json.loads(done.stdout)) == 1


@needs_matcher
def test_match_in_each_format(tmp_path: Path) -> None:
    log = ERROR.encode() + b"a ``` line\nKTG0101 ```x```\n"
    text = run("kb", "match", "-", "--format", "md", input=log).stdout
    assert (
        "line 1, 1 time\n" in text and "## Root cause" in text and "````text\nKTG0101 ```x```\n````" in text
    )
    assert run("kb", "match", "-", "--format", "markdown", input=log).stdout == text
    html = run("kb", "match", "-", "--format", "html", "--lang", "zh", input=b"KTG0101 <script>\n").stdout
    assert "<h2>根因分析</h2>" in html and "<script" not in html and "&lt;script&gt;" in html
    rows = json.loads(run("kb", "match", "-", "--format", "json", input=log).stdout)
    assert [row["line"] for row in rows] == [1, 3]
    assert "Root cause" in run("kb", "match", "-", "--format", "terminal", input=log).stdout
    assert run("kb", "match", "-", "--format", "md", input=b"well\n").returncode == 3
    refused = run("kb", "match", "-", "--format", "pdf")
    assert "unknown format 'pdf'. Known: terminal, md, html, json." in sentence(refused)


@needs_matcher
def test_ten_megabytes_take_less_than_a_second_with_the_start_of_the_process(tmp_path: Path) -> None:
    """Processor time of the whole command, so that what else the machine does makes no difference."""
    log = tmp_path / "train.log"
    lines = ["2026-01-01 12:00:00 INFO step loss=0.12345 graph call Unsupported Reason break"] * 140_000
    log.write_text("\n".join([*lines, ERROR]))
    assert log.stat().st_size > 10_000_000
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "kintsugi_command", "kb", "match", str(log), "--json"],
            cwd=Path(__file__).parents[2] / "python",
            capture_output=True,
            timeout=240,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0 and b"140001" in done.stdout, done.stderr
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    print("seconds of processor time:", taken)
    assert min(taken) < 1


def test_commands_that_only_read_need_no_torch() -> None:
    code = (
        "import sys\nsys.argv[1:] = ['kb', 'show', 'KTG0101']\nimport kintsugi_command\n"
        "try:\n    kintsugi_command.main()\nexcept SystemExit:\n    pass\nassert 'torch' not in sys.modules\n"
    )
    folder = Path(__file__).parents[2] / "python"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0 and "KTG0101" in done.stdout, done.stderr


def test_show() -> None:
    done = run("kb", "show", "GB0170", "--format", "markdown")
    assert done.returncode == 0 and "# torch._dynamo.exc.Unsupported" in done.stdout
    done = run("kb", "show", "gb0170", "--lang", "zh", "--format", "html")
    assert "<h2>根因分析</h2>" in done.stdout
    assert json.loads(run("kb", "show", "KTG0101", "--json").stdout)["error_code"] == "KTG0101"


def test_unknown_ids_languages_and_formats() -> None:
    done = run("kb", "show", "KTG9999")
    assert done.returncode == 2 and "there is no entry 'KTG9999'" in sentence(done)
    done = run("kb", "show", "KTG0101", "--lang", "fr")
    assert done.returncode == 2 and "unknown language 'fr'. Known: en, zh." in sentence(done)
    done = run("kb", "graph", "--format", "png")
    assert done.returncode == 2 and "unknown format 'png'" in sentence(done)


def test_list_and_graph() -> None:
    rows = json.loads(run("kb", "list", "--json").stdout)
    assert len(rows) >= 90 and all(row["signature_zh"] for row in rows)
    assert run("kb", "graph").stdout.startswith("digraph kb")
    assert json.loads(run("kb", "graph", "--json").stdout)["edges"]


@pytest.mark.slow
def test_verify_does_not_write_unless_told() -> None:
    done = run("kb", "verify", "KTG0104", "--json", real=True)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["verified"]
    assert row["id"] == "kintsugi/ktg0104-trace-too-long" and row["n"] > 0


SCRIPT = """
import zlib
import torch
import kintsugi

def fn(x):
    return x + zlib.crc32(b"a") % 3

def inputs():
    return (torch.ones(3),)

if __name__ == "__main__":
    for _ in range(3):
        kintsugi.compile(fn)(torch.ones(3))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    return path


def test_explain_writes_reports_and_report_renders_them_again(script: Path, tmp_path: Path) -> None:
    names = ("html", "perfetto", "sarif", "structured", "save")
    options = [part for name in names for part in (f"--{name}", str(tmp_path / name))]
    done = run("explain", *options, str(script))
    assert done.returncode == 0, done.stderr
    assert all((tmp_path / name).stat().st_size > 500 for name in names)
    done = run("report", str(tmp_path / "save"), "--html", str(tmp_path / "again.html"))
    assert done.returncode == 0
    assert (tmp_path / "again.html").read_text() == (tmp_path / "html").read_text()
    assert json.loads(run("report", str(tmp_path / "save"), "--json").stdout)["breaks"]
    done = run("report", str(script))
    assert done.returncode == 2 and "is no saved run" in sentence(done)
    done = run("report", str(tmp_path / "nothing.json"))
    assert done.returncode == 2 and "can't be read" in sentence(done)


def test_damaged_runs_get_one_sentence(script: Path, tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    assert run("explain", "--save", str(saved), str(script)).returncode == 0
    whole = json.loads(saved.read_text())
    for part in ("profile", "events", "source", "tree", "advice", "related", "versions"):
        for damaged in ({k: v for k, v in whole.items() if k != part}, {**whole, part: 3}):
            saved.write_text(json.dumps(damaged))
            done = run("report", str(saved), "--html", str(tmp_path / "out.html"))
            assert done.returncode == 2 and "run.json is" in sentence(done), part
    for junk in (b"\xff\xfe\x00", b"[1, 2]", b"{", b""):
        saved.write_bytes(junk)
        assert run("report", str(saved)).returncode == run("report", str(saved), "--json").returncode == 2


def test_what_can_not_be_written_loses_nothing_else(script: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "run.sarif", tmp_path / "no" / "such" / "folder.html"
    done = run("explain", "--html", str(bad), "--sarif", str(good), str(script))
    assert done.returncode == 2 and "folder.html can't be written: No such file" in done.stderr
    assert json.loads(good.read_text())["version"] == "2.1.0" and "Graph count" in done.stdout


@needs_matcher
def test_a_file_that_fails_while_it_is_read() -> None:
    done = run("kb", "match", "/proc/self/mem")
    assert done.returncode == 2 and "can't be read" in sentence(done)


@needs_matcher
def test_junk_and_huge_lines_in_a_log(tmp_path: Path) -> None:
    log = tmp_path / "huge.log"
    log.write_bytes(os.urandom(300_000) + b"\n" + b"y" * 20_000_000 + ERROR.encode())
    done = run("kb", "match", str(log), "--json")
    (found,) = [row for row in json.loads(done.stdout) if "fallback" in row["id"]]
    assert done.returncode == 0 and found["groups"]["function"] == "step" and len(found["text"]) < 2000


def test_a_folder_of_entries_that_is_not_there(tmp_path: Path) -> None:
    done = run("kb", "list", "--json", "--kb", str(tmp_path / "none"))
    assert done.returncode == 4 and "there is no such folder" in sentence(done)
    assert len(json.loads(done.stdout)) >= 90


def test_max_breaks(script: Path) -> None:
    assert run("explain", "--max-breaks", "3", str(script)).returncode == 0
    done = run("explain", "--max-breaks", "0", str(script))
    assert done.returncode == 1 and "at most 0 are allowed" in done.stderr


@needs_matcher
def test_explain_under_torch_gives_advice(tmp_path: Path) -> None:
    path = tmp_path / "branch.py"
    path.write_text(
        "import torch\n@torch.compile\ndef f(x):\n    return x + 1 if x.sum() > 0 else x\nf(torch.ones(2))\n"
    )
    done = run("explain", "--under", "torch", "--lang", "zh", str(path))
    text = done.stdout
    assert done.returncode == 0 and "gb0170" in text and "torch.where" in text and "成功率" in text
    assert run("explain", "--under", "tf", str(path)).returncode == 2


def test_bench_and_advise(script: Path) -> None:
    done = run("bench", str(script), "--runs", "3", "--warmup", "1", "--backend", "eager", "--json")
    (row,) = json.loads(done.stdout)
    assert done.returncode == 0 and row["eager_ms"] > 0 and row["error"] is None
    done = run("bench", f"{script}:nothing")
    assert done.returncode == 2 and "has no callable named nothing" in sentence(done)
    done = run("advise", f"{script}:fn", "--json")
    assert json.loads(done.stdout)["where"]["best"]["function"] == "fn"


def test_help_has_examples_and_completion() -> None:
    for command in (("kb", "match"), ("kb", "show"), ("explain",), ("bench",), ("report",), ("advise",)):
        text = run(*command, "--help").stdout
        assert "Example" in text, command
    assert "--install-completion" in run("--help").stdout
