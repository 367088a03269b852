"""`.data` shares memory with its tensor and has a version of its own, natively too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

DATA: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "written": lambda a, b: a.data.add_(b),
    "a view of it is written": lambda a, b: a.data.view(-1)[2:].mul_(2),
    "out": lambda a, b: torch.add(b, b, out=a.data),
    "returned": lambda a, b: (a * b).data,
    "an argument's is returned": lambda a, b: (a.data, (a * b).sin()),
    "a view of it is returned": lambda a, b: (a.data[1:], (a * b).sin()),
    "only read": lambda a, b: (a.data * b).sin(),
    "written behind a branch": lambda a, b: a.data.mul_(2) if b.sum() > 0 else a.data.add_(1),
}


@pytest.mark.parametrize("name", DATA)
def test_what_data_gives_has_a_version_of_its_own(name: str) -> None:
    seen = []
    for wrap in (
        lambda program: program,
        lambda program: kintsugi.compile(program, backend="native", options={"sync": True}),
    ):
        program, found = wrap(DATA[name]), []
        for turn in range(6):
            a, b = torch.arange(12.0).reshape(4, 3), torch.full((4, 3), 1.0 if turn % 3 else -1.0)
            result = program(a, b)
            versions = [a._version]
            for part in result if isinstance(result, tuple) else (result,):
                part.add_(1)
                versions += [a._version, part._version]
            found.append((versions, a.tolist(), [part.tolist() for part in result]))
        seen.append(found)
    assert seen[0] == seen[1]
