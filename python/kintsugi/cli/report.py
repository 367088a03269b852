"""`kintsugi report`: renders a saved run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..report.collect import FORMAT
from .common import OK, USAGE, stop
from .explain import Outputs, check_outputs, write_outputs


def read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        stop(f"{path} can't be read: {error.strerror}")
    except (ValueError, RecursionError):  # no text, no JSON, or nested without end
        stop(f"{path} is no saved run: make one with kintsugi explain SCRIPT --save {path}")
    if not isinstance(found, dict) or found.get("format") != FORMAT or "profile" not in found:
        stop(
            f"{path} is no saved run of format {FORMAT}: make one with kintsugi explain SCRIPT --save {path}"
        )
    return found


def run(path: Path, outputs: Outputs) -> int:
    report = read(path)
    check_outputs(outputs)
    try:
        return OK if write_outputs(report, outputs) else USAGE
    except Exception as error:  # whatever an edited or truncated file makes of the templates
        stop(f"{path} is damaged: {type(error).__name__}: {error}")
