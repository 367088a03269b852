"""functools.partial with placeholders (CPython 3.14): the first arguments of a call go where they stand."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import shown

import kintsugi

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="functools.Placeholder is new in CPython 3.14"
)

X = torch.Tensor
OPEN: Any = getattr(functools, "Placeholder", None)
partial: Any = functools.partial


def parts(*args: Any, **keywords: Any) -> Any:
    return args, keywords


def difference(a: Any, b: Any, c: Any = 0) -> Any:
    return a * 2 - b + c


OLD = partial(difference, OPEN, 3)
TWO = partial(parts, OPEN, 2, OPEN, 4, k=5)
WAYS = [partial(difference, OPEN, 3), partial(difference, 5, 3), partial(difference, OPEN, OPEN, 1.5)]


def way(x: X, n: int) -> Any:
    given = WAYS[n % 3]
    return given(x, n) if n % 3 != 1 else given(x)


def raises(x: X, n: int) -> Any:
    messages = []
    for call in (lambda: TWO(x), lambda: partial(parts, OPEN), lambda: partial(difference, OPEN, n)()):
        try:
            messages.append(call())
        except TypeError as error:
            messages.append(str(error))
    return messages, x * n


def methods(x: X, n: int) -> Any:
    class Holder:
        part = functools.partialmethod(difference, OPEN, n)  # type: ignore[arg-type]
        fixed = staticmethod(partial(difference, OPEN, 2))
        bound = partial(parts, 1)  # a method, from 3.14 on

    holder = Holder()
    return Holder.part(x, x), holder.fixed(x), [type(a).__name__ for a in holder.bound(x)[0]]


PROGRAMS: dict[str, Callable[[X, int], Any]] = {
    "made": lambda x, n: partial(difference, OPEN, n)(x),
    "older": lambda x, n: OLD(x) * n,
    "two": lambda x, n: TWO(x, n, x * 2, z=n),
    "keywords": lambda x, n: TWO(x, n, k=n),
    "of_a_partial": lambda x, n: partial(partial(parts, OPEN, 2, OPEN, 4), x)(n),
    "arguments": lambda x, n: (partial(TWO, x).args, partial(TWO, x)(n)),
    "mapped": lambda x, n: [*map(partial(difference, OPEN, n), [x, x + 1])],
    "sorted": lambda x, n: (sorted([3, n, 1], key=partial(difference, 0, OPEN, 1)), x),
    "reduced": lambda x, n: functools.reduce(partial(difference, OPEN, OPEN, n), [x, x * n, x + 1]),
    "way": way,
    "raises": raises,
    "methods": methods,
}


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_placeholders(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    compiled = kintsugi.compile(program, backend=backend)
    for n in (2, 3, 1, 2, 4, 3):
        x = torch.ones(3) * n
        assert shown(compiled(x, n)) == shown(program(x, n)), n
        kintsugi.wait()


def test_placeholders_among_arguments() -> None:
    """The same program makes partials with and without placeholders, of what it is given."""

    def program(x: X, first: Any, second: Any) -> Any:
        made = partial(parts, first, second, 7)
        return made(x, 1)

    compiled = kintsugi.compile(program, backend="eager")
    for first, second in ((1, 2), (OPEN, 2), (1, OPEN), (OPEN, OPEN), (3, 4), (OPEN, 5), ("a", None)):
        assert shown(compiled(torch.ones(2), first, second)) == shown(program(torch.ones(2), first, second))


def test_calls_of_them_are_no_breaks() -> None:
    compiled = kintsugi.compile(lambda x, n: OLD(x) + partial(difference, OPEN, n)(x), backend="eager")
    for n in (2, 3, 4):
        compiled(torch.ones(2), n)
    assert compiled.stats().graph_break_count == 0
