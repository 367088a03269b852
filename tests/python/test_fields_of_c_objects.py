"""Attributes that C code keeps in fields of its objects: what a call stores is what it reads behind that, whatever the
field held when the call began; and what others store between the calls is seen."""

from __future__ import annotations

import ctypes
import decimal
import functools
import io
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kintsugi


def function() -> Callable[..., Any]:
    def older(a: int = 1, *, b: int = 2) -> int:
        """Words."""
        return a + b

    return older


def other(c: int = 3) -> int:
    return c


def items() -> Iterator[int]:
    yield 1


class Structure(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("held", ctypes.py_object)]


class Slots:
    __slots__ = ("a",)

    def __init__(self) -> None:
        self.a = 1


class Plain:
    """Words."""

    a: Any = 1


class Gone(Exception):
    pass


NAMES = ("new", "other", "third")
NUMBERS = (7, 8, 9)
NOTHING = (None, "other", None)
FLAGS = (True, False, True)
TUPLES = ((7,), (8, 8), ())
DICTS = ({"a": 1}, {"a": 2}, {})
ERRORS = (ValueError(1), ValueError(2), None)
ANY = (None, 8, "third")

# Of each object: its attributes, each with a value that the call stores and two that are stored between the calls.
OBJECTS: dict[str, tuple[Callable[[], Any], dict[str, tuple[Any, ...]]]] = {
    "function": (
        function,
        {
            "__doc__": NAMES, "__module__": NOTHING, "__name__": NAMES, "__qualname__": NAMES, "__defaults__": TUPLES,
            "__kwdefaults__": DICTS, "__annotations__": DICTS, "__dict__": DICTS,
            "__code__": (other.__code__, (lambda: 3).__code__, (lambda: 4).__code__),
        },
    ),
    "class": (lambda: type("K", (), {"__doc__": "d"}), {"__doc__": NAMES, "__name__": NAMES, "__module__": NAMES}),
    "ImportError": (lambda: ImportError("q", name="n", path="p"), {"msg": NAMES, "name": NOTHING, "path": NAMES}),
    "OSError": (lambda: OSError(1, "two", "three"), {"errno": NUMBERS, "strerror": NAMES, "filename": NOTHING}),
    "StopIteration": (lambda: StopIteration(5), {"value": ANY}),
    "SystemExit": (lambda: SystemExit(5), {"code": ANY}),
    "AttributeError": (lambda: AttributeError("q", name="n", obj=3), {"name": NAMES, "obj": ANY}),
    "NameError": (lambda: NameError("q", name="n"), {"name": NOTHING}),
    "SyntaxError": (lambda: SyntaxError("q"), {"msg": NAMES, "lineno": NUMBERS, "text": NOTHING}),
    "UnicodeDecodeError": (
        lambda: UnicodeDecodeError("utf8", b"abc", 0, 1, "r"),
        {"reason": NAMES, "start": NUMBERS, "encoding": NAMES},
    ),
    "exception": (
        lambda: Gone(5),
        {
            "args": TUPLES, "__cause__": ERRORS, "__context__": ERRORS, "__suppress_context__": FLAGS,
            "__dict__": DICTS, "__notes__": ([1], [2], []),
        },
    ),
    "property": (lambda: property(lambda self: 1, doc="d"), {"__doc__": NOTHING}),
    "static method": (lambda: staticmethod(function()), {"__doc__": NAMES, "more": NAMES}),
    "generator": (items, {"__name__": NAMES, "__qualname__": NAMES}),
    "module": (lambda: types.ModuleType("m"), {"__doc__": NOTHING, "__name__": NAMES, "a": ANY}),
    "decimal context": (decimal.Context, {"prec": NUMBERS, "capitals": (1, 0, 1)}),
    "structure": (lambda: Structure(1, 2), {"number": NUMBERS, "held": ANY}),
    "number of ctypes": (lambda: ctypes.c_int(3), {"value": NUMBERS}),
    "partial": (lambda: functools.partial(other, 1), {"more": NAMES, "__dict__": DICTS}),
    "slots": (Slots, {"a": ANY}),
    "instance": (Plain, {"a": ANY, "__dict__": DICTS}),
    "namespace": (lambda: types.SimpleNamespace(a=1), {"a": ANY}),
    "text file": (lambda: io.TextIOWrapper(io.BytesIO()), {"_CHUNK_SIZE": NUMBERS}),
    "parameter": (lambda: torch.nn.Parameter(torch.ones(2)), {"requires_grad": FLAGS, "more": NAMES}),
}  # fmt: skip


def programs(attribute: str) -> list[Callable[..., Any]]:
    space: dict[str, Any] = {}
    exec(
        f"""
def stored(x, o, v):
    o.{attribute} = v
    return x + 1, o.{attribute}

def read_before(x, o, v):
    before = o.{attribute}
    o.{attribute} = v
    return before, x + 1, o.{attribute}

def twice(x, o, v):
    found = [o.{attribute}]
    for value in (v, found[0], v):
        o.{attribute} = value
        found.append(o.{attribute})
    return found, x

def by_name(x, o, v):
    before = getattr(o, "{attribute}", 3)
    setattr(o, "{attribute}", v)
    return before, getattr(o, "{attribute}", 3), x * 2

def from_within(x, o, v):
    def inner():
        return o.{attribute}
    before = inner()
    o.{attribute} = v
    return before, inner(), x
""",
        space,
    )
    return [found for name, found in space.items() if name != "__builtins__"]


def shown(value: Any) -> str:
    return re.sub("0x[0-9a-f]+", "", repr(value))


CASES = [(kind, attribute) for kind, (_, attributes) in OBJECTS.items() for attribute in attributes]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("kind,attribute", CASES)
def test_what_is_stored_is_read(kind: str, attribute: str, backend: str) -> None:
    make, attributes = OBJECTS[kind]
    stored, second, third = attributes[attribute]
    for program in programs(attribute):

        def calls(wrap: Callable[[Any], Any], older: bool) -> list[Any]:
            target = make()

            def closed(x: torch.Tensor, ignored: Any, value: Any) -> Any:
                return program(x, target, value)

            called = wrap(closed if older else program)
            found = []
            for k in range(8):
                if k in (3, 5, 6):
                    setattr(target, attribute, third if k == 6 else second)
                try:
                    result = shown(called(torch.ones(1), target, stored))
                except Exception as error:
                    result = shown((type(error), str(error)))
                found.append((result, shown(getattr(target, attribute, "none"))))
            return found

        for older in (False, True):
            expected = calls(lambda f: f, older)
            assert calls(lambda f: kintsugi.compile(f, backend=backend), older) == expected, program.__name__
