"""A bug of ours, at each place where one is caught: the program gets eager's result, and whatever else is compiled in
the process stays so."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi
from kintsugi import _C

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("KINTSUGI_EXT_DIR")), reason="a debug build aborts at a failed check"
)

PLACES = [
    "recorder",
    "enter",
    "step",
    "executed",
    "raised",
    "again",
    "caught",
    "left",
    "drain",
    "finish",
    "install",
    "side",
]
LATER = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]  # which of the times that the place is reached fails


def items(x: torch.Tensor) -> Any:
    for k in range(3):
        yield x * k


class Doubling:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __enter__(self) -> Doubling:
        self.x = self.x * 2
        return self

    def __exit__(self, *args: Any) -> bool:
        self.x = self.x + 1
        return True


def program(x: torch.Tensor, seen: list[Any]) -> tuple[Any, ...]:
    total = x.sum()
    for part in items(x):
        total = total + part.sum()
    if total > 10:
        seen.append("large")
        total = total * 2
    try:
        if x.shape[0] > 3:
            raise KeyError("long")
        total = total - 1
    except KeyError as error:
        seen.append(str(error))
    for at in (1, int(x.sum()) + 100):
        try:
            total = total + x.t()[at % 200].sum()
        except IndexError as error:
            seen.append(str(error))
    with Doubling(x) as doubled:
        seen.append(float(doubled.x[0]))
        raise ValueError("ended")
    rows = sorted([row.sum() for row in x], key=lambda row: -row)
    return total, doubled.x, rows, [k for k, row in enumerate(rows) if row > 1]


def outcomes(called: Callable[..., Any]) -> list[Any]:
    found = []
    for k in range(6):
        seen: list[Any] = []
        x = torch.arange(2.0 + 2 * k).reshape(1 + k, 2)
        total, doubled, rows, at = called(x, seen)
        found.append((total.tolist(), doubled.tolist(), [row.tolist() for row in rows], at, seen))
    return found


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("place", PLACES)
def test_costs_nothing_but_speed(place: str, backend: str) -> None:
    want = outcomes(program)
    reached = 0
    for after in LATER:
        compiled = kintsugi.compile(program, backend=backend)
        _C._fail_at(place, after)
        try:
            got = outcomes(compiled)
            failed = _C._has_failed()
        finally:
            _C._fail_at("")
        assert got == want, (place, after)
        other = kintsugi.compile(lambda x: x + 1, backend=backend)
        for _ in range(3):
            assert torch.equal(other(torch.ones(2)), torch.full((2,), 2.0))
        assert other.stats().trace_count == 1, (place, after)
        compiled.reset()
        assert outcomes(compiled) == want
        reached += failed
    assert reached > 0, "nothing gets to this place"


def test_an_exception_of_the_program_is_passed_on() -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            raise LookupError("the program's own")
        return x

    for place in PLACES:
        compiled = kintsugi.compile(raises, backend="eager")
        _C._fail_at(place)
        try:
            with pytest.raises(LookupError, match="the program's own"):
                compiled(torch.ones(2))
        finally:
            _C._fail_at("")
