"""Where and when something is measured: the commit, the date, and what the machine is and does otherwise."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
from typing import Any

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_MEASURED = ("csrc", "python", "bench", "requirements", ":(exclude)bench/figures")


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def commit(root: pathlib.Path = _ROOT) -> str:
    """The commit that is measured, with `-modified` where what runs is not the commit's; empty outside of git."""
    git = ("git", "-C", str(root))
    changed = _output(*git, "status", "--porcelain", "--", *_MEASURED)
    return _output(*git, "rev-parse", "--short", "HEAD") + ("-modified" if changed else "")


def started() -> str:
    """Now, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())


def machine() -> dict[str, Any]:
    """The processor, how many there are, and the load of the last minutes (1, 5, 15)."""
    lines = [line for line in _output("lscpu").splitlines() if line.startswith("Model name")]
    name = lines[0].split(":")[1].strip() if lines else ""
    return {"cpu": name, "cpus": os.cpu_count(), "load": [round(load, 1) for load in os.getloadavg()]}
