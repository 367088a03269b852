"""Calls of torch while a function mode of the program's is active, so that the recorder sees into the mode.

Torch's C code takes the mode from its stack, calls its `__torch_function__`, and puts it back. Here that is Python code
that is recorded like the program's own. What the mode would be given is asked of torch itself, once, while the call is
recorded (`seen_by_mode`). Which calls this replaces is decided in csrc/capture/calls/function_modes.cc.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from types import GetSetDescriptorType
from typing import Any

import torch
from torch import overrides
from torch.utils import _device


class _Seen(BaseException):
    """Leaves torch's code before anything is computed."""


class _Probe(overrides.TorchFunctionMode):  # type: ignore[misc]
    """Keeps what a mode is given."""

    seen: tuple[Any, ...] | None = None

    def __torch_function__(self, func: Any, types: Any, *rest: Any) -> Any:
        self.seen = (func, types, *rest)
        raise _Seen


_OPERATORS = frozenset(filter(callable, vars(operator).values()))
_QUESTIONS = frozenset((getattr, len))
_NUMBERS = frozenset((bool, int, float, complex))


@functools.cache
def _overridable() -> frozenset[Any]:
    """What takes tensors, and what makes them."""
    functions = {*overrides.get_testing_overrides(), *_device._device_constructors()}
    return frozenset(function for function in functions if callable(function))


def _asks_modes(call: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Does torch ask a mode before the call does anything?"""
    try:
        if call in _OPERATORS:  # the left operand has the first say; a list that is added to asks nobody
            first = next((arg for arg in args if type(arg) not in _NUMBERS), None)
            return isinstance(first, torch.Tensor)
        if call in _QUESTIONS:
            return isinstance(args[0], torch.Tensor)
        return call in _overridable()
    except TypeError:  # no hash
        return False


def seen_by_mode(
    call: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """What a mode is given for the call: function, types, arguments, and keywords if there are any.

    None: a mode is not asked, or not at once.
    """
    if not torch._C._is_torch_function_mode_enabled() or not _asks_modes(call, args):
        return None
    probe = _Probe()
    depth = torch._C._len_torch_function_stack()
    try:
        with probe:
            call(*args, **named)
    except _Seen:
        pass
    except Exception:
        return None
    if probe.seen is None or torch._C._len_torch_function_stack() != depth:
        return None
    func, types, *rest = probe.seen
    whole = not hasattr(call, "__code__") or func is call
    return (func, types, *rest) if whole and len(rest) in (1, 2) and type(rest[0]) is tuple else None


def under_mode(func: Any, types: Any, with_keywords: bool, *args: Any, **keywords: Any) -> Any:
    mode = torch._C._pop_torch_function_stack()
    try:
        if with_keywords:
            result = mode.__torch_function__(func, types, args, keywords)
        else:
            result = mode.__torch_function__(func, types, args)
    finally:
        torch._C._push_on_torch_function_stack(mode)
    if result is NotImplemented:
        name = overrides.resolve_name(func) or func.__name__
        raise TypeError(
            f"Multiple dispatch failed for '{name}'; all __torch_function__ handlers returned NotImplemented:\n\n"
            f"  - mode object {mode!r}\n\nFor more information, try re-running with TORCH_LOGS=not_implemented"
        )
    return result


_Getter = type(torch._C.TensorBase.__dict__["shape"].__get__)


def attribute_of(getter: Any) -> str | None:
    """The attribute of tensors that this is the getter of."""
    if type(getter) is not _Getter or type(getter.__self__) is not GetSetDescriptorType:
        return None
    descriptor = getter.__self__
    name: str = descriptor.__name__
    known = getattr(torch.Tensor, name, None) is descriptor and getter == descriptor.__get__
    return name if known else None


def read_attribute(tensor: torch.Tensor, name: str) -> Any:
    return getattr(tensor, name)
