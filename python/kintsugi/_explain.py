"""kintsugi.explain(): what was captured of one call, where it was split, and why."""

from __future__ import annotations

import dataclasses
import re
import time
import warnings
from typing import Any, NamedTuple

import torch

from . import _C
from ._callable import CompiledFunction, core_of
from ._module import CompiledModule, compile_module
from ._options import CompileOptions
from ._stats import Stats


class Place(NamedTuple):
    """A line of the program, under the names that traceback.FrameSummary has."""

    filename: str
    lineno: int
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class BreakReason:
    """Why a trace is split, and where in the user's program. It has the fields of torch's GraphCompileReason, too."""

    code: str
    """The stable code: KTGnnnn."""
    name: str
    reason: str
    cure: str
    file: str
    line: int
    function: str
    user_stack: tuple[Place, ...] = ()
    """Outermost first."""

    @property
    def graph_break(self) -> bool:
        """torch's: always True, as what is listed here are breaks."""
        return True

    @classmethod
    def from_core(cls, event: dict[str, Any]) -> BreakReason:
        """Of a break as the core reports it."""
        place = Place(event.get("file") or "", int(event.get("line") or 0), event.get("function") or "")
        stack = tuple(Place(f["file"], int(f["line"]), f["function"]) for f in event.get("stack", ())) or (
            place,
        )
        return cls(
            event.get("code", ""),
            event.get("name", ""),
            event.get("message", ""),
            event.get("cure", ""),
            *place,
            user_stack=stack,
        )

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")
        return f"{self.code} {self.name}: {self.reason}\n    at {where}\n    cure: {self.cure}"


@dataclasses.dataclass(frozen=True, slots=True)
class ExplainOutput:
    """What explain() found. `print(output)` shows it all. It has the fields of torch's ExplainOutput, too."""

    graph_count: int
    graph_break_count: int
    break_reasons: list[BreakReason]
    op_count: int
    guards: list[str]
    ops_per_graph: list[list[str]]
    traces: list[str]
    stats: Stats
    recompiles: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Why there are several traces: guard, expected, seen, file, line."""
    result: Any = dataclasses.field(repr=False, default=None)
    """What the call returned: explain() really makes it."""
    compile_times: str | None = None
    """How long the explained call took, which is the recording of it."""
    segments: list[list[dict[str, Any]]] = dataclasses.field(repr=False, default_factory=list)
    """Of each trace, descriptions of its graphs: see kintsugi/backends/fx.py."""

    @property
    def graphs(self) -> list[torch.fx.GraphModule]:
        """The graphs that a backend would get, in order; made when they are asked for."""
        from .backends.fx import graphs_of

        return [graph for segments in self.segments for graph in graphs_of(segments)]

    @property
    def out_guards(self) -> list[str]:
        """torch's name of `guards`, which are texts here."""
        return self.guards

    def __str__(self) -> str:
        lines = [
            f"Graph count: {self.graph_count}",
            f"Graph break count: {self.graph_break_count}",
            f"Op count: {self.op_count}",
            f"Guard count: {max(self.stats.guard_count, len(self.guards))}",
        ]
        if self.traces and self.op_count == 0:
            lines.append("Nothing to compile: no tensor operation was recorded, so calls run in CPython.")
        if self.break_reasons:
            lines.append("Break reasons:")
            for number, reason in enumerate(self.break_reasons, 1):
                lines += [f"  {number}. " + str(reason).replace("\n", "\n  ")]
                lines += [
                    f"        {file}:{line} in {name}"
                    for file, line, name in reason.user_stack[:-1]
                    if not _C.is_library(file)
                ]
        if self.recompiles:
            lines.append("Recompiles:")
            for event in self.recompiles:
                where = f"{event['file']}:{event['line']}"
                lines.append(
                    f"  {where}: guard {event['guard']}: expected {event['expected']}, saw {event['seen']}"
                )
        if self.ops_per_graph:
            lines.append("Ops per trace:")
            for number, ops in enumerate(self.ops_per_graph, 1):
                lines.append(f"  trace {number}: {len(ops)} ops: {_abbreviate(ops)}")
        return "\n".join(lines)


def _abbreviate(ops: list[str], most: int = 12) -> str:
    shown = ", ".join(ops[:most])
    return shown + (f", … ({len(ops) - most} more)" if len(ops) > most else "")


# `%1 = aten.linear.default %x, %w` — any namespace that the dispatcher knows, not the closed set's names.
_OP = re.compile(r"^\s*(?:%[\w, %]*=\s*)?(\w+\.\w+\.\w+)\b")
_SOURCE = re.compile(r"^\s*(\$\d+) = .*?;\s*(.+?)\s*$")
_CONSTANT = re.compile(r"^\s*const (#\d+) (.+?)\s*$")
_BLOCK = re.compile(r"^guards (\d+) \{$")
_INLINE = re.compile(r"^\s*(guard\.(?!block).*?)(?: snap !\d+)?\s*$")
_NAME = re.compile(r"[$#]\d+")


def operations(trace: str) -> list[str]:
    """The tensor operations of a trace's text, in order."""
    return [match[1] for match in map(_OP.match, trace.splitlines()) if match]


def guards(trace: str) -> list[str]:
    """The guards of a trace's text, in order; sources and constants are spelled out."""
    lines = trace.splitlines()
    names = {
        match[1]: match[2]
        for line in lines
        for match in (_SOURCE.match(line) or _CONSTANT.match(line),)
        if match
    }
    found: list[str] = []
    inside = False
    for line in lines:
        if _BLOCK.match(line):
            inside = True
        elif line.startswith("}"):
            inside = False
        elif inside:
            found.append(line.strip())
        elif match := _INLINE.match(line):
            found.append(match[1])
    return [_NAME.sub(lambda name: names.get(name[0], name[0]), guard) for guard in found]


def explain(fn: Any, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """explain(fn)(*args, **kwargs) calls fn once, recorded, and says what was captured.

    The call really happens, with its effects. A compiled callable is explained by a fresh recording: its own traces and
    counters are not touched. explain(fn, *args, **kwargs), torch's older spelling, does the same, with a FutureWarning.
    """
    if isinstance(fn, CompiledModule):
        fn = fn._orig_mod
    elif isinstance(fn, CompiledFunction):
        fn = fn.__wrapped__
    if not callable(fn):
        raise TypeError(f"kintsugi.explain expects something that can be called, got {type(fn).__name__}.")

    def run(*args: Any, **kwargs: Any) -> ExplainOutput:
        options = CompileOptions(backend="eager")
        compiled: Any
        if isinstance(fn, torch.nn.Module):
            compiled = compile_module(fn, options)
        else:
            compiled = CompiledFunction(fn, options)
        start = time.perf_counter()
        result = compiled(*args, **kwargs)
        took = f"recorded call: {(time.perf_counter() - start) * 1e3:.3f} ms"
        return dataclasses.replace(explain_compiled(compiled, result), compile_times=took)

    if not extra_args and not extra_kwargs:
        return run
    warnings.warn(
        "kintsugi.explain(fn, *args, **kwargs) is torch's older spelling of explain(fn)(*args, **kwargs).",
        FutureWarning,
        stacklevel=2,
    )
    return run(*extra_args, **extra_kwargs)


def explain_compiled(compiled: Any, result: Any = None) -> ExplainOutput:
    """What has been captured of a compiled callable so far."""
    core = core_of(compiled)
    if core is None:
        raise TypeError(f"not compiled by kintsugi: {compiled!r}")
    stats = Stats.from_core(core.stats())
    traces = core.traces()
    return ExplainOutput(
        graph_count=stats.graph_count,
        graph_break_count=max(0, stats.graph_break_count),
        break_reasons=[BreakReason.from_core(event) for event in core.breaks()],
        op_count=stats.op_count,
        guards=[guard for trace in traces for guard in guards(trace)],
        ops_per_graph=[operations(trace) for trace in traces],
        traces=traces,
        stats=stats,
        recompiles=core.recompiles(),
        result=result,
        segments=core._segments(),
    )
