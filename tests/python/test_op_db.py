"""Torch's own operator database: every operator with its sample inputs inside a compiled function.

Each sample is called twice (recorded, then replayed) and compared with eager in every bit: results, what the call
did to its inputs, aliasing, the random generator, gradients, and for wrong inputs the exception. By default two
samples an operator, picked by a seed; all of them, and gradients, with --all-ops.
"""

from __future__ import annotations

import copy
import itertools
import pathlib
import random
import tomllib
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch

import kintsugi
from bench import compare

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db

# For each sample torch crawls the stack in search of a unittest to tell about it; that takes most of the time here.
common_utils.extract_test_fn = lambda: None

EXPECTED = tomllib.loads((pathlib.Path(__file__).parent / "op_db_expected.toml").read_text())
MOST_FAILURES = 0.01
FIRST = 40

# With wrong inputs they make `out` larger before they raise: what is in it then is whatever the memory held.
RESIZED = {"cat"}

# Their results are memory that nobody wrote; only metadata can be compared.
UNINITIALIZED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}

# Eager itself gives other last bits from call to call (LAPACK's driver depends on where its arrays lie in memory).
UNSTABLE = {"linalg_lstsq", "linalg_lstsq_grad_oriented"}
ROUNDING = 1e-5

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.int64, torch.bool)

pytestmark = pytest.mark.filterwarnings("ignore")


def _dtype(op: Any) -> torch.dtype | None:
    supported = op.supported_dtypes("cpu")
    ranked = [dtype for dtype in DTYPES if dtype in supported] or sorted(supported, key=str)
    return ranked[0] if ranked else None


def _cases() -> list[Any]:
    cases = []
    for op in op_db:
        marks = []
        if reason := EXPECTED.get(op.formatted_name, {}).get("reason"):
            marks.append(pytest.mark.xfail(strict=True, reason=reason))
        cases.append(pytest.param(op, id=op.formatted_name, marks=marks))
    return cases


def _seed(op: Any) -> int:
    return zlib.crc32(op.formatted_name.encode())


def _pick(op: Any, samples: Iterable[Any], most: int | None) -> list[tuple[int, Any]]:
    """All samples, or some of the first ones (to make all of them takes seconds for some operators)."""
    numbered = list(enumerate(samples if most is None else itertools.islice(samples, FIRST)))
    if most is None or len(numbered) <= most:
        return numbered
    return sorted(random.Random(_seed(op)).sample(numbered, most), key=lambda pair: pair[0])


def _detached(value: Any, memo: dict[int, Any]) -> Any:
    """A copy with storages of its own but the same sharing of storages, and without autograd history."""
    if isinstance(value, torch.Tensor):
        if id(value) not in memo:
            plain = value.detach()
            copied = copy.deepcopy(plain, memo) if value.layout is torch.strided else plain.clone()
            memo[id(value)] = copied.requires_grad_(value.requires_grad)
        return memo[id(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_detached(item, memo) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_detached(item, memo) for item in value)
    if isinstance(value, dict):
        return {key: _detached(item, memo) for key, item in value.items()}
    return value


def _observe(call: Callable[..., Any], inputs: tuple[Any, ...]) -> dict[str, Any]:
    """What one call gives and changes; an exception is a result too."""
    memo: dict[int, Any] = {}
    args = _detached(inputs, memo)
    torch.manual_seed(99)
    try:
        out = call(*args)
    except Exception as error:
        return {"exception": (type(error).__name__, str(error)), "inputs": args}
    seen = {
        "out": out,
        "inputs": args,
        "random": torch.random.get_rng_state(),
        "aliasing": compare.aliasing([out, args]),
    }
    wanted = [t for t in compare.tensors(out) if t.requires_grad and t.grad_fn is not None]
    leaves = [t for t in compare.tensors(args) if t.requires_grad and t.is_leaf]
    if wanted and leaves:
        try:
            grads = torch.autograd.grad([t.abs().sum() for t in wanted], leaves, allow_unused=True)
        except Exception as error:
            return seen | {"backward": (type(error).__name__, str(error))}
        seen["gradients"] = grads
    return seen


def _tolerance(op: Any) -> float:
    if op.name in UNINITIALIZED:
        return float("inf")
    return ROUNDING if op.formatted_name in UNSTABLE else 0.0


def _check(op: Any, inputs: tuple[Any, ...], tolerance: float | None = None) -> list[str]:
    function = op.op
    tolerance = _tolerance(op) if tolerance is None else tolerance

    def call(value: Any, args: Any, kwargs: Any) -> Any:
        return function(value, *args, **kwargs)

    expected = _observe(call, inputs)
    compiled = kintsugi.compile(call, backend="eager")
    problems = []
    for turn in ("first call", "second call"):
        found = compare.differences(expected, _observe(compiled, inputs), "call", tolerance)
        problems += [f"{turn}: {text}" for text in found]
    kintsugi.reset()
    return problems


def _report(problems: Iterator[str]) -> None:
    found = list(problems)
    assert not found, f"{len(found)} differences:\n" + "\n".join(text[:400] for text in found[:6])


@pytest.mark.parametrize("op", _cases())
def test_samples(op: Any, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--all-ops")
    dtype = _dtype(op)
    if dtype is None:
        pytest.skip("the operator has no samples for the CPU")
    torch.manual_seed(_seed(op))
    with_gradients = everything and dtype.is_floating_point and op.supports_autograd
    made = op.sample_inputs("cpu", dtype, requires_grad=with_gradients)
    samples = _pick(op, made, None if everything else 2)
    _report(
        f"sample {number} {sample.summary() if hasattr(sample, 'summary') else ''}: {text}"
        for number, sample in samples
        for text in _check(op, (sample.input, tuple(sample.args), dict(sample.kwargs)))
    )


@pytest.mark.parametrize("op", [case for case in _cases() if case.values[0].error_inputs_func is not None])
def test_wrong_inputs(op: Any, request: pytest.FixtureRequest) -> None:
    torch.manual_seed(_seed(op))
    samples = (wrong.sample_input for wrong in op.error_inputs("cpu"))
    tolerance = float("inf") if op.name in RESIZED else None
    _report(
        f"wrong input {number}: {text}"
        for number, sample in _pick(op, samples, None if request.config.getoption("--all-ops") else 1)
        for text in _check(op, (sample.input, tuple(sample.args), dict(sample.kwargs)), tolerance)
    )


def test_few_failures_are_expected() -> None:
    names = {op.formatted_name for op in op_db}
    assert set(EXPECTED) <= names, sorted(set(EXPECTED) - names)
    assert all(entry.get("reason") for entry in EXPECTED.values())
    assert len(EXPECTED) <= MOST_FAILURES * len(names)
