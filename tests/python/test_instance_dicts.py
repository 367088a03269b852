"""Objects whose `__dict__` somebody has asked for: the dict and the attributes are one, whichever is written to. And
classes that are changed often: what is known of them ends with each change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

BACKENDS = pytest.mark.parametrize("backend", ["eager", "native"])


class Box:
    def __init__(self, scale: Any) -> None:
        self.scale = scale


class Many:
    """With more attributes than instances share the names of."""

    def __init__(self) -> None:
        for i in range(40):
            setattr(self, f"a{i}", i)


class Slotted(Box):
    __slots__ = ("slot",)


KEPT = Box(2)
KEPT_DICT = KEPT.__dict__


def same(compiled: Callable[..., Any], program: Callable[..., Any], *args: Any) -> None:
    wanted, got = program(*args), compiled(*args)
    assert repr(got) == repr(wanted)


def reads(x: torch.Tensor, box: Any) -> Any:
    return x * box.scale


def reads_maybe(x: torch.Tensor, box: Any) -> Any:
    return x * (box.extra if hasattr(box, "extra") else box.scale)


def reads_default(x: torch.Tensor, box: Any) -> Any:
    return x + getattr(box, "extra", 7)


def reads_dict(x: torch.Tensor, box: Any) -> Any:
    return x * box.__dict__["scale"] + len(box.__dict__)


def goes_over(x: torch.Tensor, box: Any) -> Any:
    return [(name, x * value) for name, value in vars(box).items()]


def writes(x: torch.Tensor, box: Any) -> Any:
    box.count = getattr(box, "count", 0) + 1
    return x * box.count, box.__dict__.get("count"), list(box.__dict__)


def writes_dict(x: torch.Tensor, box: Any) -> Any:
    box.__dict__["count"] = box.__dict__.get("count", 0) + 1
    return x * box.count


def copies(x: torch.Tensor, box: Any) -> Any:
    other = copy.copy(box)
    other.scale = other.scale + 1
    return x * other.scale + box.scale, list(other.__dict__)


def reads_kept(x: torch.Tensor, box: Any) -> Any:
    return x * KEPT.scale + len(KEPT_DICT)


PROGRAMS = [reads, reads_maybe, reads_default, reads_dict, goes_over, writes, writes_dict, copies]


def changes(box: Any) -> None:
    box.scale = 5


def changes_dict(box: Any) -> None:
    box.__dict__["scale"] = 6


def adds(box: Any) -> None:
    box.extra = 3


def adds_and_takes_away(box: Any) -> None:
    box.extra = 4
    del box.extra


def takes_away_and_adds(box: Any) -> None:
    del box.scale
    box.later = 1
    box.scale = 2


def sets_by_object(box: Any) -> None:
    object.__setattr__(box, "scale", 9)


def updates(box: Any) -> None:
    vars(box).update(scale=8, extra=2)


def other_dict(box: Any) -> None:
    box.__dict__ = {"scale": 11}


def clears(box: Any) -> None:
    vars(box).clear()
    box.scale = 4


CHANGES = [
    changes, changes_dict, adds, adds_and_takes_away, takes_away_and_adds, sets_by_object, updates, other_dict, clears,
]  # fmt: skip


@BACKENDS
@pytest.mark.parametrize("asked", ["before", "between", "never"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_is_written_is_read(program: Any, change: Any, asked: str, backend: str) -> None:
    x = torch.arange(3.0)
    compiled = kintsugi.compile(program, backend=backend)
    for kind in (Box, Slotted):
        mine, theirs = kind(2), kind(2)
        held = (mine.__dict__, theirs.__dict__) if asked == "before" else None
        for call in range(5):
            if call in (2, 4):
                change(mine)
                change(theirs)
            assert repr(compiled(x, mine)) == repr(program(x, theirs))
            if asked == "between" and held is None:
                held = (mine.__dict__, theirs.__dict__)
            assert mine.__dict__ == theirs.__dict__ and list(mine.__dict__) == list(theirs.__dict__)
        if held is not None and change is not other_dict:
            assert held[0] is mine.__dict__ and held[0] == held[1]


@BACKENDS
def test_a_dict_that_was_kept_is_that_of_the_object(backend: str) -> None:
    x = torch.arange(3.0)
    compiled = kintsugi.compile(reads_kept, backend=backend)
    try:
        for scale in (2, 2, 3, 3, 4):
            KEPT.scale = scale
            assert torch.equal(compiled(x, None), x * scale + 1)
        KEPT.more = 1
        assert torch.equal(compiled(x, None), x * 4 + 2)
        del KEPT.more
        assert torch.equal(compiled(x, None), x * 4 + 1)
    finally:
        KEPT.scale = 2


@BACKENDS
def test_the_dict_itself_is_an_argument(backend: str) -> None:
    def program(x: torch.Tensor, names: dict[str, Any]) -> torch.Tensor:
        return x * names["scale"] + len(names)

    x = torch.arange(3.0)
    compiled = kintsugi.compile(program, backend=backend)
    box = Box(2)
    for scale in (2, 2, 3, 3):
        box.scale = scale
        same(compiled, program, x, box.__dict__)
    box.extra = 1
    same(compiled, program, x, box.__dict__)


@BACKENDS
def test_objects_that_outlive_their_dict_and_the_other_way_round(backend: str) -> None:
    x = torch.arange(3.0)
    compiled = kintsugi.compile(reads, backend=backend)
    kept = []
    for scale in (2, 2, 3, 3, 2):
        box = Box(scale)
        kept.append(box.__dict__)
        same(compiled, reads, x, box)
        box.scale = scale + 1
        same(compiled, reads, x, box)
        del box
    assert kept == [{"scale": scale + 1} for scale in (2, 2, 3, 3, 2)]


@BACKENDS
def test_many_attributes(backend: str) -> None:
    def program(x: torch.Tensor, many: Many) -> torch.Tensor:
        return x * many.a39 + many.a0 + len(vars(many))

    x = torch.arange(3.0)
    compiled = kintsugi.compile(program, backend=backend)
    many = Many()
    for value in (1, 1, 2, 2):
        many.a39 = value
        many.a0 = -value
        same(compiled, program, x, many)
    many.more = 1
    same(compiled, program, x, many)


def test_what_a_dict_holds_is_collected_with_it() -> None:
    """A dict gets values of its own where its version is looked at: the collector has to see them."""
    import gc
    import weakref

    def program(x: torch.Tensor, box: Any) -> torch.Tensor:
        return x * box.scale

    compiled = kintsugi.compile(program, backend="eager")
    x = torch.arange(3.0)
    box = Box(2)
    names = box.__dict__  # nothing in it that the collector would follow
    for _ in range(3):
        same(compiled, program, x, box)
    box.itself = box
    box.names = names
    gone = weakref.ref(box)
    kintsugi.reset() if hasattr(kintsugi, "reset") else None
    del box, names, compiled
    gc.collect()
    assert gone() is None


@BACKENDS
def test_a_class_that_was_changed_very_often(backend: str) -> None:
    class Often:
        value = 0

        def get(self) -> int:
            return self.value

    def program(x: torch.Tensor, often: Often) -> torch.Tensor:
        return x * often.value + often.get()

    for i in range(1500):
        Often.value = i
        assert Often.value == i
    x = torch.arange(3.0)
    often = Often()
    compiled = kintsugi.compile(program, backend=backend)
    for value in (1, 1, 1, 2, 2, 3):
        Often.value = value
        same(compiled, program, x, often)
    often.value = 9
    same(compiled, program, x, often)
    Often.get = lambda self: -1
    same(compiled, program, x, often)


@BACKENDS
def test_a_class_that_is_changed_very_often_between_calls(backend: str) -> None:
    class Often:
        value = 0
        other = 1

        def get(self) -> int:
            return self.value

    def program(x: torch.Tensor, often: Often) -> torch.Tensor:
        return x * often.value + often.get()

    x = torch.arange(3.0)
    often = Often()
    compiled = kintsugi.compile(program, backend=backend)
    for _ in range(3):
        same(compiled, program, x, often)
    for i in range(1200):
        Often.other = i
        assert often.value == 0 and Often.other == i
        if i % 100 == 0:
            same(compiled, program, x, often)
    for value in (1, 1, 2):
        Often.value = value
        same(compiled, program, x, often)
