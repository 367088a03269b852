"""Keeps files and functions small: `check_sizes.py [root]`.

Limits: a `.cc` 800 lines, a header 250, a function 80 (opcode handlers 60); a Python file 800, a function 80. What has
a good reason to be larger is listed in scripts/size_exceptions.toml, with the reason.

Functions of C++ are found by their braces: a `{` at namespace or class level opens a function when there are
parentheses before it in the same declaration. That is a heuristic, and good enough for code in the house format.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from checked_tree import run_check

FILE_LIMITS = {".cc": 800, ".h": 250, ".py": 800}
FUNCTION_LIMIT = 80
HANDLER_LIMIT = 60
HANDLERS = "csrc/capture/handlers/"
TREES = ("csrc", "python", "scripts", "bench", "tests")

STRING_OR_COMMENT = re.compile(
    r"""R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)" | "(?:\\.|[^"\\\n])*" | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'
        | //[^\n]* | /\*.*?\*/ | ^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b|\bextern\s*$")
NAME = re.compile(r"([~\w:]+(?:\s*\boperator\s*\S+?)?)\s*\(")


class Function(NamedTuple):
    name: str
    line: int
    lines: int


def blank(text: str) -> str:
    """Removes strings, comments and preprocessor lines, keeping the line numbers."""
    return STRING_OR_COMMENT.sub(lambda m: "\n" * m.group().count("\n"), text)


def opens_scope(header: str) -> bool:
    """True for namespaces and types: what is inside them may be functions."""
    match = SCOPE.search(header)
    # `struct Foo f(...) {` and `template <class T> T f(T x) {` are functions.
    return match is not None and "(" not in re.sub(r"\balignas\([^)]*\)|\[\[.*?\]\]", "", header)


def cpp_functions(text: str) -> Iterator[Function]:
    text = blank(text)
    stack: list[str] = []
    header_start = 0
    line = 1
    header_line = 0  # where the current declaration began; 0 before its first character
    begin = (0, "")
    for i, char in enumerate(text):
        if char == "\n":
            line += 1
            continue
        outside = all(kind == "scope" for kind in stack)
        if outside and header_line == 0 and not char.isspace():
            header_line, header_start = line, i
        if char == "{":
            header = text[header_start:i] if outside else ""
            if not outside:
                stack.append("block")
            elif opens_scope(header) or header.strip() in ("", "extern"):
                stack.append("scope")
            elif "(" in header and not header.rstrip().endswith(("=", ",")):
                stack.append("function")
                name = NAME.search(header)
                begin = (header_line, name.group(1) if name else header.strip()[:40])
            else:
                stack.append("block")
            if stack[-1] == "scope":
                header_line = 0
        elif char == "}":
            kind = stack.pop() if stack else "scope"
            if kind == "function":
                yield Function(begin[1], begin[0], line - begin[0] + 1)
            if all(kind == "scope" for kind in stack):
                header_line = 0
        elif char == ";" and outside:
            header_line = 0


def python_functions(text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)


def check_file(path: Path, where: str, exceptions: dict[str, str]) -> Iterator[str]:
    text = path.read_text()
    lines = text.count("\n")
    limit = FILE_LIMITS[path.suffix]
    if lines > limit and where not in exceptions:
        yield f"{where}: {lines} lines, the limit is {limit}"
    limit = HANDLER_LIMIT if where.startswith(HANDLERS) else FUNCTION_LIMIT
    functions = python_functions(text) if path.suffix == ".py" else cpp_functions(text)
    for function in functions:
        if function.lines > limit and f"{where}:{function.name}" not in exceptions:
            yield f"{where}:{function.line}: {function.name} has {function.lines} lines, the limit is {limit}"


def check_tree(root: Path) -> list[str]:
    exceptions_file = root / "scripts" / "size_exceptions.toml"
    exceptions: dict[str, str] = {}
    if exceptions_file.exists():
        exceptions = tomllib.loads(exceptions_file.read_text()).get("exceptions", {})
    problems = [
        f"{exceptions_file.name}: {name} has no reason" for name, why in exceptions.items() if not why.strip()
    ]
    for tree in TREES:
        for path in sorted((root / tree).rglob("*")):
            if path.suffix in FILE_LIMITS and path.is_file():
                problems += check_file(path, path.relative_to(root).as_posix(), exceptions)
    return problems


if __name__ == "__main__":
    sys.exit(run_check("check_sizes", check_tree))
