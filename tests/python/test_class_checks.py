"""isinstance(), issubclass() and callable(): whatever an answer rests on changes between calls."""

from __future__ import annotations

import abc
import collections.abc
import typing
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import pytest
import torch

import kintsugi

STATE: dict[str, Any] = {}


class Meta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return bool(STATE.get("on"))

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return bool(STATE.get("on"))


class Hooked(metaclass=Meta):
    pass


class Abstract(abc.ABC):
    pass


@runtime_checkable
class HasNumber(Protocol):
    n: int


@runtime_checkable
class HasMethod(Protocol):
    def method(self) -> None: ...


class Base:
    pass


class Other:
    pass


class SaysItsClass:
    @property
    def __class__(self) -> Any:
        return STATE.get("cls", SaysItsClass)


def with_protocol() -> Any:
    holder = Base()
    holder.protocol = runtime_checkable(type("Own", (Protocol,), {"method": lambda self: None}))
    return holder


def plain() -> Any:
    return type("Plain", (Base,), {})()


def switch(o: Any) -> None:
    STATE["on"] = not STATE.get("on")


def registered(cls: Any) -> Callable[[Any], None]:
    def register(o: Any) -> None:
        cls.register(type(o))

    return register


def given(name: str, value: Any) -> Callable[[Any], None]:
    return lambda o: setattr(type(o), name, value)


def other_bases(o: Any) -> None:
    type(o).__bases__ = (Other,)


Check = Callable[[Any], Any]
CASES: dict[str, tuple[Callable[[], Any], Check, list[Callable[[Any], None]]]] = {
    "hook of a metaclass": (plain, lambda o: isinstance(o, Hooked), [switch, switch, switch]),
    "in a tuple": (plain, lambda o: isinstance(o, (int, (str, Hooked))), [switch, switch]),
    "in a union": (plain, lambda o: isinstance(o, int | Hooked), [switch, switch]),
    "of subclasses": (plain, lambda o: issubclass(type(o), Hooked), [switch, switch]),
    "register": (plain, lambda o: isinstance(o, Abstract), [registered(Abstract)]),
    "register a subclass": (plain, lambda o: issubclass(type(o), Abstract), [registered(Abstract)]),
    "register a sequence": (
        plain,
        lambda o: (isinstance(o, collections.abc.Sequence), isinstance(o, collections.abc.Iterable)),
        [registered(collections.abc.Sequence)],
    ),
    "alias of typing": (
        plain,
        lambda o: isinstance(o, (typing.Sequence, typing.Optional[int])),
        [registered(collections.abc.Sequence), other_bases],
    ),
    "attribute of a protocol": (
        plain,
        lambda o: isinstance(o, HasNumber),
        [lambda o: setattr(o, "n", 1), lambda o: delattr(o, "n")],
    ),
    "method of a protocol": (plain, lambda o: isinstance(o, HasMethod), [given("method", lambda s: None)]),
    "members of a protocol": (
        with_protocol,
        lambda o: (isinstance(3, o.protocol), isinstance([], o.protocol)),
        [lambda o: delattr(o.protocol, "method")],
    ),
    "bases": (plain, lambda o: (isinstance(o, Base), isinstance(o, Other)), [other_bases]),
    "bases of a subclass": (
        plain,
        lambda o: (issubclass(type(o), Base), issubclass(type(o), Other)),
        [other_bases],
    ),
    "__class__ of its own": (
        SaysItsClass,
        lambda o: (isinstance(o, Base), isinstance(o, SaysItsClass), isinstance(o, (int, Other))),
        [lambda o: STATE.update(cls=Base), lambda o: STATE.update(cls=Other)],
    ),
    "another class": (
        plain,
        lambda o: (isinstance(o, Base), isinstance(o, Other)),
        [lambda o: setattr(o, "__class__", type("New", (Other,), {}))],
    ),
    "callable": (plain, callable, [given("__call__", lambda s: 1), lambda o: delattr(type(o), "__call__")]),
}


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", CASES)
def test_answers_that_change(name: str, backend: str) -> None:
    make, check, changes = CASES[name]

    def program(x: torch.Tensor, o: Any) -> Any:
        return x + 1, check(o), x * (2 if check(o) else 3)

    outcomes = []
    for compiled in (program, kintsugi.compile(program, backend=backend)):
        STATE.clear()
        o = make()
        found = []
        for change in (None, None, *changes):
            if change is not None:
                change(o)
            made = compiled(torch.ones(2), o)
            found.append((made[0].tolist(), made[1], made[2].tolist()))
        outcomes.append(found)
    assert outcomes[1] == outcomes[0]


def test_usual_checks_are_no_steps() -> None:
    def program(x: torch.Tensor, o: Any) -> torch.Tensor:
        kinds = (isinstance(o, dict), isinstance(o, collections.abc.Mapping), isinstance(x, torch.Tensor))
        more = (
            isinstance(x, (int, float)),
            isinstance(o, typing.Mapping),
            callable(o),
            issubclass(dict, object),
        )
        return x * sum(kinds) + sum(more)

    compiled = kintsugi.compile(program, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2), {"a": 1}), program(torch.ones(2), {"a": 1}))
    stats = compiled.stats()
    assert (stats.trace_count, stats.graph_break_count, stats.hits) == (1, 0, 2)
