"""Programs as users write them, with state that calls leave behind: sixteen calls of each give what eager gives."""

from __future__ import annotations

import random

import harness
import pytest
import torch
import user_programs_algorithms  # noqa: F401  each adds its programs
import user_programs_classes  # noqa: F401
import user_programs_control  # noqa: F401
import user_programs_language  # noqa: F401
import user_programs_library  # noqa: F401
import user_programs_projects  # noqa: F401
import user_programs_training  # noqa: F401
from harness import describe
from user_programs import PROGRAMS

import kintsugi

# Not for native code, which rounds in other places.
DECIDED_BY_ROUNDING = {
    "ema_model": "the gradient of a bias before a batch norm is zero but for rounding, and AdamW makes a step of it",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sixteen_calls(name: str, request: pytest.FixtureRequest) -> None:
    # Two of each: neither sees the other's state.
    torch.manual_seed(0)
    eager, eager_arguments = PROGRAMS[name]()
    torch.manual_seed(0)
    program, arguments = PROGRAMS[name]()
    compiled = kintsugi.compile(program)
    close = harness.through_native
    if close and name in DECIDED_BY_ROUNDING:
        pytest.skip(DECIDED_BY_ROUNDING[name])
    with kintsugi.config.patch(report_compiling=False):
        for turn in range(16):
            results = []
            for function, arguments_of in ((eager, eager_arguments), (compiled, arguments)):
                torch.manual_seed(turn)
                random.seed(turn)
                given = arguments_of(turn)
                results.append(describe(function(*given), close=close))
            assert results[1] == results[0], f"call {turn}"
