"""Signatures say who owns a Python object, and macros have prefixes: `check_references.py [root]`.

A raw pointer is borrowed and a `Ref<>` owns (docs/adr/0020-references-in-signatures.md). So no parameter is a
`const Ref<>&`, which says neither, and a function of a header that returns a raw pointer says in its comment, or in the
head of the file for all of them, whether that is borrowed or a new reference. Macros begin with KINTSUGI_ or KTG_.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from checked_tree import run_check

# Layers that know Python.
LAYERS = ("pyapi", "torchapi", "recording", "capture", "runtime", "driver", "bindings")
# Folders with a folder a layer, and those whose macros alone are looked at.
FOLDERS = ("csrc", "tests/unit")
OTHERS = ("tests", "bench")
CONST_REF = re.compile(r"(?<!\]\()\bconst (?:pyapi::)?Ref<[\w:]*>& \w+ ?[,)]")
RETURNS = re.compile(
    r"^(?:  )?(?:(?:static|inline|virtual|constexpr|\[\[\w+\]\]|extern) )*(?:const )?Py\w*Object\* (?:\w+::)?(\w+)\("
)
SAID = re.compile(r"\bborrow|\bnew (?:reference|tuple|one)\b|\bowns?\b|\bowned\b|\bimmortal", re.IGNORECASE)
# Folders of a version of CPython define what the headers above them declare.
DECLARED = re.compile(r"csrc/\w+/\w+\.h")
MACRO = re.compile(r"^\s*#\s*define\s+(\w+)", re.MULTILINE)
PREFIXES = ("KINTSUGI_", "KTG_")
# Switches of other projects' headers.
FOREIGN = {"PY_SSIZE_T_CLEAN", "Py_BUILD_CORE"}


def comment_of(lines: list[str], at: int) -> str:
    """The comment above a declaration or behind it. Declarations in a row share the one above the first."""
    said = lines[at].partition("//")[2]
    above = at - 1
    while above >= 0 and lines[above].strip() and not lines[above].lstrip().startswith("//"):
        above -= 1
    while above >= 0 and lines[above].lstrip().startswith("//"):
        said = lines[above].strip().removeprefix("//") + " " + said
        above -= 1
    return re.sub(r"\s+", " ", said)


def head_of(text: str) -> str:
    return text.split("#pragma once")[0]


def returns_unsaid(text: str) -> Iterator[tuple[int, str]]:
    if SAID.search(head_of(text)):
        return
    lines = text.splitlines()
    for at, line in enumerate(lines):
        found = RETURNS.match(line)
        if found and not SAID.search(comment_of(lines, at)):
            yield at + 1, found.group(1)


def layer_of(where: str) -> str:
    """The layer whose code or tests a file is; nothing for others."""
    for folder in FOLDERS:
        if where.startswith(f"{folder}/"):
            return where.removeprefix(f"{folder}/").split("/")[0]
    return ""


def check_file(path: Path, where: str) -> Iterator[str]:
    text = path.read_text()
    for found in MACRO.finditer(text):
        name = found.group(1)
        if not name.startswith(PREFIXES) and name not in FOREIGN:
            number = text.count("\n", 0, found.start(1)) + 1
            yield f"{where}:{number}: the macro {name} has no prefix (KINTSUGI_ or KTG_)"
    if layer_of(where) not in LAYERS:
        return
    for found in CONST_REF.finditer(text):
        number = text.count("\n", 0, found.start()) + 1
        yield f"{where}:{number}: {found.group()}: a borrowed argument is a raw pointer, a stolen one a Ref by value"
    if DECLARED.fullmatch(where):
        for number, name in returns_unsaid(text):
            yield f"{where}:{number}: {name}() returns a raw pointer: borrowed, or a new reference?"


def check_tree(root: Path) -> list[str]:
    return [
        problem
        for folder in ("csrc", *OTHERS)
        for path in sorted((root / folder).rglob("*"))
        if path.suffix in {".h", ".cc", ".def"}
        for problem in check_file(path, str(path.relative_to(root)))
    ]


if __name__ == "__main__":
    sys.exit(run_check("check_references", check_tree))
