"""What is known of the functions that a trace calls: which leave tensors alone, which only compute, which say nothing.

A function that nothing is known of may do anything. What stands here is compared by identity: a function of the same
name is another one.
"""

from __future__ import annotations

import _operator
import _warnings
import builtins
import collections
import contextvars
import functools
import io
import logging
import math
import operator
import time
import types
import warnings
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from . import _C

# Methods of these classes touch no tensor's memory, whatever they are given.
_CONTAINERS = (
    str,
    bytes,
    bytearray,
    list,
    tuple,
    dict,
    set,
    frozenset,
    collections.deque,
    collections.OrderedDict,
)
# Nor do the functions in C of these modules, but for those that may run anything.
_MODULES = (builtins, math, _operator, time, _warnings)
_WILD = (exec, eval, compile, setattr, delattr, __import__)
# What of them the world notices.
_NOTICED = (print, input, open, breakpoint, time.sleep, warnings.warn, warnings.warn_explicit)
_TOLD = (io.IOBase, contextvars.ContextVar)
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def _is(callee: Any, known: Iterable[Any]) -> bool:
    return any(callee is one for one in known)


def _of_torch(*names: str) -> tuple[Any, ...]:
    """Functions of torch's module in C, as far as this torch has them."""
    return tuple(getattr(torch._C, name) for name in names if hasattr(torch._C, name))


# How an operator is computed, not what: which implementations may be taken.
_KERNELS = ("flash", "mem_efficient", "math", "cudnn", "overrideable")
_CHOOSE = _of_torch(
    *(f"_set_sdp_use_{name}" for name in _KERNELS), "_set_sdp_priority_order", "_set_cudnn_benchmark"
)
_ASK = _of_torch(
    *(f"_get_{name}_sdp_enabled" for name in _KERNELS), "_get_sdp_priority_order", "_get_cudnn_benchmark"
)


def _row(callee: Any) -> Mapping[str, Any] | None:
    """What the recorder goes by when it meets a call of it."""
    return _C._call_model(callee)


def _kind(callee: Any) -> str | None:
    row = _row(callee)
    return None if row is None else row["kind"]


@functools.cache
def _torch_functions() -> frozenset[int]:
    return frozenset(map(id, (*vars(torch).values(), *vars(torch._C).values())))


def _is_torch(callee: Any) -> bool:
    if isinstance(callee, types.FunctionType):
        return _C._is_torch_function(callee)
    return id(callee) in _torch_functions()


def changes_torch(callee: Any) -> bool:
    """May it change a setting of torch, or what random numbers come next?"""
    row = _row(callee)
    return _is_torch(callee) and (row is None or bool(row["writes_process"]))


def _asks_torch(callee: Any) -> bool:
    """A question for a setting."""
    return _is(callee, _ASK) or (_is_torch(callee) and _kind(callee) == "constant")


def chooses_kernels(callee: Any) -> bool:
    """It chooses among implementations of operators."""
    return _is(callee, _CHOOSE)


# Functions that only compute, whatever the trace has made of their arguments.
_STRUCTURAL = (getattr, len, sum, slice)
# Those without a model as one of these that only compute, if what they get is plain.
_PURE = (
    getattr,
    hasattr,
    len,
    isinstance,
    issubclass,
    callable,
    int,
    float,
    bool,
    str,
    repr,
    ascii,
    format,
    sum,
    slice,
)


def is_pure(callee: Any) -> bool:
    """Of plain values it gives the same result each time."""
    return _kind(callee) in ("fold", "arithmetic") or _is(callee, _PURE)


def is_structural(callee: Any) -> bool:
    """Of objects that a trace makes, tensors and sizes among them, it gives what they hold."""
    return _is(callee, _STRUCTURAL)


def asks_form(callee: Any) -> bool:
    """What it answers of a tensor does not hang on the values of the tensor."""
    asking = (getattr, hasattr, isinstance, issubclass, callable, type, operator.is_, operator.is_not)
    return _is(callee, asking)


def is_seen_through(callee: Any) -> bool:
    """A function of torch's in Python, without a model: torch.export goes through it once more."""
    return isinstance(callee, types.FunctionType) and _is_torch(callee) and _row(callee) is None


def is_harmless(callee: Any) -> bool:
    """Is it known to leave all tensors as they are: output, clocks, containers of Python?"""
    if isinstance(callee, types.MethodType):
        callee = callee.__func__
    if isinstance(callee, types.FunctionType):
        return _is(callee.__globals__, (vars(logging), vars(warnings)))
    if isinstance(callee, _METHODS):
        return callee.__objclass__ in _CONTAINERS or issubclass(callee.__objclass__, _TOLD)
    if isinstance(callee, weakref.ReferenceType) or callee is weakref.ref:
        return True
    if isinstance(callee, types.BuiltinFunctionType):
        owner = callee.__self__
        if isinstance(owner, types.ModuleType):
            known = _is(owner, _MODULES) and not _is(callee, _WILD)
            return known or _asks_torch(callee) or chooses_kernels(callee)
        return type(owner) in _CONTAINERS or _is(owner, _CONTAINERS) or isinstance(owner, _TOLD)
    return isinstance(callee, type) and callee in _CONTAINERS


def answers_alike(callee: Any) -> bool:
    """Of what is harmless: is its answer the state of objects and settings, and no news from outside?"""
    if isinstance(callee, _METHODS):
        return not issubclass(callee.__objclass__, io.IOBase)
    owner = getattr(callee, "__self__", None)
    return not (owner is time or isinstance(owner, io.IOBase) or _is(callee, _NOTICED))


def is_silent(callee: Any) -> bool:
    """Of what is harmless: does it but give a result?"""
    if isinstance(callee, types.FunctionType):
        return callee.__code__ is logging.Logger.isEnabledFor.__code__
    if isinstance(callee, _METHODS):
        return callee is contextvars.ContextVar.get or not issubclass(callee.__objclass__, _TOLD)
    owner = getattr(callee, "__self__", None)
    return not (_is(callee, _NOTICED) or isinstance(owner, _TOLD) or chooses_kernels(callee))


def _original(function: Any) -> Any:
    """The function inside decorators."""
    while True:
        inner = getattr(function, "_torchdynamo_orig_callable", None) or getattr(
            function, "__wrapped__", None
        )
        if not isinstance(inner, types.FunctionType):
            return function
        function = inner


def is_operator(callee: Any) -> bool:
    """A function that torch.export goes through itself, whose results depend on its arguments alone."""
    return (
        getattr(callee, "_kintsugi_allow_in_graph", False) is True
        or callee is vars(torch._C._FunctionBase)["apply"]
        or (isinstance(callee, types.FunctionType) and _original(callee) is _original(checkpoint))
    )


def name_of(callee: Any) -> str:
    """For people: `print`, `Logger.info`."""
    name = getattr(callee, "__qualname__", None) or getattr(callee, "__name__", None) or type(callee).__name__
    module = getattr(callee, "__module__", None)
    return name if module in (None, "builtins", "__main__") else f"{module}.{name}"


def writes_log(callee: Any) -> bool:
    """A function of Python's logging."""
    return isinstance(callee, types.FunctionType) and callee.__globals__ is vars(logging)
