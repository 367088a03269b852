"""Python versions of C iterators over iterators, so that the recorder sees the frames that they call into."""

from __future__ import annotations

import operator
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
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


# itertools; used only where the next instruction takes the items


def count(start: int = 0, step: int = 1) -> Iterator[int]:
    while True:
        yield start
        start += step


def cycle(iterable: Iterable[Any], /) -> Iterator[Any]:
    saved = []
    for value in iterable:
        saved.append(value)
        yield value
    while saved:
        for value in saved:
            yield value


def _as_times(value: Any) -> int:
    """What C code reads as a Py_ssize_t."""
    number = operator.index(value)
    if number > sys.maxsize or number < -sys.maxsize - 1:
        raise OverflowError("Python int too large to convert to C ssize_t")
    return number


def _as_count(value: Any, problem: str) -> int:
    """What C code reads as a Py_ssize_t that may not be negative."""
    number = _as_times(value)
    if number < 0:
        raise ValueError(problem)
    return number


def permutations(iterable: Iterable[Any], r: int | None = None) -> Iterator[tuple[Any, ...]]:
    pool = tuple(iterable)
    if r is not None:
        r = _as_count(r, "r must be non-negative")
    for chosen in _orders(len(pool), len(pool) if r is None else r, ()):
        yield tuple([pool[at] for at in chosen])


def _orders(n: int, r: int, taken: tuple[int, ...]) -> list[tuple[int, ...]]:
    if r == 0:
        return [taken]
    made = []
    for at in range(n):
        if at not in taken:
            made.extend(_orders(n, r - 1, (*taken, at)))
    return made


def compress(data: Iterable[Any], selectors: Iterable[Any]) -> Iterator[Any]:
    for value, selected in zip(data, selectors):  # noqa: B905
        if selected:
            yield value


def chain_from_iterable(iterables: Iterable[Iterable[Any]], /) -> Iterator[Any]:
    for iterable in iterables:
        for value in iterable:  # noqa: UP028
            yield value


def product(*iterables: Iterable[Any], repeat: int = 1) -> Iterator[tuple[Any, ...]]:
    made: list[tuple[Any, ...]] = [()]
    times = _as_count(repeat, "repeat argument cannot be negative")
    pools = [tuple(iterable) for iterable in iterables] * times
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
    for values in _choices(tuple(iterable), _as_count(r, "r must be non-negative"), 0, False):  # noqa: UP028
        yield values


def combinations_with_replacement(iterable: Iterable[Any], r: int) -> Iterator[tuple[Any, ...]]:
    for values in _choices(tuple(iterable), _as_count(r, "r must be non-negative"), 0, True):  # noqa: UP028
        yield values


def islice(iterable: Iterable[Any], /, *bounds: int | None) -> Iterator[Any]:
    # Which of two numbers is wrong is said as CPython does: -1 is its own sign of an error.
    limits = slice(*bounds)
    start, stop, step = limits.start, limits.stop, limits.step
    limit = "must be None or an integer: 0 <= x <= sys.maxsize."
    if stop is not None and (stop == -1 or stop > sys.maxsize or stop < -sys.maxsize - 1):
        raise ValueError(f"Stop argument for islice() {limit}")
    if (start is not None and (start < 0 or start > sys.maxsize)) or (stop is not None and stop < 0):
        raise ValueError(f"Indices for islice() {limit}")
    if step is not None and (step < 1 or step > sys.maxsize):
        raise ValueError("Step for islice() must be a positive integer or None.")
    step = 1 if step is None else step
    iterator = iter(iterable)
    at, following = 0, 0 if start is None else start
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
    for _ in range(_as_times(times)):
        yield value


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
        self.iterators = [iter(iterable) for iterable in iterables]

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.function(*[next(iterator) for iterator in self.iterators])


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


class groupby:
    """itertools.groupby(), where whatever takes its items follows at once. The groups, which a program may keep, are
    stand-ins: a trace that would hand one out ends (csrc/capture/stand_ins.h)."""

    def __init__(self, iterable: Iterable[Any], key: Callable[[Any], Any] | None = None) -> None:
        self.iterator = iter(iterable)
        self.key = key
        self.value = self.current = self.target = _MISSING
        self.turn = 0  # of the group that is under way; not the group itself, which holds this

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.turn += 1
        while self.current is _MISSING or (self.target is not _MISSING and _same(self.target, self.current)):
            self.advance()
        self.target = self.current
        return self.current, _group(self, self.target)

    def advance(self) -> None:
        value = next(self.iterator)
        current = value if self.key is None else self.key(value)
        self.value, self.current = value, current


class _group:
    _kintsugi_stand_in = True

    def __init__(self, parent: groupby, target: Any) -> None:
        self.parent = parent
        self.target = target
        self.turn = parent.turn

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        parent = self.parent
        if parent.turn != self.turn:
            raise StopIteration
        if parent.value is _MISSING:
            parent.advance()
        if not _same(self.target, parent.current):
            raise StopIteration
        value = parent.value
        parent.value = parent.current = _MISSING
        return value


def _same(a: Any, b: Any) -> bool:
    return a is b or bool(a == b)


class _compared:
    """A key of functools.cmp_to_key(): a stand-in, as sorted() and its like drop theirs."""

    _kintsugi_stand_in = True

    def __init__(self, compare: Callable[[Any, Any], Any], value: Any) -> None:
        self.compare = compare
        self.value = value

    def __lt__(self, other: Any) -> Any:
        return self.compare(self.value, other.value) < 0

    def __gt__(self, other: Any) -> Any:
        return self.compare(self.value, other.value) > 0

    def __le__(self, other: Any) -> Any:
        return self.compare(self.value, other.value) <= 0

    def __ge__(self, other: Any) -> Any:
        return self.compare(self.value, other.value) >= 0

    def __eq__(self, other: Any) -> Any:
        return self.compare(self.value, other.value) == 0

    __hash__ = None  # type: ignore[assignment]


def compared(compare: Callable[[Any, Any], Any], value: Any, /) -> Any:
    return _compared(compare, value)


def chain(*iterables: Iterable[Any]) -> Iterator[Any]:
    for iterable in iterables:
        for value in iterable:  # noqa: UP028
            yield value


# The result of reversed(), made again from its items as they come.


def turned_tuple(items: tuple[Any, ...], /) -> Iterator[Any]:
    backwards = items[::-1]
    made: Iterator[Any] = reversed(backwards)
    return made


_FRESH: dict[str, Callable[[], Iterator[Any]]] = {
    "list": lambda: iter([]),
    "tuple": lambda: iter(()),
    "turned list": lambda: reversed([]),
    "turned tuple": lambda: reversed(()),
    "keys": lambda: iter({}),
    "values": lambda: iter({}.values()),
    "items": lambda: iter({}.items()),
    "ordered": lambda: iter(OrderedDict()),
    "set": lambda: iter(set()),
    "bytes": lambda: iter(b""),
    "ascii": lambda: iter(""),
    "text": lambda: iter("\N{EM DASH}"),
}


def ended(kind: str, /) -> Iterator[Any]:
    """An iterator of a builtin type that has ended, and has no container any more."""
    iterator = _FRESH[kind]()
    for _ in iterator:
        pass
    return iterator


def reversed_(sequence: Sequence[Any], /) -> Iterator[Any]:
    return from_the_end(sequence, len(sequence))


def from_the_end(sequence: Sequence[Any], length: int, /) -> Iterator[Any]:
    for at in range(length - 1, -1, -1):
        yield sequence[at]


def delegate(iterable: Iterable[Any], /) -> Any:
    """What `yield from` does with an iterator of C code, a step an item: it is sent to, thrown into and closed."""
    iterator = iter(iterable)
    kind = type(iterator)
    if hasattr(kind, "close") or hasattr(kind, "throw") or hasattr(kind, "send"):
        return (yield from _delegate_all(iterator))
    yield from _delegate_items(iterator)


def _delegate_items(iterator: Iterator[Any]) -> Any:
    while True:
        item = next(iterator, _MISSING)
        if item is _MISSING:
            return
        sent = yield item
        if sent is not None:
            iterator.send(sent)  # type: ignore[attr-defined]  # it has none, and says so


def _delegate_all(iterator: Any) -> Any:
    sent = None
    while True:
        try:
            item = next(iterator) if sent is None else iterator.send(sent)
        except StopIteration as end:
            return end.value
        while True:
            try:
                sent = yield item
                break
            except BaseException as error:
                thrown = error
            # Outside of the handler, so that what this raises has no other context.
            try:
                ended, item = _throw_into(iterator, thrown)
            finally:
                del thrown
            if ended:
                return item


def _throw_into(iterator: Any, error: BaseException) -> tuple[bool, Any]:
    """Whether the iterator has ended by it, and what it gives."""
    name = "close" if isinstance(error, GeneratorExit) else "throw"
    method = getattr(iterator, name, None)
    if method is not None and name == "throw":
        try:
            return False, method(error)
        except StopIteration as end:
            return True, end.value
    if method is not None:
        method()
    raise error


def _notes_elements() -> bool:
    """Does this CPython's dict() say in a note which element is no sequence? From 3.14 on."""
    try:
        dict([1])  # type: ignore[arg-type]
    except TypeError as error:
        return bool(getattr(error, "__notes__", ()))
    return False


_NOTES_ELEMENTS = _notes_elements()


def items_of_pair(pair: Any, at: int) -> list[Any]:
    """What dict() takes for a key and its value."""
    try:
        return list(iter(pair))  # the length of `pair` is not asked for
    except TypeError:
        said = f"annot convert dictionary update sequence element #{at} to a sequence"
        error = TypeError("object is not iterable" if _NOTES_ELEMENTS else f"c{said}")
        if _NOTES_ELEMENTS:
            error.add_note(f"C{said}")
        raise error from None
