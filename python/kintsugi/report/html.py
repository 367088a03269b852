"""The HTML page: one file, nothing is loaded from anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .collect import relative

TEMPLATE = Path(__file__).parent / "template.html"


def _script_json(value: Any) -> str:
    """JSON that can stand inside a <script> element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def to_html(report: dict[str, Any]) -> str:
    """The page of a report."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["short"] = relative
    environment.filters["ms"] = lambda value: f"{value:.3f}" if value < 10 else f"{value:.1f}"
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    keys = (
        "kind",
        "start_us",
        "duration_us",
        "own_us",
        "depth",
        "thread",
        "trace",
        "file",
        "line",
        "function",
    )
    events = [
        [row[key] for key in keys] + [row["name"], row["text"], row["more"]] for row in report["events"]
    ]
    return template.render(r=report, p=report["profile"], events=Markup(_script_json(events)))
