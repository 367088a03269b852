"""Builtins that call back, written in Python: the recorder runs these in their place, so that it sees the calls.

Each does what the C function of CPython does, in the same order, with the same results and exceptions. Which call is
replaced, and when, is decided in csrc/capture/calls/polyfills.cc. Frames of this file leave no mark in tracebacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

_MISSING: Any = object()
_COMPARABLE = frozenset((int, float, bool, torch.Tensor))


def order(keys: Sequence[Any], reverse: bool) -> list[int]:
    """The positions of `keys` in sorted order; equal ones keep theirs. Known keys never get here: they are folded.

    Insertion finds the same order as CPython's sort where any two keys compare consistently.
    """
    if len(keys) < 2:
        return list(range(len(keys)))
    for key in keys:
        if type(key) not in _COMPARABLE or key != key:
            return sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)
    placed: list[int] = []
    for at in range(len(keys)):
        low, high = 0, len(placed)
        while low < high:
            middle = (low + high) // 2
            other = keys[placed[middle]]
            if (other < keys[at]) if reverse else (keys[at] < other):
                high = middle
            else:
                low = middle + 1
        placed.insert(low, at)
    return placed


def sorted_(
    iterable: Iterable[Any], /, *, key: Callable[[Any], Any] | None = None, reverse: bool = False
) -> list[Any]:
    values = list(iterable)
    keys = values if key is None else [key(value) for value in values]
    return [values[at] for at in order(keys, reverse)]


def list_sort(self: list[Any], /, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
    values = self[:]
    keys = values if key is None else [key(value) for value in values]
    self[:] = [values[at] for at in order(keys, reverse)]


def max_by(first: Any, /, *rest: Any, key: Callable[[Any], Any], default: Any = _MISSING) -> Any:
    best = _MISSING
    best_key = None
    for value in (first, *rest) if rest else first:
        value_key = key(value)
        if best is _MISSING or value_key > best_key:
            best, best_key = value, value_key
    if best is not _MISSING:
        return best
    if default is _MISSING:
        raise ValueError("max() arg is an empty sequence")
    return default


def min_by(first: Any, /, *rest: Any, key: Callable[[Any], Any], default: Any = _MISSING) -> Any:
    best = _MISSING
    best_key = None
    for value in (first, *rest) if rest else first:
        value_key = key(value)
        if best is _MISSING or value_key < best_key:
            best, best_key = value, value_key
    if best is not _MISSING:
        return best
    if default is _MISSING:
        raise ValueError("min() arg is an empty sequence")
    return default


def max_of(iterable: Iterable[Any], /, *, default: Any = _MISSING) -> Any:
    best = _MISSING
    for value in iterable:
        if best is _MISSING or value > best:
            best = value
    if best is not _MISSING:
        return best
    if default is _MISSING:
        raise ValueError("max() arg is an empty sequence")
    return default


def min_of(iterable: Iterable[Any], /, *, default: Any = _MISSING) -> Any:
    best = _MISSING
    for value in iterable:
        if best is _MISSING or value < best:
            best = value
    if best is not _MISSING:
        return best
    if default is _MISSING:
        raise ValueError("min() arg is an empty sequence")
    return default


def any_(iterable: Iterable[Any], /) -> bool:
    for value in iterable:
        if value:
            return True
    return False


def all_(iterable: Iterable[Any], /) -> bool:
    for value in iterable:
        if not value:
            return False
    return True


def reduce(function: Callable[[Any, Any], Any], sequence: Iterable[Any], initial: Any = _MISSING, /) -> Any:
    total = initial
    for value in sequence:
        total = value if total is _MISSING else function(total, value)
    if total is _MISSING:
        raise TypeError("reduce() of empty iterable with no initial value")
    return total


def list_(iterable: Iterable[Any], /) -> list[Any]:
    made = []
    for value in iterable:
        made.append(value)
    return made


def first_items(iterable: Iterable[Any], count: int, /) -> list[Any]:
    made = []
    for value in iterable:
        made.append(value)
        if len(made) > count:
            break
    return made


def tuple_(iterable: Iterable[Any], /) -> tuple[Any, ...]:
    made = []
    for value in iterable:
        made.append(value)
    return tuple(made)


def set_(iterable: Iterable[Any], /) -> set[Any]:
    made = set()
    for value in iterable:
        made.add(value)
    return made


def sum_(iterable: Iterable[Any], /, start: Any = 0) -> Any:
    total = start
    for value in iterable:
        total = total + value
    return total


def join(self: str, iterable: Iterable[str], /) -> str:
    return self.join(list_(iterable))


def extend(self: list[Any], iterable: Iterable[Any], /) -> None:
    for value in iterable:
        self.append(value)


def enumerate_(iterable: Iterable[Any], start: int = 0) -> Iterator[tuple[int, Any]]:
    at = start
    for value in iterable:
        yield at, value
        at += 1


def zip_(*iterables: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    iterators = [iter(iterable) for iterable in iterables]
    while True:
        items = []
        for iterator in iterators:
            item = next(iterator, _MISSING)
            if item is _MISSING:
                return
            items.append(item)
        yield tuple(items)


def iterate(iterator: Iterator[Any], /) -> Iterator[Any]:
    """An iterator that the trace knows nothing of, a step an item."""
    while True:
        item = next(iterator, _MISSING)
        if item is _MISSING:
            return
        yield item


def iterate_over(iterable: Iterable[Any], /) -> Iterator[Any]:
    yield from iterate(iter(iterable))


def by_index(sequence: Any, /) -> Iterator[Any]:
    at = 0
    while True:
        try:
            item = sequence[at]
        except (IndexError, StopIteration):
            return
        yield item
        at += 1


class map_one:
    """map() of one iterable, where whatever takes the items follows at once, so that nobody sees the object."""

    def __init__(self, function: Callable[[Any], Any], iterable: Iterable[Any]) -> None:
        self.function = function
        self.iterator = iter(iterable)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.function(next(self.iterator))


class map_many:
    def __init__(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> None:
        self.function = function
        self.iterator = zip(*iterables)  # noqa: B905

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.function(*next(self.iterator))


class filter_:
    def __init__(self, function: Callable[[Any], Any] | None, iterable: Iterable[Any]) -> None:
        self.function = function
        self.iterator = iter(iterable)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:
            value = next(self.iterator)
            if value if self.function is None else self.function(value):
                return value


def chain(*iterables: Iterable[Any]) -> Iterator[Any]:
    for iterable in iterables:
        for value in iterable:  # noqa: UP028
            yield value


def settle(outcome: Any) -> Any:
    """What a call gave that had raised while it was recorded: (value,), or the exception that it raised."""
    if type(outcome) is tuple:
        return outcome[0]
    raise outcome


def lacks(container: Any, item: Any) -> bool:
    return item not in container


def reversed_(sequence: Sequence[Any], /) -> Iterator[Any]:
    for at in range(len(sequence) - 1, -1, -1):
        yield sequence[at]
