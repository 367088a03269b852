"""Which code of the program a callable is for people: a module's forward, not torch's code that calls it."""

from __future__ import annotations

import inspect
import types

import torch


def program_place(fn: object) -> tuple[str, int, str] | None:
    """File, first line and name (`Net.forward`) of a module's forward, if fn is the module's call; None otherwise."""
    module = getattr(fn, "__self__", None)
    if not isinstance(fn, types.MethodType) or not isinstance(module, torch.nn.Module):
        return None
    if fn.__func__ not in (torch.nn.Module.__call__, torch.nn.Module._call_impl):
        return None
    forward = getattr(module, "forward", None)
    if forward is None:
        return None
    try:
        function = inspect.unwrap(getattr(forward, "__func__", forward))
    except ValueError:  # wrappers that go round
        return None
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return None
    return code.co_filename, code.co_firstlineno, f"{type(module).__qualname__}.forward"
