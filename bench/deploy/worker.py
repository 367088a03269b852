"""One system runs one model in a process of its own: `python -m bench.deploy.worker JOB`, JOB as JSON.

It answers each line on its input (a JSON list: what to do, and its arguments) by one line. Before the first one it
makes the first call, so that this is a cold one: a new process, empty caches.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]


def speak() -> Callable[[Row], None]:
    """Answers go where standard output went; what libraries print goes to the errors."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return lambda row: print(json.dumps(row), file=answers, flush=True)


class Worker:
    """The model, compiled by the system; every method gives a row of figures (seconds, bytes)."""

    def __init__(self, job: Row) -> None:
        self.job = job
        self.entered = time.monotonic()
        import torch

        from bench.deploy import models, systems

        self.system = systems.SYSTEMS[job["system"]]
        for name in self.system.imports:
            systems.load(name)
        self.imports = time.monotonic() - self.entered
        import transformers  # noqa: F401  (the model's, whatever the system)

        torch.set_num_threads(job["threads"])
        torch.set_grad_enabled(False)
        self.module, self.inputs = models.make(job["model"], pathlib.Path(job["weights"]))
        self.tolerance = models.MODELS[job["model"]].tolerance

    def first(self) -> Row:
        """The first call of a new process, and what came before it."""
        from bench import memory

        built = memory.resident()
        begun = time.monotonic()
        self.start = time.perf_counter()
        self.call = self.system.compile(
            self.module, self.inputs, self.job["threads"], pathlib.Path(self.job["folder"])
        )
        self.result = self.call()
        ended = time.monotonic()
        return {
            "entered": self.entered,
            "imports": self.imports,
            "begun": begun,
            "ended": ended,
            "built_bytes": built,
        }

    def ready(self) -> Row:
        """Seconds from compile() to the end of the first call that runs compiled code, as all later ones do."""
        from bench import memory, readiness

        since = self.start
        spent = time.perf_counter() - since
        if hasattr(self.call, "stats"):
            if self.system.name == "replay":
                self.call()
                if self.call.stats().hits < 1:
                    raise RuntimeError("no call was replayed")
                row = {"ready": time.perf_counter() - since}
            else:
                stats = readiness.until_compiled(self.call, self.call.stats, start=since)
                row = {
                    "ready": stats.seconds,
                    "first_native": stats.first_native,
                    "native_segments": stats.native_segments,
                }
        else:
            row = {"ready": spent}
            self._check_that_torch_compiled()
        return row | {"compile_peak_bytes": memory.peak()}

    def _check_that_torch_compiled(self) -> None:
        if "torch._dynamo" in sys.modules and self.job["compiles_with"]:
            from torch._dynamo.utils import counters

            if counters["stats"]["unique_graphs"] < 1:
                raise RuntimeError("torch.compile compiled no graph")

    def check(self) -> Row:
        """The largest difference from eager mode, over the largest magnitude there. Raises above the tolerance."""
        import torch

        expected = self.module(*self.inputs)
        worst = 0.0
        for result in (self.result, self.call()):
            actual = result[0] if isinstance(result, list | tuple) else result
            actual = torch.as_tensor(actual)
            if actual.shape != expected.shape:
                raise RuntimeError(f"sizes are {tuple(actual.shape)}, expected {tuple(expected.shape)}")
            gap = float((actual.double() - expected.double()).abs().max() / expected.double().abs().max())
            if not gap <= self.tolerance:  # nor where it is NaN
                raise RuntimeError(f"differs from eager mode by {gap:.2g} of its largest value")
            worst = max(worst, gap)
        self.result = None
        return {"difference": worst}

    def memory(self, calls: int) -> Row:
        """Resident memory after some calls, its peak while they run, and torch's own count beyond the inputs."""
        from bench import measure, memory

        memory.reset_peak()
        for _ in range(calls):
            self.call()
        row: Row = {"resident_bytes": memory.resident(), "peak_bytes": memory.peak()}
        if self.system.memory != "its own":
            row["beyond_bytes"] = measure.peak_memory(self.call)
        return row

    def round(self, calls: int) -> Row:
        """Seconds a call by the clock, and of processor time, of all threads of the process."""
        from bench import measure

        with measure.no_collection():
            begun = time.process_time()
            seconds = measure.seconds(functools.partial(_repeat, self.call), calls)
            return {"seconds": seconds, "cpu_s": (time.process_time() - begun) / calls}


def _repeat(call: Callable[[], Any], calls: int) -> None:
    for _ in range(calls):
        call()


def _said(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]


def main() -> int:
    job = json.loads(sys.argv[1])
    answer = speak()
    try:
        worker = Worker(job)
        for line in sys.stdin:
            what, *arguments = json.loads(line)
            answer(getattr(worker, what)(*arguments))
    except Exception as error:
        traceback.print_exc()
        answer({"error": _said(error)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
