"""The models that the benchmarks and the tests run.

`REGISTRY` maps a name to a `ModelSpec`. A spec builds the module with random but fixed weights in one of two sizes
(`tiny`: the time of a call is the overhead of Python and of the dispatcher; `mid`: a call takes more than 5 ms), and
makes fresh inputs of one shape from a seed, so that no file and no network is needed.
"""

from __future__ import annotations

from bench.models import plain, zoo
from bench.models.spec import SIZES, ModelSpec

REGISTRY: dict[str, ModelSpec] = {spec.name: spec for spec in (*zoo.specs(), *plain.specs())}


def _parts(pattern: str | None) -> list[str]:
    return [part.strip() for part in (pattern or "").split(",") if part.strip()]


def select_libraries(pattern: str | None = None) -> list[ModelSpec]:
    """The sample of whole libraries: see `library` and `networks`."""
    from bench.models import library, networks

    parts = _parts(pattern)
    specs = [*library.specs(), *networks.specs()]
    return [spec for spec in specs if not parts or any(part in spec.name for part in parts)]


def _matches(name: str, part: str) -> bool:
    return name == part if part in REGISTRY else part in name


def select(pattern: str | None = None, *, quick: bool = False) -> list[ModelSpec]:
    """The specs named by the comma-separated parts of `pattern`: a whole name, or a part of several."""
    parts = _parts(pattern)
    chosen = [
        spec
        for spec in REGISTRY.values()
        if (not parts or any(_matches(spec.name, part) for part in parts))
        and (spec.quick or not quick or parts)
    ]
    if not chosen:
        raise SystemExit(f"no model matches {pattern!r}; known: {', '.join(REGISTRY)}")
    return chosen


__all__ = ["REGISTRY", "SIZES", "ModelSpec", "select", "select_libraries"]
