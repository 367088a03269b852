"""Chrome trace events, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

from typing import Any


def to_perfetto(report: dict[str, Any]) -> dict[str, Any]:
    """The timeline as a JSON object in the Trace Event Format."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": report["title"] or "kintsugi"}}
    ]
    for thread in sorted({row["thread"] for row in report["events"]}):
        events.append(
            {"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": {"name": f"thread {thread}"}}
        )
    for row in report["events"]:
        what = row["name"] or row["function"]
        event = {
            "name": f"{row['kind']} {what}".strip(),
            "cat": row["kind"],
            "pid": 1,
            "tid": row["thread"],
            "ts": row["start_us"],
            "args": {
                "place": f"{row['file']}:{row['line']}",
                "trace": row["trace"],
                "own_us": row["own_us"],
                **({"text": row["text"]} if row["text"] else {}),
                **({"more": row["more"]} if row["more"] else {}),
            },
        }
        if row["duration_us"] > 0:
            event |= {"ph": "X", "dur": row["duration_us"]}
        else:
            event |= {"ph": "i", "s": "t"}
        events.append(event)
    return {"displayTimeUnit": "ms", "otherData": report["versions"], "traceEvents": events}
