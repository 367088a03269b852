"""`kintsugi explain SCRIPT`: runs a user's script and reports on everything that it compiled."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import kintsugi

from .. import _public
from .._callable import CompiledFunction
from .._explain import ExplainOutput, explain_compiled


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


def _run_script(script: Path, arguments: Sequence[str]) -> int:
    """Runs it as `python SCRIPT` would; its exit code."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent.resolve()))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        if stop.code is None:
            return 0
        return stop.code if isinstance(stop.code, int) else 1
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.argv, sys.path = argv, path
    return 0


def _name(compiled: Any) -> str:
    original = compiled.__wrapped__ if isinstance(compiled, CompiledFunction) else type(compiled._orig_mod)
    code = getattr(original, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    return str(getattr(original, "__qualname__", None) or type(original).__name__) + where


def _as_dict(name: str, output: ExplainOutput) -> dict[str, Any]:
    return {
        "name": name,
        "graph_count": output.graph_count,
        "graph_break_count": output.graph_break_count,
        "op_count": output.op_count,
        "break_reasons": [dataclasses.asdict(reason) for reason in output.break_reasons],
        "guards": output.guards,
        "ops_per_graph": output.ops_per_graph,
        "stats": dataclasses.asdict(output.stats),
    }


def run(script: Path, arguments: Sequence[str], *, as_json: bool, take_torch: bool) -> int:
    """Runs the script and prints what was captured; returns the exit code, which is the script's."""
    if not script.is_file():
        print(f"kintsugi explain: there is no file {script}", file=sys.stderr)
        return 2
    with _collecting(take_torch) as found:
        status = _run_script(script, arguments)
        reports = [(_name(compiled), explain_compiled(compiled)) for compiled in found]
    if as_json:
        print(
            json.dumps(
                {"script": str(script), "status": status, "compiled": [_as_dict(*r) for r in reports]},
                indent=2,
            )
        )
        return status
    if not reports:
        print("kintsugi explain: the script compiled nothing (no kintsugi.compile call was reached).")
    for name, output in reports:
        print(f"\n== {name}\n{output}\ncalls: {output.stats.hits} hits, {output.stats.misses} misses")
    return status
