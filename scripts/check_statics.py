"""No Python code runs inside the initializer of a function's static: `check_statics.py [root]`.

C++ holds a lock while such a variable is initialized. Where the initializer imports a module or calls into Python, the
GIL may go to another thread, which waits for that lock with the GIL held: both wait for good. So in the layers that
know Python, an initializer may only call what is listed here; everything else is made by pyapi::Lazy
(csrc/pyapi/lazy.h).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from checked_tree import run_check

LAYERS = ("pyapi", "capture", "runtime", "driver", "bindings")
# Here most initializers ask torch's C++: what is refused are functions of Python's.
PYTHON_ONLY = ("torchapi",)
# Files whose initializers call functions of ours that only fill a table.
TABLES = {"csrc/capture/record/table.cc"}
# Statics of functions are indented; `constinit` and `constexpr` ones have no lock.
STATIC = re.compile(
    r"^[ \t]+static (?!constinit|constexpr|thread_local|Py(?:MethodDef|Type_Spec|Type_Slot)\b)"
    r"(?:const )?[\w:]+(?:<[^=;(){}]*>)?[ *&]+(?:const )?\w+ ?(=|\{)",
    re.MULTILINE,
)
CALL = re.compile(r"([A-Za-z_][\w:]*)(?:<[^<>;()]*>)?\s*[({]")
# They make an object of C or C++; no code in Python runs in any of them.
ALLOWED = {
    "Compiler",
    "KnownCode",
    "Numpy",
    "PyCFunction_New",
    "PyUnicode_InternFromString",
    "pyapi::requestCodeExtra",
    "reinterpret_cast",
    "sizeof",
    "static_cast",
    "std::set",
    "std::string",
    "std::unordered_map",
    "std::unordered_set",
    "std::vector",
    "std::deque",
}


def strip_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def initializer(text: str, start: int) -> str:
    """From the `=`, `{` or `(` on to the `;` that ends the declaration."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(text[at], 0)
        if text[at] == ";" and depth == 0:
            return text[start:at]
    return text[start:]


def uses_of(text: str, python_only: bool = False) -> Iterator[tuple[int, str]]:
    text = strip_comments(text)
    for match in STATIC.finditer(text):
        body = re.sub(r'"(?:\\.|[^"\\])*"', '""', initializer(text, match.start(1)))
        calls = [call.group(1) for call in CALL.finditer(body) if call.group(1) not in ALLOWED]
        if python_only:
            calls = [name for name in calls if name.startswith("Py")]
        if calls:
            yield text.count("\n", 0, match.start(1)) + 1, calls[0]


def check_tree(root: Path) -> list[str]:
    problems = []
    for layer in LAYERS + PYTHON_ONLY:
        for path in sorted((root / "csrc" / layer).rglob("*")):
            where = str(path.relative_to(root))
            if path.suffix not in {".cc", ".h"} or where in TABLES:
                continue
            for number, name in uses_of(path.read_text(), layer in PYTHON_ONLY):
                problems.append(
                    f"{where}:{number}: {name}() in the initializer of a static: see pyapi/lazy.h"
                )
    return problems


if __name__ == "__main__":
    sys.exit(run_check("check_statics", check_tree))
