"""Runs all systems on a model: a process each, cold first calls one after the other, then rounds in turn."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench.deploy.systems import ROOT, SYSTEMS

Row = dict[str, Any]
MEMORY_CALLS = 20
# A system whose code another one has made in the same run, so that it is not compiled twice.
SHARES_CACHES = {"inductor-pool": "inductor"}


class Failed(Exception):
    """The worker said why, crashed, or took too long."""


class Process:
    """A worker and what it answers. `folder` is for what its system keeps on disk."""

    def __init__(self, system: str, model: str, threads: int, folder: pathlib.Path) -> None:
        compiled = system.startswith(("inductor", "freezing", "max-autotune", "compile-eager"))
        compiles_with = "torch.compile" if compiled else ""
        job = {"system": system, "model": model, "threads": threads, "folder": str(folder)}
        job["weights"] = str(folder.parent / "weights.pt")
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
            "PYTHONPATH": str(ROOT),
            "HF_HUB_OFFLINE": "1",
        }
        self.log = (folder / f"{system}.log").open("w+")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bench.deploy.worker",
                json.dumps(job | {"compiles_with": compiles_with}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
            cwd=ROOT,
            text=True,
            bufsize=1,
        )

    def ask(self, *what: Any, allowed: float) -> Row:
        """One row. Raises Failed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has said why
            self.process.stdin.write(json.dumps(what) + "\n")
        if not select.select([self.process.stdout], [], [], allowed)[0]:
            raise Failed(f"{what[0]}: longer than {allowed:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"{what[0]}: the process ended with {self.process.wait()}")
        row: Row = json.loads(line)
        if "error" in row:
            raise Failed(row["error"])
        return row

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


def _cold(process: Process, allowed: float) -> Row:
    """A cold first call. `first_s`: compile() and the call; `start_s`: from the start of the process, the model's own
    building left out; `ready_s`: until compiled code runs; and what the process takes."""
    row = process.ask("first", allowed=allowed)
    first = row["ended"] - row["begun"]
    before = row["entered"] - process.started + row["imports"]
    figures = {"first_s": first, "imports_s": row["imports"], "start_s": before + first}
    ready = process.ask("ready", allowed=allowed)
    figures |= {"ready_s": ready["ready"], "compile_peak_mb": ready["compile_peak_bytes"] / 1e6}
    if ready.get("first_native") is not None:
        figures["first_native_s"] = ready["first_native"]
    figures |= {key: ready[key] for key in ("native_segments",) if key in ready}
    return figures | {"built_mb": row["built_bytes"] / 1e6}


def _open(
    names: Sequence[str], model: str, threads: int, folder: pathlib.Path, allowed: float
) -> Iterator[tuple[str, Process | None, Row]]:
    for name in names:
        own = folder / SHARES_CACHES.get(name, name)
        own.mkdir(exist_ok=True)
        process = Process(name, model, threads, own)
        try:
            row = _cold(process, allowed)
            row |= {
                key.replace("_bytes", "_mb"): value / 1e6
                for key, value in process.ask("memory", MEMORY_CALLS, allowed=allowed).items()
            }
            row |= process.ask("check", allowed=allowed)
            yield name, process, row
        except Failed as error:
            process.close()
            yield name, None, {"error": str(error)}


def _write_weights(model: str, folder: pathlib.Path) -> None:
    command = [sys.executable, "-m", "bench.deploy.models", model, str(folder / "weights.pt")]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"})


def measure(
    model: str, names: Sequence[str], rounds: int, threads: int, target: float, allowed: float
) -> dict[str, Row]:
    """Figures of each system, or its `error`. `seconds` and `cpu_s`: medians of rounds in turn, by the clock and
    of processor time, which other work on the machine adds less to; `speedup`: over eager mode, the median of the
    rounds' ratios of processor time. With one thread and an idle machine the two are the same."""
    rows: dict[str, Row] = {}
    processes: dict[str, Process] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        _write_weights(model, pathlib.Path(folder))
        for name, process, row in _open(names, model, threads, pathlib.Path(folder), allowed):
            print(f"  {SYSTEMS[name].title}: {row.get('error', '')}", file=sys.stderr, flush=True)
            rows[name] = row
            if process is not None:
                processes[name] = process
                stack.callback(process.close)
        taken = _rounds(processes, rows, rounds, target, allowed)
        for name, series in taken.items():
            for key in ("seconds", "cpu_s"):
                rows[name][key] = statistics.median(row[key] for row in series)
            if "eager" in taken:
                pairs = zip(taken["eager"], series, strict=True)
                rows[name]["speedup"] = statistics.median(base["cpu_s"] / own["cpu_s"] for base, own in pairs)
    return rows


def _rounds(
    processes: dict[str, Process], rows: dict[str, Row], rounds: int, target: float, allowed: float
) -> dict[str, list[Row]]:
    """Each system's rounds. A process that fails now leaves with its `error`."""
    taken: dict[str, list[Row]] = {name: [] for name in processes}

    def one(name: str, calls: int) -> Row:
        try:
            return processes[name].ask("round", calls, allowed=allowed)
        except Failed as error:
            rows[name] = {"error": str(error)}
            del processes[name], taken[name]
            return {}

    warm = {name: one(name, 3).get("cpu_s", 0.0) for name in list(processes)}
    base = warm.get("eager") or max(warm.values(), default=0.0)
    calls = max(2, min(200, round(target / base))) if base else 2
    for turn in range(rounds):
        order = list(processes)
        shift = turn % max(1, len(order))
        for name in order[shift:] + order[:shift]:
            row = one(name, calls)
            if name in taken:
                taken[name].append(row)
    return taken
