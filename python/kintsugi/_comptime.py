"""comptime: code that runs while a call is recorded, may look at what has been recorded, and is not in the trace.

    @kintsugi.compile
    def f(x):
        y = x + 1
        kintsugi.comptime.print_locals()                # printed when f is recorded, and never again
        kintsugi.comptime(lambda ctx: ctx.print_graph())
        return y * 2

In eager mode, and in a step that is not looked into, such a call does nothing.
"""

from __future__ import annotations

import builtins
import dis
import time
from collections.abc import Callable
from typing import Any, TextIO, TypeVar

import torch

from . import _C
from ._explain import operations
from ._marks import graph_break

F = TypeVar("F", bound=Callable[..., Any])


def _comptime(fn: F) -> F:
    """Marks a function for the recorder: run here and now, without a trace of it."""
    fn._kintsugi_comptime = True  # type: ignore[attr-defined]
    return fn


class ComptimeVar:
    """A variable of recorded code: its value in the call that is being recorded, and what it is to the trace."""

    def __init__(self, value: Any, what: str) -> None:
        self._value = value
        self._what = what

    def python_type(self) -> type:
        return type(self._value)

    def is_python_constant(self) -> bool:
        """Is it a number, text or the like, and the same in each run of the trace?"""
        return not self.is_dynamic() and not isinstance(self._value, torch.Tensor)

    def as_python_constant(self) -> Any:
        if not self.is_python_constant():
            raise ValueError(f"comptime: {self!r} is not a constant of the trace")
        return self._value

    def is_dynamic(self) -> bool:
        """Is it a number that each run computes or is given?"""
        return self._what.startswith("value ") and not isinstance(self._value, torch.Tensor)

    def is_proxy(self) -> bool:
        """Does a value of the trace stand for it?"""
        return self._what.startswith("value ")

    def size(self, dim: int | None = None) -> Any:
        return self._value.size() if dim is None else self._value.size(dim)

    def real(self) -> Any:
        """The value itself, which recorded code goes on with: to be looked at, not to be changed."""
        return self._value

    def __repr__(self) -> str:
        return f"{type(self._value).__name__}({_shown(self._value)}; {self._what})"


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class ComptimeContext:
    """What has been recorded up to the call of comptime. `stacklevel`: 0 is the frame that made it, 1 its caller."""

    def __init__(self, recording: dict[str, Any], level: int = 0) -> None:
        self._recording = recording
        self._level = level

    def _frame(self, stacklevel: int) -> dict[str, Any]:
        frames: list[dict[str, Any]] = self._recording["frames"]
        return frames[min(self._level + stacklevel, len(frames) - 1)]

    def parent(self) -> ComptimeContext:
        """The same, seen from the caller of the frame."""
        return ComptimeContext(self._recording, self._level + 1)

    def get_local(self, name: str, *, stacklevel: int = 0) -> ComptimeVar:
        """The variable of that name; KeyError if it has no value."""
        return ComptimeVar(*self._frame(stacklevel)["locals"][name])

    def trace(self) -> str:
        """The IR up to here."""
        text: str = self._recording["trace"]
        return text

    def operations(self) -> list[str]:
        """The tensor operations up to here."""
        return operations(self.trace())

    def print(self, value: Any, *, file: TextIO | None = None) -> None:
        builtins.print(repr(value), file=file)

    def print_graph(self, *, verbose: bool = True, file: TextIO | None = None) -> None:
        """The IR up to here; with verbose=False, the tensor operations alone."""
        builtins.print(self.trace() if verbose else "\n".join(self.operations()), file=file)

    def print_guards(self, *, file: TextIO | None = None) -> None:
        builtins.print("\n".join(self._recording["guards"]), file=file)

    def print_locals(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        for name, (value, what) in self._frame(stacklevel)["locals"].items():
            builtins.print(f"{name} = {ComptimeVar(value, what)!r}", file=file)

    def print_value_stack(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        for value, what in self._frame(stacklevel)["stack"]:
            builtins.print(f"- {ComptimeVar(value, what)!r}", file=file)

    def print_disas(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        frame = self._frame(stacklevel)
        dis.disco(frame["code"], lasti=frame["offset"], file=file)

    def print_bt(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """The recorded frames, outermost first."""
        frames = self._recording["frames"][self._level + stacklevel :]
        for frame in reversed(frames):
            where = f'File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}'
            builtins.print(f"  {where}", file=file)

    def sleep(self, sec: float) -> None:
        time.sleep(sec)


def _here() -> ComptimeContext | None:
    recording = _C._recording()
    return None if recording is None else ComptimeContext(recording)


@_comptime
def print_value(e: Any) -> None:
    """Prints a value of recorded code: of a tensor its dtype and sizes."""
    if _here() is not None:
        builtins.print(_shown(e))


@_comptime
def print_graph() -> None:
    context = _here()
    if context is not None:
        context.print_graph()


@_comptime
def print_guards() -> None:
    context = _here()
    if context is not None:
        context.print_guards()


@_comptime
def print_locals(*, stacklevel: int = 0) -> None:
    context = _here()
    if context is not None:
        context.print_locals(stacklevel=stacklevel)


@_comptime
def print_value_stack(*, stacklevel: int = 0) -> None:
    context = _here()
    if context is not None:
        context.print_value_stack(stacklevel=stacklevel)


@_comptime
def print_disas(*, stacklevel: int = 0) -> None:
    context = _here()
    if context is not None:
        context.print_disas(stacklevel=stacklevel)


@_comptime
def print_bt(*, stacklevel: int = 0) -> None:
    context = _here()
    if context is not None:
        context.print_bt(stacklevel=stacklevel)


@_comptime
def assert_static(val: Any) -> None:
    """AssertionError while recording if `val` is a number that each run computes or is given (the recorder looks)."""


@_comptime
def force_static(val: Any) -> None:
    """Makes a number of the run a constant of this trace: another number is another trace (the recorder does it)."""


@_comptime
def breakpoint() -> None:
    """The debugger, in a frame with `ctx`, the ComptimeContext."""
    ctx = _here()
    if ctx is not None:
        builtins.breakpoint()


@_comptime
def sleep(sec: float) -> None:
    if _here() is not None:
        time.sleep(sec)


class Comptime:
    """`kintsugi.comptime`: called with a function of a ComptimeContext; its attributes are such calls, ready made."""

    @_comptime
    def __call__(
        self, fn: Callable[[ComptimeContext], Any], fallback_fn: Callable[[], Any] = lambda: None
    ) -> None:
        """fn(ctx) while a call is recorded, fallback_fn() in eager mode."""
        context = _here()
        if context is None:
            fallback_fn()
        else:
            fn(context)

    graph_break = staticmethod(graph_break)
    print = staticmethod(print_value)
    print_graph = staticmethod(print_graph)
    print_guards = staticmethod(print_guards)
    print_locals = staticmethod(print_locals)
    print_value_stack = staticmethod(print_value_stack)
    print_disas = staticmethod(print_disas)
    print_bt = staticmethod(print_bt)
    assert_static = staticmethod(assert_static)
    force_static = staticmethod(force_static)
    breakpoint = staticmethod(breakpoint)
    sleep = staticmethod(sleep)


comptime = Comptime()
