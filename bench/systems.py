"""The systems that are measured side by side: eager, Kintsugi (replay, native code), torch.compile as the peer."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.readiness import WARM_UP_CALLS, NeverCompiled, until_compiled

Compile = Callable[..., Any]

PEERS = {
    "eager": {"backend": "eager"},
    "inductor": {"backend": "inductor"},
    "max-autotune": {"backend": "inductor", "mode": "max-autotune"},
}
BACKENDS = ("eager", "native")


def _nothing() -> None:
    return None


@dataclasses.dataclass(frozen=True)
class System:
    """How to compile with a system, how to forget everything, and what it says about a compiled object.

    `wait` returns when nothing is left to compile in the background. `first_calls` is how many first calls are worth
    their time: those of a slow compiler are measured once. `runs`: Kintsugi's backend ("eager" is replay), or nothing.
    """

    name: str
    compile: Compile
    reset: Callable[[], None]
    counts: Callable[[Any], dict[str, int]]
    wait: Callable[[], Any] = _nothing
    first_calls: int = 100
    runs: str = ""

    def ready(self, compiled: Any, call: Callable[[], Any], start: float) -> float:
        """Seconds from `start` to the end of the first call that runs compiled code, behind a first call that is over.

        torch.compile's backends compile in the first call and run the result there. Replay runs from the second call
        on. Native code runs later, and by turns with replay until one of them is chosen: see `readiness`. Raises
        NeverCompiled.
        """
        if self.runs == "native":
            return until_compiled(call, compiled.stats, start=start).seconds
        if self.runs:
            before = self.counts(compiled)["hits"]
            call()
            if self.counts(compiled)["hits"] == before:
                raise NeverCompiled("the second call was no replay")
        elif self is not EAGER and self.counts(compiled)["graph_count"] == 0:
            raise NeverCompiled("the first call compiled no graph")
        return time.perf_counter() - start

    @property
    def is_peer(self) -> bool:
        return self.name.startswith("torch.compile")

    def warm_up(self, call: Callable[[], Any]) -> None:
        """Calls until the system runs what it will run from then on."""
        call()
        call()
        self.wait()
        for _ in range(WARM_UP_CALLS if self is not EAGER else 0):
            call()
        self.wait()


def warm_up_all(systems: Sequence[System], calls: Mapping[str, Callable[[], Any]]) -> None:
    """Settles each system that has a call, once all have compiled: compiling with one changes classes that another has
    guarded, and makes another forget what it has compiled."""
    for system in systems:
        if system.name in calls:
            system.warm_up(calls[system.name])


EAGER = System("eager", lambda model, **_: model, _nothing, lambda _: {})


def kintsugi(backend: str = "eager") -> System:
    """Kintsugi with the given backend; `eager` is replay, which is compared bit by bit."""
    import kintsugi as library

    def counts(compiled: Any) -> dict[str, int]:
        stats = compiled.stats()
        names = (
            "graph_count",
            "graph_break_count",
            "op_count",
            "trace_count",
            "guard_count",
            "hits",
            "misses",
            "native_runs",
            "left_to_eager",
        )
        return {name: int(getattr(stats, name)) for name in names}

    def compile_model(model: Any, **options: Any) -> Any:
        return library.compile(model, **({"backend": backend} | options))

    name = "kintsugi" if backend == "eager" else f"kintsugi {backend}"
    return System(name, compile_model, library.reset, counts, wait=library.wait, runs=backend)


def peer(name: str) -> System:
    """torch.compile with one of `PEERS`; its graphs and breaks come from its own counters."""
    import torch
    from torch._dynamo.utils import counters

    def counts(_: Any) -> dict[str, int]:
        breaks = sum(counters["graph_break"].values())
        return {"graph_count": counters["stats"].get("unique_graphs", 0), "graph_break_count": breaks}

    def reset() -> None:
        torch._dynamo.reset()
        counters.clear()

    def compile_model(model: Any, **options: Any) -> Any:
        settings = {"backend": options["backend"]} if "backend" in options else PEERS[name]
        return torch.compile(model, **(settings | options))

    first_calls = 100 if name == "eager" else 1
    return System(f"torch.compile({name})", compile_model, reset, counts, first_calls=first_calls)


OUR_ALLOCATOR = ", our allocator"  # behind the name of a system


def in_our_memory(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call while the allocator of compiled runs is in place, for systems that have it not."""
    from kintsugi import _C

    return functools.partial(_C.call_in_run_memory, call)


def constant_backend(module: Any, _example_inputs: Any) -> Callable[..., Any]:
    """An FX backend whose graphs run nothing: each call returns what the first one computed.

    A call of a function compiled with it costs the guards, the dispatch and the rebuilding of the results.
    """
    kept: list[Any] = []

    def run(*args: Any) -> Any:
        if not kept:
            kept.append(module(*args))
        return kept[0]

    return run
