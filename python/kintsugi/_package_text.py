"""What a package reads of a trace's text: where its objects come from, and which guards speak of their identity.

The text is that of docs/internals/ir.md; these are its sections `sources` and `guards`, whose rows are one line each.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

_SOURCE = re.compile(r"  \$(\d+) = (\w+)((?: [$#%]?-?\d+)*)(?: block=\d+)?(?:  ;.*)?")
_GUARD = re.compile(r"  (\w+)((?: [$#]?-?\d+)*)(?:  ;.*)?")
_CONST = re.compile(r"  const #(\d+)( |$)")
_OPERATOR = re.compile(r"^  (?:%\d+(?:, %\d+)* = )?([a-zA-Z_]\w*(?:\.\w+){2})\b", re.MULTILINE)

# Guards that are about which object it is: such a constant has to be found where the program has it.
_IDENTITY = ("is", "function", "type", "nomember")


class NotThere(Exception):
    """A source leads nowhere in this process."""


@dataclasses.dataclass(frozen=True)
class Source:
    """One way to an object: its kind, and what that has of parent, constant key and index."""

    kind: str
    parent: int | None
    key: int | None
    index: int | None


@dataclasses.dataclass
class Heading:
    """The sources of a text and what its guards say of constants."""

    sources: list[Source]
    guarded: dict[int, tuple[str, int]]
    """Of a constant: a guard that pins its identity, and the source."""
    pinned: set[int]
    """Constants that have to be the very object that the program has."""
    opened: list[int]
    """Constants of `openattr` guards."""
    operators: set[str]


def _numbers(text: str) -> tuple[int | None, int | None, int | None]:
    parent = key = index = None
    for word in text.split():
        if word[0] == "$":
            parent = int(word[1:])
        elif word[0] == "#":
            key = int(word[1:])
        else:
            index = int(word.lstrip("%"))
    return parent, key, index


def read(text: str) -> Heading:
    """Reads what the core has written. Lines that are of no such form are of other sections."""
    heading = Heading([], {}, set(), [], set())
    section = ""
    for line in text.split("\n"):
        if not line.startswith(" "):
            section = line.split(" ")[0]
        elif section == "sources":
            found = _SOURCE.fullmatch(line)
            if found is not None:
                source = Source(found[2], *_numbers(found[3]))
                heading.sources.append(source)
                if source.kind in ("pinned", "member", "getset") and source.key is not None:
                    heading.pinned.add(source.key)
        elif section == "guards":
            found = _GUARD.fullmatch(line)
            if found is not None:
                _note_guard(heading, found[1], *_numbers(found[2])[:2])
    heading.operators = set(_OPERATOR.findall(text))
    return heading


def _note_guard(heading: Heading, kind: str, source: int | None, key: int | None) -> None:
    if kind == "openattr" and key is not None:
        heading.opened.append(key)
    if kind in _IDENTITY and source is not None and key is not None:
        heading.guarded.setdefault(key, (kind, source))
        heading.pinned.add(key)


# -- Walking sources, as the core's guards do (csrc/runtime/guard_resolve.cc), at a time when Python code may run


def _instance_dict(parent: Any, _key: Any, _index: Any) -> Any:
    return object.__getattribute__(parent, "__dict__")


def _item(parent: Any, key: Any, _index: Any) -> Any:
    return dict.__getitem__(parent, key)


def _descriptor(parent: Any, key: Any, _index: Any) -> Any:
    return key.__get__(parent, type(parent))


def _function(parent: Any) -> Any:
    if type(parent) is not types.FunctionType:
        raise NotThere("no function")
    return parent


_STEPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "type": lambda parent, _key, _index: type(parent),
    "dict": _instance_dict,
    "item": _item,
    "list": lambda parent, _key, index: list.__getitem__(parent, index),
    "tuple": lambda parent, _key, index: tuple.__getitem__(parent, index),
    "member": _descriptor,
    "getset": _descriptor,
    "cell": lambda parent, _key, _index: parent.cell_contents,
    "closure": lambda parent, _key, index: _function(parent).__closure__[index],
    "defaults": lambda parent, _key, _index: _function(parent).__defaults__,
    "kwdefaults": lambda parent, _key, _index: _function(parent).__kwdefaults__,
    "globals": lambda parent, _key, _index: _function(parent).__globals__,
    "builtins": lambda parent, _key, _index: _function(parent).__builtins__,
    "func": lambda parent, _key, _index: parent.__func__,
    "self": lambda parent, _key, _index: parent.__self__,
    "partial": lambda parent, _key, index: (parent.func, parent.args, parent.keywords)[index],
}


def walk(source: Source, parent: Any, key: Any, arguments: Sequence[Any]) -> Any:
    """The object at a source, whose parent and key are known. Raises NotThere."""
    if source.kind == "pinned":
        return key
    try:
        if source.kind == "arg":
            assert source.index is not None
            return arguments[source.index]
        return _STEPS[source.kind](parent, key, source.index)
    except Exception as error:
        raise NotThere(f"a source of kind {source.kind} leads nowhere ({type(error).__name__})") from None
