"""any(), all(), reduce() and sum(), written in Python as C code does it: see _polyfills.py.

From CPython 3.12 on C code adds floats with a compensation of what each addition loses, from 3.14 on complex numbers
too: `sum([0.1] * 10)` is 1.0. Such numbers are given to the real sum(), so that CPython decides how they are added.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_MISSING = object()
_sum_in_c = sum

# Types that C code adds with a compensation. A sum that has another type is added to with `+` from then on.
_COMPENSATED: tuple[type, ...] = (float, complex)[
    : (sys.version_info >= (3, 12)) + (sys.version_info >= (3, 14))
]
_LONG = 1 << 8 * 8 - 1


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
    iterator = None
    try:
        iterator = iter(sequence)
    except TypeError:
        pass
    if iterator is None:
        raise TypeError("reduce() arg 2 must support iteration")
    total = initial
    for value in iterator:
        total = value if total is _MISSING else function(total, value)
    if total is _MISSING:
        raise TypeError("reduce() of empty iterable with no initial value")
    return total


def sum_(iterable: Iterable[Any], /, start: Any = 0) -> Any:
    if isinstance(start, str):
        raise TypeError("sum() can't sum strings [use ''.join(seq) instead]")
    if isinstance(start, bytes):
        raise TypeError("sum() can't sum bytes [use b''.join(seq) instead]")
    if isinstance(start, bytearray):
        raise TypeError("sum() can't sum bytearray [use b''.join(seq) instead]")
    if _COMPENSATED and type(start) in (int, *_COMPENSATED):
        return _compensated(iter(iterable), start)
    total = start
    for value in iterable:
        total = total + value
    return total


def _compensated(iterator: Iterator[Any], start: Any) -> Any:
    total = start
    phase = type(start)  # what C code adds with a loop of its own
    going_on = True
    while going_on:
        start, begun = total, phase
        numbers: list[Any] = []
        for value in iterator:
            kind = type(value)
            if phase is int and (kind is int or kind is bool):
                total = total + value  # the sum of ints, which needs no compensation
            elif phase is int and kind is float:
                _ = total + value  # it raises here where the sum of the ints is too large
                phase = float
            elif phase is not int and issubclass(kind, int):
                _ = 0.0 + value  # the same for this one
            elif kind is not phase and not (phase is complex and issubclass(kind, float)):
                break
            numbers.append(value)
        else:
            return total if phase is int else _sum_in_c(numbers, start)
        if phase is not int:
            total = _sum_in_c(numbers, start)
        total = total + value
        # Another loop of C code may follow, as in (1, Fraction(1, 2), 0.1) none does.
        going_on = type(total) in _COMPENSATED[_COMPENSATED.index(phase) + 1 if phase is not int else 0 :]
        if going_on and begun is int:
            going_on = not _left_long(start, numbers)
        phase = type(total)
    for value in iterator:
        total = total + value
    return total


def _left_long(start: int, numbers: list[Any]) -> bool:
    """Whether the sum of the ints at the beginning leaves C's `long`. C code adds with `+` from then on."""
    total = start
    if not -_LONG <= total < _LONG:
        return True
    for value in numbers:
        if type(value) is float:
            break
        total = total + value
        if not -_LONG <= total < _LONG:
            return True
    return False
