"""When is a call compiled? Not before native code has run in one and the choice between it and replay is made.

Calls are made back to back, as a program would. Once every segment is compiled or refused, so many more follow that a
choice between native code and replay is over: while that goes on, a segment runs natively in every other call. So the
first call from which on the number of native runs a call stays the same is the first that runs what later ones run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

# Native code and replay take up to sixteen turns each.
WARM_UP_CALLS = 40


class NeverCompiled(Exception):
    """The time was up, or there was nothing to compile; the text says which."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """The counters of a compiled callable behind a call that ended at `seconds`."""

    seconds: float
    segments: int
    ready: int
    refused: int
    runs: int

    @property
    def waits(self) -> bool:
        return self.ready + self.refused < self.segments


@dataclasses.dataclass(frozen=True)
class Ready:
    """Seconds from `start` to the end of the first call that ran compiled code, and of the first of all later ones.

    `first_native`: None where replay was the faster way everywhere. `native_segments`: how many run natively.
    """

    seconds: float
    first_native: float | None
    calls: int
    native_segments: int


def seen(stats: Any, seconds: float) -> Seen:
    """The counters of `stats`, of a callable compiled by Kintsugi."""
    return Seen(seconds, stats.native_segments, stats.native_ready, stats.native_refused, stats.native_runs)


def judge(rows: Sequence[Seen], start: float = 0.0) -> Ready:
    """The first row from which on every call ran the same; the last of them has to be settled."""
    if not rows or rows[-1].waits:
        raise NeverCompiled("segments wait for their code")
    if rows[-1].segments == 0:
        raise NeverCompiled("there is nothing to compile")
    grown = [row.runs - (rows[k - 1].runs if k else 0) for k, row in enumerate(rows)]
    at = len(rows) - 1
    while at > 0 and grown[at - 1] == grown[-1] and rows[at - 1].refused == rows[-1].refused:
        if rows[at - 1].waits:
            break
        at -= 1
    native = next((row.seconds - start for row, runs in zip(rows, grown, strict=True) if runs), None)
    return Ready(rows[at].seconds - start, native, at + 1, grown[-1])


def until_compiled(
    call: Callable[[], Any],
    stats: Callable[[], Any],
    allowed: float = 120.0,
    start: float | None = None,
) -> Ready:
    """Calls until native code or replay is what all later calls run; seconds from `start` (default: now).

    Raises NeverCompiled where that takes longer than `allowed` seconds, or nothing is to be compiled.
    """
    begun = time.perf_counter() if start is None else start
    rows: list[Seen] = []
    left = WARM_UP_CALLS
    while left > 0:
        call()
        now = time.perf_counter()
        rows.append(seen(stats(), now))
        left = WARM_UP_CALLS if rows[-1].waits or rows[-1].segments == 0 else left - 1
        if rows[-1].segments == 0 and len(rows) >= WARM_UP_CALLS:
            break
        if now - begun > allowed:
            raise NeverCompiled(f"not after {allowed:g} s")
    return judge(rows, begun)
