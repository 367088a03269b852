"""A structured trace in the format of TORCH_TRACE, which `tlparse` renders."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from typing import Any


def _line(record: dict[str, Any], payload: str | None = None) -> str:
    now = time.time()
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1e6):06d}"
    if payload is not None:
        payload = payload.rstrip("\n")  # the reader's checksum is that of the lines, joined
        record = {**record, "has_payload": hashlib.md5(payload.encode()).hexdigest()}
    head = f"V{stamp} {os.getpid()} torch/kintsugi.py:1] {json.dumps(record)}\n"
    return head if payload is None else head + "".join(f"\t{line}\n" for line in payload.split("\n"))


def to_structured_trace(report: dict[str, Any], traces: Sequence[Sequence[str]] = ()) -> str:
    """The text of a log. `traces`: the IR of each compiled callable's traces."""
    files = sorted({row["file"] for row in report["events"] if row["file"]})
    number = {file: index for index, file in enumerate(files)}
    out = [_line({"str": [file, number[file]]}) for file in files]
    events = report["events"]
    for frame, item in enumerate(report["callables"]):
        base = {"frame_id": frame, "frame_compile_id": 0, "attempt": 0}
        entry = next(
            (r for r in events if r["kind"] == "record" and r["function"] == item["name"].split(".")[-1]),
            None,
        )
        stack = []
        if entry is not None and entry["file"]:
            stack = [{"line": entry["line"], "name": entry["function"], "filename": number[entry["file"]]}]
        out.append(_line({"dynamo_start": {"stack": stack}, **base}))
        for position, text in enumerate(traces[frame] if frame < len(traces) else ()):
            out.append(_line({"dynamo_output_graph": {"sizes": {}}, **base, "attempt": position}, text))
        out.append(
            _line({"dynamo_guards": {}, **base}, json.dumps([{"code": guard} for guard in item["guards"]]))
        )
        for reason in item["break_reasons"]:
            text = f"{reason['code']} {reason['name']}: {reason['reason']}\n{reason['file']}:{reason['line']}"
            out.append(
                _line({"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **base}, text)
            )
        metrics = {
            "co_name": item["name"],
            "co_filename": entry["file"] if entry else "",
            "co_firstlineno": entry["line"] if entry else 0,
            "cache_size": 0,
            "accumulated_cache_size": 0,
            "guard_count": len(item["guards"]),
            "graph_op_count": item["op_count"],
            "graph_node_count": item["op_count"],
            "graph_input_count": 0,
            "entire_frame_compile_time_s": (entry["duration_us"] / 1e6) if entry else 0.0,
            "fail_type": None,
            "fail_reason": None,
            "restart_reasons": [],
            "non_compliant_ops": [],
            "compliant_custom_ops": [],
            "dynamo_time_before_restart_s": 0.0,
        }
        out.append(_line({"compilation_metrics": metrics, **base}))
    return "".join(out)
