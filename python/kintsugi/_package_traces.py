"""Traces to what a package holds of them, and back.

A trace of a package is a dict of JSON: its text, how each of its constants is found again (_package_ways) and what it
is (_package_describe), tables of numbers, and its side traces. What makes a trace one that another process can't have
is the reason of a `LeftOut`; what does not fit in the process that loads it, the reason of a `NotUsed`.
"""

from __future__ import annotations

import abc
import base64
import collections
import functools
import sys
import types
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from . import _C, _package_text
from ._package_describe import CannotDescribe, Describer, class_name
from ._package_text import Heading
from ._package_ways import Finder, NotThere, NoWay, Walker, check_links, links

# Classes that objects of a trace may have though none of its constants says so.
_COMMON: tuple[type, ...] = (
    *(bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, type, range, slice, object),
    *(type(None), types.FunctionType, types.MethodType, types.GeneratorType, types.BuiltinFunctionType),
    *(collections.OrderedDict, collections.deque, collections.defaultdict, torch.Tensor, torch.nn.Parameter),
    *(torch.Size, map, filter, zip, enumerate, functools.partial, type({}.keys()), type({}.values())),
    *(type({}.items()), type(iter([])), type(iter(()))),
)
Known = tuple[list[Any], list[bool]]
"""The constants of a trace, and which of them are known by value."""

# Objects are found through the arguments of a call. Where the guards refuse it, the next call may lead to others,
# so a few are tried.
_MOST_TRIES = 3


class LeftOut(Exception):
    """Why a trace is in no package."""


class NotUsed(Exception):
    """Why a trace of a package is not used."""


def _answers(constants: Sequence[Any]) -> str:
    """What abstract classes among the constants say of the others, which registrations decide."""
    asked = [each for each in constants if isinstance(each, type) and isinstance(each, abc.ABCMeta)]
    of = [*_COMMON, *(each for each in constants if isinstance(each, type))] if asked else []
    out = []
    for cls in asked:
        for each in of:
            try:
                out.append("1" if issubclass(each, cls) else "0")
            except Exception:
                out.append("e")
    return "".join(out)


def _libraries(constants: Sequence[Any]) -> dict[str, str]:
    """The versions of the libraries that constants are of: what their code in C does follows from these."""
    names = set()
    for constant in constants:
        name = (
            constant.__name__
            if isinstance(constant, types.ModuleType)
            else getattr(constant, "__module__", None)
        )
        if isinstance(name, str):
            names.add(name.partition(".")[0])
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in sorted(names)}
    return {name: version for name, version in found.items() if isinstance(version, str)}


def _schemas(operators: set[str]) -> dict[str, str]:
    """Of operators that are not torch's own."""
    out = {}
    for name in sorted(operators):
        space, packet, overload = name.split(".")
        if space in ("aten", "prim", "prims"):
            continue
        try:
            out[name] = str(getattr(getattr(getattr(torch.ops, space), packet), overload)._schema)
        except Exception:
            out[name] = "none"
    return out


def _known_values(ways: list[Any], parent: list[bool] | None) -> list[bool]:
    """Which constants are known by their value."""
    return [way[0] == "value" or (way[0] == "same" and parent is not None and parent[way[1]]) for way in ways]


# -- To a package


class Writer:
    """Makes dicts of the traces of one callable."""

    def __init__(self, entry: Any) -> None:
        self._entry = entry
        self._code: dict[Any, str] = {}
        self.left_out: list[tuple[str, str]] = []
        self.sides = 0

    def write(self, data: dict[str, Any], parent: dict[str, Any] | None = None) -> dict[str, Any]:
        """Raises LeftOut."""
        if data["bound"]:
            raise LeftOut(data["bound"])
        heading = _package_text.read(data["text"])
        if 'aten "' in data["text"]:
            raise LeftOut("an operator has no plain name")
        constants = data["consts"]
        try:
            opened = frozenset((class_name(constants[k][0]), str(constants[k][1])) for k in heading.opened)
            describer = Describer(opened, self._code)
            ways, digests = self._objects(constants, heading, describer, parent)
        except (NoWay, CannotDescribe) as error:
            raise LeftOut(str(error)) from None
        known = data["known"] = _known_values(ways, None if parent is None else parent["known"])
        tensors = [self._tensor(*row) for row in data["tensors"]]
        arguments, keywords, *numbers = data["entry"]
        return {
            "text": data["text"],
            "ways": ways,
            "digests": digests,
            "links": links(constants, known),
            "opened": sorted(opened),
            "answers": _answers(constants),
            "schemas": _schemas(heading.operators),
            "libraries": _libraries(constants),
            "tensors": tensors,
            "states": data["states"],
            "levels": base64.b64encode(data["levels"]).decode(),
            "breaks": data["breaks"],
            "entry": [arguments, None if keywords is None else list(keywords), *numbers],
            "sides": self._sides(data),
        }

    def _objects(
        self, constants: list[Any], heading: Heading, describer: Describer, parent: dict[str, Any] | None
    ) -> tuple[list[Any], list[Any]]:
        finder = Finder(self._entry, constants, heading)
        inherited = [] if parent is None else parent["consts"]
        ways: list[Any] = []
        digests: list[Any] = []
        for k, constant in enumerate(constants):
            if k < len(inherited):
                if inherited[k] is not constant:
                    raise NoWay("a side trace has other objects than its parent")
                ways.append(["same", k])
                digests.append(None)
                continue
            way = finder.find(k)
            ways.append(way)
            digests.append(None if way[0] == "value" else describer.digest(constant))
        return ways, digests

    def _tensor(self, cls: type, numbers: Any, *extents: Any) -> list[Any]:
        names = {torch.Tensor: "Tensor", torch.nn.Parameter: "Parameter", type(None): ""}
        kind = cls if isinstance(cls, type) else type(None)
        if kind not in names:
            raise LeftOut(f"a tensor of class {class_name(kind)}")
        return [names[kind], list(numbers), *map(list, extents)]

    def _sides(self, data: dict[str, Any]) -> list[Any]:
        out = []
        for guard, side in data["sides"]:
            try:
                out.append([guard, self.write(side, data)])
                self.sides += 1
            except LeftOut as error:
                self.left_out.append(
                    (f"side trace at instruction {guard} of {title(data['text'])}", str(error))
                )
        return out


def title(text: str) -> str:
    """What a trace is of: `@model.py:12 Net.forward`."""
    for line in text.split("\n"):
        if line.startswith("trace "):
            return line.removeprefix("trace ").removesuffix(" {")
    return "a trace"


# -- From a package


class Reader:
    """Makes of the dicts of a package what the core adopts, for one call."""

    def __init__(self, entry: Any, arguments: Sequence[Any]) -> None:
        self._entry = entry
        self._arguments = arguments
        self._code: dict[Any, str] = {}
        self.left_out: list[tuple[str, str]] = []

    def read(self, row: dict[str, Any], parent: Known | None = None) -> dict[str, Any]:
        """Raises NotUsed."""
        try:
            return self._read(row, parent)
        except (NotUsed, RecursionError, MemoryError):
            raise
        except (NotThere, CannotDescribe) as error:
            raise NotUsed(str(error)) from None
        except Exception as error:  # what a file says may be anything
            raise NotUsed(f"it is not what a package holds ({type(error).__name__})") from None

    def _read(self, row: dict[str, Any], parent: Known | None) -> dict[str, Any]:
        heading = _package_text.read(row["text"])
        if _schemas(heading.operators) != row["schemas"]:
            raise NotUsed("an operator has another schema here")
        constants, known = self._constants(row, heading, parent)
        if _libraries(constants) != row["libraries"]:
            raise NotUsed("a library has another version here")
        if _answers(constants) != row["answers"]:
            raise NotUsed("abstract classes have other subclasses here")
        arguments, keywords, *numbers = row["entry"]
        classes = {"Tensor": torch.Tensor, "Parameter": torch.nn.Parameter, "": None}
        return {
            "text": row["text"],
            "consts": constants,
            "tensors": [(classes[kind], *rest) for kind, *rest in row["tensors"]],
            "states": row["states"],
            "levels": base64.b64decode(row["levels"], validate=True),
            "breaks": row["breaks"],
            "entry": (arguments, None if keywords is None else tuple(keywords), *numbers),
            "sides": self._sides(row, (constants, known)),
        }

    def _constants(self, row: dict[str, Any], heading: Heading, parent: Known | None) -> Known:
        ways, digests = row["ways"], row["digests"]
        opened = frozenset((str(cls), str(name)) for cls, name in row["opened"])
        describer = Describer(opened, self._code)
        walker = Walker(self._entry, self._arguments, ways, heading)
        for k, way in enumerate(ways):
            if way[0] == "same":
                if parent is None or way[1] != k or k >= len(parent[0]):
                    raise NotUsed("an object is none of its parent's")
                walker.take(k, parent[0][k])
        constants = []
        for k, (way, expected) in enumerate(zip(ways, digests, strict=True)):
            constant = walker.constant(k)
            if way[0] not in ("value", "same") and describer.digest(constant) != expected:
                raise NotUsed(f"{_text(constant)} is not what it was")
            constants.append(constant)
        known = _known_values(ways, None if parent is None else parent[1])
        check_links(constants, known, row["links"])
        return constants, known

    def _sides(self, row: dict[str, Any], constants: Known) -> list[Any]:
        out = []
        for guard, side in row["sides"]:
            try:
                out.append((guard, self.read(side, constants)))
            except NotUsed as error:
                self.left_out.append((f"side trace of {title(row['text'])}", str(error)))
        return out


def _text(constant: object) -> str:
    for name in ("__qualname__", "co_qualname", "__name__"):
        found = getattr(constant, name, None) if isinstance(constant, _NAMED) else None
        if isinstance(found, str):
            return found
    return f"an object of type {class_name(type(constant))}"


_NAMED = (type, types.FunctionType, types.CodeType, types.ModuleType, types.BuiltinFunctionType)


def _count_sides(data: dict[str, Any]) -> int:
    return sum(1 + _count_sides(side) for _, side in data["sides"])


class Loader:
    """What the core asks before it records a call: gives it the traces of a package that fit."""

    def __init__(self, core: _C.Compiled, rows: list[Any], origin: str) -> None:
        self._core = weakref.ref(core)
        self._pending: list[tuple[int, Any]] = [(0, row) for row in rows]
        self._origin = origin
        self.used = 0
        self.sides = 0
        self.refused: list[tuple[str, str]] = []

    def __call__(self, positional: tuple[Any, ...], named: dict[str, Any]) -> bool:
        core = self._core()
        if core is None:
            return False
        reader = Reader(core._entry, [*positional, *named.values()])
        pending: list[tuple[int, Any]] = []
        for tries, row in self._pending:
            data: dict[str, Any] = {}
            try:
                data = reader.read(row)
                problem = core._adopt(data)
            except (NotUsed, RecursionError) as error:
                problem = str(error)
            if not problem:
                self.used += 1
                self.sides += _count_sides(data)
            elif tries + 1 < _MOST_TRIES:
                pending.append((tries + 1, row))
            else:
                self.refuse(title(row["text"]), problem)
                continue
            if problem:
                core._note_package(self._origin, problem)
        for name, problem in reader.left_out:
            self.refuse(name, problem)
        self._pending = pending
        return bool(pending)

    @property
    def waiting(self) -> int:
        """Traces that no call has fitted yet."""
        return len(self._pending)

    def refuse(self, name: str, problem: str) -> None:
        """Says why a trace is not used."""
        self.refused.append((name, problem))
        core = self._core()
        if core is not None:
            core._note_package(self._origin, problem)
