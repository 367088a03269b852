"""Backends: what runs a captured graph.

`eager` and `native` are ours: the core's replay executor, which runs the recorded operations one by one, and machine
code that takes its place. All others get FX graphs: see `fx.py`.
"""

from .registry import check, default_name, is_ours, list_backends, register_backend, segment_compiler

__all__ = ["check", "default_name", "is_ours", "list_backends", "register_backend", "segment_compiler"]
