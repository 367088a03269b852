"""Public names that are imported when they are used first, so that `import kintsugi` stays fast."""

from __future__ import annotations

import importlib

NAMES = {
    "CompilationProfiler": "_profiler",
    "EventLog": "_events",
    "benchmark": "_diagnostics",
    "diagnostics": "_diagnostics",
    "dump": "_diagnostics",
    "issue_bundle": "_bundle",
    "suggest_rewrites": "_rewrite",
    "try_backends": "_diagnostics",
    "where_to_compile": "_diagnostics",
}


def load(name: str) -> object:
    """The object behind a public name; AttributeError for others."""
    if name not in NAMES:
        raise AttributeError(f"module 'kintsugi' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{NAMES[name]}", __package__), name)
