#!/usr/bin/env python3
"""Counts of the tree, as docs/internals/verification.md shows them: `house.py [--before FOLDER]`.

    house.py                       writes the column of this tree into the page
    house.py --before FOLDER       writes the column of another tree (a checkout of an earlier commit) as well

A count is of csrc/ unless its row says otherwise. Of lines that stand in two places word by word, those that stand in
every file (includes, namespaces, `using`, closing braces) are left out.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from check_layers import strip_comments

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "internals" / "verification.md"
BEGIN, END = "<!-- BEGIN house -->\n", "<!-- END house -->"
LONG_FILE = 500
SAME_LINES = 6

CHECK = re.compile(r"\bKINTSUGI_(?:D?CHECK|UNREACHABLE)\(")
OPERATOR = re.compile(r'"(?:aten|taped|folded)[.:]')
PRIVATE = re.compile(r"\b_Py(?:_|[A-Z])\w*")
PLAIN = re.compile(r"\s*(?:#.*|namespace .*|using .*;|\}[;,)]*|\)[;,)]*|)\s*")


def sources(root: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in (root / "csrc").rglob("*") if path.suffix in suffixes and path.is_file())


def elsewhere(root: Path, pattern: re.Pattern[str], layer: str) -> int:
    """Lines of code outside a layer in which the pattern is."""
    files = (path for path in sources(root, ".cc", ".h", ".def") if root / "csrc" / layer not in path.parents)
    return sum(
        bool(pattern.search(line)) for path in files for line in strip_comments(path.read_text()).splitlines()
    )


def duplicates(files: list[Path]) -> int:
    """Runs of the same lines: how many there are beyond the first of each."""
    seen: set[tuple[str, ...]] = set()
    count = 0
    for path in files:
        lines = [line.strip() for line in path.read_text().splitlines() if not PLAIN.fullmatch(line)]
        windows = [tuple(lines[k : k + SAME_LINES]) for k in range(len(lines) - SAME_LINES + 1)]
        again = [window in seen for window in windows]
        count += sum(now and not before for before, now in zip([False, *again], again, strict=False))
        seen.update(windows)
    return count


def counts(root: Path) -> Iterator[tuple[str, str]]:
    files = sources(root, ".cc", ".h")
    texts = [path.read_text() for path in files]
    lines = [text.count("\n") for text in texts]
    checks = sum(
        len(CHECK.findall(strip_comments(text)))
        for path, text in zip(files, texts, strict=True)
        if path.name != "check.h"
    )
    python = sum(path.read_text().count("\n") for path in (root / "python").rglob("*.py"))
    yield "lines of C++, in files", f"{sum(lines):,} in {len(files)}"
    yield "lines of Python in `python/`", f"{python:,}"
    yield f"files over {LONG_FILE} lines", str(sum(count > LONG_FILE for count in lines))
    yield "the longest file", f"{max(lines)} lines"
    yield "checks, for 1,000 lines", f"{checks} ({1000 * checks / sum(lines):.2f})"
    yield "lines with names of operators as text, outside `csrc/ops/`", str(elsewhere(root, OPERATOR, "ops"))
    yield "lines with private names of CPython, outside `csrc/pyapi/`", str(elsewhere(root, PRIVATE, "pyapi"))
    yield f"runs of {SAME_LINES} lines that stand somewhere else too", str(duplicates(files))


def commit(root: Path) -> str:
    shown = subprocess.run(
        ["git", "-C", str(root), "log", "-1", "--format=%h, %cs"], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip() or "?"


def table(rows: list[tuple[str, str, str]], origins: tuple[str, str]) -> str:
    head = f"| count | before (`{origins[0]}`) | now (`{origins[1]}`) |\n|---|---|---|\n"
    return head + "".join(f"| {name} | {before} | {now} |\n" for name, before, now in rows)


def known(page: str) -> tuple[dict[str, str], tuple[str, str]]:
    """The column `before` of the page, and the origins of both."""
    block = page.partition(BEGIN)[2].partition(END)[0]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in block.splitlines()]
    origins = re.findall(r"\(`([^`]*)`\)", block.partition("\n")[0])
    before = {row[0]: row[1] for row in cells[2:] if len(row) == 3}
    return before, (origins[0], origins[1]) if len(origins) == 2 else ("?", "?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit")
    options = parser.parse_args()
    page = PAGE.read_text()
    before, origins = known(page)
    if options.before:
        before, origins = dict(counts(options.before)), (commit(options.before), origins[1])
    now = dict(counts(ROOT))
    rows = [(name, before.get(name, "-"), value) for name, value in now.items()]
    head, _, rest = page.partition(BEGIN)
    made = head + BEGIN + table(rows, (origins[0], commit(ROOT))) + END + rest.partition(END)[2]
    PAGE.write_text(made)


if __name__ == "__main__":
    main()
