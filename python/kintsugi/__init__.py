"""Kintsugi: a tracing JIT for PyTorch that mends graph breaks.

    import kintsugi
    fast = kintsugi.compile(model)      # where you wrote torch.compile(model)

Importing this package changes nothing: no hook is installed until something is compiled and called.
"""

from __future__ import annotations

import os as _os
import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import _requirements

# A build tree or a sanitizer build brings its own extension module: look for it there before anywhere else.
if _os.environ.get("KINTSUGI_EXT_DIR"):
    __path__.insert(0, _os.path.join(_os.environ["KINTSUGI_EXT_DIR"], "kintsugi"))

_requirements.load(_sys.modules[__name__])

from ._callable import CompiledFunction  # noqa: E402
from ._config import Config as _Config  # noqa: E402
from ._errors import ExportError, GraphBreakError  # noqa: E402
from ._lazy import load as _load_lazily  # noqa: E402
from ._logs import set_logs  # noqa: E402
from ._marks import (  # noqa: E402
    allow_in_graph,
    assume_constant_result,
    disable,
    error_on_graph_break,
    forbid_in_graph,
    graph_break,
    is_compiling,
    is_dynamo_compiling,
    is_exporting,
    nonstrict_trace,
)
from ._module import CompiledModule  # noqa: E402
from ._public import compile, optimize, reset, wait  # noqa: E402
from ._runtime import interpret_everything as _interpret_everything  # noqa: E402, F401
from ._runtime import start as _start  # noqa: E402
from ._stats import Stats  # noqa: E402
from .backends import list_backends, register_backend  # noqa: E402

if _TYPE_CHECKING:
    from torch.compiler import (
        keep_portable_guards_unsafe,
        keep_tensor_guards_unsafe,
        skip_all_guards_unsafe,
        skip_guard_on_all_nn_modules_unsafe,
        skip_guard_on_globals_unsafe,
        skip_guard_on_inbuilt_nn_modules_unsafe,
    )

    from ._bundle import issue_bundle
    from ._cache import CacheInfo, cache_info, clear_cache
    from ._comptime import comptime
    from ._diagnostics import benchmark, diagnostics, dump, try_backends, where_to_compile
    from ._events import EventLog
    from ._explain import BreakReason, ExplainOutput, explain
    from ._export import ExportFinding, ExportReport, export, export_report
    from ._guard_filter import GuardFilterEntry
    from ._numpy import wrap_numpy
    from ._package import (
        AotCompiledFunction,
        PackageReport,
        load_cache_artifacts,
        load_compiled_function,
        load_package,
        package,
        package_report,
        save_cache_artifacts,
    )
    from ._pass_statistics import PassStatistics, pass_statistics
    from ._profiler import CompilationProfiler
    from ._rewrite import suggest_rewrites
    from ._shapes import bucket, mark_dynamic, mark_static, mark_unbacked, maybe_mark_dynamic, pad_to_bucket
    from ._stance import get_default_backend, set_default_backend, set_stance
    from ._substitutes import substitute_in_graph

__version__ = _requirements.VERSION

config: _Config = _start()


def __getattr__(name: str) -> object:
    # What not every program needs is imported when it is asked for.
    return _load_lazily(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AotCompiledFunction",
    "BreakReason",
    "CacheInfo",
    "CompilationProfiler",
    "CompiledFunction",
    "CompiledModule",
    "EventLog",
    "ExplainOutput",
    "ExportError",
    "ExportFinding",
    "ExportReport",
    "GraphBreakError",
    "GuardFilterEntry",
    "PackageReport",
    "PassStatistics",
    "Stats",
    "allow_in_graph",
    "assume_constant_result",
    "benchmark",
    "bucket",
    "cache_info",
    "clear_cache",
    "compile",
    "comptime",
    "config",
    "diagnostics",
    "disable",
    "dump",
    "error_on_graph_break",
    "explain",
    "export",
    "export_report",
    "forbid_in_graph",
    "get_default_backend",
    "graph_break",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "issue_bundle",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "load_cache_artifacts",
    "load_compiled_function",
    "load_package",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nonstrict_trace",
    "optimize",
    "package",
    "package_report",
    "pad_to_bucket",
    "pass_statistics",
    "register_backend",
    "reset",
    "save_cache_artifacts",
    "set_default_backend",
    "set_logs",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
    "suggest_rewrites",
    "try_backends",
    "wait",
    "where_to_compile",
    "wrap_numpy",
]
