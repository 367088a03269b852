"""For test_call_rows.py: things to call C functions with, and how what they give and leave behind is compared.

Each maker takes the number of the call: values differ from call to call, types don't.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import inspect
import io
import itertools
import pathlib
import random
import re
import struct
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch


class Sized:
    """A sequence by its methods in Python."""

    def __init__(self, k: int) -> None:
        self.items = [3, k, 2]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: int) -> int:
        return self.items[at]


class Walked:
    def __init__(self, k: int) -> None:
        self.k = k

    def __iter__(self) -> Iterator[int]:
        yield self.k
        yield 1


class Number:
    """A number by its methods in Python."""

    def __init__(self, k: int) -> None:
        self.k = k

    def __index__(self) -> int:
        return self.k

    def __float__(self) -> float:
        return float(self.k)

    def __add__(self, other: Any) -> Any:
        return ("sum", self.k, other)

    __radd__ = __add__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and other.k == self.k

    def __lt__(self, other: Any) -> bool:
        return self.k < int(other)

    def __hash__(self) -> int:
        return self.k

    def __bool__(self) -> bool:
        return self.k % 2 == 0


class Texted:
    def __init__(self, k: int) -> None:
        self.k = k
        self.attribute = [k]

    def __str__(self) -> str:
        return f"text {self.k}"

    def __repr__(self) -> str:
        return f"Texted({self.k})"

    def __format__(self, spec: str) -> str:
        return f"{self.k}:{spec}"

    def __fspath__(self) -> str:
        return f"/{self.k}"

    def __call__(self, *args: Any) -> Any:
        return (self.k, *args)


class Plain:
    level = 1

    def __init__(self, k: int) -> None:
        self.a = k
        self.b = [k]

    def method(self) -> int:
        return self.a


class Slotted:
    __slots__ = ("a",)

    def __init__(self, k: int) -> None:
        self.a = k


class ListOfOurs(list):  # type: ignore[type-arg]
    pass


class DictOfOurs(dict):  # type: ignore[type-arg]
    def __missing__(self, key: Any) -> Any:
        return ("missing", key)


class StrOfOurs(str):
    pass


class IntOfOurs(int):
    pass


class Color(enum.Enum):
    RED = 1
    BLUE = 2


Pair = collections.namedtuple("Pair", "a b")


def add(*args: Any, **kwargs: Any) -> Any:
    """Called with whatever is there."""
    return (*args, *sorted(kwargs.items()))


def first(x: Any, *rest: Any) -> Any:
    return x


def generated(k: int) -> Iterator[int]:
    got = yield k
    yield 1 if got is None else 2


def raised(k: int) -> BaseException:
    return ValueError("a", k)


def tensor(k: int) -> torch.Tensor:
    return torch.tensor([1.0, float(k), -2.0])


MAKERS: dict[str, Callable[[int], Any]] = {
    "int": lambda k: k + 1,
    "negative": lambda k: -k - 1,
    "zero": lambda k: 0,
    "large": lambda k: (1 << 65) + k,
    "bool": lambda k: k % 2 == 0,
    "float": lambda k: k + 0.5,
    "complex": lambda k: complex(k, 1),
    "str": lambda k: f"ab{k}",
    "key": lambda k: "a",
    "number text": lambda k: f"{k}",
    "format": lambda k: "{}" + f"{k}",
    "bytes": lambda k: b"ab%d" % k,
    "bytearray": lambda k: bytearray(b"ab%d" % k),
    "memoryview": lambda k: memoryview(b"ab%d" % k),
    "none": lambda k: None,
    "ellipsis": lambda k: ...,
    "slice": lambda k: slice(0, k + 1),
    "range": lambda k: range(k + 2),
    "tuple": lambda k: (1, k, "a"),
    "numbers": lambda k: (3, k, 1.5),
    "empty": lambda k: (),
    "list": lambda k: [2, k, 1],
    "empty list": lambda k: [],
    "list of pairs": lambda k: [("a", k), ("b", 2)],
    "list of lists": lambda k: [[k], [1, 2]],
    "texts": lambda k: ["b", f"a{k}"],
    "dict": lambda k: {"a": k, "b": 2},
    "dict of ints": lambda k: {k: "a", k + 1: "b"},
    "empty dict": lambda k: {},
    "set": lambda k: {k, 17},
    "frozenset": lambda k: frozenset((k, 17)),
    "deque": lambda k: collections.deque([k, 5, 2], maxlen=4),
    "ordered": lambda k: collections.OrderedDict(a=k, b=2),
    "defaultdict": lambda k: collections.defaultdict(list, a=[k]),
    "counter": lambda k: collections.Counter("aab" + "c" * k),
    "chain map": lambda k: collections.ChainMap({"a": k}, {"b": 1}),
    "named tuple": lambda k: Pair(k, 2),
    "proxy": lambda k: types.MappingProxyType({"a": k}),
    "keys": lambda k: {"a": k, "b": 1}.keys(),
    "items": lambda k: {"a": k}.items(),
    "iterator": lambda k: iter([k, 2, 3]),
    "generator": generated,
    "map": lambda k: map(abs, [-k, 1]),
    "enumeration": lambda k: enumerate([k, 2]),
    "count": lambda k: itertools.islice(itertools.count(k), 3),
    "function": lambda k: add,
    "other function": lambda k: first,
    "lambda": lambda k: lambda *args: (k, *args),
    "builtin": lambda k: abs,
    "partial": lambda k: functools.partial(add, k),
    "method": lambda k: Plain(k).method,
    "type": lambda k: int,
    "class": lambda k: Plain,
    "enum": lambda k: Color,
    "member": lambda k: Color(k % 2 + 1),
    "object": Plain,
    "bare object": lambda k: object(),
    "slots": Slotted,
    "sized": Sized,
    "walked": Walked,
    "number": Number,
    "texted": Texted,
    "list of ours": lambda k: ListOfOurs([k, 2]),
    "dict of ours": lambda k: DictOfOurs(a=k),
    "str of ours": lambda k: StrOfOurs(f"ab{k}"),
    "int of ours": lambda k: IntOfOurs(k),
    "namespace": lambda k: types.SimpleNamespace(a=k, b=2),
    "module": lambda k: itertools,
    "property": lambda k: property(lambda self: k),
    "error": raised,
    "error class": lambda k: KeyError,
    "pattern": lambda k: re.compile("(?P<a>a)(b)?"),
    "match": lambda k: re.match("(?P<a>a)(b)?(.*)", f"ab{k}"),
    "text file": lambda k: io.StringIO(f"ab\ncd{k}"),
    "file": lambda k: io.BytesIO(b"ab\ncd%d" % k),
    "struct": lambda k: struct.Struct("<hh"),
    "random": lambda k: random.Random(k),
    "hash": lambda k: hashlib.sha256(b"%d" % k),
    "lock": lambda k: threading.Lock(),
    "recursive lock": lambda k: threading.RLock(),
    "weak reference": lambda k: weakref.ref(Plain),
    "decimal": lambda k: decimal.Decimal(k),
    "fraction": lambda k: fractions.Fraction(k, 3),
    "date": lambda k: datetime.date(2020, 1, k + 1),
    "path": lambda k: pathlib.PurePosixPath(f"/a/{k}"),
    "tensor": tensor,
    "integers": lambda k: torch.tensor([3, k]),
    "matrix": lambda k: torch.eye(2) * (k + 1),
    "scalar tensor": lambda k: torch.tensor(k + 0.5),
    "trained": lambda k: torch.tensor([1.0, k], requires_grad=True),
    "parameter": lambda k: torch.nn.Parameter(torch.ones(2) * k),
    "array": lambda k: numpy.array([1.0, k]),
    "numpy number": lambda k: numpy.float64(k),
    "numpy int": lambda k: numpy.int64(k),
    "dtype": lambda k: torch.float64,
    "device": lambda k: torch.device("cpu"),
    "size": lambda k: torch.Size((1, k)),
    "torch generator": lambda k: torch.Generator().manual_seed(k),
    "module of torch": lambda k: torch.nn.Identity(),
}


def without_places(text: str) -> str:
    """Text without the addresses of objects."""
    return re.sub(r"0x[0-9a-f]{6,}", "0x", text)


def plain(value: Any, depth: int = 0) -> Any:
    """What is compared of a value: its very type and what it consists of. Iterators are used up."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if depth > 5:
        return name
    if kind is int and 1 << 40 < value < 1 << 63:
        return name, "an address or a hash of one"
    if kind in (bool, int, float, complex, str, bytes, bytearray, type(None), type(...), range, slice):
        return name, without_places(repr(value))
    if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
        return name, value.dtype, tuple(value.shape)
    if isinstance(value, torch.Tensor):
        return name, value.dtype, tuple(value.shape), value.requires_grad, repr(value.detach().tolist())
    if isinstance(value, numpy.ndarray | numpy.generic):
        return name, str(value.dtype), repr(value.tolist())
    if isinstance(value, list | tuple | collections.deque):
        extra = value.maxlen if isinstance(value, collections.deque) else None
        return name, extra, [plain(part, depth + 1) for part in value]
    if isinstance(value, dict | types.MappingProxyType):
        if set(value) != set(dict.keys(value) if isinstance(value, dict) else value):
            return name, "broken"  # a method of dict's on an OrderedDict
        return name, [(plain(k, depth + 1), plain(v, depth + 1)) for k, v in value.items()]
    if isinstance(value, set | frozenset):
        return name, sorted(repr(plain(part, depth + 1)) for part in value)
    if isinstance(value, BaseException):
        return name, plain(value.args, depth + 1)
    if isinstance(value, io.StringIO | io.BytesIO):
        return name, value.tell(), value.getvalue()
    if isinstance(value, random.Random):
        return name, value.getstate()
    if isinstance(value, types.GeneratorType | itertools.count | itertools.repeat | itertools.cycle) or (
        hasattr(kind, "__next__") and not isinstance(value, io.IOBase)
    ):
        return name, _used_up(value, depth)
    if isinstance(value, memoryview):
        return name, bytes(value)
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
        return name, getattr(value, "__qualname__", value.__name__)
    if isinstance(value, collections.abc.KeysView | collections.abc.ItemsView | collections.abc.ValuesView):
        return name, [plain(part, depth + 1) for part in value]
    if kind is super:
        return (name,)
    if hasattr(value, "__dict__") and not inspect.ismodule(value):
        return name, plain(dict(vars(value)), depth + 1)
    if kind is Slotted:
        return name, plain(getattr(value, "a", "none"))
    if hasattr(value, "hexdigest"):
        return name, value.hexdigest()
    return name, without_places(repr(value))


def _used_up(value: Any, depth: int) -> Any:
    found = []
    try:
        for _ in range(12):
            found.append(plain(next(value), depth + 1))
    except StopIteration:
        found.append("end")
    except Exception as error:
        found.append(plain(error))
    return found


def outcome(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What it gives or raises, which arguments that is, and what the arguments are afterwards."""
    try:
        result = call(*args)
    except Exception as error:
        return "raises", type(error), without_places(str(error)), plain(list(args))
    # Numbers are not one object: a replay has those of the run in registers.
    same = [at for at, arg in enumerate(args) if arg is result and type(arg) not in (int, float)]
    return "gives", same, plain(result), plain(list(args))


def types_of(seen: Any) -> Any:
    """What `outcome` said, for calls of which no two give the same: the type of the result."""
    return (*seen[:2], seen[2][0]) if seen[0] == "gives" else seen[:2]
