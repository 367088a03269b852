"""heapq and bisect, written in Python as the C functions do it: see _polyfills.py.

A comparison may be Python code that looks at the list, or changes it. So items are swapped step by step, are read again
after each comparison, and a list that has another length then is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def _check_length(heap: list[Any], length: int) -> None:
    if len(heap) != length:
        raise RuntimeError("list changed size during iteration")


def _swap(heap: list[Any], a: int, b: int) -> None:
    heap[a], heap[b] = heap[b], heap[a]


def _sift_down(heap: list[Any], start: int, at: int) -> None:
    length = len(heap)
    if at >= length:
        raise IndexError("index out of range")
    while at > start:
        parent = (at - 1) >> 1
        stays = not heap[at] < heap[parent]
        _check_length(heap, length)
        if stays:
            return
        _swap(heap, at, parent)
        at = parent


def _sift_up(heap: list[Any], at: int) -> None:
    length, start = len(heap), at
    if at >= length:
        raise IndexError("index out of range")
    while at < length >> 1:
        child = 2 * at + 1
        if child + 1 < length:
            if not heap[child] < heap[child + 1]:
                child += 1
            _check_length(heap, length)
        _swap(heap, at, child)
        at = child
    _sift_down(heap, start, at)


def heappush(heap: list[Any], item: Any, /) -> None:
    heap.append(item)
    _sift_down(heap, 0, len(heap) - 1)


def heappop(heap: list[Any], /) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if not heap:
        return last
    first = heap[0]
    heap[0] = last
    _sift_up(heap, 0)
    return first


def heapreplace(heap: list[Any], item: Any, /) -> Any:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _sift_up(heap, 0)
    return first


def heappushpop(heap: list[Any], item: Any, /) -> Any:
    if not heap or not heap[0] < item:
        return item
    if not heap:  # the comparison has emptied it
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _sift_up(heap, 0)
    return first


def heapify(heap: list[Any], /) -> None:
    for at in range(len(heap) // 2 - 1, -1, -1):
        _sift_up(heap, at)


def _sift_down_max(heap: list[Any], start: int, at: int) -> None:
    length = len(heap)
    if at >= length:
        raise IndexError("index out of range")
    while at > start:
        parent = (at - 1) >> 1
        stays = not heap[parent] < heap[at]
        _check_length(heap, length)
        if stays:
            return
        _swap(heap, at, parent)
        at = parent


def _sift_up_max(heap: list[Any], at: int) -> None:
    length, start = len(heap), at
    if at >= length:
        raise IndexError("index out of range")
    while at < length >> 1:
        child = 2 * at + 1
        if child + 1 < length:
            if not heap[child + 1] < heap[child]:
                child += 1
            _check_length(heap, length)
        _swap(heap, at, child)
        at = child
    _sift_down_max(heap, start, at)


def _heapify_max(heap: list[Any], /) -> None:
    for at in range(len(heap) // 2 - 1, -1, -1):
        _sift_up_max(heap, at)


def _heapreplace_max(heap: list[Any], item: Any, /) -> Any:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _sift_up_max(heap, 0)
    return first


def _heappop_max(heap: list[Any], /) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if not heap:
        return last
    first = heap[0]
    heap[0] = last
    _sift_up_max(heap, 0)
    return first


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
