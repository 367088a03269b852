"""The counters of a compiled callable, as an object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class Stats:
    """What was recorded and how often it ran. All numbers count from the compile call or the last reset."""

    graph_count: int = 0
    """Compiled graphs: the pieces that the breaks split the traces into."""
    graph_break_count: int = 0
    """Places where a trace is split; each has a coded reason in explain()."""
    op_count: int = 0
    """Tensor operations in all traces."""
    trace_count: int = 0
    """Traces that are installed now."""
    guard_count: int = 0
    """Guards of all installed traces."""
    hits: int = 0
    """Calls that ran a trace."""
    misses: int = 0
    """Calls that no trace's guards let in: they were recorded, or ran in eager mode."""
    recompiles: int = 0
    """Recordings made because a guard of an earlier trace failed."""
    side_exits: int = 0
    """Times a guard inside a running trace failed and no side trace went on from there."""
    left_to_eager: int = 0
    """1 while calls run in eager mode because they took less time there than along their traces, else 0."""
    side_traces: int = 0
    """Side traces that are linked now."""
    native_segments: int = 0
    """Parts of traces that backend="native" may compile."""
    native_ready: int = 0
    """Those that have been compiled."""
    native_plain: int = 0
    """Those that are calls of ATen's operators alone: there is no code to generate, and replay makes the calls."""
    native_refused: int = 0
    """Those that stay with replay though there would be; KINTSUGI_LOGS=perf says why."""
    native_runs: int = 0
    """Times compiled parts ran."""
    native_backwards: int = 0
    """Times compiled parts ran backwards."""

    @classmethod
    def from_core(cls, counters: Mapping[str, int]) -> Stats:
        """Of the core's counters by name; those without a field here are left out."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: int(value) for name, value in counters.items() if name in known})
