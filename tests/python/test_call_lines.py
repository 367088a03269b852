"""Lines and columns of frames that are built again: of each kind of call, while it is under way, when it raises, and
where the handlers of the exception are."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import pytest
import torch

import kintsugi

SEEN: list[Any] = []

# The lines are what is tested.
# ruff: noqa: E701
# fmt: off


def stack() -> list[tuple[str, int]]:
    """The frames of this file, as somebody sees them who looks from inside."""
    frame = sys._getframe(1)
    found = []
    while frame is not None:
        if frame.f_code.co_filename == __file__ and not frame.f_code.co_name.startswith(("test_", "outcome")):
            found.append((frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return found


def check(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x + 1
    SEEN.append(stack())
    if x.sum() < -100:
        raise ValueError(
            "far too low"
        )
    return x - 1


class Holder:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return check(self.x)

    def method(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return check(self.x)

    @property
    def value(self) -> torch.Tensor:
        return check(self.x)

    @property
    def function(self) -> Callable[..., torch.Tensor]:
        found = check(self.x)
        return lambda *args, **kwargs: found * 2

    def __getitem__(self, key: Any) -> torch.Tensor:
        return check(self.x)

    def __setitem__(self, key: Any, value: Any) -> None:
        check(self.x)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "x":
            check(self.x)
        object.__setattr__(self, name, value)

    def __add__(self, other: Any) -> torch.Tensor:
        return check(self.x)

    def __lt__(self, other: Any) -> Any:
        return [] if check(self.x).sum() < 0 else [1]

    def __eq__(self, other: object) -> Any:
        return Answer(check(self.x).sum() > 0)

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, other: Any) -> Any:
        return check(self.x).sum() > 0

    def __len__(self) -> int:
        return 0 if check(self.x).sum() < 0 else 3

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield self.x
        yield check(self.x)

    def __enter__(self) -> torch.Tensor:
        return check(self.x)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        check(self.x)
        return False


class Answer:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __bool__(self) -> bool:
        SEEN.append("asked")
        return bool(self.value)


class Maker:
    def __init__(self, x: torch.Tensor, key: int = 0) -> None:
        self.made = check(
            x
        )


class Derived(Holder):
    def plain_super(self) -> torch.Tensor:
        return (
            super().method(1,
                           k=2)
        )

    def property_of_super(self) -> torch.Tensor:
        return (
            super().value
            + 1
        )

    def called_property_of_super(self) -> torch.Tensor:
        return super().function(
            1
        )


def positional(x: torch.Tensor) -> Any:
    return (
        check(
            x
        )
        * 2
    )


def keywords(x: torch.Tensor) -> Any:
    return Holder(x)(
        1,
        key=2
    ) * 2


def star(x: torch.Tensor) -> Any:
    args = (x,)
    return (
        check(*args)
        * 2
    )


def star_and_keywords(x: torch.Tensor) -> Any:
    kwargs = {"a": 1}
    return Holder(x).method(
        *[1, 2],
        **kwargs
    ) * 2


def star_of_an_iterable(x: torch.Tensor) -> Any:
    return max(
        *Holder(x)
    )


def star_of_an_iterable_and_keywords(x: torch.Tensor) -> Any:
    return max(
        *Holder(x),
        key=
        torch.sum
    )


def star_of_an_iterable_in_a_handler(x: torch.Tensor) -> Any:
    holder = Holder(x)
    try:
        return holder.method(
            *holder,
            **{"k": 1},
        )
    except ValueError as error:
        return lines(error.__traceback__)


def star_of_a_map(x: torch.Tensor) -> Any:
    return torch.add(
        *map(
            check, [x, x]
        ),
        alpha=2
    )


def display_of_an_iterable(x: torch.Tensor) -> Any:
    return [
        x,
        *Holder(x)
    ]


def unpacking_of_an_iterable(x: torch.Tensor) -> Any:
    (
        first, second
    ) = (
        Holder(x)
    )
    return first * second


def unpacking_of_too_many(x: torch.Tensor) -> Any:
    try:
        (
            first,
        ) = Holder(x)
    except ValueError as error:
        return lines(error.__traceback__), str(error)
    return first


def unpacking_with_a_star(x: torch.Tensor) -> Any:
    first, *second = (
        Holder(x)
    )
    return first * len(second)


def truth_on_another_line(x: torch.Tensor) -> Any:
    holder = Holder(x)
    if (x is not None and
            holder and
            x.dim() > 0):
        return x * 2
    while (
        holder
        or x is None
    ):
        break
    assert (
        not holder
    ), "it has a length"
    return x * 3


def method(x: torch.Tensor) -> Any:
    holder = Holder(x)
    return (holder
            .method(1)
            + holder.method(
                k=1))


def property_read(x: torch.Tensor) -> Any:
    return (
        Holder(x)
        .value
        + 1
    )


def property_called(x: torch.Tensor) -> Any:
    return (
        Holder(x)
        .function(
            1,
            k=2)
    )


def plain_super(x: torch.Tensor) -> Any:
    return Derived(x).plain_super()


def property_of_super(x: torch.Tensor) -> Any:
    return Derived(x).property_of_super()


def called_property_of_super(x: torch.Tensor) -> Any:
    return Derived(x).called_property_of_super()


def constructor(x: torch.Tensor) -> Any:
    return Maker(
        x,
        key=3,
    ).made


def operator(x: torch.Tensor) -> Any:
    return (
        Holder(x)
        +
        1
    )


def subscript(x: torch.Tensor) -> Any:
    holder = Holder(x)
    holder[
        0
    ] = 1
    return holder[
        1
    ]


def attribute_store(x: torch.Tensor) -> Any:
    holder = Holder(x)
    (
        holder
    ).other = 3
    return x * 2


def comparison(x: torch.Tensor) -> Any:
    if (
        Holder(x)
        < 3
    ):
        return x * 2
    return x * 3


def comparison_in_a_loop(x: torch.Tensor) -> Any:
    count = 0
    while count < 3 and Holder(x) < count:
        count += 1
    return x * count


def equality(x: torch.Tensor) -> Any:
    if not (
        Holder(x)
        == 3
    ):
        return x * 2
    return x * 3


def chained_comparison(x: torch.Tensor) -> Any:
    return x * 2 if 0 < 1 < Holder(x) < 2 else x * 3


def tensor_comparison(x: torch.Tensor) -> Any:
    if x.sum() > 0:
        y = x * 2
    elif (x < -50).any():
        y = x * 3
    else:
        y = x * 4
    return y if y.mean() != 8 else x


def containment(x: torch.Tensor) -> Any:
    if 3 in (
        Holder(x)
    ):
        return x * 2
    return x * 3 if 1 not in Holder(x) else x


def truth(x: torch.Tensor) -> Any:
    if Holder(x):
        return x * 2
    return (not Holder(x), x * 3)


def and_or(x: torch.Tensor) -> Any:
    return type(Holder(x) and x * 2).__name__, (Answer(x.sum() > 0) or x * 3) is None


def loop(x: torch.Tensor) -> Any:
    total = x
    for part in (
        Holder(x)
    ):
        total = total + part
    return total


def with_block(x: torch.Tensor) -> Any:
    with (
        Holder(x)
    ) as inner:
        y = inner + 1
    return y


def handler_in_the_caller(x: torch.Tensor) -> Any:
    try:
        y = check(x)
    except ValueError as error:
        return lines(error.__traceback__), x
    else:
        y = y * 2
    finally:
        x = x + 1
    return y * x


def handlers_one_after_the_other(x: torch.Tensor) -> Any:
    out = []
    try: check(x)
    except ValueError as error: out.append(("first", lines(error.__traceback__)))
    try: Holder(x).method(k=1)
    except ValueError as error: out.append(("second", lines(error.__traceback__)))
    try: Holder(x).value
    except ValueError as error: out.append(("third", lines(error.__traceback__)))
    return out


def nested_handlers(x: torch.Tensor) -> Any:
    try:
        try:
            return Holder(x)[
                1
            ]
        except KeyError:
            return "the wrong handler"
    except ValueError as error:
        return lines(error.__traceback__)


def raised_again(x: torch.Tensor) -> Any:
    try:
        return check(x)
    except ValueError as error:
        raise KeyError("again") from error


def in_a_generator(x: torch.Tensor) -> Any:
    def parts() -> Iterator[Any]:
        yield x
        try:
            yield check(
                x
            )
        except ValueError as error:
            yield lines(error.__traceback__)
        yield from Holder(x)

    return list(
        parts()
    )


def in_a_comprehension(x: torch.Tensor) -> Any:
    return [
        check(x) * i
        for i in range(2)
    ]


def operation_that_raises(x: torch.Tensor) -> Any:
    try:
        y = x + 1
        if x.sum() <= 0:
            y = y.view(
                x.numel() + 1
            )
    except RuntimeError as error:
        return lines(error.__traceback__)
    return y


# fmt: on

PROGRAMS = [
    positional, keywords, star, star_and_keywords, star_of_an_iterable, star_of_an_iterable_and_keywords,
    star_of_an_iterable_in_a_handler, star_of_a_map, display_of_an_iterable, unpacking_of_an_iterable,
    unpacking_of_too_many, unpacking_with_a_star, truth_on_another_line, method, property_read,
    property_called, plain_super,
    property_of_super, called_property_of_super, constructor, operator, subscript, attribute_store, comparison,
    comparison_in_a_loop, equality, chained_comparison, tensor_comparison, containment, truth, and_or, loop,
    with_block, handler_in_the_caller, handlers_one_after_the_other, nested_handlers, raised_again, in_a_generator,
    in_a_comprehension, operation_that_raises,
]  # fmt: skip


def lines(trace: TracebackType | None) -> list[Any]:
    """Where each frame of this file was, with its columns."""
    return [
        (frame.name, frame.lineno, frame.end_lineno, frame.colno, frame.end_colno)
        for frame in traceback.extract_tb(trace)
        if frame.filename == __file__ and not frame.name.startswith(("test_", "outcome"))
    ]


def outcome(function: Callable[..., Any], x: torch.Tensor) -> Any:
    SEEN.clear()
    try:
        result = repr(function(x))
    except Exception as error:
        cause = error.__cause__
        result = repr(
            (type(error), str(error), lines(error.__traceback__), cause and lines(cause.__traceback__))
        )
    return result, list(SEEN)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_lines(program: Callable[..., Any], backend: str) -> None:
    high, low, lowest = torch.ones(4), -torch.ones(4), torch.full((4,), -60.0)
    for first in (high, low, lowest):
        compiled = kintsugi.compile(program, backend=backend)
        for x in (first, first, high, low, lowest, low, high, lowest, lowest, lowest, high):
            assert outcome(compiled, x) == outcome(program, x)
