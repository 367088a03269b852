"""What kintsugi.compile() returns for an nn.Module."""

from __future__ import annotations

import copy
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from . import _C, _for_dynamo
from ._callable import CompiledFunction, Signature
from ._options import CompileOptions
from ._stats import Stats

# What compiled functions have besides stats(). A module that has such a name of its own keeps it: many have a reset().
_TOOLS = ("aot_compile", "breaks", "dump", "recompiles", "reset", "traces")


def _rebuild(module: torch.nn.Module, options: CompileOptions) -> CompiledModule:
    return compile_module(module, options)


class _Forward(property):
    """CompiledModule.forward. Of the class it is the method of the original's class: programs read its signature."""

    def __get__(self, module: Any, owner: type | None = None, /) -> Any:
        if module is not None:
            return self.fget(module)  # type: ignore[misc]
        original = _originals.get(owner) if owner is not None else None
        cls: Any = original() if original is not None else None
        return (cls or torch.nn.Module).forward


class CompiledModule(_C.CallHolder, torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """A compiled view of a module, which stays the only owner of parameters, buffers, hooks and attributes.

    Everything but calling is the original's: state_dict() has the original's keys, train() changes the original,
    attributes are read, set and deleted there, and a hook that is registered here fires once. `_orig_mod` is the
    original, as in torch. Calls are the base's: see CompiledFunction, whose breaks(), dump(), recompiles(), reset()
    and traces() are here too, unless the original has attributes of these names.
    """

    __slots__ = ()

    __signature__ = Signature("_orig_mod")

    _orig_mod: torch.nn.Module
    _kintsugi_compiled: _C.Compiled
    _kintsugi_options: CompileOptions
    _kintsugi_forward: CompiledFunction | None

    def __init__(self, module: torch.nn.Module, options: CompileOptions, call: Callable[..., Any]) -> None:
        # Not torch.nn.Module.__init__: the dicts that it makes are the original's here.
        own = self.__dict__
        own["_orig_mod"] = module
        own["_kintsugi_options"] = options
        own["_kintsugi_forward"] = None
        own["_kintsugi_compiled"] = call
        object.__setattr__(self, "_kintsugi_call", call)

    def stats(self) -> Stats:
        """How much was recorded, and how often it ran. The original's own `stats` is at `_orig_mod.stats`."""
        return Stats.from_core(self._kintsugi_compiled.stats())

    def _compiled_forward(self) -> CompiledFunction:
        """The original's forward, compiled on its own (hooks do not run), as torch.compile'd modules have it."""
        kept: CompiledFunction | None = self._kintsugi_forward
        original = self._orig_mod.forward
        if kept is not None and kept.__wrapped__ == original:
            return kept
        made = CompiledFunction(original, self._kintsugi_options)
        self.__dict__["_kintsugi_forward"] = made
        return made

    def _write_forward(self, value: Any) -> None:
        self._orig_mod.forward = value  # type: ignore[method-assign, unused-ignore]

    def _delete_forward(self) -> None:
        del self._orig_mod.forward

    forward: Any = _Forward(_compiled_forward, _write_forward, _delete_forward, _compiled_forward.__doc__)
    del _compiled_forward, _write_forward, _delete_forward

    def __getattr__(self, name: str) -> Any:
        original = self.__dict__["_orig_mod"]
        if name in _TOOLS and not hasattr(original, name):
            return types.MethodType(getattr(CompiledFunction, name), self)
        return getattr(original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":
            object.__setattr__(self, name, value)
        elif name == "forward":
            vars(CompiledModule)["forward"].__set__(self, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._orig_mod), *_TOOLS, "stats", "_orig_mod"})

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n  (_orig_mod): " + repr(self._orig_mod).replace("\n", "\n  ") + "\n)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._orig_mod, self._kintsugi_options)

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def __getstate__(self) -> Any:
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        return compile_module(copy.deepcopy(self._orig_mod, memo), self._kintsugi_options)

    def __copy__(self) -> CompiledModule:
        return compile_module(copy.copy(self._orig_mod), self._kintsugi_options)


def _forward_method(name: str) -> Callable[..., Any]:
    """A method that runs the original's; where that returns the module itself, as to() and eval() do, returns us."""

    @functools.wraps(getattr(torch.nn.Module, name))
    def method(self: CompiledModule, /, *args: Any, **kwargs: Any) -> Any:
        module = self._orig_mod
        result = getattr(module, name)(*args, **kwargs)
        return self if result is module else result

    return method


def _forward_attribute(name: str) -> property:
    def read(self: CompiledModule) -> Any:
        return getattr(self._orig_mod, name)

    def write(self: CompiledModule, value: Any) -> None:
        setattr(self._orig_mod, name, value)

    def delete(self: CompiledModule) -> None:
        delattr(self._orig_mod, name)

    return property(read, write, delete)


def _forward_everything() -> None:
    """What nn.Module's class defines would be found before __getattr__: forward each name of it."""
    for name, value in vars(torch.nn.Module).items():
        if name in vars(CompiledModule) or (name.startswith("__") and name.endswith("__")):
            continue
        forwarded = _forward_method(name) if callable(value) else _forward_attribute(name)
        setattr(CompiledModule, name, forwarded)


_forward_everything()

# Special methods are looked up on the type, so a container's wrapper needs a type that has them too.
_types: weakref.WeakKeyDictionary[type, type[CompiledModule]] = weakref.WeakKeyDictionary()
# The other way round.
_originals: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()
_NOT_FORWARDED = {
    "__new__",
    "__init__",
    "__call__",
    "__init_subclass__",
    "__class_getitem__",
    "__del__",
    "__getattribute__",
}


def _forward_special(name: str) -> Callable[..., Any]:
    def method(self: CompiledModule, /, *args: Any, **kwargs: Any) -> Any:
        module = self._orig_mod
        result = getattr(type(module), name)(module, *args, **kwargs)
        return self if result is module else result

    method.__name__ = name
    return method


def _wrapper_type(cls: type[torch.nn.Module]) -> type[CompiledModule]:
    wrapper = _types.get(cls)
    if wrapper is None:
        names = {
            name
            for base in cls.__mro__
            if base not in (object, torch.nn.Module)
            for name, value in vars(base).items()
            if name.startswith("__") and name.endswith("__") and callable(value)
        }
        names -= set(vars(CompiledModule)) | _NOT_FORWARDED
        special = {name: _forward_special(name) for name in names if name not in ("__setstate__", "__hash__")}
        wrapper = type(
            "CompiledModule", (CompiledModule,), {"__slots__": (), "__module__": __name__, **special}
        )
        _types[cls] = wrapper
        _originals[wrapper] = weakref.ref(cls)
    return wrapper


def compile_module(module: torch.nn.Module, options: CompileOptions) -> CompiledModule:
    """Compiles calls of `module`, hooks included."""
    _for_dynamo.tell()
    call = module.__call__
    core = _C.Compiled(call, options.to_core(call))
    return _wrapper_type(type(module))(module, options, core)


def wrap_module(module: torch.nn.Module, call: Callable[..., Any]) -> CompiledModule:
    """A view of `module` that is called through `call`: what kintsugi.disable(module) makes."""
    return _wrapper_type(type(module))(module, CompileOptions(backend="eager"), call)
