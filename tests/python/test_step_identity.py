"""Steps that give back objects which the trace knows: in later calls it may be another one."""

from __future__ import annotations

import collections
import itertools
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import describe

import kintsugi


def first_part(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    buffer.append((x, given))
    return buffer[0][0] + 1, buffer[0][1]


def iterated(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    buffer.append((x, len(buffer)))
    return next(iter(buffer))[0] * 1, [n for _, n in buffer], list(itertools.islice(buffer, 0, 3))


def callers_list(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    buffer.append(given)
    return buffer[0], buffer[0] is given, buffer[0][0] * x


def written(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    buffer.append(given)
    oldest = buffer[0]
    oldest.append(7)
    return len(oldest), len(given)


def written_where_made(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    made = [x, given]
    buffer.append(made)
    oldest = buffer[0]
    oldest.append(7)
    return len(oldest), len(made), oldest


def in_a_container(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    buffer.append(given)
    held = {"oldest": buffer[0], "newest": buffer[-1]}
    held["oldest"].append(len(held["newest"]))
    return held, [held["oldest"], given]


def returned(buffer: Any, x: torch.Tensor, given: list[int]) -> Any:
    buffer.append(given)
    return buffer[0]


PROGRAMS: list[Callable[..., Any]] = [
    first_part,
    iterated,
    callers_list,
    written,
    written_where_made,
    in_a_container,
    returned,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_oldest_of_a_deque(program: Callable[..., Any]) -> None:
    mine: Any = collections.deque(maxlen=4)
    theirs: Any = collections.deque(maxlen=4)
    compiled = kintsugi.compile(lambda x, given: program(mine, x, given))
    for turn in range(8):
        x = torch.full((2,), float(turn))
        expected = describe(program(theirs, x, [turn]), theirs)
        assert describe(compiled(x, [turn]), mine) == expected
    assert compiled.stats().misses <= 2


def test_numbers_that_vary_behind_a_step() -> None:
    """The text of a traceback: what `id` says of the exception is another number in each call."""

    def text_of(x: torch.Tensor, n: int) -> Any:
        try:
            raise KeyError(n)
        except KeyError:
            return x + n, traceback.format_exc().splitlines()[-1]

    compiled = kintsugi.compile(text_of)
    kept = []
    for turn in range(24):
        x = torch.randn(2)
        expected = text_of(x, turn)
        kept.append((expected, compiled(x, turn)))
        assert describe(kept[-1][1]) == describe(expected)
