"""SARIF 2.1.0: breaks and recompilations as findings that code review tools show at their lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import _C

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "break": "warning", "warning": "warning", "info": "note"}


def _location(file: str, line: int, function: str) -> dict[str, Any]:
    path = Path(file)
    try:
        artifact = {"uri": path.resolve().relative_to(Path.cwd()).as_posix(), "uriBaseId": "SRCROOT"}
    except ValueError:
        artifact = {"uri": path.resolve().as_uri()} if path.is_absolute() else {"uri": path.as_posix()}
    place: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": max(1, line)}}
    }
    if function:
        place["logicalLocations"] = [{"name": function, "kind": "function"}]
    return place


def to_sarif(report: dict[str, Any]) -> dict[str, Any]:
    codes = {row["code"]: row for row in _C.codes()}
    found: list[tuple[str, str, dict[str, Any]]] = []
    for row in report["profile"]["breaks"]:
        if row["code"] and row["file"]:
            cost = f" ({row['count']} times, {row['ms']:.3f} ms)" if row["count"] else ""
            message = row["reason"] or codes[row["code"]]["name"]
            found.append(
                (row["code"], message + cost + (f" Cure: {row['cure']}" if row["cure"] else ""), row)
            )
    for row in report["profile"]["recompiles"]:
        message = f"recompiled {row['count']} times: guard {row['guard']} expected {row['expected']}, saw {row['seen']}"
        found.append(("KTG0201", message, row))
    used = sorted({code for code, _, _ in found})
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "kintsugi",
                        "version": report["versions"]["kintsugi"],
                        "rules": [
                            {
                                "id": code,
                                "name": "".join(part.title() for part in codes[code]["name"].split("-")),
                                "shortDescription": {"text": codes[code]["name"]},
                                "fullDescription": {"text": codes[code]["message"]},
                                "help": {"text": codes[code]["cure"]},
                                "defaultConfiguration": {"level": _LEVELS[codes[code]["severity"]]},
                            }
                            for code in used
                        ],
                    }
                },
                "results": [
                    {
                        "ruleId": code,
                        "ruleIndex": used.index(code),
                        "level": _LEVELS[codes[code]["severity"]],
                        "message": {"text": message},
                        "locations": [_location(row["file"], row["line"], row["function"])],
                    }
                    for code, message, row in found
                ],
                "columnKind": "unicodeCodePoints",
            }
        ],
    }
