"""Public names that are imported when they are used first, so that `import kintsugi` stays fast."""

from __future__ import annotations

import importlib

NAMES = {
    "AotCompiledFunction": "_package",
    "BreakReason": "_explain",
    "CacheInfo": "_cache",
    "CompilationProfiler": "_profiler",
    "EventLog": "_events",
    "ExplainOutput": "_explain",
    "ExportFinding": "_export",
    "ExportReport": "_export",
    "GuardFilterEntry": "_guard_filter",
    "PackageReport": "_package",
    "PassStatistics": "_pass_statistics",
    "benchmark": "_diagnostics",
    "bucket": "_shapes",
    "cache_info": "_cache",
    "clear_cache": "_cache",
    "comptime": "_comptime",
    "diagnostics": "_diagnostics",
    "dump": "_diagnostics",
    "explain": "_explain",
    "export": "_export",
    "export_report": "_export",
    "get_default_backend": "_stance",
    "issue_bundle": "_bundle",
    "keep_portable_guards_unsafe": "_guard_filter",
    "keep_tensor_guards_unsafe": "_guard_filter",
    "load_cache_artifacts": "_package",
    "load_compiled_function": "_package",
    "load_package": "_package",
    "mark_dynamic": "_shapes",
    "mark_static": "_shapes",
    "mark_unbacked": "_shapes",
    "maybe_mark_dynamic": "_shapes",
    "package": "_package",
    "package_report": "_package",
    "pad_to_bucket": "_shapes",
    "pass_statistics": "_pass_statistics",
    "save_cache_artifacts": "_package",
    "set_default_backend": "_stance",
    "set_stance": "_stance",
    "skip_all_guards_unsafe": "_guard_filter",
    "skip_guard_on_all_nn_modules_unsafe": "_guard_filter",
    "skip_guard_on_globals_unsafe": "_guard_filter",
    "skip_guard_on_inbuilt_nn_modules_unsafe": "_guard_filter",
    "substitute_in_graph": "_substitutes",
    "suggest_rewrites": "_rewrite",
    "try_backends": "_diagnostics",
    "where_to_compile": "_diagnostics",
    "wrap_numpy": "_numpy",
}


def load(name: str) -> object:
    """The object behind a public name; AttributeError for others."""
    if name not in NAMES:
        raise AttributeError(f"module 'kintsugi' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{NAMES[name]}", __package__), name)
