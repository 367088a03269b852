"""options={"guard_filter_fn": ...}: the guards of a new trace as entries with torch's fields, and torch's helpers.

The core describes each guard as (kind, key, path, text). `kind` is a row of csrc/guard/guard.h; `key` the object that
the guard compares with; `path` leads to what it speaks of, root first: (kind of source, key or name, index[, object]);
the object is missing where nothing is there. `text` is the guard as logs show it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from . import _C

Row = tuple[str, Any, list[tuple[Any, ...]], str]
Filter = Callable[[Sequence["GuardFilterEntry"]], Sequence[bool]]


@dataclasses.dataclass(frozen=True)
class OrigGuard:
    """The guard itself: its name, its type, how it is reached (`source`, torch's GuardSource) and its text."""

    name: str
    guard_type: str
    source: Any
    text: str

    def create_fn_name(self) -> str:
        return self.guard_type

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class GuardFilterEntry:
    """A guard, for guard_filter_fn: the fields that torch's entries have."""

    name: str
    """What it speaks of: `x`, `self.fc`, `G['scale']`; empty: the state of the process, or a class."""
    has_value: bool
    value: object
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: OrigGuard


# Our guards under torch's names; what torch has no name for has one of its own.
_TYPES = {
    "type": "TYPE_MATCH",
    "typeversion": "TYPE_VERSION",
    "equals": "CONSTANT_MATCH",
    "fits": "TYPE_MATCH",
    "length": "SEQUENCE_LENGTH",
    "lacks": "DICT_NOT_CONTAINS",
    "keys": "DICT_KEYS_MATCH",
    "set": "SET_MATCH",
    "element": "SET_CONTAINS",
    "noelement": "SET_NOT_CONTAINS",
    "nodict": "NOT_PRESENT_IN_GENERIC_DICT",
    "noattr": "NOT_PRESENT_IN_GENERIC_DICT",
    "nomember": "NOT_PRESENT_IN_GENERIC_DICT",
    "nocell": "EMPTY_CELL",
    "function": "CLOSURE_MATCH",
    "same": "DUPLICATE_INPUT",
    "notsame": "NOT_DUPLICATE_INPUT",
    "tensor": "TENSOR_MATCH",
    "tensorrank": "TENSOR_MATCH",
    "dimrange": "SHAPE_ENV",
    "globalstate": "GLOBAL_STATE",
}
_DERIVED = {
    "CONSTANT_MATCH": ("EQUALS_MATCH",),
    "SEQUENCE_LENGTH": ("SEQUENCE_LENGTH",),
    "TENSOR_MATCH": ("TENSOR_MATCH",),
    "TYPE_MATCH": ("TYPE_MATCH",),
}
_IDENTITY = ("ID_MATCH",)


def _identity_type(key: object) -> str:
    """The name that torch has for `source is key`."""
    if isinstance(key, types.ModuleType):
        return "MODULE_MATCH"
    if isinstance(key, type):
        return "CLASS_MATCH"
    if isinstance(key, types.BuiltinFunctionType):
        return "BUILTIN_MATCH"
    return "CLOSURE_MATCH" if isinstance(key, types.FunctionType) else "ID_MATCH"


_MODULE_TABLES = ("_modules", "_parameters", "_buffers")


class _Path:
    """A way to an object, as a name in torch's manner, and what lies on it."""

    def __init__(self, steps: Sequence[tuple[Any, ...]]) -> None:
        self.name = ""
        self.is_global = False
        self._inside: str | None = None  # the object whose dict was entered last
        self._namespace = False  # of a module's globals
        for step in steps:
            self._add(*step[:3])
        self.objects = [step[3] for step in steps if len(step) == 4]
        self.has_value = bool(steps) and len(steps[-1]) == 4
        self.value = steps[-1][3] if self.has_value else None

    def _add(self, kind: str, key: Any, index: int) -> None:
        inside, self._inside = self._inside, None
        namespace, self._namespace = self._namespace, False
        if kind == "arg":
            self.name = str(key)
        elif kind == "pinned":
            # Known by identity: a function, class or module of the program's, or a table of one.
            self.is_global = True
            self._namespace = isinstance(key, dict) and "__builtins__" in key
            self.name = getattr(key, "__name__", type(key).__name__)
        elif kind == "value":
            self.name = f"%{index}"
        elif kind == "dict":
            self._inside = self.name
            self._namespace = namespace
        elif kind in ("globals", "builtins"):
            self.is_global, self._namespace = True, True
        elif kind == "item" and namespace:
            self.name = f"G[{key!r}]"
        elif kind == "item" and inside is not None and isinstance(key, str):
            self.name = f"{inside}.{key}"
        elif kind in ("closure", "cell", "defaults", "kwdefaults"):
            self.is_global = False
            self.name = self.name if kind == "cell" else f"{self.name}.__{kind}__" + _bracket(kind, index)
        else:
            self.name += self._suffix(kind, key, index)

    @staticmethod
    def _suffix(kind: str, key: Any, index: int) -> str:
        if kind == "item":
            return f"[{key!r}]"
        if kind in ("list", "tuple"):
            return f"[{index}]"
        if kind in ("member", "getset"):
            return f".{getattr(key, '__name__', '?')}"
        if kind == "partial":
            return (".func", ".args", ".keywords")[index]
        return {"type": ".__class__", "func": ".__func__", "self": ".__self__"}.get(kind, "")


def _bracket(kind: str, index: int) -> str:
    return f"[{index}]" if kind == "closure" else ""


def _is_builtin(cls: type) -> bool:
    """One of the modules of torch.nn and torch.ao, as opposed to one of the program's, whatever that says of itself.

    Classes that torch makes of others (parametrizations) are in no module: their methods are torch's.
    """
    name = cls.__module__
    module = sys.modules.get(name)
    if module is None or not name.startswith(("torch.nn.", "torch.ao.")):
        return False
    if vars(module).get(cls.__qualname__) is cls:
        return _C._is_torch_module(vars(module))
    methods = [value for value in vars(cls).values() if isinstance(value, types.FunctionType)]
    return bool(methods) and all(map(_C._is_torch_function, methods))


def _guard_source(path: _Path, key: object) -> Any:
    """torch's word for how the guard's object is reached."""
    from torch._guards import GuardSource

    modules = [type(one) for one in path.objects if isinstance(one, torch.nn.Module)]
    if not path.objects and isinstance(key, type) and issubclass(key, torch.nn.Module):
        modules = [key]
    where = "GLOBAL" if path.is_global or not path.name else "LOCAL"
    if modules:
        where += (
            "_UNSPECIALIZED_BUILTIN_NN_MODULE" if _is_builtin(modules[-1]) else "_UNSPECIALIZED_NN_MODULE"
        )
    return GuardSource[where]


def _argument_names(rows: Sequence[Row]) -> Mapping[int, str]:
    """The names of a module's arguments: what is called takes any, and hands them to forward()."""
    roots = (steps[0] for _, _, steps, _ in rows if steps and steps[0][0] == "arg" and steps[0][2] == 0)
    module = next((step[3] for step in roots if len(step) == 4), None)
    if not isinstance(module, torch.nn.Module):
        return {}
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(module.forward).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind in positional]
    return dict(enumerate(names, 1))


def entry(row: Row, names: Mapping[int, str]) -> GuardFilterEntry:
    """The entry of a guard as the core describes it. `names`: of arguments, where the core has numbers alone."""
    kind, key, steps, text = row
    if steps and steps[0][0] == "arg" and steps[0][1] == f"arg{steps[0][2]}":
        steps = [("arg", names.get(steps[0][2], steps[0][1]), *steps[0][2:]), *steps[1:]]
    path = _Path(steps)
    guard_type = _identity_type(key) if kind == "is" else _TYPES[kind]
    value = path.value
    if kind in ("is", "equals"):
        value = key  # as it was when the guard was taken
    return GuardFilterEntry(
        name=path.name,
        has_value=path.has_value,
        value=value,
        guard_type=guard_type,
        derived_guard_types=_IDENTITY if kind == "is" else _DERIVED.get(guard_type, ()),
        is_global=path.is_global,
        orig_guard=OrigGuard(path.name, guard_type, _guard_source(path, key), text),
    )


def apply(guard_filter_fn: Filter, rows: Sequence[Row]) -> list[bool]:
    """Which guards are kept."""
    names = _argument_names(rows)
    kept = list(guard_filter_fn([entry(row, names) for row in rows]))
    if len(kept) != len(rows):
        raise ValueError(f"guard_filter_fn was given {len(rows)} guards and returned {len(kept)} answers.")
    if not all(isinstance(one, bool) for one in kept):
        raise TypeError("guard_filter_fn must return a list of True and False.")
    return kept


def for_core(guard_filter_fn: Filter) -> Callable[[Sequence[Row]], list[bool]]:
    return functools.partial(apply, guard_filter_fn)


# torch's own, which take entries of either kind.
HELPERS = (
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
)


def __getattr__(name: str) -> Any:
    if name in HELPERS:
        return getattr(torch.compiler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
