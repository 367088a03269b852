"""What an object is, in words that mean the same in another process: how a package tells that it has found it again.

A trace relies on objects: on what a function's code does, on what a class says of its attributes. In the process that
recorded it, they are known by identity, and guards see to it that they do not change. In another process there is no
identity to compare, so a package keeps a *description* of each: a digest of what the recording may have relied on
without a guard. What a guard reads again (attributes of an instance, entries of a dict, cells, defaults) is no part
of it. What can't be described is in no package.
"""

from __future__ import annotations

import collections
import datetime
import enum
import functools
import gc
import hashlib
import inspect
import json
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

# Classes in C of which a trace reads nothing but under guards.
_IN_C = (object, dict, list, set, collections.OrderedDict, types.SimpleNamespace)
_OF_C_CLASSES = (types.MethodDescriptorType, types.WrapperDescriptorType)
_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)
# Instances of these are taken for immutable by the recorder, which reads them without a guard.
_FROZEN = (inspect.Signature, inspect.Parameter, inspect.BoundArguments)
_NAMES = (torch.dtype, torch.layout, torch.memory_format)
_PLAIN = (type(None), bool, int, str, bytes, float, complex, type(...), type(NotImplemented))
# What pybind11 binds functions to: a record of the function, or a capsule with one.
_RECORDS = (type(torch._C._get_tracing_state.__self__), type(datetime.datetime_CAPI))
_CACHED = type(functools.lru_cache(len))


class CannotDescribe(Exception):
    """Says why an object means nothing to another process."""


def class_name(cls: type) -> str:
    """How messages and descriptions name a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def is_plain(value: object) -> bool:
    """Is it known by its value?"""
    return type(value) in _PLAIN


def plain_value(value: object) -> list[Any]:
    """A plain value as JSON has it: exact, floats bit by bit."""
    kind = type(value)
    if kind is float:
        return ["float", value.hex()]  # type: ignore[attr-defined]
    if kind is complex:
        return ["complex", value.real.hex(), value.imag.hex()]  # type: ignore[attr-defined]
    if kind is bytes:
        return ["bytes", value.decode("latin-1")]  # type: ignore[attr-defined]
    if kind in (bool, str):
        return [kind.__name__, value]
    if kind is int:
        return ["int", hex(value)]  # type: ignore[arg-type]
    return [repr(value)]


def digest(description: object) -> str:
    """One short text for a description."""
    return hashlib.sha256(json.dumps(description, ensure_ascii=True).encode()).hexdigest()[:32]


class Namespaces:
    """Which namespaces are modules'. For a moment: modules come and go."""

    def __init__(self) -> None:
        self._others: dict[int, str] | None = None

    def module_of(self, space: dict[str, Any]) -> str | None:
        """The name of the module whose namespace it is; None: of no module."""
        name = space.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        if isinstance(module, types.ModuleType) and vars(module) is space:
            return name
        if (
            self._others is None
        ):  # modules that say another name of themselves, such as the one behind collections.abc
            names = sorted(name for name, each in sys.modules.items() if isinstance(each, types.ModuleType))
            self._others = {id(vars(sys.modules[each])): each for each in reversed(names)}
        return self._others.get(id(space))


def namespace_of(cls: type) -> dict[str, Any]:
    """The dict of a class itself, of which `vars(cls)` is a view."""
    (space,) = (found for found in gc.get_referents(vars(cls)) if type(found) is dict)
    return space


def _is_of_python(cls: type) -> bool:
    """Was it made by a class statement? Then its instances have attributes and slots, and nothing else."""
    if not cls.__flags__ & (1 << 9):
        return False
    if type(vars(cls).get("__new__")) is types.BuiltinFunctionType:
        return False
    return not any(type(value) in _OF_C_CLASSES and value.__objclass__ is cls for value in vars(cls).values())


class Describer:
    """Describes objects. `opened`: attributes of classes, as (class, name), that guards of the trace read.

    Descriptions of classes and code are kept for as long as this lives, which has to be a moment: classes change.
    """

    def __init__(
        self, opened: frozenset[tuple[str, str]] = frozenset(), code: dict[Any, str] | None = None
    ) -> None:
        self._opened = opened
        self._classes: dict[type, str] = {}
        self._own: dict[type, list[Any]] = {}
        self._spaces = Namespaces()
        self._code: dict[types.CodeType, str] = {} if code is None else code

    def digest(self, value: object) -> str:
        return digest(self.describe(value))

    def describe(self, value: object) -> list[Any]:
        """Raises CannotDescribe."""
        kind = type(value)
        if is_plain(value):
            return plain_value(value)
        if kind in (tuple, torch.Size, frozenset):
            if kind is frozenset:  # a trace that the order of a set is part of is in no package
                parts = [self._shallow(item) for item in value]  # type: ignore[attr-defined]
                return ["frozenset", sorted(parts, key=json.dumps)]
            return [kind.__name__, [self.describe(item) for item in value]]  # type: ignore[attr-defined]
        if isinstance(value, type):
            return ["class", self._class(value)]
        for types_, method in self._BY_TYPE:
            if kind in types_:
                return method(self, value)
        return self._instance(value)

    # -- Code and functions

    def _code_digest(self, code: types.CodeType) -> str:
        known = self._code.get(code)
        if known is None or code not in self._code:
            known = self._code[code] = digest(self._code_parts(code))
        return known

    def _code_parts(self, code: types.CodeType) -> list[Any]:
        """Everything but places in files: lines may move."""
        numbers = [
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_flags,
            code.co_stacksize,
        ]
        names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
        return [
            numbers,
            code.co_qualname,
            [list(each) for each in names],
            code.co_code.hex(),
            code.co_exceptiontable.hex(),
            [self._constant(item) for item in code.co_consts],
        ]

    def _constant(self, item: object) -> list[Any]:
        if isinstance(item, types.CodeType):
            return ["code", self._code_digest(item)]
        if isinstance(item, (tuple, frozenset)):
            parts = [self._constant(part) for part in item]
            return [
                type(item).__name__,
                sorted(parts, key=json.dumps) if isinstance(item, frozenset) else parts,
            ]
        return plain_value(item)

    def _code_object(self, code: Any) -> list[Any]:
        return ["code", self._code_digest(code)]

    def _function(self, function: Any) -> list[Any]:
        space = self._spaces.module_of(function.__globals__)
        if space is None:
            raise CannotDescribe(f"the globals of {function.__qualname__} are no module's")
        if function.__builtins__ is not vars(sys.modules["builtins"]):
            raise CannotDescribe(f"{function.__qualname__} has builtins of its own")
        # Marks, among others: what disable() and its like have said of it.
        names = [function.__name__, function.__qualname__, self._mark(function.__module__)]
        marks = self._attributes(function)
        parts = [len(function.__closure__ or ()), *self._signature(function)]
        return ["function", self._code_digest(function.__code__), space, names, marks, parts]

    def _signature(self, function: Any) -> list[Any]:
        """What inspect.signature() says of it, which a trace may know."""
        lazy = getattr(function, "__annotate__", None)  # CPython 3.14: code that makes them
        annotations = {} if lazy is not None else function.__annotations__
        return [
            None if lazy is None else self._code_digest(lazy.__code__),
            [[name, self._mark(value)] for name, value in annotations.items()],
            [self._mark(value) for value in function.__defaults__ or ()],
            [[name, self._mark(value)] for name, value in (function.__kwdefaults__ or {}).items()],
        ]

    def _mark(self, value: object) -> list[Any]:
        return plain_value(value) if is_plain(value) else ["instance", class_name(type(value))]

    def _cached(self, function: Any) -> list[Any]:
        parameters = function.cache_parameters()
        return ["cached", self.describe(function.__wrapped__), self.describe(tuple(parameters.values()))]

    def _partial(self, value: Any) -> list[Any]:
        parts = (value.func, value.args, *value.keywords.items())
        return ["partial", [self.describe(part) for part in parts], self._attributes(value)]

    def _attributes(self, value: Any) -> list[Any]:
        """Which there are, and which are set: as marks are read. Their values are under guards."""
        return [[name, part is not None and part is not False] for name, part in vars(value).items()]

    def _method(self, method: Any) -> list[Any]:
        return ["method", self.describe(method.__func__)]

    def _builtin(self, function: Any) -> list[Any]:
        owner = function.__self__
        if isinstance(owner, types.ModuleType):
            of = ["module", owner.__name__]
        elif isinstance(owner, type):
            of = ["class", class_name(owner)]
        elif owner is None or type(owner) in _RECORDS:
            of = []
        else:
            raise CannotDescribe(f"{function.__name__} is bound to an object")
        return ["builtin", function.__name__, function.__qualname__, function.__module__, of]

    def _descriptor(self, descriptor: Any) -> list[Any]:
        owner = class_name(descriptor.__objclass__)
        return ["descriptor", class_name(type(descriptor)), descriptor.__name__, owner]

    def _property(self, value: Any) -> list[Any]:
        return ["property", [self._shallow(part) for part in (value.fget, value.fset, value.fdel)]]

    def _wrapper(self, value: Any) -> list[Any]:
        return [type(value).__name__, self._shallow(value.__func__)]

    # -- Names, modules, small things in C

    def _named(self, value: Any) -> list[Any]:
        return ["name", repr(value)]

    def _device(self, value: Any) -> list[Any]:
        return ["device", str(value)]

    def _module(self, value: Any) -> list[Any]:
        return ["module", value.__name__]

    def _range(self, value: Any) -> list[Any]:
        return ["range", [self.describe(part) for part in (value.start, value.stop, value.step)]]

    def _pattern(self, value: Any) -> list[Any]:
        return ["pattern", self.describe(value.pattern), value.flags]

    def _generator(self, value: Any) -> list[Any]:
        if value is not torch.default_generator:
            raise CannotDescribe("a torch.Generator")
        return ["default_generator"]

    def _cell(self, _value: Any) -> list[Any]:
        return ["cell"]

    # -- Classes and their instances

    def _class(self, cls: type) -> str:
        known = self._classes.get(cls)
        if known is None:
            self._classes[cls] = class_name(cls)  # one that is among its own entries
            known = self._classes[cls] = digest(self._class_parts(cls))
        return known

    def _class_parts(self, cls: type) -> list[Any]:
        layout = [cls.__basicsize__, cls.__itemsize__, cls.__dictoffset__, cls.__flags__ & (1 << 9)]
        return [
            class_name(cls),
            class_name(type(cls)),
            layout,
            [[class_name(base), self._entries(base)] for base in cls.__mro__],
            self._members(cls),
        ]

    def _entries(self, cls: type) -> list[Any]:
        found = self._own.get(cls)
        if found is None:
            found = self._own[cls] = [digest(self._own_entries(cls))]
        return found

    def _own_entries(self, cls: type) -> list[Any]:
        if not cls.__flags__ & (1 << 9):
            return []  # in C: a class of these versions
        name = class_name(cls)
        return [
            [key, ["open"] if (name, key) in self._opened else self._shallow(value)]
            for key, value in vars(cls).items()
            if isinstance(key, str)
        ]

    def _members(self, cls: type) -> list[Any]:
        if not issubclass(cls, enum.Enum):
            return []
        return [[name, self._shallow(member._value_)] for name, member in cls._member_map_.items()]

    def _shallow(self, value: object) -> list[Any]:
        """An entry of a class: what is read of it further is under a guard of its own."""
        kind = type(value)
        if is_plain(value):
            return plain_value(value)
        if kind in (tuple, frozenset):
            parts = [self._shallow(item) for item in value]  # type: ignore[attr-defined]
            return [kind.__name__, sorted(parts, key=json.dumps) if kind is frozenset else parts]
        if isinstance(value, type):
            return ["class", class_name(value)]
        for types_, method in self._BY_TYPE:
            if kind in types_:
                try:
                    return method(self, value)
                except CannotDescribe:
                    break
        if isinstance(value, types.FunctionType):
            return ["function", self._code_digest(value.__code__)]
        return ["instance", class_name(kind)]

    def _instance(self, value: object) -> list[Any]:
        cls = type(value)
        if isinstance(value, enum.Enum):
            return ["member", self._class(cls), value._name_, self.describe(value._value_)]
        if isinstance(value, torch._ops.OperatorBase):
            return ["operator", class_name(cls), str(value)]
        if isinstance(value, torch.Tensor) or cls in _FROZEN or isinstance(value, (int, str, bytes, float)):
            raise CannotDescribe(f"an object of type {class_name(cls)}")
        if isinstance(value, tuple):
            return ["tuple", self._class(cls), [self.describe(item) for item in value]]
        # What C code keeps in it nobody can tell.
        if not all(base in _IN_C or _is_of_python(base) for base in cls.__mro__):
            raise CannotDescribe(f"an object of type {class_name(cls)}")
        return ["instance", self._class(cls)]

    _BY_TYPE: tuple[tuple[tuple[type, ...], Callable[[Describer, Any], list[Any]]], ...] = (
        ((types.FunctionType,), _function),
        ((types.CodeType,), _code_object),
        ((types.BuiltinFunctionType,), _builtin),
        (_DESCRIPTORS, _descriptor),
        ((property,), _property),
        ((staticmethod, classmethod), _wrapper),
        ((types.MethodType,), _method),
        ((_CACHED,), _cached),
        ((functools.partial,), _partial),
        ((types.ModuleType,), _module),
        (_NAMES, _named),
        ((torch.device,), _device),
        ((range,), _range),
        ((re.Pattern,), _pattern),
        ((torch.Generator,), _generator),
        ((types.CellType,), _cell),
    )
