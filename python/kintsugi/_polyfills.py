"""Builtins that call back, written in Python: the recorder runs these in their place, so that it sees the calls.

Each does what the C function of CPython does, in the same order, with the same results and exceptions. Which call is
replaced, and when, is decided in csrc/capture/calls/polyfills.cc. Frames of this file leave no mark in tracebacks.
"""

from __future__ import annotations

import operator
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
    if isinstance(start, str):
        raise TypeError("sum() can't sum strings [use ''.join(seq) instead]")
    if isinstance(start, bytes):
        raise TypeError("sum() can't sum bytes [use b''.join(seq) instead]")
    if isinstance(start, bytearray):
        raise TypeError("sum() can't sum bytearray [use b''.join(seq) instead]")
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
    at = start if type(start) is int else int(operator.index(start))
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


def _items_of(pair: Any, at: int) -> list[Any]:
    try:
        return list(pair)
    except TypeError:
        raise TypeError(f"cannot convert dictionary update sequence element #{at} to a sequence") from None


def dict_(pairs: Iterable[Any], /) -> dict[Any, Any]:
    made = {}
    at = 0
    for pair in pairs:
        items = pair if isinstance(pair, (tuple, list)) else _items_of(pair, at)
        if len(items) != 2:
            raise ValueError(
                f"dictionary update sequence element #{at} has length {len(items)}; 2 is required"
            )
        made[items[0]] = items[1]
        at += 1
    return made


def count_elements(mapping: dict[Any, int], iterable: Iterable[Any], /) -> None:
    for item in iterable:
        mapping[item] = mapping.get(item, 0) + 1


def default_item(self: Any, key: Any, /) -> Any:
    """defaultdict.__missing__"""
    if self.default_factory is None:
        raise KeyError(key)
    value = self.default_factory()
    self[key] = value
    return value


# itertools, where whatever takes the items follows at once


def chain_from_iterable(iterables: Iterable[Iterable[Any]], /) -> Iterator[Any]:
    for iterable in iterables:
        for value in iterable:  # noqa: UP028
            yield value


def product(*iterables: Iterable[Any], repeat: int = 1) -> Iterator[tuple[Any, ...]]:
    made: list[tuple[Any, ...]] = [()]
    pools = [tuple(iterable) for iterable in iterables] * repeat
    for pool in pools:
        made = [(*chosen, value) for chosen in made for value in pool]
    for values in made:  # noqa: UP028
        yield values


def _choices(pool: tuple[Any, ...], r: int, at: int, again: bool) -> list[tuple[Any, ...]]:
    if r == 0:
        return [()]
    made = []
    for i in range(at, len(pool)):
        for rest in _choices(pool, r - 1, i if again else i + 1, again):
            made.append((pool[i], *rest))
    return made


def combinations(iterable: Iterable[Any], r: int) -> Iterator[tuple[Any, ...]]:
    for values in _choices(tuple(iterable), r, 0, False):  # noqa: UP028
        yield values


def combinations_with_replacement(iterable: Iterable[Any], r: int) -> Iterator[tuple[Any, ...]]:
    for values in _choices(tuple(iterable), r, 0, True):  # noqa: UP028
        yield values


def islice(iterable: Iterable[Any], /, *bounds: int | None) -> Iterator[Any]:
    limits = slice(*bounds)
    start, stop, step = limits.start or 0, limits.stop, limits.step or 1
    iterator = iter(iterable)
    at, following = 0, start
    while True:
        while at < following:
            if next(iterator, _MISSING) is _MISSING:
                return
            at += 1
        if stop is not None and at >= stop:
            return
        item = next(iterator, _MISSING)
        if item is _MISSING:
            return
        at += 1
        following += step
        if stop is not None and following > stop:
            following = stop
        yield item


def zip_longest(*iterables: Iterable[Any], fillvalue: Any = None) -> Iterator[tuple[Any, ...]]:
    iterators: list[Any] = [iter(iterable) for iterable in iterables]
    active = len(iterators)
    while active:
        items = []
        for at in range(len(iterators)):
            item = _MISSING
            if iterators[at] is not None:
                item = next(iterators[at], _MISSING)
                if item is _MISSING:
                    active -= 1
                    if active == 0:
                        return
                    iterators[at] = None
            items.append(fillvalue if item is _MISSING else item)
        yield tuple(items)


def accumulate(iterable: Iterable[Any], func: Any = None, *, initial: Any = None) -> Iterator[Any]:
    total = _MISSING if initial is None else initial
    if total is not _MISSING:
        yield total
    for value in iterable:
        if total is _MISSING:
            total = value
        else:
            total = total + value if func is None else func(total, value)
        yield total


def takewhile(predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> Iterator[Any]:
    for value in iterable:
        if not predicate(value):
            return
        yield value


def dropwhile(predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> Iterator[Any]:
    dropping = True
    for value in iterable:
        if dropping and predicate(value):
            continue
        dropping = False
        yield value


def filterfalse(predicate: Callable[[Any], Any] | None, iterable: Iterable[Any], /) -> Iterator[Any]:
    for value in iterable:
        if not (value if predicate is None else predicate(value)):
            yield value


def starmap(function: Callable[..., Any], iterable: Iterable[Any], /) -> Iterator[Any]:
    for values in iterable:
        yield function(*(values if type(values) is tuple else tuple(values)))


def pairwise(iterable: Iterable[Any], /) -> Iterator[tuple[Any, Any]]:
    last = _MISSING
    for value in iterable:
        if last is not _MISSING:
            yield last, value
        last = value


def repeat(value: Any, times: int) -> Iterator[Any]:
    for _ in range(times):
        yield value


# heapq and bisect, as the standard library has them in Python


def _sift_down(heap: list[Any], start: int, at: int) -> None:
    item = heap[at]
    while at > start:
        parent = (at - 1) >> 1
        if not item < heap[parent]:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = item


def _sift_up(heap: list[Any], at: int) -> None:
    end, start = len(heap), at
    item = heap[at]
    child = 2 * at + 1
    while child < end:
        right = child + 1
        if right < end and not heap[child] < heap[right]:
            child = right
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = item
    _sift_down(heap, start, at)


def heappush(heap: list[Any], item: Any, /) -> None:
    heap.append(item)
    _sift_down(heap, 0, len(heap) - 1)


def heappop(heap: list[Any], /) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if heap:
        first = heap[0]
        heap[0] = last
        _sift_up(heap, 0)
        return first
    return last


def heapreplace(heap: list[Any], item: Any, /) -> Any:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _sift_up(heap, 0)
    return first


def heappushpop(heap: list[Any], item: Any, /) -> Any:
    if heap and heap[0] < item:
        item, heap[0] = heap[0], item
        _sift_up(heap, 0)
    return item


def heapify(heap: list[Any], /) -> None:
    for at in range(len(heap) // 2 - 1, -1, -1):
        _sift_up(heap, at)


def bisect_right(a: Sequence[Any], x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    high = len(a) if hi is None else hi
    while lo < high:
        middle = (lo + high) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            high = middle
        else:
            lo = middle + 1
    return lo


def bisect_left(a: Sequence[Any], x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    high = len(a) if hi is None else hi
    while lo < high:
        middle = (lo + high) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            high = middle
    return lo


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
