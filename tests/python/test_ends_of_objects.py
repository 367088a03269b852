"""Objects that the program has dropped end where they end in eager mode, between the steps of a native segment too; and
C code that counts references counts those of eager mode."""

from __future__ import annotations

import os
import tempfile
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import kintsugi

LOG: list[str] = []


class Plain:
    def __init__(self, name: str) -> None:
        self.name = name
        weakref.finalize(self, LOG.append, "end of " + name)


class Shown:
    """Seen by C code before somebody refers to it weakly."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = repr(self)[:6]
        self.finalizer = weakref.finalize(self, self.end, name, last=str(self)[:1])

    @classmethod
    def end(cls, name: str, last: str) -> None:
        LOG.append("end of " + name + last)


class Formatted(Shown):
    def __init__(self, name: str) -> None:
        self.name = name
        self.finalizer = weakref.finalize(self, self.end, name, last="{!r}".format(self)[:1])


def dropped(cls: Any, x: torch.Tensor) -> torch.Tensor:
    made = cls("one")
    y = x + 1
    LOG.append("made")
    del made
    LOG.append("dropped")
    return y * 2


def replaced(cls: Any, x: torch.Tensor) -> torch.Tensor:
    made = cls("one")
    y = x + 1
    LOG.append(made.name)
    made = cls("two")
    y = y * 2
    LOG.append(made.name)
    made = None
    LOG.append("none")
    return y.sin()


def inner(cls: Any, x: torch.Tensor) -> torch.Tensor:
    made = cls("inner")
    LOG.append(made.name)
    return x.cos()


def returned(cls: Any, x: torch.Tensor) -> torch.Tensor:
    y = inner(cls, x + 1)
    LOG.append("behind")
    z = inner(cls, y)
    LOG.append("end")
    return z * 2


def temporary(cls: Any, x: torch.Tensor) -> torch.Tensor:
    name = cls("short").name
    LOG.append(name)
    y = x + 1
    LOG.append("end")
    return y


@pytest.mark.parametrize("cls", [Plain, Shown, Formatted])
@pytest.mark.parametrize("program", [dropped, replaced, returned, temporary])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_finalizers_run_where_objects_end(cls: Any, program: Callable[..., Any], backend: str) -> None:
    def call(x: torch.Tensor) -> Any:
        return program(cls, x)

    x = torch.ones(3)
    LOG.clear()
    expected = call(x), list(LOG)
    compiled = kintsugi.compile(
        call, backend=backend, options={"sync": True} if backend == "native" else None
    )
    for _ in range(5):
        LOG.clear()
        result = compiled(x)
        assert LOG == expected[1]
        assert torch.allclose(result, expected[0])


def folder_of_nobody(x: torch.Tensor) -> Any:
    name = tempfile.TemporaryDirectory().name
    there = os.path.exists(name)
    return x * 2, there, os.path.exists(name)


def folder_that_is_dropped(x: torch.Tensor) -> Any:
    made = tempfile.TemporaryDirectory()
    name = made.name
    there = os.path.exists(name)
    del made
    return x * 2, there, os.path.exists(name)


@pytest.mark.parametrize("program", [folder_of_nobody, folder_that_is_dropped])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_folders_that_nobody_keeps(program: Callable[..., Any], backend: str) -> None:
    warnings.simplefilter("ignore")
    x = torch.ones(2)
    expected = program(x)[1:]
    compiled = kintsugi.compile(
        program, backend=backend, options={"sync": True} if backend == "native" else None
    )
    for _ in range(4):
        assert compiled(x)[1:] == expected


def resized(n: int) -> Any:
    made = np.zeros(3)
    made.resize(n)
    return made.tolist()


def resized_again(n: int) -> Any:
    made = np.arange(6)
    made.resize((2, 3))
    seen = int(made.sum())
    made.resize((n, 3), refcheck=True)
    return seen, made.tolist()


def resized_without_check(n: int) -> Any:
    made = np.zeros(3)
    other = made
    made.resize(n, refcheck=False)
    return other.tolist()


def in_a_function(n: int) -> Any:
    return resized(n) + resized(n + 1)


def in_a_loop(n: int) -> Any:
    made = np.zeros(1)
    for k in range(n):
        made.resize(k + 2)
        made[-1] = k
    return made.tolist()


def of_two_names(n: int) -> Any:
    """Somebody else refers to it: the error of eager mode."""
    made = np.zeros(3)
    other = made
    try:
        made.resize(n)
    except ValueError as error:
        return str(error), other.tolist()
    return made.tolist()


def behind_a_tensor(n: int) -> Any:
    made = np.zeros(3, dtype=np.float32)
    total = torch.from_numpy(made.copy()).sum() + n
    made.resize(n)
    return made.tolist(), total.item()


@pytest.mark.parametrize(
    "program",
    [resized, resized_again, resized_without_check, in_a_function, in_a_loop, of_two_names, behind_a_tensor],
)
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_arrays_are_resized(program: Callable[[int], Any], backend: str) -> None:
    compiled = kintsugi.compile(
        program, backend=backend, options={"sync": True} if backend == "native" else None
    )
    for n in (5, 5, 7, 4, 5):
        assert compiled(n) == program(n)
