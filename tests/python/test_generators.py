"""Generators of a compiled function: exits while they run, items for every kind of consumer, and what is dropped.

Each program runs over inputs that go all ways, again and again: results, output and exceptions are eager's in each
call, there is one trace tree, and in the end no guard leaves it any more.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import heapq
import inspect
import io
import itertools
import sys
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
import torch

import kintsugi

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {}
NOT_WHOLE = set()  # results have to be right, but there are recordings that end, or exits that nobody records


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS[function.__name__] = function
    return function


def split_program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    NOT_WHOLE.add(function.__name__)
    return program(function)


def signs(x: torch.Tensor, n: int = 3) -> Iterator[torch.Tensor]:
    for i in range(n):
        if x[i].sum() > 0:
            yield x[i] + 1
        else:
            yield x[i] - 1


@program
def for_loop(x: torch.Tensor) -> Any:
    total = torch.zeros(4)
    for v in signs(x):
        total = total + v if v.sum() > 0 else total - v
    return total


@program
def generator_expression(x: torch.Tensor) -> Any:
    return sum(v.sum() for v in signs(x) if v.max() > 1)


@program
def comprehensions(x: torch.Tensor) -> Any:
    return [v * 2 for v in signs(x)], {i: v for i, v in enumerate(signs(x, 2))}, [*signs(x, 2)]


@program
def consumers(x: torch.Tensor) -> Any:
    numbers = (float(v.sum()) for v in signs(x))
    names = ("p" if v.sum() > 0 else "n" for v in signs(x))
    return (
        max(v.sum() for v in signs(x)),
        min((v.sum() for v in signs(x)), default=None),
        tuple(v.mean() for v in signs(x)),
        "-".join(names),
        any(v.sum() > 3 for v in signs(x)),
        len(list(numbers)),
    )


@program
def enumerate_and_zip(x: torch.Tensor) -> Any:
    made = []
    for i, v in enumerate(signs(x), 1):
        made.append(v * i)
    for a, b in zip(signs(x), signs(-x, 2)):
        made.append(a - b)
    return made


@program
def chained(x: torch.Tensor) -> Any:
    def double(values: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
        for v in values:
            if v.sum() > 1:
                yield v
            yield v * 2

    def positive(values: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
        return (v for v in values if v[0] > 0)

    return [v.sum() for v in positive(double(signs(x)))]


@program
def delegation(x: torch.Tensor) -> Any:
    def inner(v: torch.Tensor) -> Generator[torch.Tensor, None, str]:
        if v.sum() > 0:
            yield v
        yield v + 1
        return "inner" if v.max() > 1 else "done"

    def outer(v: torch.Tensor) -> Generator[Any, None, torch.Tensor]:
        said = yield from inner(v)
        yield said
        yield from [v, v * 2]
        said = yield from inner(-v)
        yield said
        return v.sum()

    return list(outer(x[0]))


@program
def return_value(x: torch.Tensor) -> Any:
    def body(v: torch.Tensor) -> Generator[torch.Tensor, None, str]:
        yield v
        return "up" if v.sum() > 0 else "down"

    g = body(x)
    next(g)
    try:
        next(g)
    except StopIteration as stop:
        return stop.value, next(g, "over")
    return None


@program
def send(x: torch.Tensor) -> Any:
    def running() -> Generator[torch.Tensor, torch.Tensor, None]:
        total = torch.zeros(4)
        while True:
            v = yield total
            total = total + v if v.sum() > 0 else total * 2

    g = running()
    next(g)
    return [g.send(v) for v in (x[0], x[1], x[2])]


@program
def throw_and_close(x: torch.Tensor) -> Any:
    log: list[Any] = []

    def worker(v: torch.Tensor) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield v
                except ValueError as error:
                    log.append(str(error))
                log.append("positive" if v.sum() > 0 else "negative")
                v = v + 1
        finally:
            log.append("closed")

    g = worker(x)
    next(g)
    y = g.throw(ValueError("thrown"))
    if y.sum() > 2:
        log.append("large")
    g.close()
    return y, log


@program
def nothing_left(x: torch.Tensor) -> Any:
    g = signs(x, 1)
    first = next(g)
    other = next(g, None)
    if first.sum() > 1:
        return first, other, next(g, "none")
    return other, first


@contextlib.contextmanager
def announced(x: torch.Tensor, log: list[Any]) -> Iterator[torch.Tensor]:
    print("enter", "high" if x.sum() > 0 else "low")
    try:
        yield x * 2
    finally:
        if x.max() > 1.5:
            log.append("big")
        print("leave", "high" if x.min() > -2 else "low")


@program
def context_manager(x: torch.Tensor) -> Any:
    log: list[Any] = []
    with announced(x[0], log) as a, announced(x[1], log) as b:
        if a.sum() > b.sum():
            log.append("a")
    return a + b, log


@split_program
def context_manager_that_catches(x: torch.Tensor) -> Any:
    log = []

    @contextlib.contextmanager
    def guard(v: torch.Tensor) -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            log.append(error.args)
        log.append("after" if v.sum() > 0 else "behind")

    with guard(x):
        if x[0].sum() > 0:
            raise KeyError("positive")
        log.append("quiet")
    return log


@program
def exceptions_cross(x: torch.Tensor) -> Any:
    def failing(v: torch.Tensor) -> Iterator[torch.Tensor]:
        try:
            yield v
            if v.sum() > 0:
                raise ValueError("in the generator")
            yield v + 1
        finally:
            v = v + 2

    made = []
    try:
        for v in failing(x[0]):
            made.append(v)
    except ValueError as error:
        made.append(error.args)
    try:
        made.append(sum(v.sum() for v in failing(x[1])))
    except ValueError:
        made.append("sum")
    return made


@program
def finally_and_break(x: torch.Tensor) -> Any:
    log = []

    def rows() -> Iterator[torch.Tensor]:
        try:
            for i in range(4):
                yield x[i]
        finally:
            log.append("closed")

    for row in rows():
        if row.sum() > 0:
            log.append("found")
            break
    else:
        log.append("none")
    log.append("after")
    return log


@program
def dropped(x: torch.Tensor) -> Any:
    log = []

    def inner(name: str) -> Iterator[int]:
        try:
            yield 1
        finally:
            log.append("inner " + name)

    def outer(name: str) -> Iterator[int]:
        try:
            yield from inner(name)
        finally:
            log.append("outer " + name)

    def around(name: str) -> Iterator[int]:
        for v in inner(name):
            yield v

    def callee() -> int:
        return next(outer("callee"))

    g = outer("g")
    next(g)
    g = around("around")
    log.append("replaced")
    next(g)
    del g
    callee()
    log.append("end" if x.sum() > 0 else "the end")
    return log


@split_program
def state_is_visible(x: torch.Tensor) -> Any:
    seen = []

    def looking() -> Iterator[Any]:
        seen.append((g.gi_running, inspect.getgeneratorstate(g), g.gi_frame.f_code.co_name))
        if x.sum() > 0:
            seen.append(g.gi_running)
        yield 1
        seen.append("resumed" if x.max() > 1 else "again")

    g = looking()
    for _ in g:
        seen.append((g.gi_running, g.gi_frame is not None))
    seen.append((g.gi_frame, g.gi_running))
    return seen


@program
def shared_between_loops(x: torch.Tensor) -> Any:
    g = signs(x, 4 if x.dim() == 2 else 0)
    made = []
    for v in g:
        if v.sum() > 0:
            break
        made.append(v)
    made.append("rest")
    made.extend(g)
    return made


class Rows:
    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.at = data, 0

    def __iter__(self) -> Rows:
        return self

    def __next__(self) -> torch.Tensor:
        if self.at == 3:
            raise StopIteration
        row = self.data[self.at]
        self.at += 1
        return row + 1 if row.sum() > 0 else row - 1


class ByIndex:
    def __init__(self, data: torch.Tensor) -> None:
        self.data = data

    def __getitem__(self, at: int) -> torch.Tensor:
        if at > 2:
            raise IndexError(at)
        return self.data[at] * 2 if self.data[at].sum() > 0 else self.data[at]


@program
def python_iterators(x: torch.Tensor) -> Any:
    made = [row.sum() for row in Rows(x)]
    made += [row.sum() for row in ByIndex(x)]
    rows = Rows(x)
    return made, next(rows), sum(row.max() for row in rows), next(rows, "end")


@program
def unpacking(x: torch.Tensor) -> Any:
    first, second, third = signs(x)
    head, *rest = signs(-x)
    try:
        one, two = signs(x)
    except ValueError as error:
        return first + second + third, head, rest, str(error)
    return one, two


@program
def itertools_of_generators(x: torch.Tensor) -> Any:
    return (
        [a + b for a, b in itertools.product(signs(x, 2), [x[0], x[1]])],
        [v.sum() for v in itertools.islice(signs(x, 4), 1, 3)],
        list(itertools.takewhile(lambda v: v.sum() > 0, signs(x))),
        [a - b for a, b in itertools.pairwise(signs(x))],
        list(itertools.accumulate(signs(x))),
        [v.sum() for v in itertools.chain.from_iterable([signs(x, 1), signs(-x, 2)])],
        [(a.sum(), b) for a, b in itertools.zip_longest(signs(x, 2), (1, 2, 3), fillvalue=x)],
    )


@program
def itertools_of_constants(x: torch.Tensor) -> Any:
    return (
        x + 1,
        list(itertools.product("ab", repeat=2)),
        list(itertools.combinations(range(4), 2)),
        list(itertools.combinations_with_replacement("abc", 2)),
        list(itertools.islice([1, 2, 3, 4, 5], None, None, 2)),
        list(itertools.islice(iter([1, 2, 3]), 2, 2)),
        list(itertools.dropwhile(lambda v: v < 2, range(4))),
        list(itertools.filterfalse(None, (0, 1, 2))),
        list(itertools.accumulate([1, 2, 3], lambda a, b: a * b, initial=2)),
        list(itertools.starmap(pow, [(2, 3), (3, 2)])),
        list(itertools.repeat("z", 2)),
        list(itertools.zip_longest([1], [2, 3], [])),
        {v for v in itertools.pairwise([1])},
    )


@program
def heaps(x: torch.Tensor) -> Any:
    values = [float(row.sum()) for row in x]
    heap: list[float] = []
    for value in values:
        heapq.heappush(heap, value)
    taken = [heapq.heappop(heap), heapq.heappushpop(heap, 0.0), heapq.heapreplace(heap, 1.0)]
    heapq.heapify(values)
    return taken, heap, values, bisect.bisect_left(sorted(values), 0.0), bisect.bisect([1, 3, 5], 3)


@program
def dictionaries(x: torch.Tensor) -> Any:
    groups = collections.defaultdict(list)
    counts: Any = collections.defaultdict(int, {"rows": 1})
    for row in x:
        key = "up" if row.sum() > 0 else "down"
        groups[key].append(row.sum())
        counts[key] += 1
    made = dict((str(i), v) for i, v in enumerate(signs(x, 2)))
    made["z"] = x[0]
    last = made.popitem()
    return groups, dict(counts), "other" in counts, made, last, dict([("a", 1), ("b", x[0])])


@program
def caught(x: torch.Tensor) -> Any:
    made: list[Any] = []
    for n in (2, 3, 4):
        try:
            made.append(x.view(n, -1).sum())
        except RuntimeError as error:
            made.append((type(error).__name__, str(error)))
    try:
        made.append(x[int(x.sum() > 0) + 3])
    except IndexError as error:
        made.append(error.args)
    return made


@program
def recursive(x: torch.Tensor) -> Any:
    def walk(v: torch.Tensor, depth: int) -> Iterator[torch.Tensor]:
        if depth == 0 or v.abs().sum() < 0.5:
            yield v
            return
        yield from walk(v / 2, depth - 1)
        for w in walk(v - 1, depth - 1):
            if w.sum() > 0:
                yield w

    return [w.sum() for w in walk(x[0], 3)]


def observe(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            result = repr(function(x.clone()))
        except Exception as error:
            frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            result = repr((type(error), error.args, [f for f in frames if f not in ("observe", "__call__")]))
    return result, out.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_path(name: str) -> None:
    function = PROGRAMS[name]
    compiled = kintsugi.compile(function, backend="eager")
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(4, 4, generator=generator) for _ in range(10)]
    exits = []
    for _ in range(10):
        for x in inputs:
            assert observe(compiled, x) == observe(function, x)
        exits.append(compiled.stats().side_exits)
    stats = compiled.stats()
    if name in NOT_WHOLE:
        return
    assert stats.trace_count == 1, (stats, compiled.breaks())
    assert exits[-1] == exits[-2], (exits, stats)


def test_contextmanager_that_prints_is_no_break() -> None:
    @contextlib.contextmanager
    def timed(name: str) -> Iterator[None]:
        print("begin", name)
        yield
        print("end", name)

    def f(x: torch.Tensor) -> torch.Tensor:
        with timed("a"):
            y = x * 2
        return y

    compiled = kintsugi.compile(f)
    for _ in range(3):
        assert observe(compiled, torch.ones(2)) == observe(f, torch.ones(2))
    assert compiled.stats().graph_break_count == 0, compiled.breaks()
    assert compiled.stats().graph_count == 1


def test_generators_are_freed_when_dropped_after_an_exit() -> None:
    def rows(x: torch.Tensor) -> Iterator[torch.Tensor]:
        try:
            for row in x:
                if row.sum() > 0:
                    yield row
        finally:
            print("freed", sys.getrefcount(x) > 0)

    def f(x: torch.Tensor) -> str:
        g = rows(x)
        next(g, None)
        print("before")
        g = None
        print("after")
        return "done"

    compiled = kintsugi.compile(f)
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        x = torch.randn(3, 2, generator=generator)
        assert observe(compiled, x) == observe(f, x)


def test_a_generator_that_raises_leaves_with_the_programs_traceback() -> None:
    def failing(x: torch.Tensor) -> Iterator[torch.Tensor]:
        yield x
        if x.sum() > 0:
            raise ValueError("positive")
        yield x

    def f(x: torch.Tensor) -> Any:
        return [v + 1 for v in failing(x)]

    compiled = kintsugi.compile(f)
    for x in (-torch.ones(2), torch.ones(2), torch.ones(2), -torch.ones(2), torch.ones(2)):
        assert observe(compiled, x) == observe(f, x)


def test_a_held_generator_that_is_dropped_with_its_holder_never_changes_a_result() -> None:
    def f(x: torch.Tensor) -> Any:
        log = []

        def rows() -> Iterator[int]:
            try:
                yield 1
            finally:
                log.append("closed")

        held = [rows(), rows()]
        next(held[0])
        held = None
        log.append("after")
        return log, x + 1

    compiled = kintsugi.compile(f)
    compiled(torch.ones(2))  # what holds a generator is followed up when the call is over, once
    for _ in range(5):
        assert repr(compiled(torch.ones(2))) == repr(f(torch.ones(2)))


def test_steps_in_a_generator_see_its_frame() -> None:
    def warning(x: torch.Tensor) -> Iterator[torch.Tensor]:
        warnings.warn("from the generator", stacklevel=1)
        yield x + 1

    def f(x: torch.Tensor) -> torch.Tensor:
        return sum(warning(x))  # type: ignore[return-value]

    compiled = kintsugi.compile(f)
    for function in (f, compiled, compiled, compiled):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            function(torch.ones(2))
        assert [(w.filename, w.lineno) for w in seen] == [(__file__, warning.__code__.co_firstlineno + 1)]


class Cache(collections.abc.Sequence):  # its __iter__ waits inside `try ... except IndexError`
    def __init__(self, items):
        self.items = items

    def __getitem__(self, index):
        return self.items[index]

    def __len__(self):
        return len(self.items)


def left_early(cache, log):
    def first(items):
        for item in items:
            return item
        return None

    held = [iter(cache), first(cache)]
    return next(held[0]) + held[1]


def left_in_a_handler(cache, log):
    def numbers():
        try:
            yield 1
            yield 2
        except GeneratorExit:
            log.append("closed")
            raise

    held = [numbers()]
    return cache[0] + next(held[0])


def test_generators_dropped_with_what_holds_them():
    """Closing the first runs none of its code, closing the second does: that call is not kept, or closes it too."""
    for function, whole in ((left_early, True), (left_in_a_handler, False)):
        compiled = kintsugi.compile(function, backend="eager")
        for number in range(4):
            ours, theirs = [], []
            cache = Cache([torch.full((2,), float(number)), torch.ones(2)])
            assert torch.equal(compiled(cache, ours), function(cache, theirs))
            assert ours == theirs
        assert (compiled.stats().hits >= 2) or not whole


def numbers_up_to(count):
    for number in range(count):
        yield number


# What the C functions refuse, or say in words of their own, where Python code of ours stands in for them.
REFUSED = {
    "sum of strings": lambda x: sum((str(i) for i in numbers_up_to(3)), ""),
    "sum of bytes": lambda x: sum((b"a" for _ in numbers_up_to(2)), b""),
    "sum of a bytearray": lambda x: sum((bytearray(b"a") for _ in numbers_up_to(2)), bytearray()),
    "sum of None": lambda x: sum(v for v in [1, None]),
    "enumerate from a float": lambda x: list(enumerate(numbers_up_to(3), 1.5)),
    "enumerate from a string": lambda x: list(enumerate(numbers_up_to(3), "a")),
    "enumerate from a bool": lambda x: list(enumerate(numbers_up_to(3), True)),
    "heappop of nothing": lambda x: heapq.heappop([]),
    "heapreplace of nothing": lambda x: heapq.heapreplace([], 1),
    "dict of numbers": lambda x: dict([1, 2]),
    "dict of a generator of numbers": lambda x: dict(numbers_up_to(3)),
    "dict of triples": lambda x: dict([(1, 2, 3)]),
    "dict of short strings": lambda x: dict(["ab", "cd"]),
    "max of nothing": lambda x: max(v for v in numbers_up_to(0)),
    "max of a mixture": lambda x: max(v for v in [1, "a"]),
    "join of numbers": lambda x: ",".join(v for v in numbers_up_to(2)),
    "set of lists": lambda x: set([v] for v in numbers_up_to(2)),
    "islice backwards": lambda x: list(itertools.islice(numbers_up_to(3), -1)),
    "starmap of numbers": lambda x: list(itertools.starmap(pow, [2])),
    "bisect of a mixture": lambda x: bisect.bisect_left([1, "a"], "b"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_by_the_c_function(name):
    def outcome(function):
        try:
            return repr(function(torch.ones(2)))
        except Exception as error:
            return type(error), str(error)

    compiled = kintsugi.compile(REFUSED[name], backend="eager")
    assert [outcome(compiled) for _ in range(3)] == [outcome(REFUSED[name])] * 3


def test_an_exception_closes_the_inner_loops_iterator_first() -> None:
    log: list[str] = []

    def items(name: str, x: torch.Tensor) -> Iterator[torch.Tensor]:
        try:
            yield x * 2
        except BaseException as error:
            log.append(f"{name} {type(error).__name__}")
            raise
        finally:
            log.append(name)

    def program(x: torch.Tensor, text: str) -> None:
        for y in items("outer", x):
            for z in items("inner", y):
                if z.shape[0] % 2 == 1:
                    break
                raise RuntimeError(text)

    compiled = kintsugi.compile(program, backend="eager")
    for call, rows in enumerate((2, 3, 2, 2, 3, 4)):
        seen = []
        for run in (program, compiled):
            try:
                run(torch.ones(rows), str(call))
                outcome = "none"
            except RuntimeError as error:
                outcome = str(error)
            seen.append((outcome, list(log)))
            log.clear()
        assert seen[0] == seen[1]


def test_a_generator_that_a_step_makes_is_captured() -> None:
    """It catches nothing: the handler that CPython 3.12 and later add to each generator does not count."""

    @kintsugi.disable
    def made(n: int) -> Any:
        return (2 * k for k in range(n))

    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * sum(made(n))

    compiled = kintsugi.compile(f)
    for _ in range(4):
        assert torch.equal(compiled(torch.ones(2), 3), f(torch.ones(2), 3))
    stats = compiled.stats()
    assert (stats.trace_count, stats.misses, stats.graph_break_count) == (1, 1, 1)
