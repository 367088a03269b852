"""What an instruction or a call drops ends in CPython's order, also where the recording has ended before."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import describe

import kintsugi

LOG: list[str] = []


class Ending:
    """Its end is seen, and it takes part in all operations."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        LOG.append(self.name)

    def __add__(self, other: Any) -> int:
        return 1

    __iadd__ = __add__

    def __lt__(self, other: Any) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__

    def __contains__(self, item: Any) -> bool:
        return True

    def __getitem__(self, key: Any) -> int:
        return 1

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __delitem__(self, key: Any) -> None:
        pass


def drops(argument: Any) -> None:
    del argument
    LOG.append("dropped")


def drops_both(first: Any, second: Any) -> None:
    second = None
    LOG.append("second")
    first = None
    LOG.append("first")


def drops_all(*arguments: Any, **keywords: Any) -> None:
    arguments = ()
    LOG.append("arguments")
    keywords.clear()
    LOG.append("keywords")


def drops_in_a_closure(argument: Any) -> None:
    def inner() -> None:
        nonlocal argument
        argument = None
        LOG.append("inner")

    inner()


# A, B, C: objects that only the operation holds.
OPERATIONS = [
    "A is B",
    "A == B",
    "A < B",
    "A < B < C",
    "A + B",
    "A in B",
    "A not in [B]",
    "A[B] = C",
    "A.other = B",
    "v = A; v += B",
    "a, b, c = A, B, C; a = b = c = None",
    "a, *b = A, B, C; a = b = None",
    "[A, B]",
    "(lambda a, b: None)(A, B)",
    "len([A, B])",
    "isinstance(A, (Ending, type(B)))",
    "drops(A)",
    "drops_both(A, B)",
    "drops_both(second=A, first=B)",
    "drops_both(*[A, B])",
    "drops_in_a_closure(A)",
]
# Not compared in a recording: CPython 3.14 has two orders for `A[B]`, one of them of a specialized instruction. The
# recorder holds what a slice is made of for the whole instruction, ends at `del`, and makes the last two a step, which
# keeps what it is given.
BEHIND_THE_END = [
    "A[B]",
    "A[B:C]",
    "A[B:C] = D",
    "del A[B]",
    "drops_all(A, B, c=C)",
    "(lambda *a, **k: None)(A, B, c=C)",
]
ENDED = "held = [Ending('x'), Ending('y')]; held = None; LOG.append('ended')"


def program(operation: str, before: str) -> Callable[..., Any]:
    operation = re.sub(r"\b([A-D])\b", r"Ending('\1')", operation)
    lines = ["def f(x, n):", "    LOG.clear()", "    y = x * n", f"    {before}", f"    {operation}"]
    lines += ["    LOG.append('behind')", "    v = None", "    return y + 1, list(LOG)"]
    made: dict[str, Any] = dict(globals())
    exec("\n".join(lines), made)
    function: Callable[..., Any] = made["f"]
    return function


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize(
    ("operation", "before"),
    [(operation, before) for operation in OPERATIONS for before in ("pass", ENDED)]
    + [(operation, ENDED) for operation in BEHIND_THE_END],
)
def test_order(operation: str, before: str, backend: str) -> None:
    # Few calls: CPython's specialized instructions have orders of their own.
    eager, compiled = (
        program(operation, before),
        kintsugi.compile(program(operation, before), backend=backend),
    )
    for n in (2, 3, 1):
        expected = describe(eager(torch.arange(3.0), n))
        assert describe(compiled(torch.arange(3.0), n)) == expected, n
        kintsugi.wait()


def deep(x: torch.Tensor, n: int) -> Any:
    held: Any = [Ending("x"), Ending("y")]
    held = None
    names = [sys._getframe().f_code.co_name for _ in range(n)]
    try:
        with torch.no_grad():
            for k in range(n):
                if k == 2:
                    raise ValueError(k)
                x = x + k
    except ValueError as error:
        x = x * error.args[0]
    return x, names, torch.is_grad_enabled()


def waits(x: torch.Tensor, n: int) -> Any:
    def items() -> Any:
        for k in range(n):
            held: Any = [Ending("x"), Ending("y")]
            held = None
            yield x * k, f"{k:{n}}"

    return [*items()], sum(k for k in range(n)), [(a, b) for a, b in items()]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("function", [deep, waits])
def test_goes_on_behind_the_end(function: Callable[..., Any], backend: str) -> None:
    compiled = kintsugi.compile(function, backend=backend)
    for n in (2, 3, 4, 2):
        LOG.clear()
        expected = describe(function(torch.arange(3.0), n)), list(LOG)
        LOG.clear()
        assert (describe(compiled(torch.arange(3.0), n)), list(LOG)) == expected
        kintsugi.wait()
