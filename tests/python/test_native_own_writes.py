"""Native code that writes to parts and rows of tensors that the program has made itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from native_harness import assert_values, native

Program = Callable[..., Any]


def _tensors(found: Any) -> list[torch.Tensor]:
    return [found] if isinstance(found, torch.Tensor) else list(found)


def _layout(tensors: list[torch.Tensor]) -> list[Any]:
    """Types, layouts, and which of the tensors share memory, and at which offset."""
    starts = [t.untyped_storage().data_ptr() for t in tensors]
    return [
        (t.dtype, tuple(t.shape), t.stride(), t.storage_offset(), starts.index(start))
        for t, start in zip(tensors, starts, strict=True)
    ]


def check(program: Program, *args: torch.Tensor, calls: int = 4, whole: bool = True) -> None:
    """`whole`: all of the program is one piece of native code."""
    runner = native(program)
    for _ in range(calls):
        mine, theirs = [x.clone() for x in args], [x.clone() for x in args]
        with torch.no_grad():
            wanted = [*_tensors(program(*theirs)), *theirs]
            got = [*_tensors(runner(*mine)), *mine]
        assert _layout(got) == _layout(wanted)
        for a, b in zip(got, wanted, strict=True):
            assert_values(a, b)
    stats = runner._kintsugi_compiled.stats()
    if whole:
        assert stats["native_runs"] >= calls - 1 and stats["native_refused"] == 0, stats
        assert stats["native_segments"] == 1, stats


@pytest.mark.parametrize("steps", [1, 2, 7, 64, 65, 130])
def test_loop_over_time(steps: int) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        state = torch.zeros_like(x[:, 0])
        for t in range(steps):
            state = torch.maximum(state * 0.9, x[:, t])
            out[:, t] = state / 2
        return out.tanh()

    check(program, torch.randn(3, steps, 8))


def test_result_is_what_was_written() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for t in range(4):
            out[t] = x[3 - t] + 1
        return out

    check(program, torch.randn(4, 5))


def test_whole_slice_is_a_copy() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = torch.empty_like(x)
        out[:] = x
        other = torch.zeros_like(x)
        y = x * 2
        other[0:] = y
        return out, y, other

    check(program, torch.randn(4, 5))


def test_what_is_between_the_parts_stays() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        out[:, 1] = x[:, 0] + 1
        out[:, 4:6] = x[:, 2:4] - 1
        out[:, -1] = x[:, 0]
        return out + 1

    def slices(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        out[:, 1:3] = x[:, 4:6] + 1
        out[..., 5:] = x[:, :3]
        return out

    check(program, torch.randn(3, 8))
    check(slices, torch.randn(3, 8))


def test_a_tensor_that_was_padded() -> None:
    def program(x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shifted = torch.nn.functional.pad(x, (0, 0, 1, -1))
        shifted[:, 0] = state
        same = torch.nn.functional.pad(x, (0, 0, 0, 0))
        same[:, 1] = state
        return x * 0.5 + shifted * 0.5, same

    check(program, torch.randn(3, 5, 8), torch.randn(3, 8))


def test_the_last_write_counts() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        out[:, 1] = x[:, 0] + 1
        out[:, 1] = x[:, 2] + 3
        out[:, 0:2] = x[:, 3:5] * 2
        out[:, 1] = x[:, 2] - 3
        out[0] = x[1] + 4
        return out * 2

    check(program, torch.randn(3, 8))


def test_reads_in_between() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = x + 1
        early = out[:, 0] * 1
        out[:, 0] = x[:, 1]
        middle = out.sum(1)
        out[:, 1] = middle
        return early + middle, out.tanh()

    check(program, torch.randn(3, 8))


def test_parts_of_itself() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        out = x + 1
        out[:, 0] = out[:, 1]
        out[:, 1] = out[:, 2]
        out[:, 2] = out[:, 0]
        return out

    def recurrence(x: torch.Tensor) -> torch.Tensor:
        out = x + 1
        for t in range(1, 8):
            out[:, t] = out[:, t - 1] * 0.5 + x[:, t]
        return out

    check(program, torch.randn(3, 8))
    check(recurrence, torch.randn(3, 8), whole=False)


def test_what_was_stored_changes_afterwards() -> None:
    def own(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        state = x[:, 0] * 2
        for t in range(8):
            out[:, t] = state
            state.add_(x[:, t])
        return out + 1

    def input_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        out[:, 0] = y
        y.mul_(2)
        out[:, 1] = y
        return out + 1

    def view(x: torch.Tensor) -> torch.Tensor:
        out, other = torch.zeros_like(x), x + 1
        out[:, 0] = other[:, 0]
        other[:, 0] = x[:, 3]
        out[:, 1] = other[:, 0]
        return out + other

    check(own, torch.randn(3, 8), whole=False)
    check(input_, torch.randn(3, 8), torch.randn(3))
    check(view, torch.randn(3, 8))


def test_views_follow() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = x * 2
        turned = out.t()
        row = out[1]
        before = turned.sum(0)
        out[:, 3] = x[:, 0]
        after = turned * 3
        return before, after, row, turned, out

    def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = x * 2
        a, b = out.chunk(2, 1)
        out[:, 3] = x[:, 0]
        return a + b, b, out

    check(program, torch.randn(3, 8))
    check(parts, torch.randn(3, 8))


def test_other_writes() -> None:
    """Nested views, broadcasting, other types, numbers: whatever becomes of them, the result is the same."""

    def nested(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        out[1:3][:, 2] = x[:2, 0]
        return out + 1

    def spread(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        out[:, 2] = x[0, 0]
        out[:, 3] = 5.0
        out[0] = x[0].double()
        return out + 1

    def steps(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        out[:, ::2] = x[:, 1::2]
        return out + 1

    def added(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        out[:, 1] += x[:, 0]
        out[:, 2].mul_(3)
        return out + 1

    def escaped(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = x * 2
        flat = out.reshape(-1)
        out[:, 1] = x[:, 0]
        return flat * 2, out

    def copied(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = x * 2
        flat = out.t().reshape(-1)
        out[:, 1] = x[:, 0]
        return flat * 2, out

    for program in (nested, spread, steps, added, escaped, copied):
        check(program, torch.randn(4, 8), whole=False)


def test_rows() -> None:
    def put(x: torch.Tensor) -> torch.Tensor:
        order = x[:, 0].argsort()
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0])
        return x[order][back] + back[:, None]

    def add(x: torch.Tensor) -> torch.Tensor:
        index = torch.tensor([0, 2, 1, 2])
        out = torch.zeros(3, 8)
        seen = out.t()
        out.index_add_(0, index, x)
        first = out * 1
        out.index_add_(0, index, x * 2)
        return first, out, seen

    def scatter(x: torch.Tensor) -> torch.Tensor:
        index = x.argsort(1)
        out = torch.zeros_like(x)
        out[:, 0] = x[:, 1]
        out.scatter_add_(1, index, x)
        out[:, 1] = x[:, 1]
        return out

    check(put, torch.randn(6, 8))
    check(scatter, torch.randn(4, 8))
    check(add, torch.randn(4, 8), whole=False)


def test_division_of_what_a_call_has_made() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        top, index = torch.topk(x.softmax(-1), 2, dim=-1)
        top /= top.sum(-1, keepdim=True)
        return top, index

    check(program, torch.randn(6, 8))


def test_index_that_is_not_there() -> None:
    def program(x: torch.Tensor, index: torch.Tensor, seen: list[str]) -> torch.Tensor:
        out = x * 2
        seen.append("before")
        out[index] = x[: index.shape[0]]
        seen.append("after")
        return out + 1

    runner = native(program)
    x = torch.randn(4, 8)
    with torch.no_grad():
        for last in (3, 1, 0, 2, 7, 1, 9):
            index = torch.tensor([0, last])
            results = []
            for call in (program, runner):
                seen: list[str] = []
                try:
                    results.append((call(x, index, seen).tolist(), seen))
                except IndexError as error:
                    results.append((str(error), seen))
            assert results[0] == results[1]


def test_training_is_as_in_eager_mode() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for t in range(4):
            out[:, t] = x[:, t] * w
        counts = torch.zeros(4, dtype=torch.long)
        counts.index_add_(0, torch.tensor([0, 1, 1]), torch.ones(3, dtype=torch.long))
        return (out * counts).sum()

    runner = native(program)
    x = torch.randn(3, 4)
    for _ in range(4):
        grads = []
        for call in (program, runner):
            w = torch.full((3,), 0.5, requires_grad=True)
            call(x, w).backward()
            grads.append(w.grad)
        assert_values(grads[1], grads[0])
