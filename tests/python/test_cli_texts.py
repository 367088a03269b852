"""The command line and what it is given: names that are no text, junk of any depth, logs with control characters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kintsugi._text import printable, printable_parts


def kintsugi(*arguments: str | bytes | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "kintsugi.cli", *arguments], capture_output=True, input=stdin, timeout=120
    )


def clean(output: bytes) -> bool:
    return not any(byte < 32 and byte not in b"\n\t" or byte == 127 for byte in output) and not any(
        0x80 <= ord(character) < 0xA0 for character in output.decode()
    )


SCRIPT = b"""
import sys, torch, kintsugi
@kintsugi.compile(backend="eager")
def f(x):
    if x.sum() > 0:
        return x + 1
    print("no", file=sys.stderr)
    return x - 1
for k in (1, 1, -1, -1, 1):
    f(torch.full((3,), float(k)))
raise SystemExit(0)
"""


@pytest.mark.parametrize("name", [b"caf\xe9.py", b"\x1b[31mred\x07.py", "日本.py".encode()])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_explain_of_a_script_with_any_name(name: bytes, options: tuple[str, ...], tmp_path: Path) -> None:
    script = os.path.join(os.fsencode(tmp_path), name)
    with open(script, "wb") as file:
        file.write(SCRIPT)
    report = tmp_path / "report.html"
    done = kintsugi("explain", *options, "--html", report, script)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert clean(done.stdout), done.stdout
    assert report.exists()
    if options:
        assert json.loads(done.stdout)["compiled"]


def test_explain_of_what_is_not_there() -> None:
    done = kintsugi("explain", b"/nowhere/caf\xe9.py")
    assert done.returncode == 2 and b"can't be read" in done.stderr and b"Traceback" not in done.stderr


LOG = (
    b"\x1b[2J\x1b]0;owned\x07 KTG0101 opaque-c-call: call of C function \x1b[31mevil\x1b[0m\x9b31m, which has no "
    b"model, runs as one opaque step at f.py:1 (f)\n\xff\xfe\x00 junk \xc2\x9b31m\n"
)


@pytest.mark.parametrize("options", [(), ("--json",), ("--lang", "zh")])
@pytest.mark.parametrize("name", [b"caf\xe9.log", b"plain.log", b"-"])
def test_match_never_passes_control_characters(name: bytes, options: tuple[str, ...], tmp_path: Path) -> None:
    file = b"-" if name == b"-" else os.path.join(os.fsencode(tmp_path), name)
    if name != b"-":
        with open(file, "wb") as out:
            out.write(LOG)
    done = kintsugi("kb", "match", file, *options, stdin=LOG)
    assert done.returncode == 0, done.stderr
    assert b"KTG0101" in done.stdout
    assert clean(done.stdout) and clean(done.stderr)
    if "--json" in options:
        json.loads(done.stdout)


def test_a_log_that_is_not_there_is_named_without_its_control_characters() -> None:
    done = kintsugi("kb", "match", b"/nowhere/\x1b[2J\xe9.log")
    assert done.returncode == 2 and clean(done.stderr) and b"Traceback" not in done.stderr


JUNK = {
    "deep.json": "[" * 200_000,
    "deeper.json": '{"a":' * 200_000,
    "number.json": "9" * 10_000,
    "list.json": "[]",
    "empty.json": "",
    "text.json": '"\x1b[2J"',
    "surrogate.json": '{"id": "\\ud800"}',
}


def test_junk_in_a_folder_of_entries(tmp_path: Path) -> None:
    for name, text in JUNK.items():
        (tmp_path / name).write_text(text)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    with open(os.path.join(os.fsencode(tmp_path), b"caf\xe9\x1b.json"), "wb") as file:
        file.write(b"\xff")
    done = kintsugi("kb", "match", "/dev/null", "--kb", tmp_path)
    assert b"Traceback" not in done.stderr, done.stderr
    assert done.returncode == 3  # nothing was found
    problems = done.stderr.decode().splitlines()
    assert len(problems) == len(JUNK) + 4, problems
    assert clean(done.stderr)
    for name in JUNK:
        assert any(name in line for line in problems), name
    assert any("nested too deep" in line for line in problems)


def test_a_saved_run_that_is_junk(tmp_path: Path) -> None:
    for name in ("deep.json", "number.json", "surrogate.json"):
        (tmp_path / name).write_text(JUNK[name])
        done = kintsugi("report", tmp_path / name)
        assert done.returncode == 2 and b"Traceback" not in done.stderr, done.stderr


def test_printable() -> None:
    assert printable("a\tb\nc") == "a\tb\nc"
    assert printable("\x1b[2J\r\x7f\x9b\u202e\udce9") == "\\x1b[2J\\x0d\\x7f\\x9b\\u202e\\udce9"
    value = {"a": ["\x1b", {"b": "\x07"}], "c": 1}
    assert printable_parts(value) == {"a": ["\\x1b", {"b": "\\x07"}], "c": 1}
