"""The event stream of the core, as Python objects: what profiler, reports and command line read.

The stream is on while at least one EventLog is open; each open log gets all events. Off, it costs the core a branch.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

from . import _C

Frame = tuple[str, int, str]

_lock = threading.RLock()
_open: list[EventLog] = []


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. The kinds and what their fields mean are in docs/internals/diagnostics.md."""

    kind: str
    start_ns: int
    duration_ns: int
    extra: int
    thread: int
    trace: int
    stack: tuple[Frame, ...]
    """(file, line, function), outermost first."""
    name: str
    text: str
    more: str

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns

    @property
    def place(self) -> Frame:
        """Where in the user's program: the innermost frame that is not a library's."""
        for frame in reversed(self.stack):
            if not _C.is_library(frame[0]):
                return frame
        return self.stack[-1] if self.stack else ("", 0, "")

    def to_dict(self) -> dict[str, Any]:
        file, line, function = self.place
        return {
            "kind": self.kind,
            "start_us": round(self.start_ns / 1000, 3),
            "duration_us": round(self.duration_ns / 1000, 3),
            "extra": self.extra,
            "thread": self.thread,
            "trace": self.trace,
            "file": file,
            "line": line,
            "function": function,
            "name": self.name,
            "text": self.text,
            "more": self.more,
        }


def _frames(text: str, known: dict[str, tuple[Frame, ...]]) -> tuple[Frame, ...]:
    if text not in known:
        rows = [line.split("\x1f") for line in text.split("\n")] if text else []
        known[text] = tuple((row[0], int(row[1]), row[2]) for row in rows if len(row) == 3)
    return known[text]


def _pump() -> None:
    """Hands what has happened to all open logs."""
    with _lock:
        rows, dropped = _C.events_drain()
        known: dict[str, tuple[Frame, ...]] = {}
        events = [Event(*row[:6], _frames(row[6], known), *row[7:]) for row in rows]
        for log in _open:
            log._events += events
            log.dropped += dropped


class EventLog:
    """Collects events: `with EventLog() as log: ...`, or start() and stop().

    At most `limit` events are kept in memory; `dropped` counts those that were lost.
    """

    def __init__(self, limit: int = 1_000_000, capacity: int = 1 << 16) -> None:
        self._events: list[Event] = []
        self._limit = limit
        self._capacity = capacity
        self.dropped = 0
        self.started_ns = 0
        self.stopped_ns = 0

    def start(self) -> EventLog:
        """Collects from now on; RuntimeError where it does so already."""
        with _lock:
            if self in _open:
                raise RuntimeError("this EventLog is open already")
            _pump()
            _open.append(self)
            _C.events_start(self._capacity)
            self.started_ns = _C.events_now()
        return self

    def stop(self) -> None:
        """Collects no longer; what was collected stays."""
        with _lock:
            if self not in _open:
                return
            _pump()
            self.stopped_ns = _C.events_now()
            _open.remove(self)
            if not _open:
                _C.events_stop()
            self._trim()

    def _trim(self) -> None:
        extra = len(self._events) - self._limit
        if extra > 0:
            del self._events[self._limit :]
            self.dropped += extra

    def __enter__(self) -> EventLog:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def events(self) -> list[Event]:
        """All events so far, in the order of their start."""
        with _lock:
            if self in _open:
                _pump()
                self._trim()
            return sorted(self._events, key=lambda event: (event.start_ns, -event.duration_ns))

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)
