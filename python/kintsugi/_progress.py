"""The progress bar of kintsugi.wait() on a terminal."""

from __future__ import annotations

import sys
import time

from . import _C

_WIDTH = 30
_SECONDS_BETWEEN = 0.1


def _line(done: int, total: int) -> str:
    filled = _WIDTH * done // total
    return f"\rkintsugi: compiling [{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{total}"


def wait(timeout: float | None) -> bool:
    """As _C.wait(), showing on standard error, if that is a terminal, how much of the queue is done."""
    stream = sys.stderr
    total = _C.native_backlog()
    if total == 0 or stream is None or not stream.isatty():
        return _C.wait(timeout)
    deadline = None if timeout is None else time.monotonic() + timeout
    line = ""
    try:
        while True:
            left = _SECONDS_BETWEEN if deadline is None else deadline - time.monotonic()
            if _C.wait(max(0.0, min(left, _SECONDS_BETWEEN))):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            backlog = _C.native_backlog()
            total = max(total, backlog)
            line = _line(total - backlog, total)
            stream.write(line)
            stream.flush()
    finally:
        if line:
            stream.write("\r" + " " * len(line) + "\r")
            stream.flush()
