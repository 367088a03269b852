"""CompilationProfiler: what the compiler did while a program ran, and what each break and recompilation cost.

    with kintsugi.CompilationProfiler() as prof:
        my_model(x)
    print(prof.report())

It is a backend, too: `kintsugi.optimize(prof)`, in the spelling of older guides. The causes of recompilations are
listed one by one, as if no trace were kept: the limit in force changes nothing in what is seen.
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
    breaks: list[dict[str, Any]]
    recompiles: list[dict[str, Any]]
    side_traces: int
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


def profile(events: list[Event], dropped: int = 0) -> Profile:
    """The figures of a list of events."""
    timed = _costs.own_times(events)
    costs = _costs.by_place(timed)
    count = collections.Counter(event.kind for event in events)
    own: collections.Counter[str] = collections.Counter()
    for item in timed:
        own[item.event.kind] += item.own_ns
    guards = sum(event.extra for event in events if event.kind == "call")
    reasons = {event.place[:2]: event for event in events if event.kind == "break"}
    recompiles: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in events:
        if event.kind == "recompile":
            file, line, function = event.place
            key = (file, line, event.name, event.text, event.more)
            row = recompiles.setdefault(
                key,
                {"file": file, "line": line, "function": function, "guard": event.name}
                | {"expected": event.text, "seen": event.more, "count": 0},
            )
            row["count"] += 1
    failed = sum(event.kind == "record" and event.name == "failed" for event in events)
    return Profile(
        calls=count["call"],
        recordings=count["record"],
        failed_recordings=failed,
        eager_calls=count["eager"],
        total_ms=_costs.total_ns(timed) / 1e6,
        captured_ms=(own["call"] - guards + own["step"] + own["effect"]) / 1e6,
        guard_ms=guards / 1e6,
        record_ms=own["record"] / 1e6,
        compile_ms=own["compile"] / 1e6,
        break_ms=sum(own[kind] for kind in _costs.BREAK_KINDS) / 1e6,
        breaks=_places(costs, reasons),
        recompiles=list(recompiles.values()),
        side_traces=count["side_trace"],
        evictions=count["evict"],
        dropped=dropped,
    )


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
        return self._log

    @property
    def events(self) -> list[Event]:
        return self._log.events

    def profile(self) -> Profile:
        """The figures so far."""
        return profile(self._log.events, self._log.dropped)

    def to_json(self) -> str:
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
            what = row["what"] or row["kind"]
            lines.append(
                f"  {number}. {row['file']}:{row['line']} in {row['function']}: {row['kind']} {what}"
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
        if p.side_traces:
            lines += ["", f"Side traces recorded: {p.side_traces}"]
        if p.evictions:
            lines += ["", f"Traces dropped at the recompile limit: {p.evictions}"]
        return "\n".join(lines)
