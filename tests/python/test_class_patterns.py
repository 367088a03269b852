"""`case Class(a, b=c)`: what decides about a match and what it takes, where that changes between the calls.

A class pattern asks isinstance(), reads `__match_args__` of the class, then the attributes, in this order, once each.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

CALLS = 12


class Kind:
    """A class for patterns, objects that it is asked about, and what its code has noted."""

    def __init__(self, cls: Any, make: Callable[[int], Any], log: list[str] | None = None) -> None:
        self.cls, self.make, self.log = cls, make, [] if log is None else log


def plain() -> Kind:
    class K:
        __match_args__: Any = ("a", "b")

        def __init__(self, a: int, b: int) -> None:
            self.a, self.b = a, b

    return Kind(K, lambda n: K(n, n + 1))


def inherited() -> Kind:
    base = plain()

    class K(base.cls):  # type: ignore[misc,name-defined]
        pass

    return Kind(base.cls, lambda n: K(n, n + 1))


def registered() -> Kind:
    """The class of the objects does not have that of the pattern among its bases."""

    class K(abc.ABC):
        __match_args__: Any = ("a", "b")

    made = plain()
    K.register(made.cls)
    return Kind(K, made.make)


def slots() -> Kind:
    class K:
        __slots__ = ("a", "b")
        __match_args__: Any = ("a", "b")

        def __init__(self, a: int, b: int) -> None:
            self.a = a
            if a != 2:
                self.b = b

    return Kind(K, lambda n: K(n, n + 1))


def data_class() -> Kind:
    @dataclasses.dataclass
    class K:
        a: int
        b: int = 5

    return Kind(K, lambda n: K(n, n + 1))


def named_tuple() -> Kind:
    K = collections.namedtuple("K", "a b")
    return Kind(K, lambda n: K(n, n + 1))


def number() -> Kind:
    """Its one positional pattern is the object itself, as long as it has no `__match_args__`."""

    class K(int):
        a = property(lambda self: int(self) + 3)
        b = 4

    return Kind(K, K)


def asked_by_a_hook() -> Kind:
    log: list[str] = []

    class Meta(type):
        def __instancecheck__(cls, other: Any) -> bool:
            log.append("isinstance")
            return hasattr(other, "a")

    class K(metaclass=Meta):
        __match_args__: Any = ("a", "b")

    made = plain()
    return Kind(K, lambda n: made.make(n) if n else object(), log)


def named_by_a_property() -> Kind:
    log: list[str] = []

    class Meta(type):
        @property
        def __match_args__(cls) -> tuple[str, ...]:
            log.append("names")
            return ("b", "a")

    class K(metaclass=Meta):
        def __init__(self, n: int) -> None:
            self.a, self.b = n, n + 1

    return Kind(K, K, log)


def read_by_code() -> Kind:
    log: list[str] = []

    class K:
        __match_args__: Any = ("a", "b")

        def __init__(self, n: int) -> None:
            self.n = n

        @property
        def a(self) -> int:
            log.append("a")
            return self.n

        def __getattr__(self, name: str) -> int:
            log.append(name)
            if name == "b" and self.n < 2:
                return self.n + 1
            raise AttributeError(name)

    return Kind(K, K, log)


def of_another_class() -> Kind:
    """Objects that say that they are of the pattern's class."""
    made = plain()
    log: list[str] = []

    class Mask:
        def __init__(self, n: int) -> None:
            self.a, self.b = n, n + 1

        @property
        def __class__(self) -> Any:
            log.append("class")
            return made.cls

    return Kind(made.cls, Mask, log)


KINDS = {
    "plain": plain,
    "inherited": inherited,
    "registered": registered,
    "slots": slots,
    "data_class": data_class,
    "named_tuple": named_tuple,
    "number": number,
    "hook": asked_by_a_hook,
    "property": named_by_a_property,
    "code": read_by_code,
    "mask": of_another_class,
}
# What `__match_args__` is from the fifth call on; nothing: it is deleted.
NAMES: dict[str, Any] = {
    "same": ("a", "b"),
    "turned": ("b", "a"),
    "fewer": ("a",),
    "none": (),
    "missing": ("a", "c"),
    "twice": ("a", "a"),
    "a_list": ["a", "b"],
    "no_text": ("a", 1),
    "deleted": None,
}


def program(x: torch.Tensor, value: Any, cls: Any) -> Any:
    match value:
        case cls(1):
            return x * 2, "one"
        case cls(a, b=0 | 1 as b):
            return x + a, b
        case cls(a, b):
            return x * a - b, a, b
        case cls():
            return x, "none"
    return x - 1


def outcomes(run: Callable[..., Any], kind: Kind, names: Any) -> list[Any]:
    seen: list[Any] = []
    for call in range(CALLS):
        if call in (4, 5, 9) and "__match_args__" not in vars(type(kind.cls)):
            if names is None and call == 4:
                if "__match_args__" in vars(kind.cls):
                    del kind.cls.__match_args__
            elif names is not None or call == 9:
                kind.cls.__match_args__ = ("a", "b") if call == 9 else names
        try:
            result = run(torch.full((2,), call + 1.0), kind.make(call * 3 % 4), kind.cls)
            seen.append([part.tolist() if isinstance(part, torch.Tensor) else part for part in result])
        except TypeError as error:
            seen.append((type(error), str(error)))
        seen.append(list(kind.log))
    return seen


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_class_patterns(kind: str, names: str, backend: str) -> None:
    expected = outcomes(program, KINDS[kind](), NAMES[names])
    assert outcomes(kintsugi.compile(program, backend=backend), KINDS[kind](), NAMES[names]) == expected


def test_a_missing_attribute_is_captured() -> None:
    """A pattern that does not match for want of an attribute is decided by guards."""
    kind = plain()

    def asks(x: torch.Tensor, value: Any, cls: Any) -> torch.Tensor:
        match value:
            case cls(c=n) | cls(a=n):
                return x + n
        return x

    run = kintsugi.compile(asks, backend="eager")
    for call in range(6):
        value = kind.make(3)
        if call == 4:
            value.c = 7
        assert run(torch.zeros(1), value, kind.cls).item() == (7 if call == 4 else 3)
    assert run.stats().graph_break_count == 0
    assert run.stats().misses <= 2


def test_lengths_of_sequences_that_say_it_themselves() -> None:
    lengths = [3, 1, 2, 3, 2, 0, 1]

    class K(list):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return lengths[call]

    def asks(x: torch.Tensor, value: Any) -> Any:
        match value:
            case [a]:
                return (x + a).item()
            case [a, b]:
                return (x * a).item(), b
        return "none"

    def outcome(run: Callable[..., Any]) -> Any:
        try:
            return run(torch.ones(1), K([4, 5, 6]))
        except ValueError as error:
            return str(error)

    run = kintsugi.compile(asks, backend="eager")
    for call in range(len(lengths)):
        assert outcome(run) == outcome(asks)
