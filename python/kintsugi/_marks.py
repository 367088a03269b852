"""Marks on functions that tell the recorder what to do with them, and is_compiling().

The recorder reads these attributes of a function (and torch's own, which mean the same):

* `_kintsugi_disable` — True: run it as an opaque step; with `_kintsugi_disable_recursive` (False: only its own frame
  is skipped) and `_kintsugi_disable_reason`;
* `_kintsugi_allow_in_graph` — True: one call instruction of the graph, not looked into;
* `_dynamo_forbidden` — True: an AssertionError where it is called;
* `_kintsugi_assume_constant_result` — True: its result is taken for a constant of the trace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

import torch

from . import _C
from ._callable import CompiledFunction
from ._module import CompiledModule, wrap_module

F = TypeVar("F", bound=Callable[..., Any])


def _disabled(fn: Callable[..., Any], recursive: bool, reason: str | None) -> Callable[..., Any]:
    if recursive:

        @functools.wraps(fn)
        def disabled(*args: Any, **kwargs: Any) -> Any:
            return _C._call_disabled(fn, *args, **kwargs)

    else:

        @functools.wraps(fn)
        def disabled(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

    disabled._kintsugi_disable = True  # type: ignore[attr-defined]
    disabled._kintsugi_disable_recursive = recursive  # type: ignore[attr-defined]
    disabled._kintsugi_disable_reason = reason  # type: ignore[attr-defined]
    return disabled


@overload
def disable(fn: F, recursive: bool = ..., *, reason: str | None = ...) -> F: ...
@overload
def disable(fn: None = None, recursive: bool = ..., *, reason: str | None = ...) -> Callable[[F], F]: ...
def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The same function, not looked into when compiled code calls it: a step of the trace that runs in eager mode.

    * `recursive`: True: compiled callables that it calls run in eager mode, too; False: they run compiled.
    * `reason`: shown with the graph break in logs and reports.

    Decorator with and without arguments; a compiled callable gives its original back, not compiled.
    """
    if fn is None:
        return lambda target: disable(target, recursive, reason=reason)
    if isinstance(fn, CompiledModule):
        fn = fn._orig_mod
    elif isinstance(fn, CompiledFunction):
        fn = fn.__wrapped__
    if isinstance(fn, staticmethod):
        return staticmethod(_disabled(fn.__func__, recursive, reason))
    if isinstance(fn, classmethod):
        return classmethod(_disabled(fn.__func__, recursive, reason))
    if not callable(fn):
        raise TypeError(f"kintsugi.disable expects something that can be called, got {type(fn).__name__}.")
    if isinstance(fn, type):
        fn.__call__ = _disabled(fn.__call__, recursive, reason)  # type: ignore[method-assign]
        return fn
    if isinstance(fn, torch.nn.Module):
        return wrap_module(fn, _disabled(fn.__call__, recursive, reason))
    return _disabled(fn, recursive, reason)


def _mark(function: str, fn: Any, attribute: str) -> Any:
    if isinstance(fn, (list, tuple)):
        return [_mark(function, one, attribute) for one in fn]
    if not callable(fn):
        raise TypeError(f"kintsugi.{function} expects something that can be called, got {type(fn).__name__}.")
    try:
        setattr(fn, attribute, True)
    except (AttributeError, TypeError):
        raise TypeError(
            f"kintsugi.{function} can't mark {fn!r}, which takes no attributes: wrap it in a Python function."
        ) from None
    return fn


def allow_in_graph(fn: F) -> F:
    """The function becomes one operation of the graph: called again on each run, never looked into.

    Its results may only depend on its arguments.
    """
    marked: F = _mark("allow_in_graph", fn, "_kintsugi_allow_in_graph")
    return marked


def assume_constant_result(fn: F) -> F:
    """The function's result is taken for a constant: it is called while recording, and never again on later runs."""
    marked: F = _mark("assume_constant_result", fn, "_kintsugi_assume_constant_result")
    return marked


def disallow_in_graph(fn: F) -> F:
    """Calls of the Python function are steps that are not looked into (KTG0107): disable() without another function."""
    marked: Any = _mark("disallow_in_graph", fn, "_kintsugi_disable")
    for one in marked if isinstance(marked, list) else [marked]:
        one._kintsugi_disable_reason = "disallow_in_graph() was called for it"
    return marked  # type: ignore[no-any-return]


def nonstrict_trace(fn: F) -> F:
    """A function that is allow_in_graph()'s, and leaves `fn` itself as it is.

    It takes modules and any other objects, reads what it closes over again in each run, and gradients flow through it.
    """
    if not callable(fn):
        raise TypeError(
            f"kintsugi.nonstrict_trace expects something that can be called, got {type(fn).__name__}."
        )

    @functools.wraps(fn)
    def traced(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return allow_in_graph(traced)  # type: ignore[return-value]


def forbid_in_graph(fn: F) -> F:
    """Calling the function in compiled code is an AssertionError, raised while the call is recorded.

    The mark is torch's: a function that torch._dynamo.forbid_in_graph() has marked is forbidden here, too, unless it is
    one of torch's own.
    """
    marked: F = _mark("forbid_in_graph", fn, "_dynamo_forbidden")
    return marked


def graph_break(msg: str = "") -> None:
    """Breaks the graph here (KTG0115): an error where breaks are errors. Outside of compiled code it does nothing.

    `msg` is shown with the break. torch._dynamo.graph_break() does the same here.
    """


def is_exporting() -> bool:
    """torch.compiler.is_exporting(): True while a program is exported."""
    return bool(torch.compiler.is_exporting())


def is_dynamo_compiling() -> bool:
    """True while a call is being recorded, or traced by TorchDynamo; not in export without it, as is_compiling() is."""
    return bool(torch.compiler.is_dynamo_compiling())


def is_compiling() -> bool:
    """True while a call is being recorded; inside a trace it is a constant.

    torch.compiler.is_compiling() is True there only with config.report_compiling, or where a backend that is not ours
    gets the graphs.
    """
    return bool(torch.compiler.is_compiling())


class error_on_graph_break:
    """Makes graph breaks errors in a block or a function, or ordinary again inside one.

        with kintsugi.error_on_graph_break(True):
            y = compiled(x)                         # raises kintsugi.GraphBreakError at the first break

        @kintsugi.error_on_graph_break(False)
        def may_break(x): ...                       # also when it is called in such a block

    It works inside compiled code as well, for the part of it that the block covers. fullgraph=True is stronger. It says
    what happens while a call is recorded: a trace that has been recorded before is run as it is.
    """

    def __init__(self, enabled: bool = True) -> None:
        if not isinstance(enabled, bool):
            raise TypeError(f"kintsugi.error_on_graph_break takes True or False, got {enabled!r}.")
        self._enabled = enabled
        self._before = -1

    def __enter__(self) -> None:
        self._before = _C.set_error_on_graph_break(1 if self._enabled else 0)

    def __exit__(self, *_exception: object) -> None:
        _C.set_error_on_graph_break(self._before)

    def __call__(self, fn: F) -> F:
        enabled = self._enabled

        @functools.wraps(fn)
        def switched(*args: Any, **kwargs: Any) -> Any:
            with error_on_graph_break(enabled):
                return fn(*args, **kwargs)

        return switched  # type: ignore[return-value]
