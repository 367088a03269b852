"""What kintsugi.compile() returns for a function, a method or another callable object."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from . import _C, _for_dynamo
from ._options import CompileOptions
from ._stats import Stats

if TYPE_CHECKING:
    from ._diagnostics import Dump
    from ._package import AotCompiledFunction


def _rebuild(fn: Callable[..., Any], options: CompileOptions) -> CompiledFunction:
    return CompiledFunction(fn, options)


class Signature:
    """The attribute `__signature__` of what is compiled: that of the original, read when it is asked for.

    The classes themselves have none, and callables without a signature have none when compiled.
    """

    def __init__(self, original: str) -> None:
        self._original = original

    def __get__(self, instance: object | None, owner: type) -> inspect.Signature:
        if instance is None:
            raise AttributeError("__signature__")
        _for_dynamo.tell()  # torch.export begins with the signature
        try:
            return inspect.signature(getattr(instance, self._original))
        except (TypeError, ValueError):
            raise AttributeError("__signature__") from None


class CompiledFunction(_C.CallHolder):
    """A compiled callable. It is called like the original, and binds to an instance as a function does.

    Calls are the base's, which holds the core's callable: a call reaches the core with no Python frame of ours in
    between, so stack depths, tracebacks and `warnings.warn(stacklevel=2)` are those of the original.
    """

    __slots__ = ("__dict__", "__weakref__", "_options")

    __signature__ = Signature("__wrapped__")
    __wrapped__: Callable[..., Any]
    _options: CompileOptions

    def __init__(self, fn: Callable[..., Any], options: CompileOptions) -> None:
        _for_dynamo.tell()
        compiled = _C.Compiled(fn, options.to_core(fn))
        self._kintsugi_call = compiled
        self._options = options
        functools.update_wrapper(self, fn)

    @property
    def _kintsugi_compiled(self) -> _C.Compiled:
        return cast(_C.Compiled, self._kintsugi_call)

    @property
    def __code__(self) -> types.CodeType:
        """The original's: torch.export reads a forward's argument names from it."""
        return self.__wrapped__.__code__

    def __getattr__(self, name: str) -> Any:
        """What the original has besides: cache_info() of functools.lru_cache, say."""
        if name == "__wrapped__":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return types.MethodType(self, instance)

    def __prepare_scriptable__(self) -> Callable[..., Any]:
        """torch.jit.script() compiles the original's source."""
        return self.__wrapped__

    def __repr__(self) -> str:
        name = f" as {self._options.name!r}" if self._options.name else ""
        return f"<kintsugi.compile of {self.__wrapped__!r}{name}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        # As functions are pickled: by name, when the name leads here.
        found: Any = sys.modules.get(getattr(self, "__module__", None) or "")
        name = getattr(self, "__qualname__", "")
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:
            return str(name)
        return _rebuild, (self.__wrapped__, self._options)

    def __copy__(self) -> CompiledFunction:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledFunction:
        return self  # as functions are

    def stats(self) -> Stats:
        """How much was recorded, and how often it ran."""
        return Stats.from_core(self._kintsugi_compiled.stats())

    def reset(self) -> None:
        """Drops all traces of this callable."""
        self._kintsugi_compiled.reset()

    def traces(self) -> list[str]:
        """The IR of each trace, as text."""
        return self._kintsugi_compiled.traces()

    def breaks(self) -> list[dict[str, Any]]:
        """Where traces are split: code, name, message, cure, file, line, function."""
        return self._kintsugi_compiled.breaks()

    def dump(self, *args: Any, **kwargs: Any) -> Dump:
        """kintsugi.dump() of the original, called with these arguments: IR, FX graphs, Graphviz, the backward graph."""
        from ._diagnostics import dump

        made: Dump = dump(cast(Any, self))(*args, **kwargs)
        return made

    def aot_compile(self, example_inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> AotCompiledFunction:
        """Makes a call with these (args, kwargs) and records it: what it gives can be saved for another process."""
        from ._package import aot_compile

        return aot_compile(self, example_inputs)

    def recompiles(self) -> list[dict[str, Any]]:
        """Why there are several traces: guard, expected, seen, file, line."""
        return self._kintsugi_compiled.recompiles()


def core_of(compiled: object) -> _C.Compiled | None:
    """The core's callable behind what kintsugi.compile() returned; None for anything else."""
    if isinstance(compiled, types.MethodType):
        compiled = compiled.__func__
    if isinstance(compiled, _C.Compiled):
        return compiled
    if isinstance(compiled, CompiledFunction):
        return compiled._kintsugi_compiled
    # A compiled module; asking it with getattr() would ask the original.
    found = getattr(compiled, "__dict__", {}).get("_kintsugi_compiled")
    return found if isinstance(found, _C.Compiled) else None
