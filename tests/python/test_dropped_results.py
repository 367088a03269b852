"""Results of steps that the program has dropped are gone: C code that counts references, looks at weak references or
can't resize memory that somebody else uses sees what it sees in eager mode, while a call is recorded as well."""

from __future__ import annotations

import array
import gc
import hashlib
import io
import mmap
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import kintsugi


def first_bytes(owner: Any) -> bytes:
    return bytes(memoryview(owner)[1:3])


def bytes_behind_a_view(n: int) -> Any:
    owner = bytearray(b"abcd" * (n + 1))
    view = memoryview(owner)
    part = view[2:4]
    seen = bytes(part)
    del view, part
    owner.extend(b"zz")
    owner += b"q"
    return seen, bytes(owner)


def bytes_behind_a_function(n: int) -> Any:
    owner = bytearray(b"abcdef")
    seen = first_bytes(owner)
    owner.append(n)
    again = first_bytes(owner)
    owner.clear()
    return seen, again, len(owner)


def bytes_behind_an_array(n: int) -> Any:
    owner = bytearray(8)
    np.frombuffer(owner, dtype=np.uint8)[:] = n
    owner.append(3)
    return bytes(owner)


def numbers(n: int) -> Any:
    owner = array.array("f", [1.0, 2.0, float(n)])
    total = sum(memoryview(owner))
    owner.append(1.0)
    other = np.frombuffer(owner, dtype=np.float32).sum()
    owner.append(2.0)
    return owner.tolist(), total, float(other)


def mapped(n: int) -> Any:
    owner = mmap.mmap(-1, 64)
    owner[:4] = b"abc%d" % n
    seen = first_bytes(owner)
    owner.close()
    return seen, owner.closed


def stream(n: int) -> Any:
    owner = io.BytesIO(b"abc" * n)
    seen = bytes(owner.getbuffer()[1:3])
    owner.write(b"more")
    owner.close()
    return seen, owner.closed


def digest(n: int) -> Any:
    owner = bytearray(b"abcdef" * n)
    seen = hashlib.md5(memoryview(owner)).hexdigest()
    del owner[2:]
    return seen, bytes(owner)


def weakly_referenced(n: int) -> Any:
    made = np.arange(n)
    seen = weakref.ref(made)
    alive = seen() is not None
    del made
    return alive, seen() is None


def finalized(n: int) -> Any:
    log: list[int] = []
    made = np.arange(n)
    weakref.finalize(made, log.append, n)
    del made
    return list(log)


def still_used(n: int) -> Any:
    """Somebody holds the memory: the error of eager mode."""
    owner = bytearray(b"abcd")
    view = memoryview(owner)
    try:
        owner.append(n)
    except BufferError as error:
        return str(error), bytes(view)
    return "resized"


PROGRAMS: list[Callable[[int], Any]] = [
    bytes_behind_a_view,
    bytes_behind_a_function,
    bytes_behind_an_array,
    numbers,
    mapped,
    stream,
    digest,
    weakly_referenced,
    finalized,
    still_used,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("backend", [None, "eager", "native"])
def test_as_eager_mode(program: Callable[[int], Any], backend: str | None) -> None:
    def f(x: torch.Tensor) -> Any:
        n = int(x.sum())
        return program(n), (x * n).tolist()

    compiled = kintsugi.compile(f) if backend is None else kintsugi.compile(f, backend=backend)
    for k in range(6):
        x = torch.full((3,), float(k % 3 + 1))
        assert compiled(x) == f(x), k


def test_many_results_are_dropped_one_by_one() -> None:
    """Addresses of results that were dropped are used again, by other objects."""

    def f(x: torch.Tensor) -> Any:
        owner, seen = bytearray(b"ab"), []
        for k in range(40):
            seen.append(bytes(memoryview(owner)) + b"%d" % len(np.arange(k % 5)))
            owner.append(k)
        return seen, x + 1

    compiled = kintsugi.compile(f, backend="eager")
    for _ in range(3):
        got, wanted = compiled(torch.ones(2)), f(torch.ones(2))
        assert got[0] == wanted[0] and torch.equal(got[1], wanted[1])


def test_swapped_tensors() -> None:
    def arguments(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        torch.utils.swap_tensors(a, b)
        return a + 1

    def made(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c, d = a * 2, b * 3
        torch.utils.swap_tensors(c, d)
        return c - d.sum()

    def module(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        layer = torch.nn.Linear(2, 2)
        layer.weight.data.fill_(1.0)
        layer.bias.data.zero_()
        return layer.double()(a.double())

    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        for f in (arguments, made, module):
            compiled = kintsugi.compile(f, backend="eager")
            for _ in range(5):
                wanted = f(torch.ones(2), torch.zeros(3))
                got = compiled(torch.ones(2), torch.zeros(3))
                assert torch.equal(got, wanted) and got.dtype == wanted.dtype
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    gc.collect()
