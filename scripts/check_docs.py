"""Checks the documentation: `check_docs.py [root]`.

Every path that a Markdown file names, in backticks or as a link, exists; every diagnostic code and every `make`
target that it names exists too. A path is looked for from the root, from csrc/, from python/kintsugi/ and from the
file's own directory. What does not look like a path (a placeholder, an option, a dotted name) is left alone.

Every block of figures (`<!-- BEGIN figures NAME -->`) names the command that it is from, and each of its rows the
commit and the date; a demo's output (`<!-- BEGIN demo output ... -->`) ends with both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from checked_tree import run_check

BACKTICKS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
PATH = re.compile(r"^\.{0,2}/?[\w.+-]+(?:/[\w.+-]+)*/?$")
CODE = re.compile(r"\bKTG\d{4}\b")
FIGURES = re.compile(r"<!-- BEGIN figures\b.*?-->\n(.*?)<!-- (END figures) -->", re.DOTALL)
DEMO = re.compile(r"<!-- BEGIN demo output.*?<!-- END demo output -->", re.DOTALL)
DEMO_ORIGIN = re.compile(r"\nOf commit `[0-9a-f]{7,40}`, \d{4}-\d{2}-\d{2}\.\n<!-- END")
ORIGIN = re.compile(r"`[0-9a-f]{7,40}`, \d{4}-\d{2}-\d{2} \|$")
COMMAND = re.compile(r"`(make|python -m bench\.\w+|scripts/\w+\.py) ?[^`]*`")
UNMEASURED = "Not measured yet."
TARGET = re.compile(r"^make ([a-z][\w-]*)")
# Made by a build or by a run, so not part of the tree.
GENERATED = re.compile(r"\.venv|build|torch\d+")


def bases(doc: Path, root: Path) -> tuple[Path, ...]:
    return (root, root / "csrc", root / "python" / "kintsugi", doc.parent)


def looks_like_path(text: str, doc: Path, root: Path) -> bool:
    """True for what has a slash and begins with a directory of ours; `ATen/core/Tensor.h` is somebody else's."""
    first = text.split("/")[0]
    if "/" not in text or not PATH.match(text) or not first or GENERATED.fullmatch(first):
        return False
    return any((base / first).is_dir() for base in bases(doc, root))


def exists(text: str, doc: Path, root: Path) -> bool:
    return any((base / text).exists() for base in bases(doc, root))


def check_file(doc: Path, root: Path, codes: set[str], targets: set[str]) -> Iterator[str]:
    text = doc.read_text()
    where = doc.relative_to(root)
    prose = FENCE.sub(lambda m: "\n" * m.group().count("\n"), text)
    for number, line in enumerate(prose.splitlines(), 1):
        for name in BACKTICKS.findall(line):
            # `csrc/diag/codes.def:12` and `capture/frame.cc::name` point into a file.
            path = re.sub(r"(::?[\w~]+)+$", "", name)
            if looks_like_path(path, doc, root) and not exists(path, doc, root):
                yield f"{where}:{number}: {path} does not exist"
            target = TARGET.match(name)
            if target and target.group(1) not in targets:
                yield f"{where}:{number}: the Makefile has no target {target.group(1)}"
        for link in LINK.findall(line):
            path = link.split("#")[0]
            if (
                path
                and "://" not in path
                and not path.startswith("mailto:")
                and not (doc.parent / path).exists()
            ):
                yield f"{where}:{number}: the link to {path} leads nowhere"
        for code in CODE.findall(line):
            if codes and code not in codes:
                yield f"{where}:{number}: {code} is not in csrc/diag/codes.def"


def check_figures(doc: Path, root: Path) -> Iterator[str]:
    """Blocks whose figures can't be told the origin of."""
    text = doc.read_text()
    where = doc.relative_to(root)
    for demo in DEMO.finditer(text):
        if not DEMO_ORIGIN.search(demo[0]):
            yield f"{where}: a demo's output without commit and date"
    begun = text.count("<!-- BEGIN figures")
    blocks = list(FIGURES.finditer(text))
    if begun != len(blocks) or any("<!-- BEGIN" in block[1] for block in blocks):
        yield f"{where}: a block of figures has no end"
        return
    for block in blocks:
        first = text.count("\n", 0, block.start(1)) + 1
        if block[1].strip() == UNMEASURED:
            continue
        lines = block[1].splitlines()
        rows = [(first + k, line) for k, line in enumerate(lines) if line.startswith("|")]
        if len(rows) < 3:
            yield f"{where}:{first}: a block of figures without a row"
        for number, line in rows[2:]:
            if not ORIGIN.search(line):
                yield f"{where}:{number}: a row of figures without commit and date"
        if not any(COMMAND.search(line) for line in lines if not line.startswith("|")):
            yield f"{where}:{first}: a block of figures without its command"


def check_tree(root: Path) -> list[str]:
    defs = root / "csrc" / "diag" / "codes.def"
    found = re.findall(r"^KTG_CODE\((KTG\d{4})", defs.read_text(), re.MULTILINE) if defs.exists() else []
    codes = set(found)
    makefile = root / "Makefile"
    targets = (
        set(re.findall(r"^([\w-]+):", makefile.read_text(), re.MULTILINE)) if makefile.exists() else set()
    )
    docs = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "kb").rglob("*.md")]
    problems = [problem for doc in sorted(docs) for problem in check_file(doc, root, codes, targets)]
    return problems + [problem for doc in sorted(docs) for problem in check_figures(doc, root)]


if __name__ == "__main__":
    sys.exit(run_check("check_docs", check_tree))
