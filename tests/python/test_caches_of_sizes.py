"""functools.lru_cache() with keys that vary from call to call: sizes, numbers, and what a step has returned.

A run asks the cache whether it has the result. If so it goes on, and numbers in the result are numbers of the run; if
not, it leaves the trace in front of the call. Each program exists twice, compiled and not, with caches of its own.
After each call results, state, what ran in misses, and the counts of the caches are compared.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from harness import describe

import kintsugi

BACKENDS = ["eager", "native"]
SIZES = [2, 2, 3, 2, 4, 3, 4, 5, 2, 5, 6, 7, 6, 3]

Log = list[Any]
Calls = tuple[Callable[[torch.Tensor], Any], Callable[[], Any]]


def _shapes(log: Log, **options: Any) -> Calls:
    """As einops does it: lists of sizes and of axes, kept by shape."""

    @functools.lru_cache(**options)
    def plan(shape: tuple[int, ...], heads: int) -> tuple[list[int], list[int] | None, dict[str, int]]:
        log.append(shape)
        b, n, d = shape
        return [b, n, heads, d // heads], [0, 2, 1, 3], {}

    def f(x: torch.Tensor) -> Any:
        y = x * 2
        sizes, axes, added = plan(y.shape, 2)
        y = y.reshape(sizes)
        if axes is not None:
            y = y.permute(axes)
        if len(added) > 0:
            y = y + 1
        return y.sin(), sizes

    return f, plan.cache_info


def _numbers(log: Log) -> Calls:
    @functools.lru_cache(maxsize=None)
    def double(n: int, *, more: int = 0) -> int:
        log.append(n)
        return n * 2 + more

    def f(x: torch.Tensor) -> Any:
        n = double(x.shape[1])
        m = double(x.shape[1] + 1, more=3)
        return x.new_zeros(n, m) + n, x.expand(m, *x.shape).sum(0) if m < 30 else n

    return f, double.cache_info


def _identity(log: Log) -> Calls:
    """What is kept is one object, which the program may change."""

    @functools.lru_cache
    def bucket(n: int) -> list[int]:
        log.append(n)
        return []

    def f(x: torch.Tensor) -> Any:
        kept = bucket(x.shape[1])
        kept.append(len(kept))
        return x + len(kept), bucket(x.shape[1]) is kept, kept

    return f, bucket.cache_info


def _typed(log: Log) -> Calls:
    @functools.lru_cache(typed=True)
    def kind(n: Any) -> str:
        log.append(n)
        return type(n).__name__

    def f(x: torch.Tensor) -> Any:
        n = x.shape[1]
        return x + 1, kind(n), kind(n / 1), kind(n == 3)

    return f, kind.cache_info


def _method(log: Log) -> Calls:
    class Plan:
        def __init__(self, heads: int) -> None:
            self.heads = heads

        @functools.lru_cache
        def sizes(self, n: int) -> tuple[int, int]:
            log.append(n)
            return n, self.heads

    plan = Plan(2)

    def f(x: torch.Tensor) -> Any:
        a, b = plan.sizes(x.shape[1])
        return x[:, :a].repeat(b, 1, 1)

    return f, Plan.sizes.cache_info


def _recursive(log: Log) -> Calls:
    @functools.lru_cache
    def fibonacci(n: int) -> int:
        log.append(n)
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    def f(x: torch.Tensor) -> Any:
        return x * fibonacci(x.shape[1] + 3)

    return f, fibonacci.cache_info


def _raises(log: Log) -> Calls:
    @functools.lru_cache
    def even(n: int) -> int:
        log.append(n)
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n // 2

    def f(x: torch.Tensor) -> Any:
        try:
            n = even(x.shape[1])
        except ValueError as error:
            return x - 1, str(error)
        return x.narrow(1, 0, n)

    return f, even.cache_info


def _changes_what_was_read(log: Log) -> Calls:
    """A miss changes what the program has read before, and reads again."""
    state = {"scale": 1.0}
    weight = torch.ones(16)

    @functools.lru_cache
    def note(n: int) -> int:
        log.append(n)
        state["scale"] += 1
        weight.add_(1)
        return n

    def f(x: torch.Tensor) -> Any:
        before = x * state["scale"] + weight
        n = note(x.shape[1])
        return before, before * state["scale"] + weight * n

    return f, note.cache_info


def _cleared(log: Log) -> Calls:
    @functools.lru_cache
    def half(n: int) -> list[int]:
        log.append(n)
        return [n // 2, n - n // 2]

    calls = 0

    def f(x: torch.Tensor) -> Any:
        return torch.split(x, half(x.shape[1]), dim=1)

    def between() -> Any:
        nonlocal calls
        calls += 1
        if calls % 4 == 0:
            half.cache_clear()
        return half.cache_info()

    return f, between


def _of_objects(log: Log) -> Calls:
    """Keys with objects that are hashed by identity, and with objects that hash themselves."""

    class Recipe:
        pass

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def __hash__(self) -> int:
            log.append("hash")
            return hash(self.name)

        def __eq__(self, other: object) -> bool:
            log.append("equal")
            return isinstance(other, Named) and other.name == self.name

    recipe, named = Recipe(), Named("a")

    @functools.lru_cache
    def plan(key: Any, n: int) -> list[int]:
        log.append(n)
        return [n, 1]

    def f(x: torch.Tensor) -> Any:
        a, _ = plan(recipe, x.shape[1])
        b, _ = plan(named, x.shape[1] + a)
        return x * a + b

    return f, plan.cache_info


def _of_steps(log: Log) -> Calls:
    """The key is read from a tensor's contents."""

    @functools.lru_cache
    def shifted(n: int) -> tuple[int, float]:
        log.append(n)
        return n + 1, n / 2

    def f(x: torch.Tensor) -> Any:
        n, s = shifted(int(x.shape[1] * x.abs().max().ceil().item()))
        return x * s + n

    return f, shifted.cache_info


def _full(log: Log) -> Calls:
    return _shapes(log, maxsize=2)


def _keeps_nothing(log: Log) -> Calls:
    return _shapes(log, maxsize=0)


PROGRAMS = [
    _shapes,
    _numbers,
    _identity,
    _typed,
    _method,
    _recursive,
    _raises,
    _changes_what_was_read,
    _cleared,
    _of_objects,
    _of_steps,
    _full,
    _keeps_nothing,
]


def _inputs() -> Iterator[torch.Tensor]:
    torch.manual_seed(0)
    for n in SIZES:
        yield torch.randn(2, n, 16)


@pytest.mark.parametrize("backend", [*BACKENDS, "fx"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_keys_that_vary(program: Callable[[Log], Calls], backend: str) -> None:
    expected_log: Log = []
    got_log: Log = []
    eager, expected_state = program(expected_log)
    function, got_state = program(got_log)
    compiled = kintsugi.compile(function, backend=(lambda graph, _: graph) if backend == "fx" else backend)
    for x in _inputs():
        expected, got = eager(x), compiled(x)
        close = backend == "native"
        assert describe(got, close=close) == describe(expected, close=close), x.shape
        assert got_log == expected_log, x.shape
        assert got_state() == expected_state()
        if backend == "native":
            kintsugi.wait()


def test_sizes_that_have_been_met_stay_in_the_trace() -> None:
    function, _ = _shapes([])
    compiled = kintsugi.compile(function, backend="eager")
    inputs = [torch.randn(2, n, 16) for n in range(2, 10)]
    for _ in range(3):
        for x in inputs:
            compiled(x)
    exits, hits = compiled.stats().side_exits, compiled.stats().hits
    for x in inputs:
        compiled(x)
    assert compiled.stats().side_exits == exits
    assert compiled.stats().hits == hits + len(inputs)
    assert compiled.stats().recompiles <= 1


def _count_graphs(function: Callable[..., Any], sizes: list[int]) -> list[int]:
    compiled = kintsugi.compile(function, backend=lambda graph, _: graph)
    counts = []
    for n in sizes:
        x = torch.randn(2, n, 16)
        assert describe(compiled(x)) == describe(function(x))
        counts.append(compiled.stats().graph_count)
    return counts


def test_graphs_do_not_hang_on_the_sizes() -> None:
    """One for the first size, one for all others, and what met the first new key: none for each size."""
    counts = _count_graphs(_shapes([])[0], [2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 4, 5])
    assert counts[3] == 2
    assert counts[-1] == counts[7] <= 3


def test_numbers_of_steps_cut_no_graph() -> None:
    """What is asked in the middle of a graph gives it numbers."""
    log: Log = []

    @functools.lru_cache
    def pair(n: int) -> tuple[int, float]:
        log.append(n)
        return n // 2, n / 4

    def f(x: torch.Tensor) -> Any:
        y = x.sin()
        half, scale = pair(y.shape[1])
        z = y.narrow(1, 0, half) * scale
        again, _ = pair(z.shape[1])
        return z.cos() + again, z.sum()

    sizes = [4, 4, 8, 8, 8, 4, 8]
    for n in sizes:
        pair(n), pair(n // 2)
    assert _count_graphs(f, sizes)[-1] == 2


@pytest.mark.parametrize(
    "program", [_shapes, _numbers, _changes_what_was_read], ids=lambda p: p.__name__.strip("_")
)
def test_compilers_that_trace_graphs_get_them_in_pieces(program: Callable[[Log], Calls]) -> None:
    """Fake tensors do not come through a step."""
    eager, _ = program([])
    compiled = kintsugi.compile(program([])[0], backend="aot_eager")
    for x in _inputs():
        torch.testing.assert_close(compiled(x), eager(x))


def test_lists_of_steps_in_calls_of_torch() -> None:
    """Lists that Python code returns in each run: sizes are numbers of the run, and axes are compared."""
    given: list[list[int]] = [[]]

    @kintsugi.disable
    def listed() -> list[int]:
        return given[0]

    def shaped(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(listed()) + 1

    def permuted(x: torch.Tensor) -> torch.Tensor:
        return x.permute(listed()).sin()

    def split(x: torch.Tensor) -> Any:
        return x.flatten().split(listed())

    def nested(x: torch.Tensor) -> Any:
        return torch.nn.functional.pad(x, listed()), x.sum(dim=tuple(listed()[:2]))

    x = torch.arange(24.0).reshape(2, 3, 4)
    cases: list[tuple[Callable[..., Any], list[list[int]]]] = [
        (shaped, [[6, 4], [6, 4], [4, 6], [2, 12], [24], [1, 2, 12], [-1], [5, 5], [4, 6]]),
        (permuted, [[0, 1, 2], [0, 2, 1], [2, 1, 0], [0, 2, 1], [0, 0, 1], [0, 1, 2]]),
        (split, [[12, 12], [10, 14], [1, 23], [8, 8, 8], [24], [9, 9], [10, 14]]),
        (nested, [[0, 1], [1, 2], [0, 1], [1, 0], [0, 1, 1, 0]]),
    ]
    for function, values in cases:
        for backend in BACKENDS:
            compiled = kintsugi.compile(function, backend=backend)
            for value in values:
                given[0] = value
                results = []
                for call in (function, compiled):
                    try:
                        results.append(describe(call(x)))
                    except Exception as error:
                        results.append((type(error), str(error)))
                assert results[0] == results[1], (function.__name__, backend, value)


def test_a_cache_that_another_thread_empties() -> None:
    log: Log = []

    @functools.lru_cache
    def plan(n: int) -> list[int]:
        log.append(n)
        return [n, 4]

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(plan(x.shape[0])) + x.sum()

    compiled = kintsugi.compile(f, backend="eager")
    done = threading.Event()

    def clear() -> None:
        while not done.wait(0.0005):
            plan.cache_clear()

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        for i in range(400):
            x = torch.randn(2 + i % 5, 4)
            assert torch.equal(compiled(x), x + x.sum())
    finally:
        done.set()
        thread.join()
