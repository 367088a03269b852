"""Iterators are where the real ones are: C code moves them on, they end for good, and their lists change meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import harness
import pytest
import torch

import kintsugi


def zip_ends_by_the_second(x: torch.Tensor) -> Any:
    l = [x + k for k in range(5)]
    it = iter(l)
    for a, b in zip(it, [1]):
        pass
    return next(it)


def zip_asked_once_more(x: torch.Tensor) -> Any:
    l = [x + k for k in range(5)]
    it = iter(l)
    z = zip(it, [1])
    next(z)
    next(z, None)
    return next(it)


def zip_in_a_list(x: torch.Tensor) -> Any:
    l = [x + k for k in range(5)]
    it = iter(l)
    q = list(zip(it, [1]))
    return next(it)


def appended_behind_the_end(x: torch.Tensor) -> Any:
    l = [x]
    it = iter(l)
    for a in it:
        pass
    l.append(x + 1)
    return next(it, None), list(it)


def next_behind_the_end(x: torch.Tensor) -> Any:
    l = [x]
    it = iter(l)
    next(it)
    r = next(it, 7)
    l.append(x + 1)
    return next(it, None), r


def list_takes_all(x: torch.Tensor) -> Any:
    l = [x]
    it = iter(l)
    q = list(it)
    l.append(x + 1)
    return next(it, None), q


def cleared(make: Callable[[list[Any]], Iterator[Any]]) -> Callable[[torch.Tensor], Any]:
    """The list goes while its iterator waits."""

    def asked(x: torch.Tensor) -> Any:
        items = [x, x + 1, x + 2]
        it = make(items)
        next(it)
        items.clear()
        return x, next(it, None)

    asked.__name__ = f"cleared_{make.__name__}"
    return asked


def popped_and_grown(x: torch.Tensor) -> Any:
    l = [x, x + 1, x + 2]
    it = iter(l)
    next(it)
    next(it)
    l.pop()
    l.pop()
    a = next(it, None)
    l.append(x)
    l.append(x)
    l.append(x + 7)
    return a, next(it, 5), list(it)


def emptied_and_extended(x: torch.Tensor) -> Any:
    l = [x, x + 1, x + 2]
    it = iter(l)
    next(it)
    next(it)
    l.pop()
    l.pop()
    r = list(it)
    l.extend([x, x, x])
    return r, list(it)


def summed(x: torch.Tensor) -> Any:
    d = [x, x + 1]
    i = iter(d)
    s = sum(i)
    d.append(x)
    return s, sum(i, x)


def grows_while_read(x: torch.Tensor) -> Any:
    l = [1, 2, x]
    for v in l:
        if isinstance(v, int) and v < 2:
            l.append(x + v)
        if len(l) > 6:
            break
    return l


def cleared_by_the_other_iterator(x: torch.Tensor) -> Any:
    l = [x, x + 1]
    z = list(zip(l, map(lambda v: l.clear(), [1, 2])))
    return z


def unpacked(x: torch.Tensor) -> Any:
    l = [x, x + 1]
    it = iter(l)
    a, b = it
    l.append(x)
    return a, b, next(it, 3)


def max_takes_all(x: torch.Tensor) -> Any:
    l = [x, x + 1]
    it = iter(l)
    m = max(it, key=lambda t: t.sum().item())
    l.append(x)
    return m, next(it, 3)


def default_among_the_items(x: torch.Tensor) -> Any:
    l = [x, None]
    it = iter(l)
    next(it)
    return next(it, None), next(it, None)


def zip_of_an_emptied_list(x: torch.Tensor) -> Any:
    items = [1, 2, 3]
    it = zip(items, [7, 8])
    next(it)
    items.clear()
    return x, next(it, None), next(it, None)


def emptied_in_a_loop(x: torch.Tensor) -> Any:
    items = [x, x + 1]
    it = iter(items)
    for _ in it:
        items.clear()
    return x, next(it, None)


def enumerate_that_has_ended(x: torch.Tensor) -> Any:
    items = [x, x + 1]
    it = enumerate(items)
    taken = list(it)
    items.append(x + 4)
    return taken, next(it, 0)


def zip_loop_empties(x: torch.Tensor) -> Any:
    items = [x, x + 1]
    seen = []
    for pair in zip(items, map(lambda v: items.clear(), [1, 2])):
        seen.append(pair)
    return seen, dict(zip([1, 2, 3], iter([x, x])))


def interleaved(x: torch.Tensor) -> Any:
    it = iter([x + k for k in range(7)])
    pairs = list(zip(it, it, strict=False))
    more = iter([x * k for k in range(9)])
    first = [t for _, t in zip(range(3), more)]
    return pairs, next(it, None), first, list(more)


def changed_behind_reversed(x: torch.Tensor) -> Any:
    items = [x, x + 1, x + 2]
    it = reversed(items)
    first = next(it)
    items[0] = x * 9
    second = next(it)
    return first, second, next(it), next(it, None)


class Takes:
    """Takes an item of the iterator `it` of an outer frame when it ends."""

    def __del__(self) -> None:
        frame = sys._getframe(1)
        while frame is not None and "it" not in frame.f_locals:
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None:
            next(frame.f_locals["it"])

    def __bool__(self) -> bool:
        return True


def given(taker: Takes) -> int:
    return 1


def ends_when_a_callee_returns(x: torch.Tensor) -> Any:
    it = iter((1, 2, 3, 4, 5))
    y = x + 1
    given(Takes())
    return y, list(it)


def ends_at_the_end_of_a_callee_and_is_given_back(x: torch.Tensor) -> Any:
    it = iter([1, 2, 3, 4, 5])
    y = x + 1
    given(Takes())
    return y, it


def ends_when_a_variable_is_set(x: torch.Tensor) -> Any:
    it = iter([1, 2, 3, 4, 5])
    y = x + 1
    taker: Any = Takes()
    taker = None
    return y, it, taker


def ends_when_it_is_popped(x: torch.Tensor) -> Any:
    it = iter([1, 2, 3, 4, 5])
    y = x + 1
    Takes()
    return y, it


def ends_when_it_has_been_asked_for_its_truth(x: torch.Tensor) -> Any:
    it = iter([1, 2, 3, 4, 5])
    y = x + 1
    if Takes():
        y = y * 2
    return y, it


PROGRAMS: list[Callable[[torch.Tensor], Any]] = [
    *(cleared(make) for make in (iter, enumerate, reversed, zip)),
    zip_ends_by_the_second,
    zip_asked_once_more,
    zip_in_a_list,
    appended_behind_the_end,
    next_behind_the_end,
    list_takes_all,
    popped_and_grown,
    emptied_and_extended,
    summed,
    grows_while_read,
    cleared_by_the_other_iterator,
    unpacked,
    max_takes_all,
    default_among_the_items,
    zip_of_an_emptied_list,
    emptied_in_a_loop,
    enumerate_that_has_ended,
    zip_loop_empties,
    interleaved,
    changed_behind_reversed,
    ends_when_a_callee_returns,
    ends_at_the_end_of_a_callee_and_is_given_back,
    ends_when_a_variable_is_set,
    ends_when_it_is_popped,
    ends_when_it_has_been_asked_for_its_truth,
]


def finished(result: Any) -> Any:
    """With what its iterators have still to give."""
    if isinstance(result, tuple):
        return tuple(list(part) if isinstance(part, Iterator) else part for part in result)
    return result


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_in_eager_mode(program: Callable[[torch.Tensor], Any], backend: str) -> None:
    compiled = kintsugi.compile(program, backend=backend)
    for k in range(4):
        x = torch.arange(2.0) + k
        try:
            expected: Any = harness.describe(finished(program(x)), close=True)
        except Exception as error:
            with pytest.raises(type(error), match=str(error)):
                compiled(x)
            continue
        assert harness.describe(finished(compiled(x)), close=True) == expected


def test_loops_over_zip_and_enumerate_are_one_trace() -> None:
    def program(x: torch.Tensor) -> Any:
        pairs = [a * b for a, b in zip(reversed([x, x + 1]), (1, 2), strict=True)]
        return [*pairs, *(a + k for k, a in enumerate([x, x]))], dict(zip("ab", [x, x], strict=True))

    compiled = kintsugi.compile(program, backend="eager")
    compiled(torch.ones(2))
    assert compiled.stats().trace_count == 1 and compiled.breaks() == []
