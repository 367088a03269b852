"""Tensors whose sizes are known only at run time: nothing that decides on a size may go unguarded.

Torch's bindings and the Python code of torch.nn.functional look at sizes before the dispatcher is called: slices that
take everything are left out, `contiguous()` returns its argument, windows are computed. Each program gets rows that
pass a mask, as many as the test says, and has to do what eager does for each number of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kintsugi

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {}


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def slices_in_tuples(y: torch.Tensor) -> Any:
    return y[:3, :2], y[:3, 0], y[:3, None], y[0:4, ...], y[..., :3], y[-4:, 1:]


@program
def single_slices(y: torch.Tensor) -> Any:
    return y[:3], y[0:2], y[-4:], y[:, 0], y[None]


@program
def assigned_slices(y: torch.Tensor) -> Any:
    y[:3, 1:] = 7
    z = y.new_zeros(2, 6, 3)
    z[:, :1] = y[:1]
    z[0, : y.size(0)] = y
    z[1] = y.sum(0, keepdim=True)
    return y, z


@program
def contiguous(y: torch.Tensor) -> Any:
    t = y.t().contiguous()
    return t, t.view(-1), t.is_contiguous()


@program
def sizes_as_numbers(y: torch.Tensor) -> Any:
    n = y.shape[0]
    return n * 2, len(y), y.numel(), torch.arange(n), [i for i in range(n)], y.sum() / n, y.shape


@program
def unpacked(y: torch.Tensor) -> Any:
    return y.chunk(2), y.unbind(), list(y), y.tolist(), torch.cat([y, y]), y.split(2)


@program
def adaptive_pooling(y: torch.Tensor) -> Any:
    return F.adaptive_avg_pool2d(y.reshape(1, 1, -1, 3), (None, 1))


@program
def padded(y: torch.Tensor) -> Any:
    return F.pad(y, (0, 0, 0, 8 - y.shape[0])), F.interpolate(y[None], scale_factor=2.0)


@program
def distances(y: torch.Tensor) -> Any:
    return torch.cdist(y, y), torch.tensordot(y, y, dims=([1], [1])), F.normalize(y)


@program
def attention(y: torch.Tensor) -> Any:
    return F.scaled_dot_product_attention(y[None], y[None], y[None]), F.softmax(y @ y.t(), -1)


@program
def branches_on_sizes(y: torch.Tensor) -> Any:
    if y.shape[0] > 3:
        return y.mean(0)
    return y.squeeze(0), y.dim(), y.flatten()


def text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.tolist()}"
    if isinstance(value, (list, tuple)):
        return str([text(v) for v in value])
    return repr(value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_number_of_rows(name: str) -> None:
    def select(x: torch.Tensor) -> Any:
        return PROGRAMS[name](x[x[:, 0] > 0])

    compiled = kintsugi.compile(select)
    torch.manual_seed(0)
    for _ in range(2):
        for rows in (3, 5, 1, 2, 4, 3, 1, 5, 6):
            x = torch.rand(6, 3) + 0.1
            x[rows:, 0] *= -1
            assert text(compiled(x)) == text(select(x)), f"{rows} rows"
    assert compiled.stats().trace_count == 1


def test_an_operation_raises_where_frames_cannot_be_rebuilt() -> None:
    """In a generator expression that runs: the exception reaches the handlers of the frames outside."""
    log: list[str] = []

    def repeated(v: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return v.repeat_interleave(n)

    def f(x: torch.Tensor, n: torch.Tensor) -> Any:
        try:
            return list(repeated(v, n) for v in [x, x + 1])
        except RuntimeError:
            log.append("caught")
            return x
        finally:
            log.append("left")

    compiled = kintsugi.compile(f)
    x = torch.ones(3)
    for repeats in ([1, 2, 3], [1, 2, 3], [1, -2, 3], [1, 2, 3]):
        n = torch.tensor(repeats)
        expected = text(f(x, n))
        seen = list(log)
        log.clear()
        assert text(compiled(x, n)) == expected
        assert log == seen
        log.clear()


def test_tensors_that_a_step_has_given_other_memory() -> None:
    def program(x: torch.Tensor, n: int) -> Any:
        rows, square = torch.zeros(3), torch.zeros(2)
        rows.set_(x[:n])
        square.set_(torch.ones(n, n + 1))
        return rows.shape[0], rows.size(0) * x, square.shape, square.view(square.shape[0], -1), len(rows)

    compiled = kintsugi.compile(program, backend="eager")
    for n in (2, 3, 2, 4, 5, 1, 3, 2):
        x = torch.arange(6.0)
        assert repr(compiled(x, n)) == repr(program(x, n))
