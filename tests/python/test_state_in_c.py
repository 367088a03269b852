"""State that C code reads and that no dict of the program's holds: names of functions and classes, whole dicts of
classes, attributes that `str.format` looks up, contents of objects that are compared by identity. All of it changes
between calls."""

from __future__ import annotations

import array
import collections
import ctypes
import functools
import inspect
import io
import math
import mmap
import operator
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import describe

import kintsugi

Read = Callable[[Any], Any]
Change = Callable[[Any, int], None]
BACKENDS = ["eager", "native"]


def compile_with(function: Callable[..., Any], backend: str) -> Any:
    options = {"sync": True} if backend == "native" else None
    return kintsugi.compile(function, backend=backend, options=options)


def attempt(read: Read, thing: Any) -> Any:
    try:
        return read(thing)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        return type(error).__name__, str(error)


def check(make: Callable[[], Any], read: Read, change: Change, backend: str, turns: int = 7) -> None:
    """The same reads of two things of a kind that are changed alike, one of them in a compiled function."""

    def program(x: torch.Tensor, thing: Any) -> Any:
        return x * 2, attempt(read, thing)

    compiled = compile_with(program, backend)
    ours, theirs = make(), make()
    for turn in range(turns):
        if turn:
            change(ours, turn)
            change(theirs, turn)
        x = torch.full((2,), float(turn))
        assert describe(compiled(x, ours)) == describe(program(x, theirs)), turn


# --- what functions and classes are called ---


def make_function() -> Any:
    def g(a: int) -> int:
        """Says nothing."""
        return a

    return g


def make_class() -> Any:
    return type("A", (), {"m": lambda self: 1})


class Named(type):
    """A metaclass that says itself what its classes are called."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        return f"named {cls.number}"


def rename(thing: Any, turn: int) -> None:
    thing.__name__ = f"name{turn % 3}"


def rename_in_full(thing: Any, turn: int) -> None:
    thing.__qualname__ = f"in.full{turn % 3}"


def rename_class(thing: Any, turn: int) -> None:
    rename(type(thing), turn)
    rename_in_full(type(thing), turn + 1)
    type(thing).__module__ = f"module{turn % 2}"


NAMES: dict[str, tuple[Callable[[], Any], Read, Change]] = {
    "function": (make_function, lambda g: (g.__name__, getattr(g, "__name__"), g.__qualname__), rename),
    "function in full": (make_function, lambda g: (g.__qualname__, g.__module__, g.__doc__), rename_in_full),
    "function's text": (
        make_function,
        lambda g: (repr(g)[:18], f"{g}"[:18], "%s" % (g,))[:2],
        rename_in_full,
    ),
    "class": (make_class, lambda c: (c.__name__, c.__qualname__, c.__doc__), rename),
    "class in full": (make_class, lambda c: (c.__qualname__, c.__module__), rename_in_full),
    "class's text": (
        make_class,
        lambda c: (repr(c), str(c), f"{c}", "%s" % (c,), "{}".format(c)),
        rename_in_full,
    ),
    "instance": (
        lambda: make_class()(),
        lambda o: (type(o).__name__, o.__class__.__qualname__),
        rename_class,
    ),
    "instance's text": (lambda: make_class()(), lambda o: (repr(type(o)), repr(o)[:15]), rename_class),
    "method": (
        lambda: make_class()(),
        lambda o: (o.m.__name__, o.m.__func__.__name__, o.m.__qualname__),
        lambda o, turn: rename(type(o).m, turn),
    ),
    "partial": (
        lambda: functools.partial(make_function(), 1),
        lambda p: p.func.__name__,
        lambda p, turn: rename(p.func, turn),
    ),
    "wrapped": (
        lambda: functools.wraps(make_function())(make_function()),
        lambda g: (g.__wrapped__.__name__, g.__name__),
        lambda g, turn: rename(g.__wrapped__, turn),
    ),
    "property": (
        lambda: type("P", (), {"p": property(lambda self: 1)}),
        lambda c: c.p.fget.__name__,
        lambda c, turn: rename(c.p.fget, turn),
    ),
    "bases": (
        lambda: type("B", (make_class(),), {}),
        lambda c: ([base.__name__ for base in c.__mro__], c.__base__.__name__),
        lambda c, turn: rename(c.__mro__[1], turn),
    ),
    "exception": (lambda: type("E", (ValueError,), {}), lambda c: (repr(c("q")), str(c("q"))), rename),
    "slot": (lambda: type("S", (), {"__slots__": ("a",)}), lambda c: c.a.__objclass__.__name__, rename),
    "module": (
        lambda: type("Net", (torch.nn.Module,), {})(),
        lambda m: (m._get_name(), repr(m)),
        rename_class,
    ),
    "metaclass": (
        lambda: Named("M", (), {"number": 0}),
        lambda c: c.__name__,
        lambda c, turn: setattr(c, "number", turn % 3),
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_names(name: str, backend: str) -> None:
    check(*NAMES[name], backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_names_that_the_program_sets(backend: str) -> None:
    def program(x: torch.Tensor, g: Any, c: Any) -> Any:
        before = g.__name__, c.__name__
        g.__name__ = before[0] + "'"
        c.__name__ = before[1] + "'"
        return x + len(g.__name__), before, g.__name__, c.__name__, f"{c}", repr(c)

    compiled = compile_with(program, backend)
    ours, theirs = (make_function(), make_class()), (make_function(), make_class())
    for turn in range(6):
        x = torch.full((2,), float(turn))
        assert describe(compiled(x, *ours)) == describe(program(x, *theirs)), turn


# --- attributes of classes, read in all ways ---

VALUES: list[Any] = [
    None,  # there is none
    1,
    property(lambda self: 5),
    None,
    1,
    None,
    lambda *_: 7,
    2.5,
    None,
    staticmethod(lambda *_: 8),
    classmethod(lambda cls, *_: 9),
    None,
]


def set_or_delete(cls: Any, turn: int) -> None:
    value = VALUES[turn % len(VALUES)]
    if value is not None:
        cls.q = value
    elif "q" in vars(cls):
        del cls.q


def result(value: Any) -> Any:
    return value() if callable(value) else value


ATTRIBUTES: dict[str, Read] = {
    "contains": lambda c: ("q" in c.__dict__, "q" in vars(c)),
    "get": lambda c: (type(c.__dict__.get("q")).__name__, inspect.isfunction(vars(c).get("q"))),
    "keys": lambda c: [name for name in c.__dict__ if not name.startswith("__")],
    "length": lambda c: len(c.__dict__),
    "items": lambda c: [name for name, value in c.__dict__.items() if value == 1],
    "bases": lambda c: any("q" in base.__dict__ for base in c.__mro__),
    "static": lambda c: type(inspect.getattr_static(c(), "q", None)).__name__,
    "format": lambda c: "{0.q!s:.5}".format(c()),
    "format of the class": lambda c: "{0.q!s:.5} {a.__name__}".format(c, a=c),
    "format_map": lambda c: "{a.q!s:.5}".format_map({"a": c}),
    "getter": lambda c: result(operator.attrgetter("q")(c())),
    "default": lambda c: (result(getattr(c(), "q", 3)), hasattr(c, "q")),
    "both": lambda c: ("q" in c.__dict__, result(getattr(c(), "q", 3))),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_of_classes(name: str, base: bool, backend: str) -> None:
    def make() -> Any:
        return type("A", (type("Base", (), {}),), {})

    def change(cls: Any, turn: int) -> None:
        set_or_delete(cls.__base__ if base else cls, turn)

    check(make, ATTRIBUTES[name], change, backend, turns=2 * len(VALUES))


def sets_what_it_asked_for(x: torch.Tensor, c: Any) -> Any:
    found = "n" in c.__dict__, len(vars(c))
    c.n = getattr(c, "n", 0) + 1
    return x * c.n, found, "n" in c.__dict__, dict(vars(c))["n"]


def holds_the_dict(x: torch.Tensor, c: Any) -> Any:
    held = c.__dict__
    before = "n" in held
    exec("c.n = 5")  # nobody knows what it does
    between = "n" in held, held["n"]
    del c.n
    return x, before, between, "n" in held, held.get("n")


def counts_in_a_dict(x: torch.Tensor, c: Any) -> Any:
    seen = c.__dict__.get("n", 0)
    c.n = seen + 1
    return x + seen, c.n


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [sets_what_it_asked_for, holds_the_dict, counts_in_a_dict])
def test_dicts_of_classes_that_are_written_to(program: Callable[..., Any], backend: str) -> None:
    compiled = compile_with(program, backend)
    ours, theirs = make_class(), make_class()
    for turn in range(8):
        if turn in (3, 6):
            for cls in (ours, theirs):
                cls.n = 0
                del cls.n
        x = torch.full((2,), float(turn))
        assert describe(compiled(x, ours)) == describe(program(x, theirs)), turn


# --- contents of objects that are compared by identity ---


class Box:
    v = 0

    def __init__(self) -> None:
        self.v = 3


class Slotted:
    __slots__ = ("v",)

    def __init__(self) -> None:
        self.v = 3


class Pair(ctypes.Structure):
    _fields_ = [("v", ctypes.c_int), ("w", ctypes.c_int)]


def make_map() -> mmap.mmap:
    made = mmap.mmap(-1, 3)
    made[:] = b"312"
    return made


def set_item(thing: Any, turn: int) -> None:
    thing[0] = turn % 3 + 1


def set_byte(thing: Any, turn: int) -> None:
    thing[0] = 48 + turn % 3


def set_attribute(thing: Any, turn: int) -> None:
    thing.v = turn % 3 + 1


def append(thing: Any, turn: int) -> None:
    thing.seek(0)
    thing.write(str(turn))
    thing.seek(0)


THINGS: dict[str, tuple[Callable[[], Any], Change]] = {
    "ctypes array": (lambda: (ctypes.c_int * 3)(3, 1, 2), set_item),
    "ctypes structure": (lambda: Pair(3, 1), set_attribute),
    "mmap": (make_map, set_byte),
    "box": (Box, set_attribute),
    "slots": (Slotted, set_attribute),
    "bytearray": (lambda: bytearray(b"312"), set_byte),
    "array": (lambda: array.array("i", [3, 1, 2]), set_item),
    "list": (lambda: [3, 1, 2], set_item),
    "deque": (lambda: collections.deque([3, 1, 2]), set_item),
    "namespace": (lambda: types.SimpleNamespace(v=3), set_attribute),
    "file": (lambda: io.StringIO("3"), append),
    "list in a tuple": (lambda: ([3, 1, 2], 4), lambda pair, turn: set_item(pair[0], turn)),
    "box in a tuple": (lambda: (Box(), 4), lambda pair, turn: set_attribute(pair[0], turn)),
}

CALLS: dict[str, Read] = {
    "format": lambda o: ("{0.v}".format(o), "{a.v} {b}".format(a=o, b=1)),
    "format, unbound": lambda o: str.format("{0.v}", o),
    "format of an item": lambda o: ("{0[0]}".format(o), "{0[0].v}".format(o)),
    "format_map": lambda o: "{a.v}".format_map({"a": o}),
    "str": lambda o: str(o, "ascii"),
    "bytes": lambda o: (bytes(o), b"-".join([o])),
    "int": lambda o: (int.from_bytes(bytes(o), "big"), int(o)),
    "sum": sum,
    "least and greatest": lambda o: (min(o), max(o)),
    "all and any": lambda o: (all(i > 1 for i in o), any(o), all(o)),
    "sorted": sorted,
    "sorted backwards": lambda o: (sorted(o, reverse=True), sorted(o, key=lambda i: -i)),
    "contains": lambda o: (operator.contains(o, 3), 1 in o, operator.countOf(o, 1), operator.indexOf(o, 2)),
    "item": lambda o: (operator.getitem(o, 0), o[0], o[:2]),
    "math": lambda o: (math.fsum(o), math.prod(o), math.dist(o, [0, 0, 0])),
    "sets": lambda o: (
        {3}.isdisjoint(o),
        sorted({9}.union(o)),
        sorted({1, 3}.intersection(o)),
        {1} <= set(o),
    ),
    "copies": lambda o: (list(o), tuple(o), list(reversed(o)), [*o], dict.fromkeys(o, 1)),
    "length": lambda o: (len(o), operator.length_hint(o), operator.truth(o)),
    "read": lambda o: (o.seek(0), o.read())[1],
    "identity": lambda o: (
        o is None,
        o in (1, o),
        (o, 1).index(o),
        [o].count(o),
        o == o,
        len({id(o), id(o)}),
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CALLS)
def test_contents(name: str, backend: str) -> None:
    """As an argument, as a constant, and where the program has asked which object it is."""
    read = CALLS[name]
    for kind, (make, change) in THINGS.items():
        ours = make()

        def program(x: torch.Tensor, thing: Any) -> Any:
            return x * 2, attempt(read, thing)

        def begun(function: Callable[..., Any], x: torch.Tensor, thing: Any = ours) -> Any:
            if hasattr(thing, "seek"):
                thing.seek(0)
            return describe(function(x, thing))

        def closed(x: torch.Tensor, thing: Any, ours: Any = ours) -> Any:
            return x * 2, attempt(read, ours)

        def pinned(x: torch.Tensor, thing: Any, ours: Any = ours) -> Any:
            return x * (2 if thing is ours else 3), attempt(read, thing)

        compiled = [compile_with(function, backend) for function in (program, closed, pinned)]
        for turn in range(5):
            if turn:
                change(ours, turn)
            x = torch.full((2,), float(turn))
            expected = begun(program, x)
            for function in compiled:
                assert begun(function, x) == expected, (kind, turn)


# --- errors of C code that name a class or function ---


class Things:
    """What operations are tried on: a class, an object and a function that get other names."""

    def __init__(self) -> None:
        class K:
            __slots__ = ("s",)

            def m(self, a: Any) -> Any:
                return a

        def function(a: Any, *, b: Any) -> Any:
            return a

        self.cls, self.thing, self.function = K, K(), function


def entered(thing: Any) -> None:
    with thing:
        pass


def delegated(thing: Any) -> Any:
    yield from thing


FAILING: dict[str, Callable[[Any, Any, Any], Any]] = {
    "attribute": lambda thing, cls, function: thing.nope,
    "attribute of a class": lambda thing, cls, function: cls.nope,
    "attribute of a function": lambda thing, cls, function: function.nope,
    "special method": lambda thing, cls, function: thing.__iadd__(1),
    "setattr": lambda thing, cls, function: setattr(thing, "other", 1),
    "add": lambda thing, cls, function: thing + 1,
    "less": lambda thing, cls, function: thing < 1,
    "call": lambda thing, cls, function: thing(),
    "subscript": lambda thing, cls, function: thing[0],
    "len": lambda thing, cls, function: len(thing),
    "iteration": lambda thing, cls, function: [item for item in thing],
    "unpacking": lambda thing, cls, function: (*thing,),
    "yield from": lambda thing, cls, function: list(delegated(thing)),
    "with": lambda thing, cls, function: entered(thing),
    "too few": lambda thing, cls, function: thing.m(),
    "too many": lambda thing, cls, function: thing.m(1, 2),
    "constructor": lambda thing, cls, function: cls(1),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FAILING)
def test_errors_name_what_is_called_otherwise_now(name: str, backend: str) -> None:
    def program(x: torch.Tensor, thing: Any, cls: Any, function: Any) -> Any:
        try:
            return x, FAILING[name](thing, cls, function)
        except (AttributeError, TypeError) as error:
            return x * 2, str(error)

    compiled = compile_with(program, backend)
    ours, theirs = Things(), Things()
    for call in range(8):
        if call in (3, 6):
            for one in (ours, theirs):
                one.cls.__name__ = one.cls.__qualname__ = f"Other{call}"
                one.cls.m.__qualname__ = f"Other{call}.method"
                one.function.__qualname__ = f"function{call}"
        x = torch.full((2,), float(call))
        found = compiled(x, ours.thing, ours.cls, ours.function)
        assert describe(found) == describe(program(x, theirs.thing, theirs.cls, theirs.function)), call
