"""A write ends an object of the program, and what runs then changes what the program reads behind it."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kintsugi

log: list[int] = []
state = {"k": 0}


class Ends:
    """Counts its end."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __del__(self) -> None:
        state["k"] = self.n
        log.append(self.n)


class Holder:
    held: Any
    other: Any
    n: int


class Slotted:
    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: Any = None


class Property:
    """Keeps what it is given under another name."""

    def __init__(self) -> None:
        self._held: Any = None

    @property
    def held(self) -> Any:
        return self._held

    @held.setter
    def held(self, value: Any) -> None:
        self._held = value


class Hooked:
    """Has a `__setattr__`."""

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


class Keeps(dict):  # type: ignore[type-arg]
    """A dict with a `__setitem__`."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)


def waits(n: int) -> Iterator[int]:
    try:
        yield n
        yield n + 1
    finally:
        state["k"] = n
        log.append(n)


def waiting(n: int) -> Iterator[int]:
    generator = waits(n)
    next(generator)
    return generator


# What makes an object whose end runs code.
MAKERS: dict[str, Callable[[int], Any]] = {
    "finalizer": Ends,
    "in a list": lambda n: [1, Ends(n)],
    "in a dict of tuples": lambda n: {"a": (Ends(n), 2)},
    "in an instance": lambda n: _holding(Ends(n)),
    "in a deque": lambda n: collections.deque([Ends(n)]),
    "twice in a tuple": lambda n: (lambda one: (one, one))(Ends(n)),
    "bound method": lambda n: Ends(n).__init__,  # type: ignore[misc]
    "closure": lambda n: (lambda one: lambda: one)(Ends(n)),
    "generator": waiting,
    "ten times in a list": lambda n: [Ends(n)] * 10,
    "half": lambda n: Ends(n) if n % 2 else None,
    "weakly watched": lambda n: _watched(n),
    "deep": lambda n: _deep(n),
}


def _holding(one: Any) -> Holder:
    holder = Holder()
    holder.held = one
    return holder


def _watched(n: int) -> Holder:
    holder = Holder()

    def ended() -> None:
        state["k"] = n
        log.append(n)

    weakref.finalize(holder, ended)
    return holder


def _deep(n: int) -> Any:
    held: Any = Ends(n)
    for _ in range(300):
        held = [held]
    return held


module_global: Any = None


Made = tuple[
    Callable[..., Any], Callable[[], None]
]  # a function of `x` and the new object, and what drops the last

PLACES: dict[str, Callable[[], Made]] = {}  # writes


def place(name: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    def add(make: Callable[[], Made]) -> Callable[[], Made]:
        PLACES[name] = make
        return make

    return add


def _attribute_of(made: Callable[[], Any]) -> Callable[[], Made]:
    def make() -> Made:
        holder = made()
        holder.held = None

        def call(x: torch.Tensor, new: Any) -> Any:
            holder.held = new
            return x * state["k"], len(log)

        return call, lambda: setattr(holder, "held", None)

    return make


def _item_of(made: Callable[[], Any], key: Any) -> Callable[[], Made]:
    def make() -> Made:
        container = made()

        def call(x: torch.Tensor, new: Any) -> Any:
            container[key] = new
            return x * state["k"], len(log)

        return call, lambda: container.__setitem__(key, None)

    return make


place("attribute")(_attribute_of(Holder))
place("slot")(_attribute_of(Slotted))
place("property")(_attribute_of(Property))
place("setattr hook")(_attribute_of(Hooked))
place("list")(_item_of(lambda: [None, 2], 0))
place("list from its end")(_item_of(lambda: [1, None], -1))
place("dict")(_item_of(lambda: {"a": None}, "a"))
place("ordered dict")(_item_of(lambda: collections.OrderedDict(a=None), "a"))
place("dict with a hook")(_item_of(lambda: Keeps(a=None), "a"))


@place("deleted attribute")
def deletes() -> Made:
    holder = Holder()
    holder.held = None

    def call(x: torch.Tensor, new: Any) -> Any:
        holder.other = new
        del new, holder.held
        y = x * state["k"]
        holder.held = holder.other
        del holder.other
        return y, len(log)

    return call, lambda: setattr(holder, "held", None)


@place("deleted key")
def deletes_key() -> Made:
    table: dict[str, Any] = {"a": None}

    def call(x: torch.Tensor, new: Any) -> Any:
        del table["a"]
        y = x * state["k"]
        table["a"] = new
        return y, len(log)

    return call, table.clear


@place("slice")
def part() -> Made:
    items: list[Any] = [None, None, 1]

    def call(x: torch.Tensor, new: Any) -> Any:
        items[:2] = [new, 2]
        return x * state["k"], len(log)

    return call, items.clear


@place("cell")
def cell() -> Made:
    held: Any = None

    def call(x: torch.Tensor, new: Any) -> Any:
        nonlocal held
        held = new
        return x * state["k"], len(log)

    def drop() -> None:
        nonlocal held
        held = None

    return call, drop


@place("global")
def of_the_module() -> Made:
    def call(x: torch.Tensor, new: Any) -> Any:
        global module_global
        module_global = new
        return x * state["k"], len(log)

    return call, lambda: globals().__setitem__("module_global", None)


@place("read before")
def read_before() -> Made:
    holder = Holder()
    holder.held = None

    def call(x: torch.Tensor, new: Any) -> Any:
        was = 0 if holder.held is None else 1
        before = state["k"], len(log)
        holder.held = new
        return x * state["k"] + was, len(log), before

    return call, lambda: setattr(holder, "held", None)


@place("decides")
def decides() -> Made:
    holder = Holder()
    holder.held = None

    def call(x: torch.Tensor, new: Any) -> Any:
        y = x.sin() + 1
        holder.held = new
        y = y.exp() if state["k"] % 2 else y.cos()
        return y + len(log), state["k"]

    return call, lambda: setattr(holder, "held", None)


@place("module")
def in_a_module() -> Made:
    net = torch.nn.Linear(3, 3)
    net.held = None  # type: ignore[assignment]

    def call(x: torch.Tensor, new: Any) -> Any:
        y = net(x)
        net.held = new
        return y * state["k"], len(log)

    return call, lambda: setattr(net, "held", None)


@place("called")
def called() -> Made:
    holder = Holder()
    holder.held = None

    def put(new: Any) -> int:
        holder.held = new
        return len(log)

    def call(x: torch.Tensor, new: Any) -> Any:
        return x + put(new), state["k"]

    return call, lambda: setattr(holder, "held", None)


@place("class attribute")
def of_a_class() -> Made:
    class Kind:
        held: Any = None

    def call(x: torch.Tensor, new: Any) -> Any:
        Kind.held = new
        return x * state["k"], len(log)

    return call, lambda: setattr(Kind, "held", None)


@place("two of a slice")
def two_of_a_slice() -> Made:
    items: list[Any] = [None, None]

    def call(x: torch.Tensor, new: Any) -> Any:
        items[:] = [new, (new,)]
        del new
        k = len(log)
        return x * state["k"], k

    return call, items.clear


@place("rounds of a loop")
def rounds() -> Made:
    holders = [Holder(), Holder(), Holder()]
    for holder in holders:
        holder.held = None

    def call(x: torch.Tensor, new: Any) -> Any:
        for holder in holders:
            holder.held = None
        k = state["k"]
        holders[k % 3].other = holders[2].held = new
        del holders[k % 3].other, new
        return x * state["k"] + k, len(log)

    return call, lambda: setattr(holders[2], "held", None)


@place("several of one instruction")
def several() -> Made:
    table: dict[str, Any] = {"a": 0, "b": None}

    def call(x: torch.Tensor, new: Any) -> Any:
        table.update(a=len(log), b=new)
        del new
        k = state["k"]
        return x * k, table["a"], len(log)

    return call, table.clear


@place("read before, in pairs")
def pairs() -> Made:
    holder = Holder()
    holder.held = [Ends(1), Ends(2)]

    def call(x: torch.Tensor, new: Any) -> Any:
        n = holder.held[0].n + holder.held[1].n
        holder.held = [Ends(n), Ends(n + 1)]
        return x * state["k"] + n, len(log)

    return call, lambda: setattr(holder, "held", None)


def _run(place: str, maker: str, compile: Callable[[Any], Any], settled: Callable[[], Any]) -> list[Any]:
    torch.manual_seed(0)
    call, drop = PLACES[place]()
    log.clear()
    state["k"] = 0
    compiled = compile(call)
    results = []
    x = torch.ones(2, 3)
    for i in range(8):
        results.append((compiled(x, MAKERS[maker](i + 10)), list(log), state["k"]))
        settled()
    drop()
    results.append((None, list(log), state["k"]))
    return results


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, (tuple, list)):
        return type(left) is type(right) and len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and bool(left == right)


@pytest.mark.parametrize("backend", ["eager", "native", "callable"])
@pytest.mark.parametrize("place", PLACES)
def test_what_a_write_ends(place: str, backend: str) -> None:
    chosen: Any = (lambda graph, examples: graph) if backend == "callable" else backend
    for maker in MAKERS:
        expected = _run(place, maker, lambda call: call, lambda: None)
        found = _run(place, maker, lambda call: kintsugi.compile(call, backend=chosen), kintsugi.wait)
        for k, (one, other) in enumerate(zip(expected, found, strict=True)):
            assert _same(one, other), (maker, k, one, other)


@pytest.mark.parametrize("backend", ["eager", "native", "callable"])
def test_weak_references_are_empty_behind_the_write(backend: str) -> None:
    chosen: Any = (lambda graph, examples: graph) if backend == "callable" else backend

    def run(compile: Callable[[Any], Any]) -> list[Any]:
        holder = Holder()
        holder.held = Holder()
        holder.held.n = 0
        registry: weakref.WeakValueDictionary[int, Holder] = weakref.WeakValueDictionary({0: holder.held})
        group: weakref.WeakSet[Holder] = weakref.WeakSet([holder.held])

        def call(x: torch.Tensor, new: Holder, old: Any) -> Any:
            n = holder.held.n
            there = old() is not None, len(registry), len(group)
            holder.held = new
            registry[new.n] = new
            group.add(new)
            return x + n, there, old() is None, sorted(registry), len(group)

        compiled = compile(call)
        results = []
        for k in range(1, 7):
            new = Holder()
            new.n = k
            old = weakref.ref(holder.held)
            results.append(compiled(torch.ones(2), new, old))
            del new
            kintsugi.wait()
        return results

    assert _same(run(lambda call: kintsugi.compile(call, backend=chosen)), run(lambda call: call))


def test_a_write_that_ends_nothing_stays_an_effect() -> None:
    holder = Holder()
    holder.held = None

    def call(x: torch.Tensor, new: Any) -> Any:
        holder.held = new
        return x * state["k"]

    compiled = kintsugi.compile(call, backend="eager")
    x = torch.ones(2)
    for new in ([1, 2], {"a": (1.5, "b")}, torch.ones(3), Holder(), [torch.ones(2)] * 3):
        compiled(x, new)
    assert len(compiled.traces()) == 1 and "effect.setattr" in compiled.traces()[0]
    assert compiled.stats().side_exits == 0


def test_a_place_that_ended_something_writes_to_classes_and_takes_items() -> None:
    """The same instruction is given other kinds of targets and methods later."""

    class Kind:
        held: Any = None

    holder = Holder()
    holder.held = None
    table: dict[str, Any] = {"a": None}

    def store(x: torch.Tensor, target: Any, value: Any) -> Any:
        target.held = value
        return x + 1

    def change(x: torch.Tensor, method: Any, *args: Any) -> Any:
        method(table, *args)
        return x + 1

    for backend in ("eager", "native"):
        stores = kintsugi.compile(store, backend=backend)
        changes = kintsugi.compile(change, backend=backend)
        x = torch.ones(2)
        for k in range(4):
            stores(x, holder, Ends(k))
            changes(x, dict.__setitem__, "a", Ends(k))
        for k in range(8):
            value = [k]
            stores(x, Kind, value)
            assert Kind.held is value
            del value
            table["a"] = 5
            changes(x, dict.pop, "a")
            assert not table


def test_keys_are_not_asked() -> None:
    asked = []

    class Key:
        def __hash__(self) -> int:
            asked.append(1)
            return 1

    key = Key()
    table: dict[Key, Any] = {key: None}

    def call(x: torch.Tensor, new: Any) -> Any:
        table[key] = new
        return x * state["k"]

    compiled = kintsugi.compile(call, backend="eager")
    for k in range(4):
        asked.clear()
        compiled(torch.ones(2), [k])
        assert len(asked) == 1


def test_traces_with_such_writes_go_into_packages(tmp_path: Any) -> None:
    holder = Holder()
    holder.held = None

    def call(x: torch.Tensor, new: Any) -> Any:
        holder.held = new
        return x * 2

    compiled = kintsugi.compile(call, backend="eager")
    for k in range(4):
        compiled(torch.ones(2), Ends(k))
    assert any("write_attribute" in trace for trace in compiled.traces())
    text = str(kintsugi.package(compiled, tmp_path / "package"))
    assert "has no name" not in text, text


def test_torch_s_own_weak_references_end_nothing() -> None:
    """torch's converters of a backend watch the tensors that they have seen."""
    graphs = []

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean = self.mean * 0.9 + x.mean(0)
            return x - self.mean

    def backend(graph: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph

    ours, eager = Net(), Net()
    compiled = kintsugi.compile(ours, backend=backend)
    for k in range(4):
        x = torch.full((2, 3), float(k))
        assert torch.equal(compiled(x), eager(x)) and torch.equal(ours.mean, eager.mean)
    assert len(graphs) == 1
