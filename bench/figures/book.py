"""The book of figures: what was measured last of each row, with commit, date and command (docs/internals/figures.json).

A run replaces the rows that it has measured; the others stay, with the commit and the date that they were measured at.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

Result = dict[str, Any]
Row = dict[str, Any]
Book = dict[str, Row]

COMMIT = re.compile(r"[0-9a-f]{7,40}")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
PARTS = (
    "inference", "guards", "breaks", "shapes", "kernels", "kernels_avx2", "bandwidth", "training", "programs",
    "classes", "beside",
)  # fmt: skip
SINGLE = ("tiny", "executor")


class Refused(Exception):
    """A result can't be written down; the text says why."""


def source(result: Result, head: str) -> Row:
    """Commit, date and command of a result. Raises Refused where one is missing, or the tree was not the commit's.

    A result of another commit than `head` is taken with its own commit; it is never given `head`'s.
    """
    environment = result.get("environment", {})
    commit, date = environment.get("commit", ""), environment.get("started", "")[:10]
    if commit.endswith("-modified"):
        raise Refused(f"measured on changes to {commit.removesuffix('-modified')}: commit them first")
    if not COMMIT.fullmatch(commit):
        raise Refused(f"a result without a commit (the tree is at {head})")
    if not DATE.fullmatch(date):
        raise Refused(f"a result of {commit} without a date")
    if not environment.get("command"):
        raise Refused(f"a result of {commit} without its command")
    command = environment["command"].split(" --output")[0]
    if command.startswith("python -m bench.run"):
        command = f'make bench ARGS="{command.removeprefix("python -m bench.run").strip()}"'
    machine = {key: environment[key] for key in ("cpu", "cpus", "threads", "load") if key in environment}
    return {"commit": commit, "date": date, "command": command, "machine": machine}


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return value


def rows(result: Result) -> Iterator[tuple[str, Any]]:
    """The rows of a result of `bench.run`: `part/name`, and what was measured, or why it was not."""
    for part in SINGLE:
        if part in result:
            yield part, _figures(result[part])
    for part in PARTS:
        for name, entry in result.get(part, {}).items():
            yield f"{part}/{name}", entry if part == "inference" else _figures(entry)


def _figures(entry: Row) -> Any:
    if "failed" in entry:
        said = str(entry["why"]).strip().splitlines()
        return {"error": f"{entry['failed']}: {said[-1] if said else ''}"[:300]}
    return entry["rows"]


def record(book: Book, result: Result, head: str) -> list[str]:
    """Puts the rows of a result into the book, and names them. Systems that a row of the same commit and day has, and
    this result has not, stay in it. Raises Refused."""
    origin = source(result, head)
    changed = []
    for key, figures in rows(result):
        before = book.get(key)
        if before and key.startswith("inference/") and _same_origin(before, origin):
            figures = before["figures"] | figures
        book[key] = {"figures": _short(figures)} | origin
        changed.append(key)
    if not changed:
        raise Refused(f"a result of {origin['commit']} with no row")
    return changed


def _same_origin(row: Row, origin: Row) -> bool:
    return all(row[key] == origin[key] for key in ("commit", "date"))


def load(path: pathlib.Path) -> Book:
    """The book of a file; empty where there is none. Raises Refused where a row has no commit, date or command."""
    book: Book = json.loads(path.read_text()) if path.exists() else {}
    for key, row in book.items():
        complete = COMMIT.fullmatch(row.get("commit", "")) and DATE.fullmatch(row.get("date", ""))
        if not complete or not row.get("command"):
            raise Refused(f"{path.name}: {key} has no commit, date or command")
    return book


def save(book: Book, path: pathlib.Path) -> None:
    path.write_text(json.dumps(book, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
