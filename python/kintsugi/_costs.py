"""Where the time of compiled calls went: each event's own time, and what it costs by place.

An event's own time is its duration without the events inside it (same thread). The own times of all events inside a
root add up to the root's duration, so nothing is counted twice and nothing is lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from ._events import Event, Frame

ROOTS = ("call", "record", "eager")
# What a break costs: steps that are not looked into, and calls that did not run as a trace to their end.
BREAK_KINDS = ("opaque", "exit", "eager")


@dataclasses.dataclass(frozen=True, slots=True)
class Timed:
    event: Event
    own_ns: int
    depth: int
    root: int
    """Index of the outermost event around it, in the list of timed events."""


def own_times(events: Iterable[Event]) -> list[Timed]:
    """The events that last, with their own times, ordered by thread and start."""
    lasting = [event for event in events if event.duration_ns > 0]
    lasting.sort(key=lambda event: (event.thread, event.start_ns, -event.duration_ns))
    inside = [0] * len(lasting)
    depth = [0] * len(lasting)
    root = list(range(len(lasting)))
    stack: list[int] = []
    for index, event in enumerate(lasting):
        while stack and (
            lasting[stack[-1]].thread != event.thread or lasting[stack[-1]].end_ns <= event.start_ns
        ):
            stack.pop()
        if stack:
            parent = stack[-1]
            inside[parent] += min(event.end_ns, lasting[parent].end_ns) - event.start_ns
            depth[index] = depth[parent] + 1
            root[index] = root[parent]
        stack.append(index)
    return [
        Timed(event, max(0, event.duration_ns - inside[index]), depth[index], root[index])
        for index, event in enumerate(lasting)
    ]


@dataclasses.dataclass
class PlaceCost:
    """All events of one kind and name at one place of the program."""

    kind: str
    name: str
    place: Frame
    count: int = 0
    total_ns: int = 0

    @property
    def is_break(self) -> bool:
        return self.kind in BREAK_KINDS


def by_place(timed: Sequence[Timed]) -> list[PlaceCost]:
    """Costs, the dearest first."""
    found: dict[tuple[str, str, Frame], PlaceCost] = {}
    for item in timed:
        event = item.event
        key = (event.kind, event.name, event.place)
        cost = found.setdefault(key, PlaceCost(*key))
        cost.count += 1
        cost.total_ns += item.own_ns
    return sorted(found.values(), key=lambda cost: -cost.total_ns)


def in_calls(timed: Sequence[Timed]) -> list[Timed]:
    """What happened inside compiled calls: not what a background thread compiles meanwhile."""
    return [item for item in timed if timed[item.root].event.kind in ROOTS]


def total_ns(timed: Sequence[Timed]) -> int:
    """Time inside compiled calls."""
    return sum(item.event.duration_ns for item in timed if item.depth == 0 and item.event.kind in ROOTS)
