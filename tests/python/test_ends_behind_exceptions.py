"""What frames of a traceback hold ends where the program lets go of the exception, also where a step has raised it."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import describe

import kintsugi

LOG: list[Any] = []
REFERENCES: list[Any] = []
FILE = Path(tempfile.gettempdir()) / "kintsugi_ends_behind_exceptions"


class Tracked:
    def __init__(self, name: Any) -> None:
        self.name = name

    def __del__(self) -> None:
        LOG.append(self.name)


class Plain:
    pass


def waiting() -> Iterator[int]:
    try:
        yield 1
    finally:
        LOG.append("closed")


def consume(items: Iterable[Any]) -> None:
    kept = []
    for item in items:
        kept.append(item)


# Each fails; the number of items varies, so that the whole call becomes a step.
def objects_in_a_list(n: int) -> None:
    consume(map(lambda k: Tracked(k) if k < n else 1 // 0, range(5)))


def objects_in_a_generator_expression(n: int) -> None:
    list(item for item in map(lambda k: Tracked(k) if k < n else 1 // 0, range(5)))


def an_object_of_two_frames(n: int) -> None:
    def inner(held: Tracked) -> None:
        consume(map(lambda k: k if k < n else 1 // 0, range(5)))

    inner(Tracked("passed"))


def behind_another_exception(n: int) -> None:
    def inner() -> None:
        held = Tracked("held")
        consume(map(lambda k: k if k < n else 1 // 0, range(5)))
        del held

    try:
        inner()
    except ZeroDivisionError:
        raise KeyError(n)


def a_generator(n: int) -> None:
    held = waiting()
    next(held)
    consume(map(lambda k: k if k < n else 1 // 0, range(5)))


def a_generator_in_an_outer_frame(n: int) -> None:
    def inner() -> None:
        1 // 0

    held = waiting()
    next(held)
    inner()


def a_file(n: int) -> None:
    held = FILE.open("w")
    held.write("x" * n)
    consume(map(lambda k: k if k < n else 1 // 0, range(5)))


def a_weak_reference(n: int) -> None:
    held = Plain()
    REFERENCES.append(weakref.ref(held))
    consume(map(lambda k: k if k < n else 1 // 0, range(5)))


def a_weak_reference_with_a_callback(n: int) -> None:
    held = Plain()
    REFERENCES.append(weakref.ref(held, lambda _: LOG.append("gone")))
    consume(map(lambda k: k if k < n else 1 // 0, range(5)))


# An operator fails, and the recording ends with the frame: the program does not say which object goes first.
def two_objects_of_one_frame(n: int) -> None:
    first, second = Tracked("first"), Tracked("second")
    torch.zeros(2).view(n, 9)
    del first, second


def an_argument_and_a_variable(n: int) -> None:
    def inner(passed: Tracked) -> None:
        held = Tracked("held")
        torch.zeros(2).view(n, 9)
        del held

    inner(Tracked("passed"))


FAILING = [
    objects_in_a_list,
    objects_in_a_generator_expression,
    an_object_of_two_frames,
    behind_another_exception,
    a_generator,
    a_generator_in_an_outer_frame,
    a_file,
    a_weak_reference,
    a_weak_reference_with_a_callback,
    two_objects_of_one_frame,
    an_argument_and_a_variable,
]


def dropped_behind_the_handler(fails: Callable[[int], None], x: torch.Tensor, n: int) -> Any:
    try:
        fails(n)
    except Exception:
        LOG.append("caught")
        x = x * 2
    LOG.append("behind")
    return x + 1, list(LOG), FILE.read_text(), [reference() is None for reference in REFERENCES]


def kept_for_longer(fails: Callable[[int], None], x: torch.Tensor, n: int) -> Any:
    kept: Any = None
    try:
        fails(n)
    except Exception as error:
        kept = error
    LOG.append("kept")
    x = x * 2
    kept = None
    LOG.append("behind")
    return x + 1, list(LOG), FILE.read_text(), [reference() is None for reference in REFERENCES]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("program", [dropped_behind_the_handler, kept_for_longer])
@pytest.mark.parametrize("fails", FAILING)
def test_ends(fails: Callable[[int], None], program: Callable[..., Any], backend: str) -> None:
    compiled = kintsugi.compile(program, backend=backend)

    def outcome(call: Callable[..., Any], n: int) -> Any:
        LOG.clear()
        REFERENCES.clear()
        FILE.write_text("")
        return describe(call(fails, torch.arange(3.0), n))

    for n in (2, 3, 2, 4, 3, 3, 1):
        assert outcome(compiled, n) == outcome(program, n), n
        kintsugi.wait()
