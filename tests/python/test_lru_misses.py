"""Misses of functools.lru_cache() in the first call: later runs find the results, and the graph is one.

Each program exists twice, compiled and not, with caches and state of its own. After each call results, state and what
ran in misses are compared.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import describe

import kintsugi

BACKENDS = ["eager", "native"]
Calls = list[Callable[[torch.Tensor], Any]]


class World:
    """What a miss may change, and what it has seen."""

    def __init__(self) -> None:
        self.scale = 2
        self.table = {"a": 1}
        self.items = [1]
        self.weight = torch.ones(3)
        self.log: list[Any] = []

    def state(self) -> tuple[Any, ...]:
        return self.scale, dict(self.table), list(self.items), self.weight.tolist(), list(self.log)


def _changes(change: Callable[[World], Any]) -> Callable[[World], Callable[[torch.Tensor], Any]]:
    """A program that reads everything before and behind a call whose miss makes one change."""

    def program(world: World) -> Callable[[torch.Tensor], Any]:
        @functools.lru_cache
        def cached(n: int) -> int:
            world.log.append(n)
            change(world)
            return n + 1

        def f(x: torch.Tensor) -> Any:
            y = x * world.scale + world.table["a"] + world.items[-1] + world.weight
            n = cached(3)
            z = y.sin() * world.scale + len(world.table) + len(world.items) + world.weight * n
            return z * cached(3), world.scale, world.table["a"], list(world.items)

        return f

    return program


def _set_scale(world: World) -> None:
    world.scale += 1


def _set_entry(world: World) -> None:
    world.table["a"] += 1


def _add_entry(world: World) -> None:
    world.table[f"b{len(world.table)}"] = 5


def _append(world: World) -> None:
    world.items.append(7)


def _write(world: World) -> None:
    world.weight.add_(1)


def _replace(world: World) -> None:
    world.weight = torch.full((3,), 4.0)


def _resize(world: World) -> None:
    world.weight = torch.full((1,), 4.0)


def _turn(world: World) -> None:
    world.weight.unsqueeze_(0)


def _follow(world: World) -> None:
    world.weight.requires_grad_()


def _random(world: World) -> None:
    world.log.append(torch.rand(()).item())


def _nothing(world: World) -> None:
    pass


def empties_itself(world: World) -> Callable[[torch.Tensor], Any]:
    @functools.lru_cache
    def cached(n: int) -> int:
        world.log.append(n)
        cached.cache_clear()
        return n + len(world.log)

    return lambda x: x * cached(2) + cached(2)


def calls_itself(world: World) -> Callable[[torch.Tensor], Any]:
    @functools.lru_cache(4)
    def cached(n: int) -> int:
        world.log.append(n)
        return n if n < 2 else cached(n - 1) + cached(n - 2)

    return lambda x: x * cached(8) + cached(3)


def more_keys_than_places(world: World) -> Callable[[torch.Tensor], Any]:
    @functools.lru_cache(2)
    def cached(n: int) -> int:
        world.log.append(n)
        return n + 1

    return lambda x: x * cached(1) + cached(2) + cached(3)


def raises_once(world: World) -> Callable[[torch.Tensor], Any]:
    @functools.lru_cache
    def cached(n: int) -> int:
        world.log.append(n)
        if len(world.log) < 3:
            raise ValueError(n)
        return n

    def f(x: torch.Tensor) -> Any:
        try:
            return x * cached(3)
        except ValueError as error:
            return x - len(str(error))

    return f


def gives_what_it_made(world: World) -> Callable[[torch.Tensor], Any]:
    @functools.lru_cache
    def cached(n: int) -> dict[str, Any]:
        return {"n": n, "seen": [], "t": torch.arange(3.0)}

    def f(x: torch.Tensor) -> Any:
        kept = cached(2)
        kept["n"] += 1
        kept["seen"].append(kept["n"])
        kept["t"].mul_(2)
        return x * kept["t"] + kept["n"], list(kept["seen"]), cached(2) is kept

    return f


def changes_what_the_call_has_made(world: World) -> Callable[[torch.Tensor], Any]:
    kept: list[torch.Tensor] = []

    @functools.lru_cache
    def cached(n: int) -> int:
        kept[-1].unsqueeze_(0)
        kept[-1].mul_(2)
        return n

    def f(x: torch.Tensor) -> Any:
        y, own = x.sin(), x.cos()
        kept.append(y)
        n = cached(3)
        return y * n + own, y.shape, own.shape, y.dim() + own.dim()

    return f


def many(world: World) -> Callable[[torch.Tensor], Any]:
    @functools.lru_cache(64)
    def cached(n: int, *more: Any, **named: Any) -> int:
        world.log.append((n, more, named))
        return n + len(more) + len(named)

    def f(x: torch.Tensor) -> Any:
        for n in range(6):
            x = (x + cached(n)).sin() * cached(n, "a", key=(n, 2))
        return x

    return f


PROGRAMS = [
    *(
        pytest.param(_changes(change), id=change.__name__.lstrip("_"))
        for change in (
            _nothing, _set_scale, _set_entry, _add_entry, _append, _write, _replace, _resize, _turn, _follow, _random,
        )
    ),
    empties_itself,
    calls_itself,
    more_keys_than_places,
    raises_once,
    gives_what_it_made,
    changes_what_the_call_has_made,
    many,
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager_mode(program: Callable[[World], Callable[[torch.Tensor], Any]], backend: str) -> None:
    worlds = (World(), World())
    f, compiled = program(worlds[0]), kintsugi.compile(program(worlds[1]), backend=backend)
    for call in range(8):
        x = torch.arange(3.0) + call
        torch.manual_seed(call)
        expected = f(x)
        torch.manual_seed(call)
        found = compiled(x)
        kintsugi.wait()
        close = backend == "native"  # one node of autograd stands for a segment
        assert describe(expected, close=close) == describe(found, close=close), f"call {call}"
        assert worlds[0].state() == worlds[1].state(), f"call {call}"


def test_misses_at_first_are_one_graph() -> None:
    seen: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        seen.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
        return graph

    compiled = kintsugi.compile(many(World()), backend=backend, fullgraph=True)
    for call in range(4):
        compiled(torch.arange(3.0) + call)
    assert seen == [18]
    assert compiled.stats().misses == 1


def test_misses_at_first_are_one_segment() -> None:
    native = kintsugi.compile(many(World()), backend="native")
    for call in range(4):
        native(torch.arange(3.0) + call)
        kintsugi.wait()
    stats = native.stats()
    assert (stats.misses, stats.native_segments, stats.native_refused) == (1, 1, 0)


def test_an_emptied_cache_is_recorded_twice() -> None:
    """A second miss of a key is a step: the trace then holds for misses and hits alike."""
    log: list[int] = []

    @functools.lru_cache
    def cached(n: int) -> int:
        log.append(n)
        return n + 1

    compiled = kintsugi.compile(lambda x: x.sin() * cached(2))
    for call in range(8):
        x = torch.arange(3.0)
        assert torch.equal(compiled(x), x.sin() * 3)
        assert len(log) == call + 1
        cached.cache_clear()
    assert compiled.stats().misses == 2


def test_another_cache_at_the_same_address_has_missed_nothing() -> None:
    seen: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        seen.append(1)
        return graph

    for _ in range(6):
        compiled = kintsugi.compile(many(World()), backend=backend)
        compiled(torch.ones(3))
        del compiled
        gc.collect()
    assert len(seen) == 6
