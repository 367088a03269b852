"""substitute_in_graph(): a Python function in place of another, usually C's, wherever code is recorded."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from . import _C

F = TypeVar("F", bound=Callable[..., Any])


def _parameters(fn: Callable[..., Any]) -> tuple[Any, ...] | None:
    """Names and defaults of the parameters, as far as calls depend on them; None where nobody knows."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:
        return None
    spread = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [p for p in parameters if p.kind not in spread]
    return (
        tuple(p.name for p in named if p.kind != inspect.Parameter.KEYWORD_ONLY),
        {p.name for p in named if p.kind == inspect.Parameter.KEYWORD_ONLY},
        {p.name: p.default for p in named},
    )


_TAKES_ANYTHING = _parameters(lambda *args, **kwargs: None)


def _check_signatures(original: Callable[..., Any], substitute: Callable[..., Any]) -> None:
    theirs, ours = _parameters(original), _parameters(substitute)
    if theirs is None or theirs == ours or _TAKES_ANYTHING in (theirs, ours):
        return
    raise TypeError(
        f"kintsugi.substitute_in_graph: {substitute} does not take what {original} takes: "
        f"{inspect.signature(substitute)} instead of {inspect.signature(original)}. "
        "skip_signature_check=True takes it all the same."
    )


def substitute_in_graph(
    original_fn: Callable[..., Any],
    *,
    can_constant_fold_through: bool = False,
    skip_signature_check: bool = False,
) -> Callable[[F], F]:
    """Decorator: the function is recorded wherever compiled code calls `original_fn`, and has to do what that does.

        @kintsugi.substitute_in_graph(operator.indexOf)
        def index_of(a, b, /):
            for i, item in enumerate(a):
                if item is b or item == b:
                    return i
            raise ValueError("sequence.index(x): x not in sequence")

    Outside of compiled code nothing changes: there the decorated function calls `original_fn`. A function has one
    substitute for the life of the process. `can_constant_fold_through` is torch's: what comes of constants is a
    constant of the trace in either case.
    """
    if not (inspect.isfunction(original_fn) or inspect.isbuiltin(original_fn)):
        raise TypeError(f"kintsugi.substitute_in_graph expects a function, got {type(original_fn).__name__}.")
    if not isinstance(can_constant_fold_through, bool):
        raise TypeError(
            "kintsugi.substitute_in_graph: can_constant_fold_through must be True or False, "
            f"got {can_constant_fold_through!r}."
        )

    def register(substitute: F) -> F:
        if not inspect.isfunction(substitute):
            raise TypeError(
                f"@kintsugi.substitute_in_graph(...) expects a Python function, got {type(substitute).__name__}."
            )
        if not skip_signature_check:
            _check_signatures(original_fn, substitute)
        if _C.has_substitute(original_fn):
            raise ValueError(f"kintsugi.substitute_in_graph: {original_fn} has a substitute already.")

        @functools.wraps(substitute)
        def calls_original(*args: Any, **kwargs: Any) -> Any:
            return original_fn(*args, **kwargs)

        _C.substitute(original_fn, substitute)
        return calls_original  # type: ignore[return-value]

    return register
