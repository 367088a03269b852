"""CompilationProfiler: what the compiler did while a program ran, and what each break and recompilation cost.

    with kintsugi.CompilationProfiler() as prof:
        my_model(x)
    print(prof.report())

It is a backend, too: `kintsugi.optimize(prof)`, in the spelling of older guides. The causes of recompilations are
listed one by one, whatever `recompile_limit` is.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from typing import Any

from . import _costs
from ._events import Event, EventLog


@dataclasses.dataclass(frozen=True)
class Profile:
    """The figures behind a report."""

    calls: int
    recordings: int
    failed_recordings: int
    eager_calls: int
    total_ms: float
    captured_ms: float
    guard_ms: float
    record_ms: float
    compile_ms: float
    break_ms: float
    background_ms: float
    """Compiling on threads of its own, while calls went on."""
    breaks: list[dict[str, Any]]
    recompiles: list[dict[str, Any]]
    side_traces: list[dict[str, Any]]
    """Where a second path was recorded: file, line, function, trace, parent."""
    dynamic: list[dict[str, Any]]
    """Sizes and numbers that varied, so that the next trace leaves them open."""
    compiles: list[dict[str, Any]]
    """What backends made of the graphs."""
    cache_hits: dict[str, int]
    """Kernels that were not compiled: where they were found, and how many."""
    evictions: int
    dropped: int


def _places(costs: list[_costs.PlaceCost], reasons: dict[tuple[str, int], Event]) -> list[dict[str, Any]]:
    rows = []
    for cost in costs:
        if not cost.is_break:
            continue
        file, line, function = cost.place
        reason = reasons.get((file, line))
        rows.append(
            {
                "kind": cost.kind,
                "what": cost.name,
                "file": file,
                "line": line,
                "function": function,
                "count": cost.count,
                "ms": cost.total_ns / 1e6,
                "code": reason.name if reason else ("KTG0203" if cost.kind == "exit" else ""),
                "reason": reason.text if reason else "",
                "cure": reason.more if reason else "",
            }
        )
    seen = {(row["file"], row["line"]) for row in rows}
    for (file, line), reason in reasons.items():
        if (file, line) not in seen:
            row = {"kind": "break", "what": "", "file": file, "line": line, "function": reason.place[2]}
            row |= {"count": 0, "ms": 0.0, "code": reason.name, "reason": reason.text, "cure": reason.more}
            rows.append(row)
    return rows


def _where(event: Event) -> dict[str, Any]:
    file, line, function = event.place
    return {"file": file, "line": line, "function": function}


def _recompiles(events: list[Event]) -> list[dict[str, Any]]:
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in events:
        if event.kind != "recompile":
            continue
        key = (event.place, event.name, event.text, event.more)
        row = _where(event) | {"guard": event.name, "expected": event.text, "seen": event.more, "count": 0}
        found.setdefault(key, row)["count"] += 1
    return list(found.values())


def _compiles(timed: list[_costs.Timed]) -> list[dict[str, Any]]:
    return [
        _where(item.event)
        | {"backend": item.event.name, "what": item.event.text, "kernels": item.event.extra}
        | {"ms": item.event.duration_ns / 1e6, "background": item.depth == 0}
        for item in timed
        if item.event.kind == "compile"
    ]


def profile(events: list[Event], dropped: int = 0) -> Profile:
    """The figures of a list of events."""
    every = _costs.own_times(events)
    timed = _costs.in_calls(every)
    count = collections.Counter(event.kind for event in events)
    own: collections.Counter[str] = collections.Counter()
    for item in timed:
        own[item.event.kind] += item.own_ns
    guards = sum(event.extra for event in events if event.kind == "call")
    reasons = {event.place[:2]: event for event in events if event.kind == "break"}
    hits: collections.Counter[str] = collections.Counter()
    for event in events:
        if event.kind == "cache_hit":
            hits[event.name] += event.extra
    compiles = _compiles(every)
    return Profile(
        calls=count["call"],
        recordings=count["record"],
        failed_recordings=sum(event.kind == "record" and event.name == "failed" for event in events),
        eager_calls=count["eager"],
        total_ms=_costs.total_ns(every) / 1e6,
        captured_ms=(own["call"] - guards + own["step"] + own["effect"]) / 1e6,
        guard_ms=guards / 1e6,
        record_ms=own["record"] / 1e6,
        compile_ms=own["compile"] / 1e6,
        break_ms=sum(own[kind] for kind in _costs.BREAK_KINDS) / 1e6,
        background_ms=sum(row["ms"] for row in compiles if row["background"]),
        breaks=_places(_costs.by_place(timed), reasons),
        recompiles=_recompiles(events),
        side_traces=[
            _where(event) | {"trace": event.trace, "parent": int(event.name or 0)}
            for event in events
            if event.kind == "side_trace"
        ],
        dynamic=[
            _where(event) | {"source": event.name, "varies": event.text}
            for event in events
            if event.kind == "dynamic"
        ],
        compiles=compiles,
        cache_hits=dict(hits),
        evictions=count["evict"],
        dropped=dropped,
    )


def life(p: Profile) -> list[str]:
    """What became of the traces: left open, other paths, compiled, found in the cache; lines for people."""
    lines: list[str] = []
    if p.dynamic:
        lines += ["", "Left open from the next trace on, because it varies:"]
        lines += [
            f"  {r['file']}:{r['line']} {r['function']}: {r['varies']} of {r['source']}" for r in p.dynamic
        ]
    if p.side_traces:
        lines += ["", "Second paths recorded (side traces):"]
        lines += [
            f"  {r['file']}:{r['line']} in {r['function']}: trace {r['trace']} goes on where {r['parent']} is left"
            for r in p.side_traces
        ]
    if p.compiles:
        lines += ["", f"Compiled by backends ({p.background_ms:.3f} ms of it in the background):"]
        lines += [
            f"  {r['file']}:{r['line']} {r['function']}: {r['backend'] or 'backend'}"
            f"{': ' if r['what'] else ''}{r['what']}, {r['ms']:.3f} ms"
            for r in p.compiles
        ]
    if p.cache_hits:
        found = ", ".join(f"{number} in {place}" for place, number in p.cache_hits.items())
        lines += ["", f"Kernels found in the cache: {found}"]
    return lines


class CompilationProfiler:
    """A context manager, and a backend for optimize(): collects events, report() says what they mean."""

    def __init__(self) -> None:
        self._log = EventLog()

    def __enter__(self) -> CompilationProfiler:
        self._log.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._log.stop()

    def __call__(self, graph: Any, example_inputs: Any, **options: Any) -> Any:
        """As a backend: runs the graph as it is."""
        return graph.forward

    @property
    def log(self) -> EventLog:
        """What collects the events."""
        return self._log

    @property
    def events(self) -> list[Event]:
        """All events so far, in the order of their start."""
        return self._log.events

    def profile(self) -> Profile:
        """The figures so far."""
        return profile(self._log.events, self._log.dropped)

    def to_json(self) -> str:
        """The figures so far as one JSON object."""
        return json.dumps(dataclasses.asdict(self.profile()), indent=2)

    def report(self) -> str:
        """The figures as a text for people."""
        p = self.profile()
        lines = [
            "Kintsugi compilation profile",
            "",
            f"calls that ran a trace: {p.calls}   recorded: {p.recordings} ({p.failed_recordings} came to nothing)"
            f"   in eager mode: {p.eager_calls}",
            f"time in compiled calls: {p.total_ms:.3f} ms = captured {p.captured_ms:.3f} + guards {p.guard_ms:.3f}"
            f" + recording {p.record_ms:.3f} + compiling {p.compile_ms:.3f} + breaks {p.break_ms:.3f}",
        ]
        if p.dropped:
            lines.append(f"{p.dropped} events were lost: the times are too low.")
        lines += ["", "Graph breaks" + (":" if p.breaks else ": none")]
        for number, row in enumerate(p.breaks, 1):
            what = f"{row['kind']} {row['what']}".rstrip()
            lines.append(
                f"  {number}. {row['file']}:{row['line']} in {row['function']}: {what}"
                f", {row['count']} times, {row['ms']:.3f} ms"
            )
            if row["reason"]:
                lines += [f"     {row['code']}: {row['reason']}", f"     cure: {row['cure']}"]
        lines += ["", "Recompilations" + (":" if p.recompiles else ": none")]
        for number, row in enumerate(p.recompiles, 1):
            lines.append(
                f"  {number}. {row['file']}:{row['line']} {row['function']}: guard {row['guard']} failed"
                f" {row['count']} times: expected {row['expected']}, saw {row['seen']}"
            )
        lines += life(p)
        if p.evictions:
            lines += ["", f"Traces dropped at the recompile limit: {p.evictions}"]
        return "\n".join(lines)
