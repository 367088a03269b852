"""Which sizes vary: marks on tensors, and padding to a few sizes.

The marks are the attributes that torch.compile reads, so a tensor marked for one is marked for the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

_STRICT = "_dynamo_dynamic_indices"
_WEAK = "_dynamo_weak_dynamic_indices"
_STATIC = "_dynamo_static_indices"
_UNBACKED = "_dynamo_unbacked_indices"
_RANGES = "_dynamo_dynamic_range"


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
    t._has_dynamo_dim_marking = True  # torch.compile looks at marks only then


def _unmark(t: torch.Tensor, attribute: str, dims: Iterable[int]) -> None:
    marks = getattr(t, attribute, None)
    if marks is not None:
        marks.difference_update(dims)


class DimRange(NamedTuple):
    """The bounds of a size, as torch.compile and the recorder read them from a marked tensor."""

    dim: int
    min: int | None
    max: int | None


def _check_bounds(
    function: str, t: torch.Tensor, dims: Sequence[int], least: int | None, most: int | None
) -> None:
    for name, bound in (("min", least), ("max", most)):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise TypeError(f"kintsugi.{function}: {name} must be an int, got {bound!r}.")
    for dim in dims:
        size = t.shape[dim]
        if (least is not None and size < least) or (most is not None and size > most):
            shown = [least if least is not None else 0, most if most is not None else "any size"]
            raise ValueError(f"kintsugi.{function}: dimension {dim} has the size {size}, not in {shown}.")


def _set_hint(function: str, t: torch.Tensor, dims: Sequence[int], hint: int | None) -> None:
    hints = t.__dict__.setdefault("_dynamo_hint_overrides", {})
    if hint is None:
        return
    if isinstance(hint, bool) or not isinstance(hint, int) or hint < 1:
        raise TypeError(f"kintsugi.{function}: hint_override must be an int from 1 on, got {hint!r}.")
    hints.update(dict.fromkeys(dims, hint))


def mark_dynamic(
    t: torch.Tensor,
    index: int | Sequence[int],
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """Sizes of this tensor that vary from call to call: values of the first trace already.

    t: an argument of a compiled callable, or a tensor reached from one. index: a dimension or several; negative ones
    count from the end. A trace that meets a Python branch on such a size guards the branch, not the size.

    min, max: the trace is for sizes between them, both included: others are another trace. The tensor's own size has to
    be one of these (ValueError).
    hint_override: the size that inductor takes for typical, under torch.compile and as a backend here. Our own code
    needs none: it is chosen by the sizes that calls bring.
    """
    dims = _dims("mark_dynamic", t, index)
    _check_bounds("mark_dynamic", t, dims, min, max)
    _set_hint("mark_dynamic", t, dims, hint_override)
    _unmark(t, _STATIC, dims)
    _mark(t, _STRICT, dims)
    _set_ranges(t, dims, min, max)


def _set_ranges(t: torch.Tensor, dims: Sequence[int], least: int | None, most: int | None) -> None:
    ranges = t.__dict__.setdefault(_RANGES, set())
    ranges -= {known for known in ranges if known.dim in dims}
    ranges.update(DimRange(dim, least, most) for dim in dims)


def mark_unbacked(
    t: torch.Tensor,
    index: int | Sequence[int],
    hint_override: int | None = None,
    *,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """Sizes that vary from call to call, 0 and 1 included, and that torch.compile must not look at.

    Here it is mark_dynamic(): a trace looks at no size by itself, and where the program does, its branch is guarded.
    """
    dims = _dims("mark_unbacked", t, index)
    _check_bounds("mark_unbacked", t, dims, min, max)
    _set_hint("mark_unbacked", t, dims, hint_override)
    _unmark(t, _STATIC, dims)
    _mark(t, _UNBACKED, dims)
    if min is not None or max is not None:
        t.__dict__.setdefault("_dynamo_unbacked_bounds", {}).update(dict.fromkeys(dims, (min, max)))
        _set_ranges(t, dims, min, max)


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
    for attribute in (_STRICT, _WEAK, _UNBACKED):
        _unmark(t, attribute, dims)
    ranges = getattr(t, _RANGES, None)
    if ranges is not None:
        ranges -= {known for known in ranges if known.dim in dims}
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
