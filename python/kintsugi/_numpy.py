"""wrap_numpy(): a function of numpy arrays as one of tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree


def _to_array(value: torch.Tensor) -> Any:
    return value.numpy()


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` takes and returns numpy arrays; the result takes and returns tensors, also inside tuples, lists and dicts.

    Compiled, numpy's functions are steps of the trace: they run on the CPU, as numpy computes them, and no gradients go
    through them (a tensor that requires gradients is refused, as Tensor.numpy() refuses it). torch.compile translates
    them to torch instead.
    """

    @functools.wraps(fn)
    def on_tensors(*args: Any, **kwargs: Any) -> Any:
        import numpy

        args, kwargs = _pytree.tree_map_only(torch.Tensor, _to_array, (args, kwargs))
        return _pytree.tree_map_only(numpy.ndarray, torch.as_tensor, fn(*args, **kwargs))

    return on_tensors
