"""torch.autograd.Function.apply(), so that the recorder sees into `forward`.

In C it calls `forward` with gradients switched off and ties a node of autograd's to the results. Here `forward` is
recorded like the program's own code, on a context that only keeps what it is told, and one step (`tied`) has torch make
the node: `backward` is the class's own and runs in eager mode. Which calls this replaces is decided in
csrc/capture/calls/higher_order.cc.
"""

from __future__ import annotations

import dis
import inspect
import threading
from types import CodeType, FunctionType
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.function import BackwardCFunction, Function, FunctionCtx, FunctionMeta

from kintsugi._marks import allow_in_graph, assume_constant_result

_TENSORS = (torch.Tensor, torch.nn.Parameter)
# What `forward` may call of its context. mark_dirty() is left out: the node changes what is known of an argument then.
_METHODS = ("mark_non_differentiable", "save_for_backward", "save_for_forward", "set_materialize_grads")
# Functions that show a frame's variables.
_SHOWING = frozenset(("locals", "vars", "eval", "exec", "_getframe", "currentframe", "stack"))


@torch.amp.custom_fwd(device_type="cpu")  # type: ignore[untyped-decorator]
def _custom_forward(*args: Any) -> None:
    """What torch makes of it has the code of all that it makes: that sets two attributes of the context."""


_under_mode = torch.no_grad()(_custom_forward)  # likewise: a function that passes on what it is given


class Context(FunctionCtx):  # type: ignore[misc]
    """Takes the place of `ctx` while `forward` runs."""

    needs_input_grad: tuple[bool, ...]


class _Given(threading.local):
    """What the next node of this thread is made of."""

    context: Any = None
    outputs: Any = None


_given = _Given()


def _keeps_to_attributes(code: CodeType, name: str) -> bool:
    """Does the code only set attributes of its own on this argument, read them, and call what `Context` has?"""
    if name in code.co_cellvars or not _SHOWING.isdisjoint(code.co_names):
        return False
    read, written = set(), set()
    instructions = [at for at in dis.get_instructions(code) if at.opname not in ("EXTENDED_ARG", "CACHE")]
    for at, instruction in enumerate(instructions):
        value = instruction.argval
        if value != name and not (isinstance(value, tuple) and name in value):
            continue
        if instruction.opname in (
            "LOAD_ATTR",
            "LOAD_METHOD",
            "STORE_ATTR",
            "DELETE_ATTR",
            "LOAD_CONST",
            "LOAD_GLOBAL",
        ):
            continue  # another thing of that name
        loads = instruction.opname.startswith(("LOAD_FAST", "STORE_FAST_LOAD_FAST"))
        top = value == name or (value[-1] == name and name not in value[:-1])
        after = instructions[at + 1] if at + 1 < len(instructions) else None
        if not loads or not top or after is None:
            return False
        if after.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            read.add(after.argval)
        elif after.opname == "STORE_ATTR":
            written.add(after.argval)
        else:
            return False
    own = all(not hasattr(BackwardCFunction, attribute) for attribute in written)
    return own and read <= written | {"needs_input_grad", *_METHODS}


def _keeps_to_context(function: Any) -> bool:
    """The same of the context, a function's first argument."""
    while type(function) is FunctionType and function.__code__ in (
        _custom_forward.__code__,
        _under_mode.__code__,
    ):
        function = function.__wrapped__  # type: ignore[attr-defined]
    if type(function) is not FunctionType or function.__code__.co_argcount == 0:
        return False
    return _keeps_to_attributes(function.__code__, function.__code__.co_varnames[0])


@assume_constant_result
def is_seen_into(cls: Any, args: tuple[Any, ...]) -> bool:
    """Can `forward` be recorded?"""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if type(cls) is not FunctionMeta or any(type(tensor) not in _TENSORS for tensor in tensors):
        return False
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None or torch.is_anomaly_enabled():
        return False
    if cls.setup_context is Function.setup_context:
        return _keeps_to_context(cls.forward)
    return type(cls.forward) is FunctionType and _keeps_to_context(cls.setup_context)


@assume_constant_result
def node_of(cls: Any) -> Any:
    """A class that makes the nodes of `cls`, and whose `forward` gives what is there already."""
    made = FunctionMeta(
        cls.__name__, (Function,), {"forward": staticmethod(_give), "__module__": cls.__module__}
    )
    made._backward_cls = cls._backward_cls
    return made


def _give(context: Any, *args: Any) -> Any:
    for name, value in vars(_given.context).items():
        if name != "needs_input_grad":
            setattr(context, name, value)
    return _given.outputs


@allow_in_graph
def tied(node: Any, context: Any, outputs: Any, args: tuple[Any, ...]) -> Any:
    """The outputs, with autograd's node behind them."""
    _given.context, _given.outputs = context, outputs
    try:
        return super(Function, node).apply(*args)
    finally:
        _given.context = _given.outputs = None


def _is_plain(output: Any, args: tuple[Any, ...]) -> bool:
    """Would torch give it back as it is, where nothing requires gradients?"""
    return (
        type(output) is torch.Tensor and not output.requires_grad and all(output is not arg for arg in args)
    )


# What torch's C code calls for a class with a setup_context, which gets the defaults of `forward` too. Up to torch 2.13
# Python code of torch's does that before it calls C.
_bind = getattr(torch.autograd.function, "_bind_default_args", None)


@assume_constant_result
def _takes_all(function: Any, count: int) -> bool:
    """Does it take so many arguments by position, and no others?"""
    if type(function) is not FunctionType or vars(function):  # __wrapped__, __signature__
        return False
    code = function.__code__
    variable = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return code.co_argcount == count and not code.co_kwonlyargcount and not variable


def apply_function(cls: Any, *args: Any, **keywords: Any) -> Any:
    with_context = cls.setup_context is Function.setup_context
    if keywords and (with_context or _bind is None):
        return super(Function, cls).apply(*args, **keywords)
    if not with_context and _bind is not None and (keywords or not _takes_all(cls.forward, len(args))):
        args, keywords = _bind(cls.forward, args, keywords)
    if keywords or forward_ad._current_level >= 0 or not is_seen_into(cls, args):
        return super(Function, cls).apply(*args, **keywords)
    context = Context()
    context.needs_input_grad = tuple([isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args])
    recorded = torch.is_grad_enabled() and any(context.needs_input_grad)
    with torch.no_grad():
        if with_context:
            outputs = cls.forward(context, *args)
        else:
            outputs = cls.forward(*args)
            cls.setup_context(context, args, outputs)
    parts = outputs if type(outputs) is tuple else (outputs,)
    if not recorded and all(_is_plain(part, args) for part in parts):
        return outputs
    return tied(node_of(cls), context, outputs, args)
