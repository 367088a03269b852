"""`kintsugi bench`: eager, Kintsugi and torch.compile side by side on a program of the user's."""

from __future__ import annotations

import dataclasses
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import kintsugi

from .._diagnostics import Timing, benchmark
from .common import FAILED, OK, print_json, stop
from .explain import check_script


def _builtin() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval()
    return net, (torch.randn(16, 64),)


def _load(target: str, inputs_name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    file, _, name = target.partition(":")
    path = Path(file)
    check_script(path)
    sys.path.insert(0, str(path.parent.resolve()))
    found = runpy.run_path(str(path), run_name="kintsugi_bench")
    names = [name] if name else ["model", "fn", "forward"]
    fn = next((found[n] for n in names if callable(found.get(n))), None)
    if fn is None:
        stop(f"{file} has no callable named {' or '.join(names)}; say which: {file}:NAME")
    inputs = found.get(inputs_name)
    if callable(inputs):
        inputs = inputs()
    if not isinstance(inputs, (tuple, list)):
        stop(f"{file} has no {inputs_name}: a tuple of arguments, or a function that returns one")
    return fn, tuple(inputs)


def run(
    target: str | None,
    *,
    inputs: str,
    backends: Sequence[str],
    peer: bool,
    warmup: int,
    runs: int,
    as_json: bool,
) -> int:
    """Prints a table; returns the exit code."""
    fn, args = _load(target, inputs) if target else _builtin()
    systems: list[tuple[str, Any, str]] = [("kintsugi", kintsugi.compile, backend) for backend in backends]
    if peer:
        systems += [("torch.compile", torch.compile, backend) for backend in ("eager", "inductor")]
    rows: list[tuple[str, Timing | None, str]] = []
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    for system, make, backend in track(
        systems, "measuring", console=console, disable=not sys.stderr.isatty()
    ):
        name = f"{system}, {backend}"
        try:
            with torch.no_grad():
                timing = benchmark(fn, *args, compiled=make(fn, backend=backend), warmup=warmup, runs=runs)
            rows.append((name, timing, ""))
        except Exception as error:
            rows.append((name, None, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"))
    _show(rows, as_json)
    return OK if all(timing is not None for _, timing, _ in rows) else FAILED


def _show(rows: list[tuple[str, Timing | None, str]], as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {"system": name, "error": error or None}
                | ({**dataclasses.asdict(timing), "ratio": timing.ratio} if timing else {})
                for name, timing, error in rows
            ]
        )
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("system", "eager, ms", "compiled, ms", "times as fast", box=None)
    for name, timing, error in rows:
        if timing is None:
            table.add_row(name, "", "", f"failed: {error}")
        else:
            table.add_row(name, f"{timing.eager_ms:.3f}", f"{timing.compiled_ms:.3f}", f"{timing.ratio:.2f}")
    Console().print(table)
