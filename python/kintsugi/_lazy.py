"""Public names that are imported when they are used first, so that `import kintsugi` stays fast."""

from __future__ import annotations

import importlib

NAMES = {
    "BreakReason": "_explain",
    "CacheInfo": "_cache",
    "CompilationProfiler": "_profiler",
    "EventLog": "_events",
    "ExplainOutput": "_explain",
    "ExportFinding": "_export",
    "ExportReport": "_export",
    "benchmark": "_diagnostics",
    "bucket": "_shapes",
    "cache_info": "_cache",
    "clear_cache": "_cache",
    "diagnostics": "_diagnostics",
    "dump": "_diagnostics",
    "explain": "_explain",
    "export": "_export",
    "export_report": "_export",
    "issue_bundle": "_bundle",
    "mark_dynamic": "_shapes",
    "mark_static": "_shapes",
    "maybe_mark_dynamic": "_shapes",
    "pad_to_bucket": "_shapes",
    "suggest_rewrites": "_rewrite",
    "try_backends": "_diagnostics",
    "where_to_compile": "_diagnostics",
}


def load(name: str) -> object:
    """The object behind a public name; AttributeError for others."""
    if name not in NAMES:
        raise AttributeError(f"module 'kintsugi' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{NAMES[name]}", __package__), name)
