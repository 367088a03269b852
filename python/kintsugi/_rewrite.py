"""Rewrite advice that has been tried: each suggestion is run beside the original before it is shown.

A suggestion is made by a rule on the function's syntax tree (torch.where for a branch, no `.item()`, an arithmetic
blend, an epsilon, out of place instead of in place). It is compared with the original on the user's inputs and on
others that are drawn around them, with gradients (`_trial.py` says what has to agree), until both sides of a branch
that it replaces have been taken. What differs, or was tried on one side only, is refused, with the reason.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import torch

from . import _trial


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """A rewrite of a function, and what became of it."""

    rule: str
    line: int
    source: str
    """The whole rewritten function."""
    accepted: bool
    reason: str
    """Why it was refused; empty for one that was accepted."""


class _Rule(ast.NodeTransformer):
    """Applies itself to the node number `target` that it fits; counts those it fits."""

    name = ""

    def __init__(self, target: int) -> None:
        self.target = target
        self.seen = 0
        self.line = 0

    def _take(self, node: ast.AST) -> bool:
        self.seen += 1
        if self.seen - 1 != self.target:
            return False
        self.line = getattr(node, "lineno", 0)
        return True


def _branches(node: ast.If) -> tuple[ast.expr, ast.expr, Callable[[ast.expr], ast.stmt]] | None:
    """`if c: return a else: return b`, or both assigning one name: (a, b, what to make of the choice)."""
    if len(node.body) != 1 or len(node.orelse) != 1:
        return None
    yes, no = node.body[0], node.orelse[0]
    if isinstance(yes, ast.Return) and isinstance(no, ast.Return) and yes.value and no.value:
        return yes.value, no.value, lambda value: ast.Return(value)
    if (
        isinstance(yes, ast.Assign)
        and isinstance(no, ast.Assign)
        and ast.dump(yes.targets[0]) == ast.dump(no.targets[0])
    ):
        return yes.value, no.value, lambda value: ast.Assign(yes.targets, value)
    return None


class _If(_Rule):
    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        parts = _branches(node)
        if parts is None or not self._take(node):
            return node
        a, b, make = parts
        return ast.copy_location(make(self.choose(node.test, a, b)), node)

    def choose(self, test: ast.expr, a: ast.expr, b: ast.expr) -> ast.expr:
        raise NotImplementedError


class _Watch(_If):
    """Not a rewrite: the condition is reported to SIDE, which gives it back as a bool."""

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if _branches(node) is not None and self._take(node):
            node.test = ast.Call(ast.Name(SIDE, ast.Load()), [node.test], [])
        return node


SIDE = "__kintsugi_side__"


def _call(text: str, *arguments: ast.expr) -> ast.expr:
    function = ast.parse(text, mode="eval").body
    return ast.Call(function, list(arguments), [])


class Where(_If):
    name = "torch.where instead of a branch on data"

    def choose(self, test: ast.expr, a: ast.expr, b: ast.expr) -> ast.expr:
        return _call("torch.where", test, a, b)


class Blend(_If):
    name = "arithmetic blend instead of a branch on data"

    def choose(self, test: ast.expr, a: ast.expr, b: ast.expr) -> ast.expr:
        weight = _call("torch.Tensor.float", test)
        rest = ast.BinOp(ast.Constant(1), ast.Sub(), copy.deepcopy(weight))
        return ast.BinOp(ast.BinOp(weight, ast.Mult(), a), ast.Add(), ast.BinOp(rest, ast.Mult(), b))


class NoItem(_Rule):
    name = "keep the value in a tensor instead of .item()"

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        method = isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args
        if not method or not self._take(node):
            return node
        assert isinstance(node.func, ast.Attribute)
        return node.func.value


class Epsilon(_Rule):
    name = "an epsilon in the divisor instead of .item()"

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div) or not self._take(node):
            return node
        divisor = ast.BinOp(NoItem(0).visit(copy.deepcopy(node.right)), ast.Add(), ast.Constant(1e-8))
        return ast.copy_location(ast.BinOp(node.left, ast.Div(), divisor), node)


class OutOfPlace(_Rule):
    name = "out of place instead of in place"

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        fits = (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr.endswith("_")
            and not call.func.attr.startswith("_")
            and isinstance(call.func.value, ast.Name)
        )
        if not fits or not self._take(node):
            return node
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        assert isinstance(call.func.value, ast.Name)
        method = ast.Attribute(call.func.value, call.func.attr.rstrip("_"), ast.Load())
        target = ast.Name(call.func.value.id, ast.Store())
        return ast.copy_location(ast.Assign([target], ast.Call(method, call.args, call.keywords)), node)


RULES: tuple[type[_Rule], ...] = (Where, Blend, NoItem, Epsilon, OutOfPlace)


def _compile_source(
    fn: Callable[..., Any], tree: ast.Module, names: dict[str, Any] | None = None
) -> Callable[..., Any]:
    namespace = dict(inspect.unwrap(fn).__globals__)
    namespace.setdefault("torch", torch)
    cells = inspect.getclosurevars(fn).nonlocals
    namespace.update(cells)
    namespace.update(names or {})
    exec(compile(ast.fix_missing_locations(tree), f"<rewrite of {fn.__name__}>", "exec"), namespace)
    made: Callable[..., Any] = namespace[fn.__name__]
    return made


def suggest_rewrites(fn: Callable[..., Any]) -> Callable[..., list[Suggestion]]:
    """suggest_rewrites(fn)(*args): rewrites of fn without breaks, tried on args; refused ones say why.

    Only those with `accepted` leave results as they are. fn has to be a Python function whose source is there.
    """
    target = getattr(fn, "__wrapped__", fn)
    bound: tuple[Any, ...] = ()
    if isinstance(target, torch.nn.Module):
        bound, target = (target,), type(target).forward
    elif inspect.ismethod(target):
        bound, target = (target.__self__,), target.__func__
    try:
        source = textwrap.dedent(inspect.getsource(target))
    except (OSError, TypeError):
        raise ValueError(f"the source of {fn!r} is not there, so no rewrite can be made") from None
    tree = ast.parse(source)
    if not tree.body or not isinstance(tree.body[0], ast.FunctionDef):
        raise ValueError(f"{fn!r} is not defined by a def statement, so no rewrite can be made")
    tree.body[0].decorator_list = []

    def run(*args: Any) -> list[Suggestion]:
        found: list[Suggestion] = []
        for rule in RULES:
            for position in range(100):
                suggestion = _try(target, tree, rule, position, bound, args)
                if suggestion is None:
                    break
                found.append(suggestion)
        return found

    return run


def _watched(
    target: Callable[..., Any], tree: ast.Module, position: int
) -> tuple[Callable[..., Any], set[bool]]:
    """The original, which notes the sides that are taken of one branch."""
    taken: set[bool] = set()

    def side(condition: Any) -> bool:
        answer = bool(condition)
        taken.add(answer)
        return answer

    changed = _Watch(position).visit(copy.deepcopy(tree))
    return _compile_source(target, changed, {SIDE: side}), taken


def _try(
    target: Callable[..., Any],
    tree: ast.Module,
    rule: type[_Rule],
    position: int,
    bound: tuple[Any, ...],
    args: tuple[Any, ...],
) -> Suggestion | None:
    """None: the rule fits no further place."""
    visitor = rule(position)
    changed = visitor.visit(copy.deepcopy(tree))
    if visitor.seen <= position:
        return None
    text = ast.unparse(ast.fix_missing_locations(changed))
    line = visitor.line + target.__code__.co_firstlineno - 1
    other = _compile_source(target, changed)
    original, taken = target, {False, True}
    if issubclass(rule, _If):
        original, taken = _watched(target, tree, position)
    try:
        refused = _trial.Trial(original, other, (*bound, *args)).difference()
    except _trial.NotTriedError as error:
        refused = str(error)
    if refused:
        return Suggestion(rule.name, line, text, False, refused)
    if len(taken) < 2:
        missed = "no side" if not taken else "only one side"
        return Suggestion(
            rule.name, line, text, False, f"{missed} of the branch was taken by any input tried"
        )
    return Suggestion(rule.name, line, text, True, "")
