"""backend="native": an operator whose result nobody uses still raises where eager mode does.

Every operator of torch's database is called with contents that it takes, and then with hostile ones of the same types
and sizes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db

common_utils.extract_test_fn = lambda: None
pytestmark = pytest.mark.filterwarnings("ignore")

PARTS = 8
# They allocate what they are told to, their contents are sizes, or eager mode crashes (the last two).
LEFT_OUT = (
    "empty",
    "resize",
    "repeat_interleave",
    "sparse",
    "histogramdd",
    "jiterator",
    "randint",
    "linalg.eigvals",
    "linalg.ldl_solve",
)


def copied(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(copied(part, change) for part in value)
    if isinstance(value, dict):
        return {key: copied(part, change) for key, part in value.items()}
    return value


def filled(number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(x: torch.Tensor) -> torch.Tensor:
        made = x.detach().clone()
        if made.dtype == torch.bool or (made.dtype == torch.uint8 and not 0 <= number < 256):
            return made
        if not made.is_floating_point() and not made.is_complex() and number != number:
            return made
        return made.fill_(number)

    return change


HOSTILE = [filled(number) for number in (0, -1, 1000, float("nan"))]


def unused(op: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, args: Any, kwargs: Any) -> torch.Tensor:
        try:
            op(*args, **kwargs)
        except (RuntimeError, IndexError, ValueError):
            return x - 1
        return (x + 1).relu()

    return run


@pytest.mark.parametrize("part", range(PARTS))
def test_operators_of_the_database_raise_as_in_eager_mode(part: int) -> None:
    wrong, raised = [], 0
    x = torch.ones(3)
    for info in op_db[part::PARTS]:
        if any(word in info.name for word in LEFT_OUT):
            continue
        for dtype in (torch.float32, torch.int64):
            if dtype not in info.dtypes:
                continue
            try:
                sample = next(iter(info.sample_inputs("cpu", dtype, requires_grad=False)))
            except (StopIteration, RuntimeError, ValueError, ImportError):
                continue
            call = (sample.input, *sample.args), sample.kwargs
            run = unused(info.op)
            hostile = []
            for change in HOSTILE:
                changed = copied(call, change)
                try:
                    if run(x, *copied(changed, torch.clone))[0] == 0:
                        hostile.append(changed)
                except Exception:
                    continue
            if not hostile or run(x, *copied(call, torch.clone))[0] != 2:
                continue
            compiled = kintsugi.compile(unused(info.op), backend="native", options={"sync": True})
            for _ in range(3):
                compiled(x, *copied(call, torch.clone))
            for changed in hostile:
                raised += 1
                if compiled(x, *copied(changed, torch.clone))[0] != 0:
                    wrong.append((info.name, info.variant_test_name, dtype))
    assert not wrong and raised > 5, (wrong, raised)


def is_positive_definite(x, a):
    try:
        torch.linalg.cholesky(a)
    except RuntimeError:
        return x * 0
    return (x + 1).relu()


def is_positive(x, a):
    torch._assert_async((a >= 0).all())
    return (x + 1).relu()


def is_within(x, a):
    try:
        x[a[0].long()]
    except IndexError:
        return x - 1
    return (x + 1).relu()


def chain(x, a):
    try:
        y = torch.nn.functional.embedding(a.long(), x[:, None]) + 1
        y.exp().sum()
    except IndexError:
        return x - 1
    return (x + 1).relu()


def divides(x, a):
    a.long() // a.long()
    return (x + 1).relu()


@pytest.mark.parametrize(
    "function", [is_positive_definite, is_positive, is_within, chain, divides], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_checks_of_programs(function: Callable[..., torch.Tensor], training: bool) -> None:
    good, bad = torch.eye(3) + 1, -torch.eye(3)
    compiled = kintsugi.compile(function, backend="native", options={"sync": True})
    for a in (good, good, good, bad, good, bad):
        seen = []
        for call in (function, compiled):
            x = torch.ones(3, requires_grad=training)
            try:
                y = call(x, a.clone())
                if training:
                    y.sum().backward()
                seen.append((y.tolist(), x.grad.tolist() if training else None))
            except Exception as error:
                seen.append((type(error), str(error)))
        assert seen[0] == seen[1]


def test_sizes_that_do_not_fit() -> None:
    def function(x, a, b):
        try:
            a.atan2(b)
        except RuntimeError:
            return x - 1
        return (x + 1).relu()

    compiled = kintsugi.compile(function, backend="native", dynamic=True, options={"sync": True})
    x = torch.ones(3)
    for n, m in ((4, 4), (5, 5), (6, 6), (7, 5), (5, 5), (3, 4)):
        assert torch.equal(
            compiled(x, torch.ones(n), torch.ones(m)), function(x, torch.ones(n), torch.ones(m))
        )
