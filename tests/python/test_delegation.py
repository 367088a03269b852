"""`yield from` an iterator that the trace knows nothing of: it is asked, sent to, thrown into and closed as in eager
mode, and goes when the generator does."""

from __future__ import annotations

import contextlib
import csv
import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kintsugi

Program = Callable[[torch.Tensor, list[Any], Path], Any]


class Noting:
    """An iterator with all that a generator has."""

    def __init__(self, log: list[Any]) -> None:
        self.at, self.log = 0, log

    def __iter__(self) -> Noting:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at > 3:
            raise StopIteration("end")
        return self.at

    def send(self, value: Any) -> int:
        self.log.append(("sent", value))
        return 7

    def throw(self, error: BaseException) -> int:
        self.log.append(("thrown", type(error), error.__context__ is None))
        if isinstance(error, ValueError):
            raise error
        return 8

    def close(self) -> None:
        self.log.append("closed")


def through(inner: Any, log: list[Any]) -> Iterator[Any]:
    try:
        log.append((yield from inner))
    except ValueError as error:
        log.append(("caught", str(error), error.__context__ is None))
        yield 9


def drive(q: Any, f: Any, log: list[Any], how: str) -> None:
    log.append(next(q))
    try:
        if how == "close":
            q.close()
        elif how == "send":
            log.append(q.send(5))
        elif how == "throw":
            log.append(q.throw(ValueError("z")))
        elif how == "throw another":
            log.append(q.throw(KeyError("z")))
        elif how == "exhaust":
            log.extend(q)
    except (AttributeError, StopIteration, KeyError) as error:
        log.append((type(error), str(error), error.__context__ is None))
    log.append(getattr(f, "closed", None))


INNER: dict[str, Callable[[list[Any], Path], Any]] = {
    "file": lambda log, path: open(path),
    "reader": lambda log, path: csv.reader(path.read_text().splitlines()),
    "in Python": lambda log, path: Noting(log),
    "list": lambda log, path: [1, 2],
    "map": lambda log, path: map(str, [1, 2]),
}


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("how", ["close", "send", "throw", "throw another", "exhaust"])
@pytest.mark.parametrize("inner", INNER)
def test_yield_from(inner: str, how: str, backend: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("a\nb\n")

    def program(x: torch.Tensor, log: list[Any], path: Path) -> torch.Tensor:
        f = INNER[inner](log, path)
        drive(through(f, log), f, log, how)
        if hasattr(f, "read"):
            f.close()
        return x + 1

    compiled = kintsugi.compile(program, backend=backend)
    expected: list[Any] = []
    program(torch.ones(1), expected, path)
    for _ in range(4):
        log: list[Any] = []
        compiled(torch.ones(1), log, path)
        assert log == expected


# What is left open: `a` has to be closed before `b` is.
DROPPED = """
q = g(open(a)); next(q); q.close()
q = g(open(a)); next(q); del q
q = d(open(a)); next(q); q.close()
q = d(open(a)); next(q); del q
q = d(g(open(a))); next(q); del q
q = s(open(a)); next(q); q.close()
for line in open(a): break
next(iter(open(a)))
list(zip(open(a), open(a)))
f = {"a": open(a)}; del f["a"]
""".strip().splitlines()


def looping(lines: Any) -> Iterator[Any]:
    for line in lines:
        yield line


def delegating(lines: Any) -> Iterator[Any]:
    yield from lines


def suppressing(lines: Any) -> Iterator[Any]:
    with contextlib.suppress(ValueError):
        for line in lines:
            yield line


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("line", DROPPED)
def test_files_close_in_order(line: str, backend: str, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("1\n2\n")
    names = {"g": looping, "d": delegating, "s": suppressing}
    space: dict[str, Any] = {**names, "a": str(tmp_path / "a"), "b": str(tmp_path / "b")}
    exec(f"def program(x):\n    {line}\n    open(b).read()\n    return x + 1", space)

    def unclosed(function: Callable[[torch.Tensor], Any]) -> list[str]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            function(torch.ones(1))
        return [
            str(w.message).split("name='")[1].split("'")[0][-1] for w in seen if "unclosed" in str(w.message)
        ]

    gc.collect()
    gc.disable()
    try:
        expected = unclosed(space["program"])
        compiled = kintsugi.compile(space["program"], backend=backend)
        assert [unclosed(compiled) for _ in range(3)] == [expected] * 3
    finally:
        gc.enable()
