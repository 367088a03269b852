"""Operators in place that read, by another view, what they write to. What comes of it hangs on the order in which ATen
goes over the elements (it raises only where it is cheap to see), so it is ATen that has to run them; views that
do not meet are native code's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from native_harness import native

from bench.compare import differences

View = Callable[[torch.Tensor], torch.Tensor]

MEETING: dict[str, tuple[View, View]] = {
    "a row for all rows": (lambda x: x.unsqueeze(0), lambda x: x.split(1)[0].expand(8, 8)),
    "the whole and a row": (lambda x: x, lambda x: x[0].expand(8, 8)),
    "the whole and a column": (lambda x: x, lambda x: x[:, :1]),
    "the whole and an element": (lambda x: x, lambda x: x[0, 0].expand(8, 8)),
    "the whole and its other half": (lambda x: x[:, 1:], lambda x: x[:, :7]),
    "columns to the right": (lambda x: x[:, 2:6], lambda x: x[:, 1:5]),
    "columns to the left": (lambda x: x[:, 1:5], lambda x: x[:, 2:6]),
    "every other column": (lambda x: x[:, 0:7:2], lambda x: x[:, 2:6]),
    "diagonals": (lambda x: x.diagonal(), lambda x: x[:, 0]),
    "turned": (lambda x: x[:4, :4], lambda x: x[:4, :4].t()),
}
APART: dict[str, tuple[View, View]] = {
    "halves of rows": (lambda x: x[:, :4], lambda x: x[:, 4:]),
    "halves of rows, the other way": (lambda x: x[:, 4:], lambda x: x[:, :4]),
    "rows": (lambda x: x[2:4], lambda x: x[6:8]),
    "a row for others": (lambda x: x[2:], lambda x: x[0].expand(6, 8)),
    "itself": (lambda x: x[:, 2:5], lambda x: x[:, 2:5]),
}
WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add": lambda a, b: a.add_(b),
    "mul": lambda a, b: a.mul_(b),
    "copy": lambda a, b: a.copy_(b),
    "lerp": lambda a, b: a.lerp_(b, 0.5),
}

# Of an own tensor they are rows of a copy, if nothing else of it is read.
AT = torch.tensor([1, 2])
ROWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "index_put": lambda y: y.__setitem__((slice(None), AT), y[:, :2]),
    "index_copy": lambda y: y.index_copy_(1, AT, y[:, :2]),
    "index_add": lambda y: y.index_add_(1, AT, y[:, 1:3]),
    "scatter": lambda y: y.scatter_(1, AT.expand(8, 2), y[:, :2]),
    "scatter_add": lambda y: y.scatter_add_(1, AT.expand(8, 2), y[:, 1:3]),
    "all rows": lambda y: y[:, AT[0] :].copy_(y[:, :1]),
}


def inputs() -> torch.Tensor:
    return torch.arange(1.0, 65.0).reshape(8, 8)


def outcome(fn: Callable[[torch.Tensor], Any], x: torch.Tensor) -> tuple[Any, ...]:
    try:
        return (fn(x), x)
    except RuntimeError as error:
        return (str(error), x)


def programs(
    target: View, source: View, write: Callable[..., Any]
) -> dict[str, Callable[[torch.Tensor], Any]]:
    def on_argument(x: torch.Tensor) -> torch.Tensor:
        write(target(x), source(x))
        return x + 1

    def on_own(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        write(target(y), source(y))
        return y + 1

    return {"argument": on_argument, "own": on_own}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("views", [*MEETING, *APART])
def test_result_is_eagers(views: str, write: str) -> None:
    target, source = (MEETING | APART)[views]
    for name, program in programs(target, source, WRITES[write]).items():
        wanted = outcome(program, inputs())
        compiled = native(program)
        for _ in range(5):
            assert differences(wanted, outcome(compiled, inputs())) == [], name


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_itself(name: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        for _ in range(2):
            ROWS[name](y)
        return y + 1

    wanted = outcome(program, inputs())
    compiled = native(program)
    for _ in range(5):
        assert differences(wanted, outcome(compiled, inputs())) == []


@pytest.mark.parametrize(
    "view", [lambda x: x[:, :1], lambda x: x[0].expand(8, 8), lambda x: x[0, 0], lambda x: x]
)
def test_arguments_that_meet(view: View) -> None:
    def program(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        x += z
        return x * z

    compiled = native(program)
    for other in (view, lambda x: x + 1, view, lambda x: x[1], view):

        def called(fn: Callable[..., Any], other: View = other) -> Any:
            return outcome(lambda x: fn(x, other(x)), inputs())

        assert differences(called(program), called(compiled)) == []


@pytest.mark.parametrize("views", APART)
def test_what_does_not_meet_is_native(views: str) -> None:
    target, source = APART[views]
    compiled = native(programs(target, source, WRITES["add"])["argument"])
    for _ in range(4):
        compiled(inputs())
    assert compiled._kintsugi_compiled.stats()["native_runs"] > 0
