"""`kintsugi report`: renders a saved run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..report.collect import FORMAT
from .common import OK, stop
from .explain import Outputs, write_outputs


def read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        stop(f"{path} can't be read: {error.strerror}")
    except (UnicodeDecodeError, json.JSONDecodeError):
        stop(f"{path} is no saved run: make one with kintsugi explain SCRIPT --save {path}")
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        stop(
            f"{path} is no saved run of format {FORMAT}: make one with kintsugi explain SCRIPT --save {path}"
        )
    return found


def run(path: Path, outputs: Outputs) -> int:
    report = read(path)
    try:
        write_outputs(report, outputs)
    except (KeyError, TypeError) as error:
        stop(f"{path} is damaged: {error}")
    return OK
