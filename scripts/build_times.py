#!/usr/bin/env python3
"""How long a change of one source file takes until it is built and tested: `build_times.py`, in a built tree.

Of each layer, its longest source file gets another time stamp; then the extension is built and one small file of Python
tests runs, as after any change of that file. ccache is switched off: it would have seen the file. Prints a table.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = "tests/python/test_scripts.py"


def longest(layer: Path) -> Path | None:
    """The source file of a layer with the most lines; none where the extension has none of it."""
    files = sorted(layer.rglob("*.cc"), key=lambda path: len(path.read_text().splitlines()))
    return files[-1] if files else None


def seconds(*command: str) -> float:
    """By the clock. Raises CalledProcessError."""
    begun = time.monotonic()
    environment = os.environ | {"CCACHE_DISABLE": "1"}
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.monotonic() - begun


def main() -> int:
    seconds("make", "extension")
    print("| longest file of a layer | lines | build, s | with tests, s |\n|---|---|---|---|")
    for layer in sorted(path for path in (ROOT / "csrc").iterdir() if path.is_dir()):
        path = longest(layer)
        if path is None:
            continue
        path.touch()
        built = seconds("make", "extension")
        tested = built + seconds(sys.executable, "-m", "pytest", "-q", TESTS)
        lines = len(path.read_text().splitlines())
        print(f"| `{path.relative_to(ROOT)}` | {lines} | {built:.0f} | {tested:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
