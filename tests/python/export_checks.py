"""What the tests of kintsugi.export() share: exported programs beside eager mode, and lines of programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import kintsugi


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check_same(expected: Any, seen: Any) -> None:
    """Values bit by bit, dtypes, strides, and the structure."""
    a, spec = pytree.tree_flatten(expected)
    b, other = pytree.tree_flatten(seen)
    assert spec == other
    for left, right in zip(a, b, strict=True):
        if isinstance(left, torch.Tensor):
            assert (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())
            assert torch.equal(left, right)
        else:
            assert left == right


def check(model: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> torch.export.ExportedProgram:
    """Exports the first call; the program gives what eager mode gives, for all of them."""
    program = kintsugi.export(model, calls[0], **options)
    run = program.module()
    for args in calls:
        torch.manual_seed(1)
        expected = model(*pytree.tree_map(_clone, args))
        torch.manual_seed(1)
        check_same(expected, run(*pytree.tree_map(_clone, args)))
    return program


def _clone(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(k for k, line in enumerate(lines) if text in line)


def refusal(model: Callable[..., Any], *args: Any, **options: Any) -> kintsugi.ExportReport:
    with pytest.raises(kintsugi.ExportError) as caught:
        kintsugi.export(model, args, **options)
    assert str(caught.value.report) in str(caught.value)
    return caught.value.report
