"""kintsugi.compile, reset and wait."""

from __future__ import annotations

import functools
import os
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import torch

from . import _C, _polyfills, _progress, backends  # noqa: F401 (the recorder looks _polyfills up)
from ._callable import CompiledFunction, core_of
from ._module import CompiledModule, compile_module
from ._optimize import Optimize
from ._options import CompileOptions

_C._hide_polyfills()
_C._torch_patches()  # remembers torch's functions, so that replaced ones are noticed later

M = TypeVar("M", bound=Callable[..., Any])

# What was compiled with which options, for as long as it lives.
live: weakref.WeakKeyDictionary[_C.Compiled, CompileOptions] = weakref.WeakKeyDictionary()
# Called with each new compiled callable: `kintsugi explain SCRIPT` collects them here.
observers: list[Callable[[Any], None]] = []


@overload
def compile(
    model: M,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] | None = ...,
    mode: str | None = ...,
    options: Mapping[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
    isolate_recompiles: bool = ...,
    audit: int | None = ...,
    cache: str | os.PathLike[str] | None = ...,
) -> M: ...
@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] | None = ...,
    mode: str | None = ...,
    options: Mapping[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
    isolate_recompiles: bool = ...,
    audit: int | None = ...,
    cache: str | os.PathLike[str] | None = ...,
) -> Callable[[M], M]: ...
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    audit: int | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Any:
    """Compiles a function, method, nn.Module or other callable; has torch.compile's shape.

    * `model`: what to compile. Without it, returns a decorator.
    * `fullgraph`: the first graph break that can't be mended raises kintsugi.GraphBreakError, where it is; what counts
      as one is in docs/howto/graph-breaks.md.
    * `dynamic`: None: sizes become dynamic when they change; True: from the start; False: never.
    * `backend`: "native" replays the recorded operations at once, compiles them to machine code in the background, and
      goes on replaying what it can't compile or what does not become faster; results are within the tolerances of
      docs/internals/native.md. "eager" only replays, bitwise as in eager mode. Else the name of a registered
      backend, or a callable(gm, example_inputs). None: config.default_backend, which is "native".
    * `mode`: "default", "reduce-overhead", "max-autotune" or "max-autotune-no-cudagraphs". To "native", reduce-overhead
      says to keep the memory of intermediate results for the next call, and max-autotune to do so as well, to
      try several ways of compiling each segment on the program's own calls, to keep and remember the fastest, and
      to compare it with replay for longer. Which way is chosen may change results by rounding.
    * `options`: settings for this callable alone (recompile_limit, trace_length_limit; for "native" also sync, which
      compiles before the first call returns, strict, which gives bitwise the results of eager mode, fp_contract,
      which allows to round several operators as one, and keep_memory and autotune, of which the modes are made), or
      the backend's own options; with any backend also guard_filter_fn, as torch.compile has it: called with an entry
      for each guard of a new trace, it returns which are to be checked.
    * `name`: what this callable is called in logs and in the names of its graphs.
    * `disable`: True returns `model` as it is.
    * `recompile_limit`: config.recompile_limit for this callable alone.
    * `isolate_recompiles`: torch.compile's; here every call of compile() has traces and a limit of its own anyway.
    * `audit`: config.audit for this callable alone: one call in so many runs in eager mode, too, and is compared.
    * `cache`: a file: the callable begins with the traces that an earlier process has left there, and what this one has
      is written at its end (docs/howto/packages.md).

    The result is called like the original. It has `stats()`; a compiled module also has everything of the original.
    """
    settings = CompileOptions(
        fullgraph=fullgraph,
        dynamic=dynamic,
        backend=backends.default_name(backend),
        mode=mode,
        options=options,
        name=name,
        recompile_limit=recompile_limit,
        isolate_recompiles=isolate_recompiles,
        audit=audit,
    )
    if model is None:
        return functools.partial(_decorate, options=settings, disable=disable, cache=cache)
    return _decorate(model, options=settings, disable=disable, cache=cache)


def optimize(
    backend: str | Callable[..., Any] | None = None,
    *,
    nopython: bool = False,
    dynamic: bool | None = None,
    disable: bool = False,
) -> Optimize:
    """torch._dynamo.optimize's spelling of compile(): a decorator, and a context manager at module level.

    nopython is fullgraph. A CompilationProfiler may be given as the backend.
    """
    chosen = backends.default_name(backend)
    options = CompileOptions(backend=chosen, fullgraph=nopython, dynamic=dynamic)
    return Optimize(functools.partial(_decorate, options=options, disable=disable), chosen)


def _decorate(
    model: Any, *, options: CompileOptions, disable: bool, cache: str | os.PathLike[str] | None = None
) -> Any:
    if not callable(model) and not isinstance(model, (staticmethod, classmethod)):
        raise TypeError(
            f"kintsugi.compile expects a function, method, nn.Module or other callable, got {type(model).__name__}. "
            "As a decorator with options: @kintsugi.compile(fullgraph=True)."
        )
    if disable:
        return model
    compiled = _compile(model, options)
    if cache is not None:
        from ._package import use_cache

        use_cache(compiled, os.fspath(cache))
    return compiled


def _compile(model: Any, options: CompileOptions) -> Any:
    if isinstance(model, staticmethod):
        return staticmethod(_compile(model.__func__, options))
    if isinstance(model, classmethod):
        return classmethod(_compile(model.__func__, options))
    if isinstance(model, type):
        return _compile_class(model, options)
    compiled: Any
    if isinstance(model, CompiledModule):
        # Compiling twice is compiling once, with the options of the second time.
        if model._kintsugi_options == options:
            return model
        compiled = compile_module(model._orig_mod, options)
    elif isinstance(model, CompiledFunction):
        if model._options == options:
            return model
        compiled = CompiledFunction(model.__wrapped__, options)
    elif isinstance(model, types.MethodType) and isinstance(model.__func__, CompiledFunction):
        return model
    elif isinstance(model, torch.nn.Module):
        compiled = compile_module(model, options)
    else:
        compiled = CompiledFunction(model, options)
    core = core_of(compiled)
    if core is not None:
        live[core] = options
    for observer in observers:
        observer(compiled)
    return compiled


def _compile_class(cls: type, options: CompileOptions) -> type:
    """A decorated class: calls of its instances are compiled, the class stays what it is."""
    call = next((vars(base)["__call__"] for base in cls.__mro__ if "__call__" in vars(base)), None)
    if call is None:
        raise TypeError(
            f"kintsugi.compile was given the class {cls.__name__}, whose instances can't be called. "
            "Compile its methods, or an instance that has __call__."
        )
    cls.__call__ = _compile(call, options)  # type: ignore[method-assign]
    return cls


def reset() -> None:
    """Drops every trace of every compiled callable; the next call of each records again."""
    _C.reset_all()
    _C.trim_run_memory()


def wait(timeout: float | None = None) -> bool:
    """Waits until background work (compiling) is done; False when `timeout` seconds were not enough.

    On a terminal, a bar on standard error shows how far it is.
    """
    if timeout is not None and timeout < 0:
        raise ValueError(f"kintsugi.wait: timeout must not be negative, got {timeout!r}.")
    return _progress.wait(timeout)
