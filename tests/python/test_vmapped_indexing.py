"""Indices that are tensors of a transform, under the mode of torch's that makes `index` of `__getitem__`.

Libraries build attention masks so: `TransformGetItemToIndex` around `vmap`s of a function of (batch, head, query, key),
which reads the padding mask and other tables at these four.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import describe
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.overrides import TorchFunctionMode

import kintsugi

BACKENDS = ("eager", "native")
Mask = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Own(TorchFunctionMode):  # type: ignore[misc]
    """The same as torch's mode, written by the program: a gather in place of a subscript."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__ and isinstance(args[1], torch.Tensor):
            return args[0].index_select(0, args[1].reshape(1)).reshape(args[0].shape[1:])
        return func(*args, **(kwargs or {}))


def four_times(mask: Mask) -> Mask:
    """`mask` over all batches, heads, queries and keys."""
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        mask = torch.vmap(mask, in_dims=dims)
    return mask


def places(padding: torch.Tensor, heads: int, queries: int) -> list[torch.Tensor]:
    return [torch.arange(n) for n in (padding.shape[0], heads, queries, padding.shape[1])]


def causal_and_padded(padding: torch.Tensor, shift: int) -> torch.Tensor:
    def mask(b: Any, h: Any, q: Any, k: Any) -> torch.Tensor:
        return padding[b, k] & (k <= q + shift)

    with TransformGetItemToIndex():
        return four_times(mask)(*places(padding, 1, 5))


def with_tables(padding: torch.Tensor, shift: int) -> torch.Tensor:
    """Of each head, and of each pair of packed sequences."""
    slopes = torch.linspace(0, 1, 3) + shift
    packed = padding.long().cumsum(-1)

    def bias(b: Any, h: Any, q: Any, k: Any) -> torch.Tensor:
        distance = (q - k) * slopes[h]
        return torch.where(packed[b, q] == packed[b, k], distance, distance.new_full((), float("-inf")))

    with TransformGetItemToIndex():
        return four_times(bias)(*places(padding, 3, padding.shape[1]))


def one(padding: torch.Tensor, shift: int) -> torch.Tensor:
    with TransformGetItemToIndex():
        return torch.vmap(lambda i: padding[i])(torch.arange(padding.shape[0]))


def by_numbers(padding: torch.Tensor, shift: int) -> Any:
    """Numbers and tensors side by side; slices are none of the mode's."""
    with TransformGetItemToIndex():
        rows = torch.vmap(lambda i: padding[0, i] | padding[i % padding.shape[0], shift])
        return rows(torch.arange(padding.shape[1])), padding[:, 1:], padding[-1], padding[..., None, 0]


def outside(padding: torch.Tensor, shift: int) -> Any:
    """The mode without a transform, and a transform behind the mode."""
    with TransformGetItemToIndex():
        first = padding[torch.tensor(0)]
    return first, torch.vmap(lambda row: row[shift])(padding), padding[torch.tensor(0)]


def in_a_function(padding: torch.Tensor, shift: int) -> torch.Tensor:
    """The mode is entered within the transform."""

    def row(i: torch.Tensor) -> torch.Tensor:
        with TransformGetItemToIndex():
            return padding[i]

    return torch.vmap(row)(torch.arange(padding.shape[0]))


def own_mode(padding: torch.Tensor, shift: int) -> torch.Tensor:
    with Own():
        return torch.vmap(lambda i: padding[i] ^ (shift > 0))(torch.arange(padding.shape[0]))


PROGRAMS = (causal_and_padded, with_tables, one, by_numbers, outside, in_a_function, own_mode)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_equal_eager(program: Callable[..., Any], backend: str) -> None:
    """Masks whose content, number of rows and length change from call to call."""
    compiled = kintsugi.compile(program, backend=backend)
    for call in range(12):
        rows, length = (2, 5) if call < 4 else (3 + call % 3, 5 + call % 2)
        padding = torch.rand(rows, length, generator=torch.Generator().manual_seed(call)) > 0.4
        for shift in (0, 1) if call % 2 else (0,):
            assert describe(compiled(padding, shift)) == describe(program(padding, shift)), (call, shift)
        kintsugi.wait()


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_what_is_indexed(backend: str) -> None:
    """A table of biases that is trained: its gradient is summed up from all places that read it."""

    def program(table: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        with TransformGetItemToIndex():
            rows = torch.vmap(lambda q: torch.vmap(lambda k: table[(q - k).abs()])(torch.arange(4)))
            return (scores + rows(torch.arange(4))).softmax(-1).square().sum()

    compiled = kintsugi.compile(program, backend=backend)
    for call in range(5):
        scores = torch.randn(4, 4)
        seen = []
        for f in (compiled, program):
            table = torch.linspace(-1, 1, 4 + call % 2).requires_grad_()
            loss = f(table, scores)
            loss.backward()
            seen.append(describe(loss, table.grad, close=backend == "native"))
        assert seen[0] == seen[1], call
        kintsugi.wait()
