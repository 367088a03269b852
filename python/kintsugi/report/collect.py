"""The data of a report: plain dicts and lists, ready for JSON."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import linecache
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from .. import _C, _costs, _requirements
from .._callable import CompiledFunction, core_of
from .._events import Event, EventLog
from .._explain import explain_compiled
from .._profiler import profile

FORMAT = 2
CONTEXT = 3  # lines shown around those that matter

# What a line of the program is, from the least to the most remarkable.
STATES = ("captured", "mended", "opaque", "break")


def name_of(compiled: Any) -> str:
    original = compiled.__wrapped__ if isinstance(compiled, CompiledFunction) else type(compiled._orig_mod)
    return str(getattr(original, "__qualname__", None) or type(original).__name__)


# Breaks whose step runs inside the trace; the other ones give the recording up.
_STEP_CODES = ("KTG0101", "KTG0102", "KTG0107", "KTG0108", "KTG0109")


def _state_of(kind: str, name: str = "") -> str | None:
    if kind == "break" and name in _STEP_CODES:
        return "opaque"
    return {
        "step": "mended",
        "effect": "mended",
        "exit": "mended",
        "side_trace": "mended",
        "opaque": "opaque",
        "break": "break",
        "eager": "break",
    }.get(kind)


class _Lines:
    """What is known of each line of each file."""

    def __init__(self) -> None:
        self.state: dict[tuple[str, int], int] = {}
        self.cost: collections.Counter[tuple[str, int]] = collections.Counter()
        self.notes: dict[tuple[str, int], list[str]] = collections.defaultdict(list)

    def mark(self, file: str, line: int, state: str, note: str = "") -> None:
        key = (file, line)
        self.state[key] = max(self.state.get(key, 0), STATES.index(state))
        if note and note not in self.notes[key]:
            self.notes[key].append(note)

    def to_list(self) -> list[dict[str, Any]]:
        files: dict[str, set[int]] = collections.defaultdict(set)
        for file, line in self.state:
            files[file].add(line)
        out = []
        for file in sorted(files):
            source = linecache.getlines(file)
            shown = {
                n
                for line in files[file]
                for n in range(line - CONTEXT, line + CONTEXT + 1)
                if 1 <= n <= len(source)
            }
            rows = []
            for number in sorted(shown | {n for n in files[file] if not source}):
                state = self.state.get((file, number))
                rows.append(
                    {
                        "line": number,
                        "text": source[number - 1].rstrip("\n") if number <= len(source) else "",
                        "state": "" if state is None else STATES[state],
                        "ms": self.cost[file, number] / 1e6,
                        "notes": self.notes.get((file, number), []),
                    }
                )
            out.append({"file": file, "lines": rows})
        return out


def _source_lines(
    compiled: Sequence[Any], events: Sequence[Event], timed: Sequence[_costs.Timed]
) -> list[dict[str, Any]]:
    lines = _Lines()
    for item in compiled:
        core = core_of(item)
        for _, _, _, frames in core.instructions() if core is not None else ():
            place = Event("", 0, 0, 0, 0, 0, tuple(frames), "", "", "").place
            if place[1] > 0 and not _C.is_library(place[0]):
                lines.mark(place[0], place[1], "captured")
    for event in events:
        state = _state_of(event.kind, event.name)
        file, line, _ = event.place
        if state is None or line <= 0 or _C.is_library(file):
            continue
        note = f"{event.name}: {event.text}" if event.text else f"{event.kind} {event.name}".strip()
        lines.mark(file, line, state, note)
    for cost in timed:
        if _state_of(cost.event.kind):
            lines.cost[cost.event.place[:2]] += cost.own_ns
    return lines.to_list()


def _names(compiled: Sequence[Any]) -> dict[int, str]:
    """What was compiled, by number of its traces."""
    found: dict[int, str] = {}
    for item in compiled:
        core = core_of(item)
        for number, *_ in core.instructions() if core is not None else ():
            found[number] = name_of(item)
    return found


def _tree(events: Iterable[Event], names: dict[int, str]) -> list[dict[str, Any]]:
    """Traces with their exits, and the side traces that go on from there."""
    nodes: dict[int, dict[str, Any]] = {}

    def node(number: int, event: Event) -> dict[str, Any]:
        file, line, function = event.place
        if _C.is_library(file) and number in names:  # a module is entered through torch's own code
            file, line, function = "", 0, names[number]
        return nodes.setdefault(
            number,
            {"trace": number, "file": file, "line": line, "function": function}
            | {"calls": 0, "ms": 0.0, "guard_us": 0.0, "exits": {}, "sides": [], "parent": 0},
        )

    for event in events:
        if event.kind == "call":
            found = node(event.trace, event)
            found["calls"] += 1
            found["ms"] += event.duration_ns / 1e6
            found["guard_us"] += event.extra / 1e3
        elif event.kind == "record" and event.trace:
            node(event.trace, event)
        elif event.kind == "exit" and event.trace:
            file, line, function = event.place
            exits = node(event.trace, event)["exits"]
            row = exits.setdefault(
                str(event.extra), {"file": file, "line": line, "function": function, "count": 0, "ms": 0.0}
            )
            row["count"] += 1
            row["ms"] += event.duration_ns / 1e6
        elif event.kind == "side_trace":
            node(event.trace, event)["parent"] = int(event.name or 0)
    roots: list[dict[str, Any]] = []
    for found in nodes.values():
        found["exits"] = list(found["exits"].values())
        parent = nodes.get(found["parent"])
        (parent["sides"] if parent is not None and parent is not found else roots).append(found)
    return roots


def _advice(codes: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The knowledge base's entries for our codes, and how they hang together with others."""
    try:
        from ..kb import load
        from ..kb.graph import graph
    except ImportError:  # pydantic is not there
        return {}, {"nodes": [], "edges": []}
    base = load()
    found: dict[str, dict[str, Any]] = {}
    for code in dict.fromkeys(codes):
        try:
            entry = base.find(code)
        except KeyError:
            continue
        found[code] = {
            "id": entry.id,
            "signature": {"en": entry.signature, "zh": entry.signature_zh},
            "cause": {"en": entry.root_cause, "zh": entry.root_cause_zh},
            "workarounds": [
                {"en": work.action, "zh": zh, "rate": work.success_rate, "cited": work.cited}
                | {"n": work.measured["kintsugi"].n if "kintsugi" in work.measured else None}
                for work, zh in zip(entry.workarounds, entry.workarounds_zh, strict=True)
            ],
        }
    here: set[str] = {row["id"] for row in found.values()}
    edges = [edge for edge in graph(base).edges if here & {edge[0], edge[1]}]
    nodes = sorted({*here, *(a for a, _, _ in edges), *(b for _, b, _ in edges)})
    related = {
        "nodes": [{"id": node, "here": node in here} for node in nodes],
        "edges": [list(edge) for edge in edges],
    }
    return found, related


def collect(
    log: EventLog, compiled: Sequence[Any] = (), *, title: str = "", status: int = 0, argv: Sequence[str] = ()
) -> dict[str, Any]:
    """Everything that a report shows. `compiled`: what kintsugi.compile() returned, kept alive until now."""
    events = log.events
    timed = _costs.own_times(events)
    found = profile(events, log.dropped)
    start = events[0].start_ns if events else 0
    depth = {id(item.event): item.depth for item in timed}
    own = {id(item.event): item.own_ns for item in timed}
    callables = []
    for item in compiled:
        output = explain_compiled(item)
        callables.append(
            {
                "name": name_of(item),
                "graph_count": output.graph_count,
                "graph_break_count": output.graph_break_count,
                "op_count": output.op_count,
                "ops_per_graph": [len(ops) for ops in output.ops_per_graph],
                "guards": output.guards,
                "break_reasons": [
                    {**dataclasses.asdict(reason), "user_stack": [list(frame) for frame in reason.user_stack]}
                    for reason in output.break_reasons
                ],
                "stats": dataclasses.asdict(output.stats),
            }
        )
    rows = []
    for event in events:
        row = event.to_dict()
        row["start_us"] = round((event.start_ns - start) / 1000, 3)
        row["own_us"] = round(own.get(id(event), 0) / 1000, 3)
        row["depth"] = depth.get(id(event), 0)
        rows.append(row)
    codes = [row["code"] for row in found.breaks if row["code"]]
    codes += ["KTG0201"] if found.recompiles else []
    codes += ["KTG0202"] if found.evictions else []
    advice, related = _advice(codes)
    return {
        "format": FORMAT,
        "title": title,
        "status": status,
        "argv": list(argv),
        "made": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "versions": {
            "kintsugi": _requirements.VERSION,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "profile": dataclasses.asdict(found),
        "callables": callables,
        "source": _source_lines(compiled, events, timed),
        "tree": _tree(events, _names(compiled)),
        "advice": advice,
        "related": related,
        "events": rows,
    }


def relative(file: str) -> str:
    """As short as it is clear."""
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except ValueError:
        return file


__all__ = ["FORMAT", "STATES", "collect", "name_of", "relative"]
