"""Numbers of all kinds in a `torch.Size`: torch makes ints of bools and tensors, and keeps ints of other classes."""

from __future__ import annotations

import enum
import fractions
import itertools
from collections.abc import Callable
from typing import Any

import harness
import numpy
import pytest
import torch

import kintsugi

BACKENDS = ("eager", "native")


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Whole(int):
    """An int of a class of its own."""


class Indexed:
    """No number, but taken for one where an index is wanted."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __eq__(self, other: object) -> bool:
        return self.value == other

    __hash__ = None  # type: ignore[assignment]


NUMBERS: dict[str, tuple[Any, Any]] = {
    "bool": (True, False),
    "int": (1, 5),
    "large": (2**40, -(2**63)),
    "beyond": (2**63, -(2**70)),
    "float": (1.0, 2.5),
    "nan": (float("nan"), -0.0),
    "complex": (1 + 0j, 2j),
    "enum": (Level.LOW, Level.HIGH),
    "subclass": (Whole(1), Whole(4)),
    "indexed": (Indexed(1), Indexed(2)),
    "fraction": (fractions.Fraction(1), fractions.Fraction(1, 2)),
    "numpy int": (numpy.int64(1), numpy.int32(2)),
    "numpy bool": (numpy.True_, numpy.False_),
    "numpy float": (numpy.float64(1.0), numpy.float32(2.5)),
    "tensor": (torch.tensor(1), torch.tensor(2)),
    "bool tensor": (torch.tensor(True), torch.tensor(False)),
    "float tensor": (torch.tensor(1.0), torch.tensor(2.5)),
    "one element": (torch.tensor([1]), torch.tensor([2])),
    "none": (None, None),
    "text": ("1", "2"),
}

FIXED = torch.Size([1, 2])
USES: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "behind": lambda x, t: FIXED + (t,),
    "before": lambda x, t: (t,) + FIXED,
    "behind a shape": lambda x, t: x.shape + (t, 7),
    "before a shape": lambda x, t: (t,) + x.shape,
    "between": lambda x, t: x.shape[:1] + (t,) + x.shape[1:],
    "unpacked": lambda x, t: (*x.shape, t),
    "made": lambda x, t: torch.Size([2, t]),
    "made of a tuple": lambda x, t: torch.Size((t, x.size(0))),
    "made of a sum": lambda x, t: torch.Size(FIXED + (t,)),
    "in place": lambda x, t: _in_place(FIXED, t),
    "repeated": lambda x, t: FIXED * t,
    "repeated from the left": lambda x, t: t * FIXED,
    "item": lambda x, t: FIXED[t],
    "part": lambda x, t: (FIXED[t:], FIXED[:t]),
    "contained": lambda x, t: (t in FIXED, t in x.shape),
    "counted": lambda x, t: (FIXED.count(t), x.shape.count(t)),
    "index": lambda x, t: FIXED.index(t),
    "compared": lambda x, t: (FIXED == (1, t), (t, 2) == FIXED, FIXED != (t, 2), x.shape == (t, 4)),
    "order": lambda x, t: (FIXED < (t, 2), FIXED >= (t,)),
    "number of elements": lambda x, t: torch.Size([2, t]).numel(),
    "hash": lambda x, t: hash(FIXED + (t,)) == hash((1, 2, t)),
    "sum": lambda x, t: sum(FIXED + (t,)),
    "greatest": lambda x, t: (max(FIXED + (t,)), min(FIXED + (t,))),
    "text": lambda x, t: (f"{FIXED + (t,)}", str(tuple(FIXED) + (t,))),
    "of a tensor": lambda x, t: x.new_ones(FIXED + (t,)) if type(t) in (int, bool) and 0 <= t < 9 else None,
}


def _in_place(size: Any, item: Any) -> Any:
    size += (item,)
    return size


def outcome(f: Callable[..., Any], *args: Any) -> Any:
    try:
        return harness.describe(f(*args))
    except Exception as error:
        return harness.describe(type(error), str(error))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("use", USES)
def test_with_every_kind_of_number(use: str, backend: str) -> None:
    """One compiled function gets them all: first two of a kind, then each kind behind each other one."""
    program = USES[use]
    x = torch.ones(3, 4)
    calls = [value for pair in NUMBERS.values() for value in (pair[0], pair[1], pair[0])]
    calls += [pair[k % 2] for k, pair in enumerate(NUMBERS.values())]
    compiled = kintsugi.compile(program, backend=backend)
    for k, value in enumerate(calls):
        assert outcome(compiled, x, value) == outcome(program, x, value), (k, type(value), value)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", NUMBERS)
def test_of_two_kinds_by_turns(first: str, backend: str) -> None:
    """A function that has varied a number of one kind, and then gets one of another."""

    def program(x: torch.Tensor, t: Any) -> Any:
        return FIXED + (t,), x.shape + (t,), FIXED == (t, 2), x + 1

    x = torch.ones(3, 4)
    for other in ("bool", "int", "float", "enum", "numpy int"):
        compiled = kintsugi.compile(program, backend=backend)
        kinds = itertools.chain.from_iterable(
            (NUMBERS[first], NUMBERS[other], NUMBERS[first], NUMBERS[other])
        )
        for k, value in enumerate(kinds):
            assert outcome(compiled, x, value) == outcome(program, x, value), (other, k, value)


def test_the_comparison_sees_the_classes_of_numbers() -> None:
    """Else some of the tests above say nothing: a Size prints all its numbers alike."""
    assert repr(FIXED + (Whole(1),)) == repr(FIXED + (1,))
    assert harness.describe(FIXED + (Whole(1),)) != harness.describe(FIXED + (1,))
    assert harness.describe(FIXED) != harness.describe(tuple(FIXED))
    assert harness.describe(FIXED) == harness.describe(torch.Size([1, 2]))
