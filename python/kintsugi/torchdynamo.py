"""torch._dynamo's names, for guides and programs that use them: `import kintsugi.torchdynamo as torchdynamo`.

What has a counterpart here leads to it; settings that only concern torch's own compiler are kept and have no effect.
"""

from __future__ import annotations

import logging
import types
from typing import Any

import torch

from . import _config, _logs, _options
from ._explain import explain
from ._marks import allow_in_graph, assume_constant_result, disable, is_compiling
from ._profiler import CompilationProfiler
from ._public import compile, optimize, reset
from .backends import list_backends, register_backend

__all__ = [
    "CompilationProfiler",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "config",
    "disable",
    "explain",
    "is_compiling",
    "list_backends",
    "optimize",
    "register_backend",
    "reset",
    "utils",
]

utils = types.SimpleNamespace(CompilationProfiler=CompilationProfiler)


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


config = _Settings()
