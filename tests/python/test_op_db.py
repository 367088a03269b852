"""Torch's own operator database: every operator with its sample inputs inside a compiled function.

Each sample is called twice (recorded, then replayed) and compared with eager in every bit: results, what the call
did to its inputs, aliasing, the random generator, gradients, and for wrong inputs the exception. By default two
samples an operator, picked by a seed; all of them, and gradients, with --all-ops.
"""

from __future__ import annotations

import pathlib
import tomllib
import warnings
from typing import Any

import pytest
import torch
from db_harness import check, pick, report, seed_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db

# For each sample torch crawls the stack in search of a unittest to tell about it; that takes most of the time here.
common_utils.extract_test_fn = lambda: None

EXPECTED = tomllib.loads((pathlib.Path(__file__).parent / "op_db_expected.toml").read_text())
MOST_FAILURES = 0.01

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


def _tolerance(op: Any) -> float:
    if op.name in UNINITIALIZED:
        return float("inf")
    return ROUNDING if op.formatted_name in UNSTABLE else 0.0


def _check(op: Any, inputs: tuple[Any, ...], tolerance: float | None = None) -> list[str]:
    function = op.op
    tolerance = _tolerance(op) if tolerance is None else tolerance

    def call(value: Any, args: Any, kwargs: Any) -> Any:
        return function(value, *args, **kwargs)

    return check(call, inputs, tolerance)


@pytest.mark.parametrize("op", _cases())
def test_samples(op: Any, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--all-ops")
    dtype = _dtype(op)
    if dtype is None:
        pytest.skip("the operator has no samples for the CPU")
    torch.manual_seed(seed_of(op.formatted_name))
    with_gradients = everything and dtype.is_floating_point and op.supports_autograd
    made = op.sample_inputs("cpu", dtype, requires_grad=with_gradients)
    samples = pick(op.formatted_name, made, None if everything else 2)
    report(
        f"sample {number} {sample.summary() if hasattr(sample, 'summary') else ''}: {text}"
        for number, sample in samples
        for text in _check(op, (sample.input, tuple(sample.args), dict(sample.kwargs)))
    )


@pytest.mark.parametrize("op", [case for case in _cases() if case.values[0].error_inputs_func is not None])
def test_wrong_inputs(op: Any, request: pytest.FixtureRequest) -> None:
    torch.manual_seed(seed_of(op.formatted_name))
    samples = (wrong.sample_input for wrong in op.error_inputs("cpu"))
    tolerance = float("inf") if op.name in RESIZED else None
    report(
        f"wrong input {number}: {text}"
        for number, sample in pick(
            op.formatted_name, samples, None if request.config.getoption("--all-ops") else 1
        )
        for text in _check(op, (sample.input, tuple(sample.args), dict(sample.kwargs)), tolerance)
    )


def test_few_failures_are_expected() -> None:
    names = {op.formatted_name for op in op_db}
    assert set(EXPECTED) <= names, sorted(set(EXPECTED) - names)
    assert all(entry.get("reason") for entry in EXPECTED.values())
    assert len(EXPECTED) <= MOST_FAILURES * len(names)
