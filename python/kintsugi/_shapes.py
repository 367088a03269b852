"""Which sizes vary: marks on tensors, and padding to a few sizes.

The marks are the attributes that torch.compile reads, so a tensor marked for one is marked for the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

_STRICT = "_dynamo_dynamic_indices"
_WEAK = "_dynamo_weak_dynamic_indices"
_STATIC = "_dynamo_static_indices"


def _dims(function: str, t: torch.Tensor, index: int | Iterable[int] | None) -> list[int]:
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"kintsugi.{function} expects a tensor, got {type(t).__name__}.")
    if index is None:
        return list(range(t.dim()))
    dims = [index] if isinstance(index, int) else list(index)
    for dim in dims:
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise TypeError(f"kintsugi.{function} expects an int or a sequence of ints, got {dim!r}.")
        if not -t.dim() <= dim < t.dim():
            raise IndexError(
                f"kintsugi.{function}: the tensor has {t.dim()} dimensions, there is none numbered {dim}."
            )
    return [dim % t.dim() for dim in dims]


def _mark(t: torch.Tensor, attribute: str, dims: Iterable[int]) -> None:
    marks = getattr(t, attribute, None)
    if marks is None:
        marks = set()
        setattr(t, attribute, marks)
    marks.update(dims)


def _unmark(t: torch.Tensor, attribute: str, dims: Iterable[int]) -> None:
    marks = getattr(t, attribute, None)
    if marks is not None:
        marks.difference_update(dims)


def mark_dynamic(t: torch.Tensor, index: int | Sequence[int]) -> None:
    """Sizes of this tensor that vary from call to call: values of the first trace already.

    t: an argument of a compiled callable, or a tensor reached from one. index: a dimension or several; negative ones
    count from the end. A trace that meets a Python branch on such a size guards the branch, not the size.
    """
    dims = _dims("mark_dynamic", t, index)
    _unmark(t, _STATIC, dims)
    _mark(t, _STRICT, dims)


def maybe_mark_dynamic(t: torch.Tensor, index: int | Sequence[int]) -> None:
    """As mark_dynamic(): a program that needs the very number of such a size is specialized to it in either case."""
    dims = _dims("maybe_mark_dynamic", t, index)
    _unmark(t, _STATIC, dims)
    _mark(t, _WEAK, dims)


def mark_static(t: torch.Tensor, index: int | Sequence[int] | None = None) -> None:
    """Sizes of this tensor that are part of the trace's key: another size is another trace, whatever was seen before.

    index: a dimension or several; None: all of them.
    """
    dims = _dims("mark_static", t, index)
    _unmark(t, _STRICT, dims)
    _unmark(t, _WEAK, dims)
    _mark(t, _STATIC, dims)


def bucket(size: int, buckets: Sequence[int]) -> int:
    """The smallest of `buckets` that is not below `size`. ValueError when all are."""
    fitting = [b for b in buckets if b >= size]
    if not fitting:
        raise ValueError(f"kintsugi.bucket: {size} is above the largest bucket, {max(buckets, default=0)}.")
    return min(fitting)


def pad_to_bucket(t: torch.Tensor, buckets: Sequence[int], dim: int = -1, value: float = 0) -> torch.Tensor:
    """`t`, padded at the end of dimension `dim` with `value` to the next of the sizes `buckets`.

    With `kintsugi.compile(..., dynamic=False)` a callable that gets only such tensors needs one trace for each bucket
    that occurs. The tensor itself where nothing has to be added.
    """
    (dim,) = _dims("pad_to_bucket", t, dim)
    missing = bucket(t.shape[dim], buckets) - t.shape[dim]
    if missing == 0:
        return t
    padding = t.new_full((*t.shape[:dim], missing, *t.shape[dim + 1 :]), value)
    return torch.cat([t, padding], dim)
