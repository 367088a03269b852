"""torch._dynamo's names, for guides and programs that use them: `import kintsugi.torchdynamo as torchdynamo`.

What has a counterpart here leads to it; settings that only concern torch's own compiler are kept and have no effect.
A name that is not about compiling (`utils.counters`, `testing`) is torch's own; one that is, and has no counterpart, is
an AttributeError that says so.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from . import _config, _logs, _options
from ._comptime import comptime
from ._explain import explain
from ._marks import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    error_on_graph_break,
    forbid_in_graph,
    graph_break,
    is_compiling,
    nonstrict_trace,
)
from ._module import CompiledModule as OptimizedModule
from ._optimize import Optimize
from ._profiler import CompilationProfiler
from ._public import compile, optimize, reset
from ._shapes import mark_dynamic, mark_static, mark_unbacked, maybe_mark_dynamic
from ._stance import set_stance
from ._substitutes import substitute_in_graph
from .backends import list_backends, register_backend

__all__ = [
    "CompilationProfiler",
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "comptime",
    "config",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "explain",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nonstrict_trace",
    "optimize",
    "optimize_assert",
    "patch_dynamo_config",
    "register_backend",
    "reset",
    "run",
    "set_stance",
    "substitute_in_graph",
    "utils",
]

# Of torch._dynamo, what would have to do something here and does not.
_WITHOUT_COUNTERPART = {
    "allow_c_slot": "C functions have models: docs/howto/add-a-c-callable-model.md",
    "override_cudagraphs": "there are no CUDA graphs",
    "override_optimization_hint": "code is chosen by the sizes that calls bring",
    "skip_frame": "no frame is skipped; use kintsugi.disable(fn, recursive=False)",
    "step_unsupported": "recording goes on after a break; use graph_break()",
}


def __getattr__(name: str) -> Any:
    if name in _WITHOUT_COUNTERPART:
        raise AttributeError(
            f"torch._dynamo.{name} has no counterpart in Kintsugi: {_WITHOUT_COUNTERPART[name]}."
        )
    return getattr(torch._dynamo, name)


def optimize_assert(backend: Any = None, **options: Any) -> Optimize:
    """optimize(backend, nopython=True)."""
    return optimize(backend, **{**options, "nopython": True})


class _Run(contextlib.ContextDecorator):
    """Calls that no trace serves run in eager mode, and nothing is recorded."""

    def __enter__(self) -> None:
        self._stance = set_stance("eager_on_recompile")

    def __exit__(self, *_exception: object) -> None:
        self._stance.__exit__()


def run(fn: Callable[..., Any] | None = None) -> Any:
    """Only what was compiled before is used: a decorator, or without `fn` a context manager."""
    return _Run() if fn is None else _Run()(fn)


class _Utils:
    """torch._dynamo.utils, with the profiler that it had once."""

    CompilationProfiler = CompilationProfiler

    def __getattr__(self, name: str) -> Any:
        return getattr(torch._dynamo.utils, name)


utils = _Utils()


def _log_channels(level: object) -> tuple[str, ...]:
    number = logging.getLevelName(level) if isinstance(level, str) else level
    if not isinstance(number, int):
        raise ValueError(f"torchdynamo.config.log_level: unknown level {level!r}")
    if number <= logging.DEBUG:
        return tuple(_logs.CHANNELS)
    return ("graph_breaks", "recompiles") if number <= logging.INFO else ()


class _Settings:
    """kintsugi.config under torch's names; `log_level` and `debug` choose log channels."""

    def __init__(self) -> None:
        object.__setattr__(self, "_kept", {"log_level": logging.WARNING, "debug": False})

    def __getattr__(self, name: str) -> Any:
        kept: dict[str, Any] = self._kept
        settings = _config.current()
        if settings is not None and name in settings._options():
            return getattr(settings, name)
        if name in kept:
            return kept[name]
        return getattr(torch._dynamo.config, name)

    def __setattr__(self, name: str, value: Any) -> None:
        settings = _config.current()
        if settings is not None and name in settings._options():
            setattr(settings, name, value)
            return
        if name in _options.WITHOUT_EFFECT:
            _options.report_without_effect(name, value, "torchdynamo.config")
        if name not in self._kept:
            getattr(torch._dynamo.config, name)  # a name that nobody knows is an error here as well
        self._kept[name] = value
        if name == "log_level":
            _logs.set_logs(*_log_channels(value))
        elif name == "debug":
            _logs.set_logs(*(("trace", "graph_code", "guards") if value else ()))

    @contextlib.contextmanager
    def patch(self, arg1: Any = None, arg2: Any = None, /, **changes: Any) -> Iterator[None]:
        """As torch's: patch(name=value), patch("name", value), patch({"name": value}); for a block or a function."""
        if isinstance(arg1, str):
            changes = {arg1: arg2, **changes}
        elif isinstance(arg1, Mapping):
            changes = {**arg1, **changes}
        elif arg1 is not None:
            raise TypeError(f"torchdynamo.config.patch: expected a name or a dict, got {arg1!r}")
        before = {name: getattr(self, name) for name in changes}
        try:
            for name, value in changes.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)


config = _Settings()
patch_dynamo_config = config.patch
