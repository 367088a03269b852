"""Random object graphs, random guards on them, random changes: the memo must always say what a plain walk says."""

from __future__ import annotations

import collections
import random
from typing import Any

import pytest
import torch

gt = pytest.importorskip("kintsugi._C").guard_testing


class A:
    kind = "a"


class B:
    kind = "b"


class S:
    __slots__ = ("p", "q")


NAMES = ("p", "q", "r", "s")
SHARED_TENSORS = [torch.zeros(2, 3), torch.zeros(3, 2), torch.zeros(2, 3, dtype=torch.int64)]


class World:
    """A graph of containers below one root, and what can happen to it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.root = [self.make(0) for _ in range(3)]

    def leaf(self) -> Any:
        rng = self.rng
        return rng.choice(
            (
                lambda: rng.randrange(3),
                lambda: float(rng.randrange(3)) + 0.5,
                lambda: rng.choice((0.0, -0.0, float("nan"))),
                lambda: "".join(rng.choice("ab") for _ in range(3)),
                lambda: rng.choice((True, False, None)),
                lambda: (rng.randrange(2), rng.choice("ab")),
                lambda: rng.choice(SHARED_TENSORS),
                lambda: torch.zeros(rng.choice((2, 3)), 3),
            )
        )()

    def make(self, depth: int) -> Any:
        rng = self.rng
        kind = rng.choice(("A", "B", "S", "list", "dict", "odict", "tuple", "cell", "leaf", "set"))
        if depth > 3 or kind == "leaf":
            return self.leaf()
        parts = [self.make(depth + 1) for _ in range(rng.randrange(1, 4))]
        if kind in ("A", "B"):
            o: Any = A() if kind == "A" else B()
            for name, part in zip(NAMES, parts):
                setattr(o, name, part)
            return o
        if kind == "S":
            s = S()
            s.p = parts[0]
            return s
        if kind == "dict":
            return dict(zip(NAMES, parts))
        if kind == "odict":
            return collections.OrderedDict(zip(NAMES, parts))
        if kind == "tuple":
            return tuple(parts)
        if kind == "cell":
            value = parts[0]
            return lambda: value
        if kind == "set":
            return {rng.randrange(4) for _ in range(3)}
        return parts

    def containers(self) -> list[Any]:
        found: list[Any] = []
        todo: list[Any] = [self.root]
        while todo:
            o = todo.pop()
            if isinstance(o, (list, tuple)):
                todo.extend(o)
            elif isinstance(o, dict):
                todo.extend(o.values())
            elif isinstance(o, (A, B)):
                todo.extend(o.__dict__.values())
            elif isinstance(o, S):
                todo.extend(getattr(o, n) for n in ("p", "q") if hasattr(o, n))
            elif callable(o):
                todo.append(o.__closure__[0].cell_contents)
            else:
                continue
            found.append(o)
        return found

    def change(self) -> None:
        rng = self.rng
        o = rng.choice(self.containers())
        new = self.make(3) if rng.random() < 0.7 else self.make(1)
        if isinstance(o, list):
            at = rng.randrange(len(o)) if o else 0
            action = rng.randrange(4)
            if action == 0 or not o:
                o.append(new)
            elif action == 1 and o is not self.root:
                o.pop(at)
            elif action == 2:
                old = o[at]
                o[at] = None
                del old
                o[at] = new
            else:
                o[at] = o[rng.randrange(len(o))]
        elif isinstance(o, dict):
            name = rng.choice(NAMES)
            action = rng.randrange(4)
            if action == 0:
                o.pop(name, None)
            elif action == 1 and isinstance(o, collections.OrderedDict) and name in o:
                o.move_to_end(name)
            elif action == 2 and name in o:
                o[name] = o.pop(name)
            else:
                o.pop(name, None)
                o[name] = new
        elif isinstance(o, (A, B)):
            name = rng.choice(NAMES)
            action = rng.randrange(5)
            if action == 0:
                o.__class__ = B if isinstance(o, A) else A
            elif action == 1:
                o.__dict__ = dict(o.__dict__)
            elif action == 2:
                o.__dict__.pop(name, None)
            elif action == 3:
                o.unrelated = rng.randrange(1000)  # type: ignore[union-attr]
            else:
                setattr(o, name, new)
        elif isinstance(o, S):
            name = rng.choice(("p", "q"))
            if rng.random() < 0.3 and hasattr(o, name):
                delattr(o, name)
            else:
                setattr(o, name, new)
        elif isinstance(o, set):
            o.symmetric_difference_update({rng.randrange(4)})
        elif callable(o) and not isinstance(o, tuple):
            o.__closure__[0].cell_contents = new
        if rng.random() < 0.02:
            t = rng.choice(SHARED_TENSORS)
            t.requires_grad_(not t.requires_grad) if t.is_floating_point() else None


class Writer:
    """Guards of a random part of the graph."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.b = gt.GuardBuilder()
        self.seen: list[tuple[int, Any]] = []

    def write(self, source: int, o: Any) -> None:
        rng, b = self.rng, self.b
        if rng.random() < 0.1:
            return
        if self.seen and rng.random() < 0.1:
            other, object_ = rng.choice(self.seen)
            b.guard("same" if object_ is o else "notsame", source, other=other)
        self.seen.append((source, o))
        if isinstance(o, torch.Tensor):
            b.guard("type", source, key=type(o))
            b.tensor(source, o, rng.random() < 0.7)
            return
        if isinstance(o, (int, float, str, type(None))) or (
            isinstance(o, tuple) and rng.random() < 0.3 and plain(o)
        ):
            b.guard("equals", source, key=o)
            return
        if rng.random() < 0.9:
            b.guard("type", source, key=type(o))
        if isinstance(o, set):
            b.guard("set", source, key=frozenset(o))
        elif isinstance(o, (list, tuple)):
            if rng.random() < 0.5:
                b.guard("length", source, number=len(o))
            for i, e in enumerate(o):
                self.write(b.source("list" if isinstance(o, list) else "tuple", source, index=i), e)
        elif isinstance(o, (A, B)):
            self.dict(b.source("dict", source), o.__dict__)
            if rng.random() < 0.3:
                self.write(b.source("item", b.source("dict", b.source("type", source)), key="kind"), o.kind)
        elif isinstance(o, dict):
            self.dict(source, o)
        elif isinstance(o, S):
            for name in ("p", "q"):
                if hasattr(o, name):
                    self.write(b.source("member", source, key=S.__dict__[name]), getattr(o, name))
                else:
                    b.guard("nomember", source, key=S.__dict__[name])
        elif callable(o):
            b.guard("function", source, key=o.__code__)
            cell = b.source("closure", source, index=0)
            self.write(b.source("cell", cell), o.__closure__[0].cell_contents)

    def dict(self, source: int, d: dict[str, Any]) -> None:
        rng, b = self.rng, self.b
        if rng.random() < 0.3:
            b.guard("keys", source, key=tuple(d))
        if rng.random() < 0.2:
            b.guard("length", source, number=len(d))
        for name in NAMES:
            if name in d:
                self.write(b.source("item", source, key=name), d[name])
            elif rng.random() < 0.5:
                b.guard("lacks", source, key=name)


def plain(o: Any) -> bool:
    return all(isinstance(e, (int, float, str, type(None))) or (isinstance(e, tuple) and plain(e)) for e in o)


def run(seed: int, steps: int) -> tuple[int, int]:
    rng = random.Random(seed)
    world = World(rng)
    programs: list[Any] = []
    passed = failed = 0
    for step in range(steps):
        if step % 5 == 0:
            writer = Writer(rng)
            if rng.random() < 0.5:
                writer.write(writer.b.source("arg", index=0), world.root)
            else:  # from constants: some that stay in the graph, some that will leave it
                writer.write(writer.b.source("pinned", key=world.root), world.root)
                for o in rng.choices(world.containers(), k=2):
                    writer.write(writer.b.source("pinned", key=o), o)
            programs.append(writer.b.build())
            assert programs[-1].check((world.root,)) is not None, programs[-1].explain((world.root,))
            if len(programs) > 12:
                programs.pop(rng.randrange(len(programs)))
        for _ in range(rng.choice((1, 1, 1, 3))):
            world.change()
        for program in programs:
            if rng.random() < 0.3:
                continue
            explained = program.explain((world.root,))[1]
            got = program.check((world.root,)) is not None
            assert got == (explained == ""), (seed, step, explained)
            passed += got
            failed += not got
    return passed, failed


@pytest.mark.parametrize("seed", range(20))
def test_random_changes(seed: int) -> None:
    passed, failed = run(seed, 300)
    assert failed > 0 and passed > 0
