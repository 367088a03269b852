"""Functions whose results functools.lru_cache() keeps: a hit is read, a miss runs the program's code.

Each program exists twice with caches of its own, compiled and not. After each call the results, what ran in misses and
the counts of the caches are compared.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

BACKENDS = ["eager", "native"]
Program = tuple[Callable[..., Any], Callable[[int], Any], Any]


def _counts(cached: Any) -> Any:
    return cached.cache_info()


def shapes(log: list[Any]) -> Program:
    """What einops does: a plan for a pattern, then one for sizes."""

    class Plan:
        def __init__(self, dims: list[int]) -> None:
            self.dims = dims

    @functools.lru_cache(8)
    def plan(pattern: str, names: tuple[str, ...] = ()) -> Plan:
        log.append(("plan", pattern, names))
        return Plan([-1, *(pattern.index(c) for c in pattern if c != " ")])

    @functools.lru_cache(4)
    def sizes(plan: Plan, shape: tuple[int, ...]) -> tuple[list[int], int]:
        log.append(("sizes", shape))
        return [shape[0] * shape[1]], len(plan.dims)

    def f(x: torch.Tensor) -> torch.Tensor:
        target, n = sizes(plan("a b", names=("a",)), tuple(x.shape))
        return (x.relu().reshape(target) * n).sin()

    return f, lambda call: (torch.randn(3, 2 + (call > 5)),), (plan, sizes)


def tensors(log: list[Any]) -> Program:
    @functools.lru_cache(maxsize=None)
    def mask(n: int) -> torch.Tensor:
        log.append(n)
        return torch.ones(n, n).tril()

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ mask(x.shape[0])).relu() + mask(3).sum()

    return f, lambda call: (torch.randn(3 + call // 4, 3 + call // 4),), (mask,)


def eviction(log: list[Any]) -> Program:
    @functools.lru_cache(2)
    def table(n: int) -> int:
        log.append(n)
        return n * 10

    def f(x: torch.Tensor, k: int) -> torch.Tensor:
        return x * table(1) + table(k) + table(2)

    order = random.Random(3)
    return f, lambda call: (torch.ones(3), order.randrange(4)), (table,)


def kinds(log: list[Any]) -> Program:
    @functools.lru_cache(32, typed=True)
    def typed(value: Any, *more: Any, **named: Any) -> str:
        log.append((value, more, named))
        return f"{type(value).__name__} {more} {named}"

    @functools.lru_cache(32)
    def untyped(value: Any, *more: Any, **named: Any) -> str:
        log.append((value, more, named))
        return f"{type(value).__name__} {more} {named}"

    def f(x: torch.Tensor) -> Any:
        found = []
        for cached in (typed, untyped):
            for value in (1, True, 1.0, "1", (1, "a"), None, 0.0, -0.0, 1j, b"1", torch.float32, int):
                found.append(cached(value))
            found += [cached(1, 2), cached(1, b=2, a=1), cached(1, a=1, b=2), cached(value=1), cached(1, int)]
        return x + len(found), found

    return f, lambda call: (torch.ones(2),), (typed, untyped)


def methods(log: list[Any]) -> Program:
    class Table:
        def __init__(self, scale: int) -> None:
            self.scale = scale

        @functools.lru_cache(4)
        def of(self, n: int) -> int:
            log.append((self.scale, n))
            return self.scale * n

    held = [Table(2), Table(3)]

    def f(x: torch.Tensor, which: int) -> torch.Tensor:
        return x * held[which].of(5) + held[0].of(6)

    return f, lambda call: (torch.ones(2), call % 2), (Table.of,)


def cleared(log: list[Any]) -> Program:
    @functools.lru_cache
    def value(n: int) -> list[int]:
        log.append(n)
        return [n, len(log)]

    def f(x: torch.Tensor, clear: bool) -> torch.Tensor:
        first = value(1)[1]
        if clear:
            value.cache_clear()
        return x * first + value(1)[1]

    return f, lambda call: (torch.ones(2), call in (3, 4, 7)), (value,)


def changed_results(log: list[Any]) -> Program:
    @functools.lru_cache
    def state() -> dict[str, Any]:
        return {"scale": 2, "seen": []}

    def f(x: torch.Tensor) -> torch.Tensor:
        kept = state()
        kept["scale"] += 1
        kept["seen"].append(kept["scale"])
        log.append(len(kept["seen"]))
        return x * kept["scale"] + sum(kept["seen"])

    return f, lambda call: (torch.ones(2),), (state,)


def errors(log: list[Any]) -> Program:
    @functools.lru_cache
    def strict(n: int) -> int:
        log.append(n)
        if n > 2:
            raise ValueError(n)
        return n

    def f(x: torch.Tensor, n: Any) -> torch.Tensor:
        try:
            return x * strict(n)
        except (ValueError, TypeError) as error:
            return x - len(str(error))

    return f, lambda call: (torch.ones(2), [1, 3, [1], 2, 3][call % 5]), (strict,)


def nothing_kept(log: list[Any]) -> Program:
    @functools.lru_cache(0)
    def made(n: int) -> int:
        log.append(n)
        return n + len(log)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * made(2)

    return f, lambda call: (torch.ones(2),), (made,)


def recursive(log: list[Any]) -> Program:
    @functools.lru_cache(None)
    def fib(n: int) -> int:
        log.append(n)
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * fib(n)

    return f, lambda call: (torch.ones(2), 5 + call // 3), (fib,)


def own_keys(log: list[Any]) -> Program:
    class Key:
        def __init__(self, n: int) -> None:
            self.n = n

        def __eq__(self, other: object) -> bool:
            log.append("eq")
            return isinstance(other, Key) and self.n == other.n

        def __hash__(self) -> int:
            log.append("hash")
            return self.n

    @functools.lru_cache
    def of(key: Key) -> int:
        return key.n * 3

    keys = [Key(1), Key(1), Key(2)]

    def f(x: torch.Tensor, which: int) -> torch.Tensor:
        return x * of(keys[which])

    return f, lambda call: (torch.ones(2), call % 3), (of,)


def evicted(log: list[Any]) -> Program:
    """What is not looked into calls the function as well."""

    @functools.lru_cache(1)
    def table(n: int) -> list[int]:
        log.append(n)
        return [n, len(log)]

    @kintsugi.disable
    def others(n: int) -> None:
        table(n)

    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        first = table(1)[1]
        others(n)
        return x * first + table(1)[1]

    return f, lambda call: (torch.ones(2), [1, 1, 2, 1, 2, 2][call % 6]), (table,)


def counting() -> Any:
    """An object with a cached method: misses change the object that it is called on."""

    class Counter:
        key = torch.ones(1)

        def __init__(self) -> None:
            self.n = 0
            self.seen: list[int] = []
            self.found = {"a": 0}

        @functools.lru_cache
        def of(self, key: Any) -> int:
            self.n += 10
            self.seen.append(self.n)
            self.found["a"] = self.n
            return 3

        @property
        def three(self) -> int:
            return self.of(3)

        def state(self) -> tuple[int, ...]:
            return self.n, self.seen[0], len(self.seen), self.found["a"]

        def by_method(self, x: torch.Tensor) -> Any:
            return x * self.of(3), self.state()

        def by_property(self, x: torch.Tensor) -> Any:
            return x * self.three, self.state()

        def by_tensor(self, x: torch.Tensor) -> Any:
            return x * self.of(self.key), self.state()

    return Counter()


def evict(counter: Any) -> None:
    """Fills the cache with other entries."""
    for key in range(200, 400):
        counter.of(key)


def misses_that_write(name: str, forget: Callable[[Any], Any]) -> Callable[[list[Any]], Program]:
    def program(log: list[Any]) -> Program:
        counter = counting()

        def inputs(call: int) -> Any:
            if call in (3, 5, 6):
                forget(counter)
            return (torch.ones(3),)

        getattr(counter, name)(torch.ones(3))  # the entry is there when the first call is recorded
        return getattr(counter, name), inputs, ()

    return program


PROGRAMS = [
    shapes,
    tensors,
    eviction,
    kinds,
    methods,
    cleared,
    changed_results,
    errors,
    nothing_kept,
    recursive,
    own_keys,
    evicted,
    *(
        pytest.param(misses_that_write(name, forget), id=f"{name} {what}")
        for name in ("by_method", "by_property", "by_tensor")
        for what, forget in (("cleared", lambda counter: type(counter).of.cache_clear()), ("evicted", evict))
    ),
]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and bool(a == b)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager_mode(program: Callable[[list[Any]], Program], backend: str) -> None:
    logs: tuple[list[Any], list[Any]] = ([], [])
    sides = [program(log) for log in logs]
    compiled = kintsugi.compile(sides[1][0], backend=backend)
    for call in range(12):
        torch.manual_seed(call)
        expected = sides[0][0](*sides[0][1](call))
        torch.manual_seed(call)
        found = compiled(*sides[1][1](call))
        kintsugi.wait()
        assert _same(expected, found), f"call {call}: {found}, expected {expected}"
        assert [str(item) for item in logs[0]] == [str(item) for item in logs[1]], f"call {call}"
        assert list(map(_counts, sides[0][2])) == list(map(_counts, sides[1][2])), f"call {call}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_emptied_between_the_calls(backend: str) -> None:
    log: list[Any] = []
    f, inputs, (plan, sizes) = shapes(log)
    compiled = kintsugi.compile(f, backend=backend)
    for call in range(8):
        before = len(log)
        (x,) = inputs(0)
        torch.testing.assert_close(compiled(x), (x.relu().reshape([6]) * 3).sin())
        assert len(log) == before + (2 if call % 2 == 0 else 0)
        if call % 2:
            plan.cache_clear()
            sizes.cache_clear()
    # The first trace is of the misses that a process makes once; the second one is for hits and misses alike.
    assert compiled.stats().misses == 2


def test_hits_are_one_graph() -> None:
    f, inputs, _ = shapes([])
    seen: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        seen.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
        return graph

    f(*inputs(0))  # the entries are there
    compiled = kintsugi.compile(f, backend=backend, fullgraph=True)
    for _ in range(3):
        compiled(*inputs(0))
    assert len(seen) == compiled.stats().graph_count == 1
    native = kintsugi.compile(f, backend="native")
    for _ in range(3):
        native(*inputs(0))
        kintsugi.wait()
    assert native.stats().native_segments == 1
    assert native.stats().native_refused == 0


def test_other_threads_empty_the_cache() -> None:
    @functools.lru_cache(16)
    def table(n: int) -> tuple[int, list[int]]:
        return n, [n]

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * table(3)[0] + table(4)[1][0]

    compiled = kintsugi.compile(f, backend="eager")
    stop = threading.Event()

    def clear() -> None:
        while not stop.is_set():
            table.cache_clear()
            table(4)

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        for _ in range(400):
            assert compiled(torch.ones(2)).tolist() == [7.0, 7.0]
    finally:
        stop.set()
        thread.join()
