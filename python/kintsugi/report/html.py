"""The HTML page: one file, nothing is loaded from anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .collect import relative
from .drawing import layout

# Kinds of events, for people.
KINDS = {
    "call": ("replayed call", "重放的调用"),
    "record": ("recorded call", "记录的调用"),
    "side_trace": ("second path recorded", "记录第二条路径"),
    "compile": ("compiled", "编译"),
    "cache_hit": ("kernel from the cache", "取自缓存的内核"),
    "dynamic": ("left open from now on", "此后视为可变"),
    "break": ("not captured", "未捕获"),
    "exit": ("left the recording", "离开记录"),
    "raise": ("exception", "异常"),
    "recompile": ("no recording fitted", "没有适用的记录"),
    "evict": ("recording dropped", "丢弃记录"),
    "eager": ("call in eager mode", "eager 模式的调用"),
    "opaque": ("opaque step", "不透明步骤"),
    "step": ("mended step", "已修补的步骤"),
    "effect": ("effect", "副作用"),
}

TEMPLATE = Path(__file__).parent / "template.html"


def _script_json(value: Any) -> str:
    """JSON that can stand inside a <script> element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def require() -> None:
    """Imports what a page is written with, for those who have to know before a long run: ModuleNotFoundError."""
    import jinja2  # noqa: F401
    import markupsafe  # noqa: F401


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
    present = {row["kind"] for row in report["events"]}
    return template.render(
        r=report,
        p=report["profile"],
        related=layout(report["related"]),
        kinds={kind: words for kind, words in KINDS.items() if kind in present},
        events=Markup(_script_json(events)),
        kind_words=Markup(_script_json(KINDS)),
    )
