"""For test_call_facts.py: objects whose special methods are the program's and tell that they were called."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

# What compiled code reads before and behind a call; every special method changes it.
STATE = {"asked": 0}
ASKED: list[str] = []


def asked(name: str) -> None:
    STATE["asked"] += 1
    ASKED.append(name)


def begin() -> None:
    STATE["asked"] = 0
    ASKED.clear()


def _item(self: Any, at: Any) -> int:
    if isinstance(at, int) and not -2 <= at < 2:
        raise IndexError(at)
    return 5


ANSWERS: dict[str, Callable[..., Any]] = {
    "__index__": lambda self: 1,
    "__int__": lambda self: 1,
    "__float__": lambda self: 1.5,
    "__complex__": lambda self: 1j,
    "__bool__": lambda self: True,
    "__len__": lambda self: 2,
    "__length_hint__": lambda self: 2,
    "__iter__": lambda self: iter([1, 2]),
    "__reversed__": lambda self: iter([2, 1]),
    "__contains__": lambda self, item: True,
    "__getitem__": _item,
    "__setitem__": lambda self, at, value: None,
    "__delitem__": lambda self, at: None,
    "__eq__": lambda self, other: self is other,
    "__ne__": lambda self, other: self is not other,
    "__hash__": lambda self: 7,
    "__str__": lambda self: "spy",
    "__repr__": lambda self: "<spy>",
    "__format__": lambda self, spec: "spy",
    "__bytes__": lambda self: b"spy",
    "__fspath__": lambda self: "/spy",
    "__call__": lambda self, *args, **kwargs: 4,
    "__round__": lambda self, digits=None: 2,
    "__trunc__": lambda self: 1,
    "__floor__": lambda self: math.floor(1.5),
    "__ceil__": lambda self: math.ceil(1.5),
    "__copy__": lambda self: "copy",
    "__deepcopy__": lambda self, memo: "deep copy",
    "__enter__": lambda self: self,
    "__exit__": lambda self, *error: False,
    **{f"__{name}__": lambda self, other: False for name in ("lt", "le", "gt", "ge")},
    **{f"__{name}__": lambda self: 3 for name in ("neg", "pos", "abs", "invert")},
    **{
        f"__{side}{name}__": lambda self, other, *more: 6
        for side in ("", "r", "i")
        for name in (
            *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
            *("and", "or", "xor", "lshift", "rshift"),
        )
    },
    "__divmod__": lambda self, other: (1, 2),
    "__rdivmod__": lambda self, other: (1, 2),
}


def _telling(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked(name)
        return answer(self, *args, **kwargs)

    method.__name__ = name
    return method


Spy: Any = type("Spy", (), {name: _telling(name, answer) for name, answer in ANSWERS.items()})


class Key:
    """Found in dicts and sets, and compared, by code of the program's."""

    def __hash__(self) -> int:
        asked("__hash__")
        return hash("a")

    def __eq__(self, other: object) -> bool:
        asked("__eq__")
        return other == "a"


class Whole(int):
    """A number with one special method of its own."""

    def __index__(self) -> int:
        asked("__index__")
        return 1

    def __bool__(self) -> bool:
        asked("__bool__")
        return True

    def __add__(self, other: Any) -> Any:
        asked("__add__")
        return 3


SPIES: dict[str, Callable[[], Any]] = {
    "spy": Spy,
    "list of spies": lambda: [Spy()],
    "dict of spies": lambda: {"a": Spy()},
    "key": Key,
    "int of ours": lambda: Whole(1),
}
