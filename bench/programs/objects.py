"""Objects of Python: trees, graphs, queues, caches, dates, state machines."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import heapq
import itertools
import random
from collections.abc import Iterator
from typing import Any

import torch

from bench.programs import Compile, Step, program


@dataclasses.dataclass
class Node:
    value: float
    children: list[Node] = dataclasses.field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.walk()


def _tree(depth: int, width: int, start: float = 1.0) -> Node:
    children = [_tree(depth - 1, width, start + i / 3) for i in range(width)] if depth else []
    return Node(start, children)


@program
def tree_of_nodes(compile: Compile) -> Step:
    trees = [_tree(3, 3, float(i)) for i in range(4)]

    @compile
    def total(tree: Node, x: torch.Tensor) -> torch.Tensor:
        return x * sum(node.value for node in tree.walk())

    x = torch.ones(8)
    return lambda k: total(trees[k % 4], x)


@program
def scene_that_changes(compile: Compile) -> Step:
    root = _tree(2, 4)
    nodes = list(root.walk())

    @compile
    def step(k: int, x: torch.Tensor) -> torch.Tensor:
        node = nodes[k % len(nodes)]
        node.value += 0.5
        if k % 4 == 0:
            node.children.append(Node(1.0))
        deep = max(len(one.children) for one in root.walk())
        return x + node.value * deep

    x = torch.zeros(8)
    return lambda k: step(k, x)


@program
def shortest_paths(compile: Compile) -> Step:
    edges: dict[int, list[tuple[int, float]]] = {
        i: [((i * 3 + j) % 24, 1 + i * j % 5) for j in range(1, 4)] for i in range(24)
    }

    @compile
    def distances(start: int, scale: torch.Tensor) -> torch.Tensor:
        best = {start: 0.0}
        queue = [(0.0, start)]
        while queue:
            cost, node = heapq.heappop(queue)
            if cost > best[node]:
                continue
            for other, weight in edges[node]:
                if cost + weight < best.get(other, float("inf")):
                    best[other] = cost + weight
                    heapq.heappush(queue, (cost + weight, other))
        return torch.tensor([best.get(i, -1.0) for i in range(24)]) * scale

    scale = torch.ones(24)
    return lambda k: distances(k % 24, scale)


@program
def replay_buffer(compile: Compile) -> Step:
    rng = random.Random(0)
    memory: collections.deque[tuple[torch.Tensor, int, float]] = collections.deque(maxlen=50)
    layer = torch.nn.Linear(4, 2)

    @compile
    def step(state: torch.Tensor, k: int) -> torch.Tensor:
        action = int(layer(state).argmax()) if rng.random() > 0.2 else rng.randrange(2)
        memory.append((state, action, float(k % 3)))
        batch = rng.sample(memory, min(8, len(memory)))
        states = torch.stack([one[0] for one in batch])
        actions = torch.tensor([one[1] for one in batch])
        rewards = torch.tensor([one[2] for one in batch])
        chosen = layer(states).gather(1, actions[:, None]).squeeze(1)
        return torch.nn.functional.mse_loss(chosen, rewards)

    return lambda k: step(torch.full((4,), k % 10 / 10), k)


@program
def cached_tables(compile: Compile) -> Step:
    @functools.lru_cache(maxsize=8)
    def table(size: int) -> torch.Tensor:
        return torch.arange(size).float().sin()

    @compile
    def encode(size: int, x: torch.Tensor) -> torch.Tensor:
        return x[:size] * table(size) + table(size + 1)[:-1]

    x = torch.ones(32)
    return lambda k: encode(4 + k * 5 % 12, x)


@program
def listeners(compile: Compile) -> Step:
    class Bus:
        def __init__(self) -> None:
            self.listeners: dict[str, list[Any]] = collections.defaultdict(list)

        def on(self, name: str, listener: Any) -> None:
            self.listeners[name].append(listener)

        def emit(self, name: str, **data: Any) -> None:
            for listener in self.listeners[name]:
                listener(**data)

    bus, seen = Bus(), collections.Counter()
    bus.on("loss", lambda value, step: seen.update({"loss": value, "steps": 1}))
    bus.on("loss", lambda value, step: seen.update({"tenths": step % 10 == 0}))
    layer = torch.nn.Linear(8, 8)

    @compile
    def step(x: torch.Tensor, k: int) -> torch.Tensor:
        y = layer(x).square().mean()
        bus.emit("loss", value=y.item(), step=k)
        return y * seen["steps"]

    return lambda k: step(torch.full((8,), k % 4 / 4), k)


class Phase(enum.Enum):
    WARM = "warm"
    TRAIN = "train"
    COOL = "cool"

    @property
    def next(self) -> Phase:
        members = list(Phase)
        return members[(members.index(self) + 1) % len(members)]


@program
def phases(compile: Compile) -> Step:
    state = {"phase": Phase.WARM, "left": 4}

    @compile
    def step(x: torch.Tensor) -> torch.Tensor:
        state["left"] -= 1
        if state["left"] == 0:
            state["phase"], state["left"] = state["phase"].next, 4
        match state["phase"]:
            case Phase.WARM:
                return x * 0.1
            case Phase.TRAIN:
                return x * 2 + 1
            case _:
                return x.relu()

    x = torch.linspace(-1, 1, 64)
    return lambda _: step(x)


@program
def exact_amounts(compile: Compile) -> Step:
    rate = decimal.Decimal("1.019")

    @compile
    def schedule(cents: int, x: torch.Tensor) -> torch.Tensor:
        amount, rows = decimal.Decimal(cents) / 100, []
        for _ in range(6):
            amount = (amount * rate).quantize(decimal.Decimal("0.01"))
            rows.append(float(amount))
        return torch.tensor(rows) * x

    x = torch.ones(6)
    return lambda k: schedule(1000 + k * 37, x)


@program
def dates_as_features(compile: Compile) -> Step:
    start = datetime.datetime(2024, 1, 1, 8)
    layer = torch.nn.Linear(4, 4)

    @compile
    def encode(hours: int) -> torch.Tensor:
        moment = start + datetime.timedelta(hours=hours)
        row = [moment.hour / 24, moment.weekday() / 7, moment.timetuple().tm_yday / 366, moment.month / 12]
        return layer(torch.tensor(row)).sin()

    return lambda k: encode(k * 7)


@program
def groups_of_records(compile: Compile) -> Step:
    records = [{"kind": "abc"[i % 3], "size": i * 7 % 11, "on": i % 4 > 0} for i in range(40)]

    @compile
    def sums(low: int) -> dict[str, torch.Tensor]:
        part = sorted((r for r in records[low : low + 20] if r["on"]), key=lambda r: (r["kind"], r["size"]))
        return {
            kind: torch.tensor([r["size"] for r in group]).float().mean()
            for kind, group in itertools.groupby(part, key=lambda r: r["kind"])
        }

    return lambda k: sums(k % 20)


@program
def particles(compile: Compile) -> Step:
    class Particle:
        __slots__ = ("age", "place", "speed")

        def __init__(self, place: torch.Tensor, speed: torch.Tensor) -> None:
            self.place, self.speed, self.age = place, speed, 0

        def move(self) -> None:
            self.place = self.place + self.speed * 0.1
            self.age += 1

    alive = [Particle(torch.full((2,), float(i)), torch.ones(2)) for i in range(8)]

    @compile
    def step(k: int) -> torch.Tensor:
        for one in alive:
            one.move()
        if k % 5 == 0:
            alive.pop(0)
            alive.append(Particle(torch.zeros(2), torch.full((2,), float(k % 3))))
        return torch.stack([one.place for one in alive]).mean(0)

    return step
