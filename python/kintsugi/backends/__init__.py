"""Backends: what runs a captured graph.

`eager` and `native` are ours: the core's replay executor, which runs the recorded operations one by one (`native`
equals `eager` in this version). All others get FX graphs: see `fx.py`.
"""

from .registry import check, is_ours, list_backends, register_backend, segment_compiler

__all__ = ["check", "is_ours", "list_backends", "register_backend", "segment_compiler"]
