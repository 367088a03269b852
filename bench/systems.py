"""The systems that are measured side by side: eager, Kintsugi, and torch.compile as the peer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

Compile = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class System:
    """How to compile with a system, how to forget everything, and what it says about a compiled object."""

    name: str
    compile: Compile
    reset: Callable[[], None]
    counts: Callable[[Any], dict[str, int]]


def _nothing() -> None:
    return None


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
        )
        return {name: int(getattr(stats, name)) for name in names}

    def compile_model(model: Any, **options: Any) -> Any:
        return library.compile(model, **({"backend": backend} | options))

    return System("kintsugi", compile_model, library.reset, counts)


def peer(backend: str) -> System:
    """torch.compile with one of its backends; its graphs and breaks come from its own counters."""
    import torch
    from torch._dynamo.utils import counters

    def counts(_: Any) -> dict[str, int]:
        breaks = sum(counters["graph_break"].values())
        return {"graph_count": counters["stats"].get("unique_graphs", 0), "graph_break_count": breaks}

    def reset() -> None:
        torch._dynamo.reset()
        counters.clear()

    def compile_model(model: Any, **options: Any) -> Any:
        return torch.compile(model, **({"backend": backend} | options))

    return System(f"torch.compile({backend})", compile_model, reset, counts)


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
