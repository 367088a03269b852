"""Ways to the objects of a trace: how they are found again in another process.

A way is a list that JSON can hold:

    ["value", ...]                 plain immutable data, made again
    ["tuple", [ways]]              a tuple of objects that have ways; so ["frozenset", [ways]]
    ["path", root, steps]          from ["module", name], ["entry"] (the function that was compiled), ["constant", k]
                                   or ["ours", name], by steps such as ["item", "relu"], ["code"], ["const", 3]
    ["source", n, steps]           what the n-th source of the trace leads to, in the call that asks
    ["constant", k, steps]         from another constant of the same trace
    ["same", k]                    of a side trace: its parent's constant

None of them says what the object is: whoever walks one compares the description (_package_describe).
"""

from __future__ import annotations

import functools
import json
import sys
import types
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from . import _C, _package_text
from ._package_describe import (
    CannotDescribe,
    Namespaces,
    class_name,
    is_plain,
    namespace_of,
    plain_value,
)
from ._package_text import Heading, NotThere

Way = list[Any]

_CACHED = type(functools.lru_cache(len))
_NAMED = (torch.dtype, torch.layout, torch.memory_format)
_VALUES = (tuple, frozenset, range, slice, torch.Size, torch.device)
_MOST_STEPS = 6
_MOST_OBJECTS = 400_000


class NoWay(Exception):
    """Why an object can't be found again in another process."""


# -- Values


def value_of(item: object) -> list[Any] | None:
    """Immutable data as JSON has it; None: it is something else."""
    kind = type(item)
    if is_plain(item):
        return plain_value(item)
    if kind in _NAMED:
        return ["torch", repr(item).removeprefix("torch.")]
    if kind is torch.device:
        return ["device", str(item)]
    if kind in (range, slice):
        parts = [value_of(part) for part in (item.start, item.stop, item.step)]  # type: ignore[attr-defined]
    elif kind in (tuple, frozenset, torch.Size):
        parts = [value_of(part) for part in item]  # type: ignore[attr-defined]
    else:
        return None
    return None if None in parts else [kind.__name__, parts]


_MADE: dict[str, Any] = {"tuple": tuple, "frozenset": frozenset, "Size": torch.Size}
_SINGLE: dict[str, Any] = {"None": None, "Ellipsis": ..., "NotImplemented": NotImplemented}


def make_value(encoded: Any) -> Any:
    """What value_of() has described. Raises NotThere where the text is none of its own."""
    try:
        kind, rest = encoded[0], encoded[1:]
        if kind in ("bool", "str"):
            if type(rest[0]) is not (bool if kind == "bool" else str):
                raise NotThere("a value of another type")
            # Texts of a program are interned; dicts are looked up in faster with the same object.
            return sys.intern(rest[0]) if type(rest[0]) is str else rest[0]
        if kind == "int":
            return int(rest[0], 16)
        if kind == "float":
            return float.fromhex(rest[0])
        if kind == "complex":
            return complex(float.fromhex(rest[0]), float.fromhex(rest[1]))
        if kind == "bytes":
            return rest[0].encode("latin-1")
        if kind == "torch":
            found = getattr(torch, rest[0])
            if type(found) not in _NAMED:
                raise NotThere("no name of torch's")
            return found
        if kind == "device":
            return torch.device(rest[0])
        if kind in ("range", "slice"):
            return (range if kind == "range" else slice)(*(make_value(part) for part in rest[0]))
        if kind in _MADE:
            return _MADE[kind](make_value(part) for part in rest[0])
        return _SINGLE[kind]
    except NotThere:
        raise
    except Exception as error:
        raise NotThere(f"a value can't be made ({type(error).__name__})") from None


# -- Steps


def take_step(parent: Any, step: Sequence[Any]) -> Any:
    """One step of a path. Runs no code of the program's."""
    name = step[0]
    if name == "item":
        if isinstance(parent, types.ModuleType):
            return vars(parent)[step[1]]
        return vars(parent)[step[1]] if isinstance(parent, type) else dict.__getitem__(parent, step[1])
    if name == "namespace":
        return namespace_of(parent) if isinstance(parent, type) else vars(parent)
    if name == "code":
        return parent.__code__
    if name == "const":
        return parent.co_consts[step[1]]
    if name == "closure":
        return parent.__closure__[step[1]]
    if name == "content":
        return parent.cell_contents
    if name == "attribute":
        return object.__getattribute__(parent, "__dict__")[step[1]]
    if name == "tuple":
        return tuple.__getitem__(parent, step[1])
    if name == "type":
        return type(parent)
    if name == "mro":
        return parent.__mro__[step[1]]
    if name == "cache":
        return _C._lru_cache_of(parent)
    if name in (
        "__defaults__",
        "__kwdefaults__",
        "__globals__",
        "__func__",
        "__wrapped__",
        "fget",
        "fset",
        "fdel",
    ):
        return object.__getattribute__(parent, name)
    raise NotThere("an unknown step")


def _parts(found: Any, relevant: frozenset[str]) -> Iterator[tuple[list[Any], Any]]:
    """What a step leads to from an object."""
    if isinstance(found, types.ModuleType):
        if found.__name__ in relevant:
            for key, value in list(vars(found).items()):
                yield ["item", key], value
    elif isinstance(found, type):
        yield ["namespace"], namespace_of(found)
        for key, value in list(vars(found).items()):
            yield ["item", key], value
    elif type(found) is types.FunctionType:
        yield ["code"], found.__code__
        for i, cell in enumerate(found.__closure__ or ()):
            yield ["closure", i], cell
        for name in ("__defaults__", "__kwdefaults__", "__globals__"):
            yield [name], getattr(found, name)
        for key, value in list(vars(found).items()):
            yield ["attribute", key], value
    elif type(found) is types.CodeType:
        for i, value in enumerate(found.co_consts):
            if type(value) is types.CodeType:
                yield ["const", i], value
    elif type(found) is types.CellType:
        try:
            yield ["content"], found.cell_contents
        except ValueError:
            return
    elif type(found) is tuple:
        for i, value in enumerate(found):
            yield ["tuple", i], value
    elif type(found) is property:
        for name in ("fget", "fset", "fdel"):
            yield [name], getattr(found, name)
    elif type(found) in (staticmethod, classmethod, types.MethodType):
        yield ["__func__"], found.__func__
    elif type(found) is _CACHED:
        yield ["__wrapped__"], found.__wrapped__
        yield ["cache"], _C._lru_cache_of(found)


# -- Finding


class Finder:
    """Finds ways to the constants of one trace, in the process that has recorded it."""

    def __init__(self, entry: Any, constants: list[Any], heading: Heading) -> None:
        self._entry = entry
        self._constants = constants
        self._heading = heading
        self._index: dict[int, tuple[list[Any], list[list[Any]]]] | None = None
        self._ours = {id(function): name for name, function in _C._package_roots().items()}
        self._codes: dict[int, Way] = {}
        self._spaces = Namespaces()
        for k, constant in enumerate(constants):
            if type(constant) is types.FunctionType:
                self._note_codes(constant.__code__, ["constant", k, [["code"]]])

    def _note_codes(self, code: types.CodeType, way: Way) -> None:
        if id(code) in self._codes:
            return
        self._codes[id(code)] = way
        for i, inner in enumerate(code.co_consts):
            if type(inner) is types.CodeType:
                self._note_codes(inner, ["constant", way[1], [*way[2], ["const", i]]])

    def find(self, k: int) -> Way:
        """Raises NoWay."""
        constant = self._constants[k]
        pinned = k in self._heading.pinned and type(constant) in (tuple, frozenset, range, slice)
        if not pinned:
            way = self._value(constant)
            if way is not None:
                return way
        way = self._known(constant) or self._source(k) or self._searched(constant)
        if way is None:
            raise NoWay(f"an object of type {class_name(type(constant))} has no name in any module")
        return way

    def _value(self, constant: Any) -> Way | None:
        value = value_of(constant)
        if value is not None:
            return ["value", value]
        if type(constant) not in (tuple, frozenset):
            return None
        ways = [
            self._value(part) or self._known(part) or self._searched(part) or self._constant(part)
            for part in constant
        ]
        return None if None in ways else [type(constant).__name__, ways]

    def _constant(self, part: Any) -> Way | None:
        """What is another constant, which a guard compares with what is found in the call."""
        for k, constant in enumerate(self._constants):
            if constant is part and self._source(k):
                return ["constant", k, []]
        return None

    def _known(self, constant: Any) -> Way | None:
        """What has a name."""
        if constant is self._entry:
            return ["path", ["entry"], []]
        if id(constant) in self._ours:
            return ["path", ["ours", self._ours[id(constant)]], []]
        if isinstance(constant, types.ModuleType):
            name = constant.__name__
            return ["path", ["module", name], []] if sys.modules.get(name) is constant else None
        if type(constant) is types.CodeType and id(constant) in self._codes:
            return self._codes[id(constant)]
        if type(constant) is dict:
            module = self._spaces.module_of(constant)
            return ["path", ["module", module], [["namespace"]]] if module is not None else None
        return self._named(constant)

    def _named(self, constant: Any) -> Way | None:
        owner = getattr(constant, "__objclass__", None)
        if isinstance(owner, type):
            name, above = str(getattr(constant, "__name__", "")), self._named(owner)
            if above is None or vars(owner).get(name) is not constant:
                return None
            return [above[0], above[1], [*above[2], ["item", name]]]
        if constant is None or not isinstance(
            constant, (type, types.FunctionType, types.BuiltinFunctionType)
        ):
            return None
        module = sys.modules.get(constant.__module__ or "")
        if not isinstance(module, types.ModuleType):
            return None
        found: Any = module
        steps: list[list[Any]] = []
        for name in constant.__qualname__.split("."):
            space = vars(found) if isinstance(found, (type, types.ModuleType)) else {}
            if name not in space:
                return None
            found = space[name]
            steps.append(["item", name])
            if type(found) in (staticmethod, classmethod):
                found = found.__func__
                steps.append(["__func__"])
        return ["path", ["module", module.__name__], steps] if found is constant else None

    def _source(self, k: int) -> Way | None:
        if k not in self._heading.guarded:
            return None
        kind, source = self._heading.guarded[k]
        if not self._can_walk(source, k):
            return None
        return ["source", source, {"type": [["type"]], "function": [["code"]]}.get(kind, [])]

    def _can_walk(self, source: int, without: int) -> bool:
        node = self._heading.sources[source]
        if node.kind == "value" or node.key == without:
            return False
        return node.parent is None or self._can_walk(node.parent, without)

    def _searched(self, constant: object) -> Way | None:
        if self._index is None:
            self._index = self._search()
        found = self._index.get(id(constant))
        return None if found is None else ["path", *found]

    def _relevant(self) -> frozenset[str]:
        """Modules that the trace's functions and classes are of."""
        names = {"builtins", "sys", "torch", "torch._C"}
        for constant in [self._entry, *self._constants]:
            name = constant.__name__ if isinstance(constant, types.ModuleType) else None
            if isinstance(constant, (type, types.FunctionType)):
                name = constant.__module__
            if isinstance(name, str):
                names.add(name)
        return frozenset(names)

    def _search(self) -> dict[int, tuple[list[Any], list[list[Any]]]]:
        """Everything that few steps lead to, breadth first."""
        relevant = self._relevant()
        roots: list[tuple[list[Any], Any]] = [(["entry"], self._entry)]
        roots += [(["module", name], sys.modules[name]) for name in sorted(relevant) if name in sys.modules]
        for k, constant in enumerate(self._constants):
            if isinstance(constant, (type, types.FunctionType)) and (
                self._known(constant) or self._source(k)
            ):
                roots.append((["constant", k], constant))
        index: dict[int, tuple[list[Any], list[list[Any]]]] = {}
        queue: deque[tuple[list[Any], list[list[Any]], Any]] = deque()
        for root, found in roots:
            index.setdefault(id(found), (root, []))
            queue.append((root, [], found))
        while queue and len(index) < _MOST_OBJECTS:
            root, steps, found = queue.popleft()
            for step, part in _parts(found, relevant):
                if is_plain(part) or id(part) in index or not _is_key(step):
                    continue
                index[id(part)] = (root, [*steps, step])
                if len(steps) + 1 < _MOST_STEPS:
                    queue.append((root, [*steps, step], part))
        return index


def _is_key(step: list[Any]) -> bool:
    return len(step) == 1 or type(step[1]) in (str, int)


# -- How constants hang together


def _links_of(constant: Any) -> Iterator[tuple[list[list[Any]], Any]]:
    """What a constant leads to, without a guard in between."""
    yield [["type"]], type(constant)
    if isinstance(constant, type):
        for i, base in enumerate(constant.__mro__):
            yield [["mro", i]], base
            for key, value in vars(base).items():
                step: list[list[Any]] = [["mro", i], ["item", key]]
                yield step, value
                if type(value) in (staticmethod, classmethod, property, _CACHED):
                    yield from ((([*step, inner]), part) for inner, part in _parts(value, frozenset()))
    elif type(constant) is frozenset:
        yield from (([["contains"]], part) for part in constant)
    elif not isinstance(constant, types.ModuleType):
        yield from (([step], part) for step, part in _parts(constant, frozenset()))


def links(constants: Sequence[Any], known: Sequence[bool]) -> list[list[Any]]:
    """[k, steps, j]: from constant k these steps lead to constant j. `known`: by value, which are looked at no further.

    A trace that goes through both may rely on it: the function that a class has under a name is the one whose code it
    runs. Descriptions can't tell two functions of the same code apart.
    """
    places = {id(constant): j for j, constant in enumerate(constants) if not known[j]}
    found = [
        [k, steps, places[id(part)]]
        for k, constant in enumerate(constants)
        if not known[k]
        for steps, part in _links_of(constant)
        if id(part) in places and all(_is_key(step) for step in steps)
    ]
    return sorted(found, key=json.dumps)  # sets have an order of their own in each process


def check_links(constants: Sequence[Any], known: Sequence[bool], expected: Sequence[Any]) -> None:
    """Raises NotThere where constants hang together otherwise than they did."""
    own = [constant for k, constant in enumerate(constants) if not known[k]]
    if len({id(constant) for constant in own}) != len(own):
        raise NotThere("two objects are one here")
    if links(constants, known) != expected:
        raise NotThere("its objects hang together in another way here")


# -- Walking


class Walker:
    """Finds the constants of one trace again. `arguments`: of the call that asks."""

    def __init__(self, entry: Any, arguments: Sequence[Any], ways: list[Way], heading: Heading) -> None:
        self._entry = entry
        self._arguments = arguments
        self._ways = ways
        self._heading = heading
        self._ours = _C._package_roots()
        self._found: dict[int, Any] = {}
        self._sources: dict[int, Any] = {}
        self._walking: set[int] = set()

    def constant(self, k: int) -> Any:
        """Raises NotThere."""
        if k in self._found:
            return self._found[k]
        if k in self._walking or not 0 <= k < len(self._ways):
            raise NotThere("an object is found through itself")
        self._walking.add(k)
        found = self._found[k] = self._follow(self._ways[k])
        return found

    def take(self, k: int, constant: Any) -> None:
        """The constant is known already."""
        self._found[k] = constant

    def _follow(self, way: Way) -> Any:
        kind = way[0]
        if kind == "value":
            return make_value(way[1])
        if kind in ("tuple", "frozenset"):
            return _MADE[kind](self._follow(part) for part in way[1])
        if kind == "path":
            return self._steps(self._root(way[1]), way[2], way[1])
        if kind == "constant":
            return self._steps(self.constant(way[1]), way[2], way)
        if kind == "source":
            return self._steps(self._source(way[1]), way[2], way)
        raise NotThere("an unknown way")

    def _root(self, root: list[Any]) -> Any:
        if root[0] == "entry":
            return self._entry
        if root[0] == "module":
            found = sys.modules.get(root[1])
            if not isinstance(found, types.ModuleType):
                raise NotThere(f"module {root[1]} is not imported")
            return found
        if root[0] == "constant":
            return self.constant(root[1])
        if root[0] == "ours" and root[1] in self._ours:
            return self._ours[root[1]]
        raise NotThere("an unknown root")

    def _steps(self, found: Any, steps: list[list[Any]], origin: list[Any]) -> Any:
        try:
            for step in steps:
                found = take_step(found, step)
        except NotThere:
            raise
        except Exception:
            names = ".".join(str(step[-1]) for step in steps)
            raise NotThere(f"{names} is not found in {' '.join(map(str, origin[:2]))}") from None
        return found

    def _source(self, number: int) -> Any:
        if number not in self._sources:
            node = self._heading.sources[number]
            parent = None if node.parent is None else self._source(node.parent)
            key = None if node.key is None else self.constant(node.key)
            self._sources[number] = _package_text.walk(node, parent, key, self._arguments)
        return self._sources[number]


__all__ = ["CannotDescribe", "Finder", "NoWay", "NotThere", "Walker", "Way"]
