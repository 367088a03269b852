"""The cache of root traces: order, limit, shapes, reasons, threads, and finalizers that call back into it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from harness import in_threads

gt = pytest.importorskip("kintsugi._C").guard_testing


def add(
    cache: Any, value: Any, name: str | None = None, args: int = 1, kwnames: tuple[str, ...] = ()
) -> None:
    b = gt.GuardBuilder()
    source = b.source("arg", index=0)
    b.guard("type", source, key=type(value))
    b.guard("equals", source, key=value)
    b.build_into(cache, name or str(value), args, kwnames)


def test_hits_and_misses() -> None:
    cache = gt.TraceCache()
    assert cache.lookup((1,)) is None
    for i in range(3):
        add(cache, i)
    assert [cache.lookup((i,)) for i in (0, 1, 2, 3, True)] == ["0", "1", "2", None, None]
    assert cache.stats() == {"hits": 3, "misses": 3, "recompiles": 2, "evictions": 0, "busy": 0, "traces": 3}


def test_order_follows_hits() -> None:
    cache = gt.TraceCache()
    for i in range(3):
        add(cache, i)
    for _ in range(5):
        cache.lookup((2,))
    assert cache.order() == ["2", "0", "1"]
    for _ in range(3):
        cache.lookup((1,))
    assert cache.order() == ["2", "1", "0"]


def test_the_least_recently_used_goes() -> None:
    cache = gt.TraceCache(2)
    add(cache, 0)
    add(cache, 1)
    for _ in range(100):
        cache.lookup((0,))
    cache.lookup((1,))
    cache.lookup((0,))
    add(cache, 2)
    assert cache.lookup((1,)) is None
    assert cache.lookup((0,)) == "0" and cache.lookup((2,)) == "2"
    for i in range(100):  # a new value never condemns the callable to eager
        add(cache, i)
        assert cache.lookup((i,)) == str(i)
    assert cache.stats()["traces"] == 2


def test_shapes_of_calls() -> None:
    cache = gt.TraceCache()
    add(cache, 1, "one")
    add(cache, 1, "two", args=2)
    add(cache, 1, "k", args=1, kwnames=("k",))
    add(cache, 1, "j", args=1, kwnames=("".join("j"),))
    add(cache, 1, "jk", args=1, kwnames=("j", "k"))
    assert cache.lookup((1,)) == "one"
    assert cache.lookup((1, 2)) == "two"
    assert cache.lookup((1, 2), ("k",)) == "k"
    assert cache.lookup((1, 2), ("j",)) == "j"
    assert cache.lookup((1, 2, 3), ("j", "k")) == "jk"
    assert cache.lookup((1, 2, 3), ("k", "j")) is None
    assert cache.lookup((1, 2, 3)) is None
    assert cache.lookup(()) is None


def test_reasons_of_a_miss() -> None:
    cache = gt.TraceCache()
    add(cache, 1, "f")
    add(cache, "a", "g", kwnames=("k",))
    reasons = cache.explain((2,))
    assert reasons[0][0] == "test.py:1 f" and "== 1" in reasons[0][1] and reasons[0][2] == "2"
    assert (
        reasons[1][1] == "1 positional arguments and keywords k" and reasons[1][2] == "1 positional arguments"
    )
    cache.kill("f")
    assert cache.explain((1,))[0][2] == "one of them is gone"


def test_dead_traces() -> None:
    cache = gt.TraceCache()
    add(cache, 1, "a")
    add(cache, 1, "b")
    cache.kill("a")
    assert cache.lookup((1,)) == "b"
    assert cache.lookup((2,)) is None
    assert cache.order() == ["b"]


def test_one_recording_at_a_time() -> None:
    cache = gt.TraceCache()
    assert cache.begin_recording()
    assert not cache.begin_recording()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(cache.begin_recording()))
    thread.start()
    thread.join()
    assert seen == [False] and cache.stats()["busy"] == 2
    cache.end_recording()
    assert cache.begin_recording()
    gt.TraceCache.forget_recordings()
    assert cache.begin_recording()


def test_clear_all_with_finalizers_that_use_the_cache() -> None:
    cache, other = gt.TraceCache(), gt.TraceCache()

    class Nuisance:
        def __del__(self) -> None:
            add(cache, 5)
            cache.lookup((5,))
            other.clear()

    for c in (cache, other):
        b = gt.GuardBuilder()
        b.guard("is", b.source("arg", index=0), key=Nuisance())
        b.build_into(c, "nuisance")
    gt.TraceCache.clear_all()
    assert cache.stats()["traces"] == 0 and other.stats()["traces"] == 0


def test_threads() -> None:
    cache = gt.TraceCache(4)
    values = list(range(6))
    recorded = [0]

    def work(seed: int, calls: int = 300) -> None:
        for i in range(calls):
            value = values[(seed + i) % len(values)]
            name = cache.lookup((value,))
            assert name in (None, str(value))
            if name is None and cache.begin_recording():
                try:
                    add(cache, value)
                    recorded[0] += 1
                finally:
                    cache.end_recording()
            if i % 100 == 50:
                cache.explain((value,))
            if i % 150 == 149:
                cache.clear()

    in_threads(32, work)
    stats = cache.stats()
    assert stats["hits"] + stats["misses"] == 32 * 300
    assert stats["traces"] <= 4
