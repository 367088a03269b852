"""Subscripts: whose operation they are, and indices that are known only at run time."""

from __future__ import annotations

import array
import collections
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import kintsugi

BACKENDS = ("eager", "native")
# The items are the indices themselves: what torch made of the tensor equals what the container gives back.
CONTAINERS: dict[str, Any] = {
    "range": range(10),
    "list": list(range(10)),
    "tuple": tuple(range(10)),
    "floats": [float(k) for k in range(10)],
    "bytes": bytes(range(10)),
    "bytearray": bytearray(range(10)),
    "array": array.array("q", range(10)),
    "numpy": numpy.arange(10),
    "deque": collections.deque(range(10)),
    "str": "0123456789",
    "size": torch.Size(range(10)),
    "memoryview": memoryview(bytes(range(10))),
    "names": ["a", "b", "c", "d"],
    "mixed": [0, 1.0, "2", None, torch.ones(2)],
    "tensors": [torch.full((3,), float(k)) for k in range(10)],
}
INDICES = (1, 2, -1, 9, 0, -10, 12, -12, 3, 1)


def outcome(f: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    try:
        result = f(*args)
    except Exception as error:
        return type(error), str(error)
    return type(result), result.tolist() if isinstance(result, torch.Tensor) else result


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", CONTAINERS)
def test_by_a_tensor(kind: str, backend: str) -> None:
    container = CONTAINERS[kind]

    def f(index: torch.Tensor) -> Any:
        return container[index]

    compiled = kintsugi.compile(f, backend=backend)
    for index in INDICES:
        assert outcome(compiled, torch.tensor(index)) == outcome(f, torch.tensor(index)), index


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", CONTAINERS)
def test_by_a_number_that_varies(kind: str, backend: str) -> None:
    container = CONTAINERS[kind]

    def f(x: torch.Tensor, index: int) -> Any:
        return container[index], x + index

    def first(*args: Any) -> Any:
        return f(*args)[0]

    compiled = kintsugi.compile(f, backend=backend)
    x = torch.ones(2)
    for index in INDICES:
        assert outcome(lambda *args: compiled(*args)[0], x, index) == outcome(first, x, index), index


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_ring_of_buffers(backend: str) -> None:
    """One trace serves all of them, and writes reach the buffer that was asked for."""

    def make() -> tuple[list[torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]:
        buffers = [torch.zeros(3) for _ in range(10)]
        at = [0]

        def step(x: torch.Tensor) -> torch.Tensor:
            at[0] += 1
            buffer = buffers[at[0] % 10]
            buffer.add_(x)
            return buffer * 2

        return buffers, step

    expected, plain = make()
    actual, step = make()
    compiled = kintsugi.compile(step, backend=backend)
    for k in range(60):
        assert torch.equal(compiled(torch.full((3,), float(k))), plain(torch.full((3,), float(k))))
    assert all(map(torch.equal, expected, actual))
    assert compiled.stats().side_exits <= 20
    actual[3] = torch.zeros(5)  # another size at one place
    expected[3] = torch.zeros(5)
    for k in range(20):
        assert outcome(compiled, torch.ones(())) == outcome(plain, torch.ones(())), k


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_that_are_made_anew(backend: str) -> None:
    class State:
        def __init__(self, size: tuple[int, ...] = (3,), device: str = "cpu") -> None:
            self.size, self.device = torch.Size(size), torch.device(device)

    def f(x: torch.Tensor, state: State) -> torch.Tensor:
        return x.to(state.device) + 1 if x.shape == state.size else x - 1

    compiled = kintsugi.compile(f, backend=backend)
    x = torch.ones(3)
    for k in range(14):
        state = State((4,)) if k == 7 else State()
        assert torch.equal(compiled(x, state), f(x, state))
    assert compiled.stats().hits >= 11
    assert compiled(x, State(device="meta")).device.type == "meta"


def test_a_module_is_moved_to_a_tensor() -> None:
    module = torch.nn.Linear(4, 4)
    compiled = kintsugi.compile(lambda x: module.to(x)(x), backend="eager")
    for _ in range(20):
        x = torch.rand(2, 4)
        assert torch.equal(compiled(x), module(x))
    assert compiled.stats().side_exits <= 3
