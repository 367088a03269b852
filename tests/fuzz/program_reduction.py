"""Makes a failing program small: fewer calls, statements, branches, simpler expressions, and a prelude without what is
not needed. Delta debugging: each step is kept if the program still fails in the same way."""

from __future__ import annotations

import ast
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from program_case import Program

BODIES = ("body", "orelse", "finalbody", "handlers")
COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncWith, ast.AsyncFor)


def statements(tree: ast.AST, top: bool) -> list[tuple[list[Any], Any]]:
    """All statements, each with the list that it stands in; those of the module itself only if `top`."""
    found = []
    for node in ast.walk(tree):
        for field in BODIES:
            body = getattr(node, field, None)
            if isinstance(body, list) and (top or not isinstance(node, ast.Module)):
                found += [(body, statement) for statement in body]
    return found


def completed(tree: ast.AST) -> str:
    """The text, with `pass` where a body has become empty."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.expr)) or not hasattr(node, "body"):
            continue
        if not node.body:
            node.body = [ast.Pass()]
        if isinstance(node, ast.Try) and not node.handlers and not node.finalbody:
            node.finalbody = [ast.Pass()]
            node.orelse = []
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def without(source: str, start: int, count: int, top: bool) -> str | None:
    """The text without `count` statements; None past the end."""
    tree = ast.parse(source)
    found = statements(tree, top)
    if start >= len(found):
        return None
    for body, statement in found[start : start + count]:
        if statement in body:
            body.remove(statement)
    return completed(tree)


def hoisted(source: str) -> Iterator[str]:
    """The text with one compound statement replaced by what is in it."""
    total = sum(isinstance(node, COMPOUND) for node in ast.walk(ast.parse(source)))
    for wanted in range(total):
        tree = ast.parse(source)
        found = [(body, node) for body, node in statements(tree, True) if isinstance(node, COMPOUND)]
        body, node = found[wanted]
        at = body.index(node)
        body[at : at + 1] = node.body
        yield completed(tree)


def simplified(source: str) -> Iterator[str]:
    """The text with one expression replaced by a part of it, or by a constant."""
    total = sum(isinstance(node, ast.expr) for node in ast.walk(ast.parse(source)))
    for wanted in range(total):
        target = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.expr)][wanted]
        parts: list[ast.expr] = [
            child for child in ast.iter_child_nodes(target) if isinstance(child, ast.expr)
        ]
        if not isinstance(target, (ast.Constant, ast.Name)):
            parts.append(ast.Constant(1))
        for part in parts:
            yield replaced(source, wanted, part)


def replaced(source: str, wanted: int, part: ast.expr) -> str:
    tree = ast.parse(source)
    target = [node for node in ast.walk(tree) if isinstance(node, ast.expr)][wanted]

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return part if node is target else super().generic_visit(node)

    return completed(Replace().visit(tree))


class Reduction:
    """The smallest program found in `seconds` that still fails as `fails` says."""

    def __init__(self, program: Program, fails: Callable[[Program], bool], seconds: float) -> None:
        self.program = program
        self._fails = fails
        self._end = time.monotonic() + seconds

    def run(self) -> Program:
        progress = True
        while progress and not self._late():
            before = self.program
            self._calls()
            self._cut("source", False)
            self._cut("prelude", True)
            self._first(hoisted)
            self._first(simplified)
            progress = self.program != before
        return self.program

    def _late(self) -> bool:
        return time.monotonic() > self._end

    def _try(self, **changes: Any) -> bool:
        smaller = dataclasses.replace(self.program, **changes)
        if smaller == self.program or self._late():
            return False
        try:
            compile(smaller.prelude + "\n" + smaller.source, "", "exec")
        except (SyntaxError, ValueError):
            return False
        if not self._fails(smaller):
            return False
        self.program = smaller
        return True

    def _calls(self) -> None:
        for number in list(self.program.calls):
            self._try(calls=tuple(n for n in self.program.calls if n != number))

    def _cut(self, field: str, top: bool) -> None:
        """Statements in ever smaller chunks."""
        chunk = max(1, len(statements(ast.parse(getattr(self.program, field)), top)) // 2)
        while chunk and not self._late():
            at = 0
            while (smaller := without(getattr(self.program, field), at, chunk, top)) is not None:
                if self._late() or not self._try(**{field: smaller}):
                    at += chunk
            chunk //= 2

    def _first(self, changes: Callable[[str], Iterator[str]]) -> None:
        """The first change that still fails, again and again."""
        progress = True
        while progress and not self._late():
            progress = False
            for smaller in changes(self.program.source):
                shorter = len(smaller) < len(self.program.source)
                if shorter and self._try(source=smaller):
                    progress = True
                    break


def kind(problem: str | None) -> str:
    """What sort of difference it is: reductions keep to it. An error of the harness is of the kind of its exception."""
    text = problem or ""
    if text.startswith("Traceback "):
        return text.rstrip().splitlines()[-1].partition(":")[0]
    words: Sequence[str] = text.split(": ")
    return ": ".join([word for word in words if not word.startswith(("call ", "guard "))][:1])
