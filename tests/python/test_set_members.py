"""`item in a_set` is guarded by that answer, not by the whole set: what else the set holds may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

BACKENDS = ["eager", "native"]
NAN = float("nan")


class Named:
    """Compared by identity."""


class Equal:
    """Its `__eq__` answers for numbers as well."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return self.n == (other.n if isinstance(other, Equal) else other)

    def __hash__(self) -> int:
        return hash(self.n)


ITEMS: list[Any] = [
    1, True, 1.0, 0, -0.0, 2**70, "a", "b" * 50, b"a", None, (1, "a"), (), 1j, torch.float32, int, Ellipsis, NAN,
    (NAN,), frozenset({1, 2}), Named(), Equal(1), -1, -2,
]  # fmt: skip


def _others(item: Any) -> list[Any]:
    return [other for other in ITEMS if other is not item]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["set", "frozenset"])
@pytest.mark.parametrize("at", range(len(ITEMS)))
def test_as_in_eager_mode(at: int, kind: str, backend: str) -> None:
    item = ITEMS[at]
    world = {"s": set(), "item": item}

    def f(x: torch.Tensor, own: Any) -> Any:
        s = world["s"]
        return x + (1 if world["item"] in s else 2), own in s, world["item"] not in s

    compiled = kintsugi.compile(f, backend=backend)
    x = torch.ones(3)
    contents: list[list[Any]] = [
        [],
        [item],
        [],
        [item, 7],
        [7],
        [8, 9],
        _others(item),
        [*_others(item), item],
        [],
    ]
    for call, held in enumerate(contents):
        if kind == "set" and call % 3:
            world["s"].clear()
            world["s"].update(held)
        else:
            world["s"] = (set if kind == "set" else frozenset)(held)
        for own in (item, 1, NAN, float("nan")):
            expected, found = f(x, own), compiled(x, own)
            kintsugi.wait()
            assert torch.equal(expected[0], found[0]), (call, own)
            assert expected[1:] == found[1:], (call, own)


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_elements_may_change(backend: str) -> None:
    names = {"sin"}

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if "sin" in names and "cos" not in names else x.cos()

    compiled = kintsugi.compile(f, backend=backend, fullgraph=True)
    x = torch.ones(3)
    for n in range(40):
        names.add(f"name {n}")
        assert torch.equal(compiled(x), x.sin())
    assert compiled.stats().misses == 1
    names.add("cos")
    assert torch.equal(compiled(x), x.cos())
    assert compiled.stats().misses == 2
    assert "without element 'cos'" in str(compiled.recompiles())
    names.discard("cos")
    assert torch.equal(compiled(x), x.sin())


def _adds(names: set[Any], x: torch.Tensor) -> Any:
    before = "new" in names
    names.add("new")
    after = "new" in names
    names.discard("old")
    return x * before + after, "old" in names


def _removes(names: set[Any], x: torch.Tensor) -> Any:
    before = "old" in names, "other" in names
    names.discard("old")
    return x + len(before), before, "old" in names, "other" in names


def _copies(names: set[Any], x: torch.Tensor) -> Any:
    mine = set(names)
    mine.add("new")
    return x + len(mine), "new" in mine, "new" in names, "old" in mine


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [_adds, _removes, _copies])
def test_sets_that_the_call_changes(program: Callable[[set[Any], torch.Tensor], Any], backend: str) -> None:
    sides: tuple[set[Any], set[Any]] = ({"old"}, {"old"})
    compiled = kintsugi.compile(program, backend=backend)
    changes: list[Callable[[set[Any]], Any]] = [
        lambda s: None,
        lambda s: s.add("old"),
        lambda s: s.discard("new"),
        lambda s: s.update(["old", "other"]),
        lambda s: s.clear(),
        lambda s: s.add("old"),
    ]
    for change in changes * 2:
        for side in sides:
            change(side)
        x = torch.ones(3)
        expected, found = program(sides[0], x), compiled(sides[1], x)
        kintsugi.wait()
        assert torch.equal(expected[0], found[0])
        assert expected[1:] == found[1:]
        assert sides[0] == sides[1]


@pytest.mark.parametrize("seed", range(4))
def test_elements_whose_hashes_collide(seed: int) -> None:
    """Probe sequences of crowded tables, with dummies of what was removed."""
    generator = torch.Generator().manual_seed(seed)
    pool = [n * 2**k for k in (0, 3, 5, 16, 61) for n in range(1, 40)]
    world: set[int] = set()
    asked = pool[7]

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + (1 if asked in world else 2)

    compiled = kintsugi.compile(f)
    x = torch.ones(2)
    for _ in range(300):
        value = pool[int(torch.randint(len(pool), (), generator=generator))]
        (world.add if torch.rand((), generator=generator) < 0.55 else world.discard)(value)
        if torch.rand((), generator=generator) < 0.3:
            (world.add if asked not in world else world.remove)(asked)
        assert torch.equal(compiled(x), f(x))
