"""Rewrite advice that has been tried: each suggestion is run beside the original before it is shown.

A suggestion is made by a rule on the function's syntax tree (torch.where for a branch, no `.item()`, an arithmetic
blend, an epsilon, out of place instead of in place). It is compared with the original on the user's inputs and on
variations of them: negated, zeros, and with an infinity and a NaN. Result (values, dtype, shape), which inputs the
result shares memory with, what happened to the inputs, and exceptions have to agree; otherwise it is refused, with
the reason.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import torch


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


def _variations(args: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The user's inputs, and others of the same kinds that take other paths."""

    def each(change: Callable[[torch.Tensor], torch.Tensor]) -> tuple[Any, ...]:
        return tuple(
            change(a.detach().clone()) if isinstance(a, torch.Tensor) else copy.deepcopy(a) for a in args
        )

    def special(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
        def change(t: torch.Tensor) -> torch.Tensor:
            if t.is_floating_point() and t.numel():
                t.view(-1)[0] = value
            return t

        return change

    yield "the inputs as given", each(lambda t: t)
    yield "the inputs negated", each(lambda t: t if t.dtype == torch.bool else -t)
    yield "zeros", each(torch.zeros_like)
    yield "the inputs with an infinity", each(special(float("inf")))
    yield "the inputs with a negative infinity", each(special(float("-inf")))
    yield "the inputs with a NaN", each(special(float("nan")))


def _observe(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, str, tuple[Any, ...]]:
    try:
        return fn(*args), "", args
    except Exception as error:
        return None, type(error).__name__, args


def _shared(result: Any, args: tuple[Any, ...]) -> list[tuple[int, int]]:
    storages = [a.untyped_storage()._cdata if isinstance(a, torch.Tensor) else None for a in args]
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [
        (i, j)
        for i, r in enumerate(results)
        if isinstance(r, torch.Tensor)
        for j, s in enumerate(storages)
        if s == r.untyped_storage()._cdata
    ]


def _difference(original: Callable[..., Any], other: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """What a caller could see; empty: nothing."""
    a_args, b_args = copy.deepcopy(args), copy.deepcopy(args)
    state = torch.get_rng_state()
    a, a_error, a_args = _observe(original, a_args)
    torch.set_rng_state(state)
    b, b_error, b_args = _observe(other, b_args)
    if a_error != b_error:
        return f"the original {_words(a_error)}, it {_words(b_error)}"
    if not _alike(a_args, b_args):
        return "the inputs are left in another state"
    if a_error:
        return ""
    if _shared(a, a_args) != _shared(b, b_args):
        return "the result shares memory with other inputs"
    if not _alike(a, b):
        return "the result differs"
    return ""


def _words(error: str) -> str:
    return f"raises {error}" if error else "returns"


def _alike(a: Any, b: Any) -> bool:
    """Values, types, dtypes and shapes: a number is not a tensor that holds it."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        if a.requires_grad != b.requires_grad:
            return False
        try:
            torch.testing.assert_close(a, b, equal_nan=True, rtol=1e-6, atol=0)
        except (AssertionError, RuntimeError, TypeError, ValueError):
            return False
        return True
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return math.isclose(a, b, rel_tol=1e-6) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def _compile_source(fn: Callable[..., Any], tree: ast.Module) -> Callable[..., Any]:
    namespace = dict(inspect.unwrap(fn).__globals__)
    namespace.setdefault("torch", torch)
    cells = inspect.getclosurevars(fn).nonlocals
    namespace.update(cells)
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
                visitor = rule(position)
                changed = visitor.visit(copy.deepcopy(tree))
                if visitor.seen <= position:
                    break
                found.append(_try(target, changed, rule.name, visitor.line, bound, args))
        return found

    return run


def _try(
    target: Callable[..., Any],
    changed: ast.Module,
    rule: str,
    line: int,
    bound: tuple[Any, ...],
    args: tuple[Any, ...],
) -> Suggestion:
    text = ast.unparse(ast.fix_missing_locations(changed))
    line += target.__code__.co_firstlineno - 1
    other = _compile_source(target, changed)
    for name, values in _variations(args):
        difference = _difference(lambda *a: target(*bound, *a), lambda *a: other(*bound, *a), values)
        if difference:
            return Suggestion(rule, line, text, False, f"with {name}: {difference}")
    return Suggestion(rule, line, text, True, "")
