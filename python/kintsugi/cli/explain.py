"""`kintsugi explain SCRIPT`: runs a user's script and reports on everything that it compiled."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

import kintsugi

from .. import _public
from .._callable import core_of
from .._events import EventLog
from .._explain import ExplainOutput, explain_compiled
from .._profiler import life, profile
from .._text import printable
from ..report.collect import name_of
from .common import FAILED, USAGE, say, stop

Language = Literal["en", "zh"]


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Files to write besides the text."""

    html: Path | None = None
    perfetto: Path | None = None
    sarif: Path | None = None
    structured: Path | None = None
    save: Path | None = None

    def any(self) -> bool:
        return any(dataclasses.astuple(self))


@contextlib.contextmanager
def _collecting(take_torch: bool) -> Iterator[list[Any]]:
    """All that is compiled in the block, kept alive until its end."""
    found: list[Any] = []
    _public.observers.append(found.append)
    original = torch.compile
    if take_torch:
        torch.compile = kintsugi.compile
    try:
        yield found
    finally:
        torch.compile = original
        _public.observers.remove(found.append)


def check_script(script: Path) -> None:
    """Ends the command, with one sentence, if this is no Python program."""
    try:
        compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    except OSError as error:
        stop(f"{script} can't be read: {error.strerror}")
    except SyntaxError as error:
        stop(f"{script} is no Python program: line {error.lineno or 1}: {error.msg}")
    except ValueError as error:  # null bytes
        stop(f"{script} is no Python program: {error}")


def _print_traceback(error: BaseException, script: Path) -> None:
    """Without the frames above the script's own, which are ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(script):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace or error.__traceback__)


def run_script(script: Path, arguments: Sequence[str]) -> int:
    """Runs it as `python SCRIPT` would; its exit code."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent.resolve()))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as left:
        if left.code is None:
            return 0
        if isinstance(left.code, int):
            return left.code
        print(left.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        _print_traceback(error, script)
        return 1
    finally:
        sys.argv, sys.path = argv, path
    return 0


def _name(compiled: Any) -> str:
    code = getattr(getattr(compiled, "__wrapped__", None), "__code__", None)
    return name_of(compiled) + (f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else "")


def _as_dict(name: str, output: ExplainOutput) -> dict[str, Any]:
    return {
        "name": name,
        "graph_count": output.graph_count,
        "graph_break_count": output.graph_break_count,
        "op_count": output.op_count,
        "break_reasons": [dataclasses.asdict(reason) for reason in output.break_reasons],
        "guards": output.guards,
        "ops_per_graph": output.ops_per_graph,
        "recompiles": output.recompiles,
        "stats": dataclasses.asdict(output.stats),
    }


def check_outputs(outputs: Outputs) -> None:
    """What is missing for them is said before the script runs, not after it."""
    if outputs.html is not None:
        from ..report.html import require

        require()


def write_outputs(report: dict[str, Any], outputs: Outputs, traces: Sequence[Sequence[str]] = ()) -> bool:
    """Writes the files that were asked for, and says where they are; False if one can't be written."""
    from ..report.html import to_html
    from ..report.perfetto import to_perfetto
    from ..report.sarif import to_sarif
    from ..report.structured import to_structured_trace

    texts: dict[str, Callable[[], str]] = {
        "html": lambda: to_html(report),
        "perfetto": lambda: json.dumps(to_perfetto(report)),
        "sarif": lambda: json.dumps(to_sarif(report), indent=2),
        "structured": lambda: to_structured_trace(report, traces),
        "save": lambda: json.dumps(report),
    }
    good = True
    for name, make in texts.items():
        path: Path | None = getattr(outputs, name)
        if path is None:
            continue
        try:
            path.write_text(make(), encoding="utf-8", errors="backslashreplace")
            say(f"kintsugi: wrote {path}")
        except OSError as error:
            say(f"kintsugi: {path} can't be written: {error.strerror}")
            good = False
    return good


def _print_advice(codes: Sequence[str], language: Language) -> None:
    """What the knowledge base says of the breaks."""
    try:
        from ..kb import load
        from ..kb.render import cause, remedies
    except ImportError:
        return
    base = load()
    print("\nWhat helps:" if language == "en" else "\n建议：")
    for code in dict.fromkeys(codes):
        entry = base.find(code)
        print(f"{code} ({entry.id}): {cause(entry, language)}")
        for action, share in remedies(entry, language)[0]:
            print(f"  - {action} ({share})")


def run(
    script: Path,
    arguments: Sequence[str],
    *,
    as_json: bool,
    take_torch: bool,
    outputs: Outputs | None = None,
    most_breaks: int | None = None,
    language: Language = "en",
) -> int:
    """Runs the script and prints what was captured; returns the exit code, which is the script's."""
    check_script(script)
    outputs = outputs or Outputs()
    check_outputs(outputs)
    written = True
    log = EventLog()
    with _collecting(take_torch) as found, log:
        status = run_script(script, arguments)
        reports = [(_name(compiled), explain_compiled(compiled)) for compiled in found]
        if outputs.any():
            from ..report import collect

            data = collect(log, found, title=script.name, status=status, argv=[str(script), *arguments])
            cores = [core_of(compiled) for compiled in found]
            written = write_outputs(data, outputs, [core.traces() if core else [] for core in cores])
    if as_json:
        print(
            json.dumps(
                {"script": str(script), "status": status, "compiled": [_as_dict(*r) for r in reports]},
                indent=2,
            )
        )
    else:
        if not reports:
            print("kintsugi explain: the script compiled nothing (no kintsugi.compile call was reached).")
        for name, output in reports:
            text = f"\n== {name}\n{output}\ncalls: {output.stats.hits} hits, {output.stats.misses} misses"
            print(printable(text))
        print(printable("\n".join(life(profile(log.events, log.dropped)))))
        codes = [reason.code for _, output in reports for reason in output.break_reasons]
        codes += ["KTG0201" for _, output in reports if output.recompiles]
        if codes:
            _print_advice(codes, language)
    breaks = sum(output.graph_break_count for _, output in reports)
    if status == 0 and most_breaks is not None and breaks > most_breaks:
        say(f"kintsugi explain: {breaks} graph breaks, at most {most_breaks} are allowed")
        return FAILED
    return status if written or status != 0 else USAGE


def run_under_torch(script: Path, arguments: Sequence[str], *, as_json: bool, language: Language) -> int:
    """Runs the script with torch.compile (backend eager) and explains its break reasons from the knowledge base."""
    check_script(script)
    from torch._dynamo.utils import counters

    from ..kb import load
    from ..kb.matching import EntryMatcher
    from ..kb.render import cause, remedies

    ours, original = kintsugi.compile, torch.compile

    def eager_backend(model: Any = None, **options: Any) -> Any:
        options["backend"] = "eager"
        compile_: Any = original
        return compile_(model, **options)

    counters.clear()
    kintsugi.compile = torch.compile = eager_backend
    try:
        status = run_script(script, arguments)
    finally:
        kintsugi.compile, torch.compile = ours, original
    matcher = EntryMatcher(load())
    rows = []
    for text, count in {**counters["graph_break"], **counters["unimplemented"]}.items():
        match = next(iter(matcher.match_text(text)), None)
        rows.append({"reason": text.strip(), "count": count, "entry": match.entry if match else None})
    if as_json:
        plain = [{**row, "entry": row["entry"].id if row["entry"] else None} for row in rows]
        print(json.dumps({"script": str(script), "status": status, "breaks": plain}, indent=2))
        return status
    print(f"\ntorch.compile broke the graph for {len(rows)} reasons.")
    for number, row in enumerate(rows, 1):
        print(printable(f"\n{number}. {row['reason'].splitlines()[0]} ({row['count']} times)"))
        if row["entry"] is not None:
            print(f"   {row['entry'].id}: {cause(row['entry'], language)}")
            for action, share in remedies(row["entry"], language)[0]:
                print(f"   - {action} ({share})")
    return status
