"""Polyfills of iterators over iterators: frames of the trace where C's own would stand between two of Python's."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

_MISSING: Any = object()


def enumerate_(iterable: Iterable[Any], start: int = 0) -> Iterator[tuple[int, Any]]:
    at = start if type(start) is int else int(operator.index(start))
    for value in iterable:
        yield at, value
        at += 1


def zip_(*iterables: Iterable[Any], strict: bool = False) -> Iterator[tuple[Any, ...]]:
    iterators = [iter(iterable) for iterable in iterables]
    while True:
        items: list[Any] = []
        for iterator in iterators:
            item = next(iterator, _MISSING)
            if item is _MISSING:
                if strict:
                    _check_ends(iterators, len(items))
                return
            items.append(item)
        yield tuple(items)


def _check_ends(iterators: list[Iterator[Any]], ended: int) -> None:
    """What `zip(..., strict=True)` does where the iterator number `ended` has no more items."""
    if ended > 0:
        others = "argument 1" if ended == 1 else f"arguments 1-{ended}"
        raise ValueError(f"zip() argument {ended + 1} is shorter than {others}")
    for at, iterator in enumerate(iterators):
        if at > 0 and next(iterator, _MISSING) is not _MISSING:
            others = "argument 1" if at == 1 else f"arguments 1-{at}"
            raise ValueError(f"zip() argument {at + 1} is longer than {others}")
