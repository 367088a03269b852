"""Tools for a person who wants to know what is going on: a context, dumps, advice on where to compile, benchmarks."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from . import _C, _config, _logs
from ._backward import BackwardDump, dump_backward
from ._events import EventLog
from ._profiler import CompilationProfiler, Profile


@contextlib.contextmanager
def diagnostics(*channels: str, **settings: Any) -> Iterator[CompilationProfiler]:
    """Everything is captured in the block: logs, events, errors of backends; all settings come back afterwards.

        with kintsugi.diagnostics() as found:
            compiled(x)
        print(found.report())

    Channels are those of set_logs (default: graph_breaks and recompiles); settings are those of kintsugi.config.
    """
    config = _config.current()
    assert config is not None
    before = _logs.enabled()
    profiler = CompilationProfiler()
    with config.patch({"verbose": True, "suppress_errors": False, **settings}):
        try:
            _logs.set_logs(*(channels or ("graph_breaks", "recompiles")))
            with profiler:
                yield profiler
        finally:
            _logs.set_logs(*before)


@dataclasses.dataclass(frozen=True)
class Timing:
    """Milliseconds a call: medians and means of interleaved rounds."""

    eager_ms: float
    compiled_ms: float
    eager_mean_ms: float
    compiled_mean_ms: float
    runs: int

    @property
    def ratio(self) -> float:
        """How many times faster the compiled call is (by medians)."""
        return self.eager_ms / self.compiled_ms if self.compiled_ms else float("inf")

    def __str__(self) -> str:
        return (
            f"Eager mode: {self.eager_ms:.3f} ms\nCompiled mode: {self.compiled_ms:.3f} ms\n"
            f"Speedup: {self.ratio:.2f}x (medians of {self.runs} runs)"
        )


def _clock(call: Callable[[], object]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def benchmark(
    fn: Callable[..., Any],
    *args: Any,
    compiled: Callable[..., Any] | None = None,
    warmup: int = 50,
    runs: int = 200,
) -> Timing:
    """Eager beside compiled: `warmup` calls of each, then `runs` of each in turns."""
    if compiled is None:
        from ._public import compile

        compiled = compile(fn)
    fast_call: Callable[..., Any] = compiled

    def eager_call() -> object:
        return fn(*args)

    def compiled_call() -> object:
        return fast_call(*args)

    for _ in range(warmup):
        eager_call()
        compiled_call()
    eager, fast = [], []
    for _ in range(max(1, runs)):
        eager.append(_clock(eager_call))
        fast.append(_clock(compiled_call))
    return Timing(
        statistics.median(eager),
        statistics.median(fast),
        statistics.fmean(eager),
        statistics.fmean(fast),
        runs,
    )


def try_backends(fn: Callable[..., Any], *args: Any, backends: Sequence[str] | None = None) -> dict[str, str]:
    """Which backends run it: the name of each with "ok", or the first line of its error."""
    from ._public import compile
    from .backends import list_backends

    found: dict[str, str] = {}
    for name in backends or list_backends():
        try:
            config = _config.current()
            assert config is not None
            with config.patch(suppress_errors=False):
                compile(fn, backend=name)(*args)
            found[name] = "ok"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return found


@dataclasses.dataclass(frozen=True)
class Dump:
    """The forward graphs of a compiled callable, and the backward graph of one call of it."""

    ir: list[str]
    fx: list[str]
    graphviz: list[str]
    backward: BackwardDump | None
    """None: the call's result has no gradient."""

    def save(self, folder: str | Path) -> list[Path]:
        """Writes trace_N.ktir, graph_N.py, graph_N.dot, and backward_0.txt, .py and .dot; returns their paths."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        back = [self.backward] if self.backward is not None else []
        for texts, pattern in (
            (self.ir, "trace_{}.ktir"),
            (self.fx, "graph_{}.py"),
            (self.graphviz, "graph_{}.dot"),
            ([b.text for b in back], "backward_{}.txt"),
            ([b.fx for b in back], "backward_{}.py"),
            ([b.graphviz for b in back], "backward_{}.dot"),
        ):
            for number, text in enumerate(texts):
                path = folder / pattern.format(number)
                path.write_text(text, encoding="utf-8")
                written.append(path)
        return written


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def graph_to_dot(module: torch.fx.GraphModule, name: str = "graph") -> str:
    """Graphviz text of a graph; no library is needed to make it."""
    lines = [f"digraph {_quoted(name)} {{", '  node [shape=box, fontname="monospace"];']
    for node in module.graph.nodes:
        target = node.name if node.op in ("placeholder", "output") else f"{node.name} = {node.target}"
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            shape = "x".join(str(size) for size in value.shape)
            target += f"\\n{str(value.dtype).removeprefix('torch.')}[{shape}]"
        label = '"' + target.replace('"', '\\"') + '"'
        lines.append(f"  {_quoted(node.name)} [label={label}];")
        lines += [f"  {_quoted(source.name)} -> {_quoted(node.name)};" for source in node.all_input_nodes]
    return "\n".join([*lines, "}"]) + "\n"


def dump(fn: Callable[..., Any]) -> Callable[..., Dump]:
    """dump(fn)(*args): what is captured of the call, as IR, as Python code of FX graphs, and for Graphviz.

    fn is called twice. Where its result has a gradient, what autograd will run backwards is there as well.
    """
    from ._callable import CompiledFunction, core_of
    from ._module import CompiledModule
    from ._public import compile

    if isinstance(fn, CompiledModule):
        fn = fn._orig_mod
    elif isinstance(fn, CompiledFunction):
        fn = fn.__wrapped__

    def run(*args: Any, **kwargs: Any) -> Dump:
        graphs: list[torch.fx.GraphModule] = []

        def keep(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            graphs.append(graph)
            forward: Callable[..., Any] = graph.forward
            return forward

        compiled = compile(fn, backend=keep)
        compiled(*args, **kwargs)
        result = compiled(*args, **kwargs)
        core = core_of(compiled)
        assert core is not None
        codes = [graph.print_readable(print_output=False) for graph in graphs]
        drawings = [graph_to_dot(g, f"graph_{n}") for n, g in enumerate(graphs)]
        return Dump(core.traces(), codes, drawings, dump_backward(result, (args, kwargs)))

    return run


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A function that could be compiled."""

    function: str
    file: str
    line: int
    depth: int
    breaks: int
    """In itself and in what it calls."""
    foreign_ms: float
    """Time in what is not captured, in itself and in what it calls."""


@dataclasses.dataclass(frozen=True)
class Advice:
    """Where to compile: the highest function with few breaks."""

    best: Candidate | None
    candidates: list[Candidate]

    def __str__(self) -> str:
        if self.best is None:
            return "No function was found that is worth compiling: nothing was captured."
        text = (
            f"Compile {self.best.function} ({self.best.file}:{self.best.line}): the highest function with few breaks "
            f"({self.best.breaks} in one call)."
        )
        rest = [c for c in self.candidates if c != self.best]
        if rest:
            text += "\nOthers, outermost first:"
            text += "".join(f"\n  {c.function} ({c.file}:{c.line}): {c.breaks} breaks" for c in rest)
        return text


def where_to_compile(fn: Callable[..., Any], *args: Any, most_breaks: int = 1, **kwargs: Any) -> Advice:
    """Runs fn(*args) compiled, twice, and looks at which of the functions that it calls have breaks.

    The advice is the outermost function whose calls have at most `most_breaks` breaks: what is above it does I/O and
    preprocessing, which gain nothing from being compiled.
    """
    from ._callable import core_of
    from ._public import compile

    target = getattr(fn, "__wrapped__", fn)
    compiled = compile(target, backend="eager")
    with EventLog() as log:
        compiled(*args, **kwargs)
        compiled(*args, **kwargs)
    core = core_of(compiled)
    assert core is not None
    breaks = [
        (tuple((f["file"], f["line"], f["function"]) for f in event["stack"]), event["message"])
        for event in core.breaks()
    ]
    return _advise(target, breaks, log, most_breaks)


def _advise(
    target: Any, breaks: Sequence[tuple[tuple[Any, ...], str]], log: EventLog, most_breaks: int
) -> Advice:
    events = [e for e in log.events if e.kind in ("opaque", "step", "effect", "exit")]
    seen = _called_functions(target)
    inside: dict[tuple[str, str], set[tuple[Any, ...]]] = {key: set() for key in seen}
    foreign: dict[tuple[str, str], float] = dict.fromkeys(seen, 0.0)
    depth = {key: position for position, key in enumerate(seen)}
    lines: dict[
        tuple[str, str], int
    ] = {}  # where something happens in a function that was not found by its name
    for frames, message in breaks:
        for level, (file, line, function) in enumerate(frames):
            lines.setdefault((file, function), line)
            inside.setdefault((file, function), set()).add((frames[level:], message))
            depth.setdefault((file, function), level)
    for event in events:
        for file, _, function in event.stack:
            foreign[file, function] = foreign.get((file, function), 0.0) + event.duration_ns / 1e6
    candidates = [
        Candidate(
            function,
            file,
            seen.get((file, function)) or lines.get((file, function), 0),
            depth[file, function],
            len(found),
            foreign.get((file, function), 0.0),
        )
        for (file, function), found in inside.items()
        if file and not _C.is_library(file)
    ]
    candidates.sort(key=lambda c: c.depth)
    best = next((c for c in candidates if c.breaks <= most_breaks), None)
    return Advice(best, candidates)


def _called_functions(target: Any, most: int = 200) -> dict[tuple[str, str], int]:
    """Functions of the program that `target` refers to by name, breadth first: (file, name) -> line."""
    import types

    found: dict[tuple[str, str], int] = {}
    queue: list[Any] = [target]
    known: set[int] = set()
    while queue and len(found) < most:
        item = queue.pop(0)
        if isinstance(item, torch.nn.Module):
            queue += [type(item).forward, *item.children()]
            continue
        if isinstance(item, types.MethodType):
            item = item.__func__
        item = getattr(item, "__wrapped__", item)
        if not isinstance(item, types.FunctionType) or id(item) in known:
            continue
        known.add(id(item))
        code = item.__code__
        if _C.is_library(code.co_filename):
            continue
        found[code.co_filename, code.co_name] = code.co_firstlineno
        names = [*code.co_names]
        cells = [cell.cell_contents for cell in item.__closure__ or () if _filled(cell)]
        queue += [item.__globals__[name] for name in names if name in item.__globals__]
        queue += cells
    return found


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


__all__ = [
    "Advice",
    "Candidate",
    "Dump",
    "Profile",
    "Timing",
    "benchmark",
    "diagnostics",
    "dump",
    "try_backends",
    "where_to_compile",
]
