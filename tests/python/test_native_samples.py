"""backend="native": each sample call of a row that native code takes (`operator_samples.py`) beside eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from native_harness import assert_same, native
from operator_samples import SAMPLES, overload
from torch.utils._pytree import tree_map

from kintsugi import _C

ROWS: dict[str, dict[str, Any]] = {row["name"]: row for row in _C.operators()}
NAMES = sorted(SAMPLES.keys() & ROWS.keys())


def fresh(value: Any) -> Any:
    """The same, lying as it did."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value)


@pytest.mark.parametrize("name", NAMES)
def test_native_code_computes_what_eager_mode_does(name: str) -> None:
    """Between operators that are fused, so that what can be part of a kernel is."""
    operator = overload(name)

    def run(*args: Any) -> Any:
        args = tree_map(lambda x: x * 1 if isinstance(x, torch.Tensor) and x.is_floating_point() else x, args)
        made = operator(*args)
        return tree_map(
            lambda x: x * 2 if isinstance(x, torch.Tensor) and x.is_floating_point() else x, (made, args)
        )

    for sample in SAMPLES[name]:
        runner = native(run)
        with torch.no_grad():
            expected = run(*tree_map(fresh, sample))
            for _ in range(2):
                assert_same(runner(*tree_map(fresh, sample)), expected)
