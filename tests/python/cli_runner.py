"""Runs the kintsugi command: in this process, or (real=True) as a user does, which takes a second for torch alone."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

ENVIRONMENT = {"NO_COLOR": "1", "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}


@dataclasses.dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str, input: bytes = b"", real: bool = False) -> Done:
    if real:
        done = subprocess.run(
            [sys.executable, "-m", "kintsugi.cli", *arguments],
            input=input,
            capture_output=True,
            timeout=240,
            env={**os.environ, **ENVIRONMENT},
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
    from typer.testing import CliRunner

    from kintsugi.cli import app

    result = CliRunner().invoke(app, [*arguments], input=input, env=ENVIRONMENT)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def sentence(done: Done) -> str:
    """stderr, which is one line and no traceback."""
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done.stderr
    return done.stderr
