"""What stands for C functions is in nobody's stack: code that C functions call sees its callers as in eager mode."""

from __future__ import annotations

import bisect
import collections
import functools
import heapq
import itertools
import operator
import pkgutil
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import harness
import pytest
import torch

import kintsugi

Look = Callable[[], Any]


def numbers(look: Look, count: int = 3) -> Iterator[int]:
    for k in range(count):
        look()
        yield k


class Item:
    """Its special methods look around."""

    def __init__(self, look: Look, value: int) -> None:
        self.look, self.value = look, value

    def __lt__(self, other: Item) -> bool:
        self.look()
        return self.value < other.value

    def __add__(self, other: Any) -> int:
        self.look()
        return self.value + (other.value if isinstance(other, Item) else other)

    __radd__ = __add__

    def __iadd__(self, other: Any) -> Item:
        self.look()
        return self

    def __iter__(self) -> Iterator[int]:
        self.look()
        yield from numbers(self.look, self.value)

    def __bool__(self) -> bool:
        self.look()
        return self.value > 0

    def __len__(self) -> int:
        self.look()
        return self.value

    def __getitem__(self, at: Any) -> Any:
        self.look()
        if at > 2:
            raise IndexError(at)
        return at

    def __index__(self) -> int:
        self.look()
        return self.value

    def __eq__(self, other: object) -> bool:
        self.look()
        return self is other

    def __hash__(self) -> int:
        self.look()
        return self.value


def looking(look: Look, result: Any) -> Any:
    look()
    return result


def extended(look: Look) -> list[int]:
    items: list[int] = []
    items.extend(numbers(look))
    items += numbers(look)
    return items


def sliced(look: Look) -> list[int]:
    items = [1, 2, 3]
    items[1:2] = numbers(look)
    return items


def sorted_in_place(look: Look) -> list[int]:
    items = [3, 1, 2]
    items.sort(key=lambda k: looking(look, -k))
    return items


def updated(look: Look) -> dict[int, int]:
    found: dict[int, int] = {}
    found.update((k, k) for k in numbers(look))
    return found


def heap(look: Look) -> list[int]:
    items = [Item(look, k) for k in (3, 1, 2)]
    heapq.heapify(items)
    heapq.heappush(items, Item(look, 0))
    return [heapq.heappop(items).value for _ in range(4)]


def counted(look: Look) -> dict[Any, int]:
    counts: dict[Any, int] = collections.Counter()
    counts.update(numbers(look))  # type: ignore[call-overload]
    return counts


def unpacked(look: Look) -> Any:
    first, *rest = numbers(look)
    return first, rest


def defaulted(look: Look) -> Any:
    found: Any = collections.defaultdict(lambda: looking(look, 7))
    return found["a"], dict(found)


def chained(look: Look) -> list[int]:
    return [*itertools.chain(numbers(look), numbers(look)), *itertools.chain.from_iterable([numbers(look)])]


def nested(look: Look) -> list[int]:
    return sorted(map(lambda k: looking(look, -k), filter(lambda k: looking(look, True), numbers(look))))


DRIVERS: dict[str, Callable[[Look], Any]] = {
    "list": lambda look: list(numbers(look)),
    "tuple": lambda look: tuple(numbers(look)),
    "set": lambda look: set(numbers(look)),
    "dict": lambda look: dict((k, k) for k in numbers(look)),
    "sum": lambda look: sum(numbers(look)),
    "any": lambda look: any(k > 1 for k in numbers(look)),
    "all": lambda look: all(k < 1 for k in numbers(look)),
    "max": lambda look: max(numbers(look)),
    "max by key": lambda look: max([1, 2], key=lambda k: looking(look, -k)),
    "min by key": lambda look: min([1, 2], key=lambda k: looking(look, -k)),
    "max of items": lambda look: max(Item(look, 1), Item(look, 2)).value,
    "sorted": lambda look: sorted(numbers(look)),
    "sorted by key": lambda look: sorted([2, 1], key=lambda k: looking(look, -k)),
    "sorted items": lambda look: [i.value for i in sorted([Item(look, 2), Item(look, 1)])],
    "sort": sorted_in_place,
    "map": lambda look: list(map(lambda k: looking(look, k), [1, 2])),
    "filter": lambda look: list(filter(lambda k: looking(look, k), [0, 2])),
    "nested": nested,
    "zip": lambda look: list(zip(numbers(look), numbers(look), strict=False)),
    "enumerate": lambda look: list(enumerate(numbers(look))),
    "reversed": lambda look: list(reversed(Item(look, 3))),  # type: ignore[call-overload]
    "reversed in a loop": lambda look: [k for k in reversed(Item(look, 3))],  # type: ignore[call-overload]
    "reversed beside": lambda look: list(zip(reversed(Item(look, 3)), Item(look, 2))),  # type: ignore[call-overload]
    "next": lambda look: next(numbers(look)),
    "join": lambda look: ",".join(str(k) for k in numbers(look)),
    "extend": extended,
    "slice": sliced,
    "update": updated,
    "count": counted,
    "unpack": unpacked,
    "star": lambda look: operator.add(*numbers(look, 2)),
    "partial": lambda look: functools.partial(looking, look)(3),
    "reduce": lambda look: functools.reduce(lambda a, b: looking(look, a + b), [1, 2, 3]),
    "operator": lambda look: operator.add(Item(look, 1), 2),
    "operator from the right": lambda look: operator.add(1, Item(look, 2)),
    "operator in place": lambda look: operator.iadd(Item(look, 1), 2).value,
    "sum of items": lambda look: sum([Item(look, 1), Item(look, 2)]),  # type: ignore[list-item]
    "items": lambda look: list(Item(look, 2)),
    "truth": lambda look: bool(Item(look, 2)) and not Item(look, 0),
    "length": lambda look: len(Item(look, 2)),
    "index": lambda look: [5, 6, 7][Item(look, 2)],
    "in": lambda look: 2 in Item(look, 3),
    "equal": lambda look: [Item(look, 1)] == [Item(look, 1)],
    "heap": heap,
    "bisect": lambda look: bisect.bisect_left([1, 2, 3], 2, key=lambda k: looking(look, k)),
    "default": defaulted,
    "chain": chained,
    "islice": lambda look: list(itertools.islice(numbers(look), 2)),
    "accumulate": lambda look: list(itertools.accumulate(numbers(look), lambda a, b: looking(look, a + b))),
    "takewhile": lambda look: list(itertools.takewhile(lambda k: looking(look, k < 1), numbers(look))),
    "dropwhile": lambda look: list(itertools.dropwhile(lambda k: looking(look, k < 1), numbers(look))),
    "starmap": lambda look: list(itertools.starmap(lambda a, b: looking(look, a), [(1, 2)])),
    "groupby": lambda look: [(k, list(g)) for k, g in itertools.groupby([1, 2], lambda k: looking(look, k))],
    "zip_longest": lambda look: list(itertools.zip_longest(numbers(look), numbers(look, 1))),
    "pairwise": lambda look: list(itertools.pairwise(numbers(look))),
    "product": lambda look: list(itertools.product(numbers(look), [1])),
}


def frames(log: list[Any]) -> Look:
    """The functions and lines of all callers up to the program."""

    def look() -> None:
        frame = sys._getframe(1)
        found = []
        while frame is not None and frame.f_code.co_name != "program":
            found.append((frame.f_code.co_name, frame.f_lineno))
            frame = frame.f_back  # type: ignore[assignment]
        log.append(found)

    return look


def warn(level: int) -> Callable[[list[Any]], Look]:
    def looker(log: list[Any]) -> Look:
        def look() -> None:
            warnings.warn(f"looks {level} up", stacklevel=level)

        return look

    return looker


LOOKERS: dict[str, Callable[[list[Any]], Look]] = {
    "frames": frames,
    "warns 2": warn(2),
    "warns 3": warn(3),
    "warns 4": warn(4),
    "warns 5": warn(5),
}


@pytest.mark.parametrize("looker", LOOKERS)
@pytest.mark.parametrize("driver", DRIVERS)
def test_callers(driver: str, looker: str) -> None:
    drive, make = DRIVERS[driver], LOOKERS[looker]

    def start() -> tuple[Any, ...]:
        log: list[Any] = []
        look = make(log)

        def program(x: torch.Tensor) -> Any:
            y = x * 2
            found = drive(look)
            return y + 1, found

        return program, log

    case = harness.Case(start, harness.floats((2, 3)), lambda call: {}, True, 4, None, None, False)
    harness.check(case, harness.compile_for_test)


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


MODULES = [
    module for module in pkgutil.iter_modules(kintsugi.__path__) if module.name.startswith("_polyfill")
]


@pytest.mark.parametrize("module", MODULES, ids=[module.name for module in MODULES])
def test_hidden_code_looks_for_no_frame_of_its_own(module: pkgutil.ModuleInfo) -> None:
    """Such a frame is not found: super() without arguments raises where CPython asks for the frame (3.12 and later: in
    its first call)."""
    spec = module.module_finder.find_spec(f"kintsugi.{module.name}", None)
    assert spec is not None and spec.loader is not None
    code = spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
    asking = {"__class__", "_getframe", "currentframe", "locals"}
    found = [
        (inner.co_qualname, name)
        for inner in codes(code)
        for name in asking & {*inner.co_names, *inner.co_freevars}
    ]
    assert found == []
