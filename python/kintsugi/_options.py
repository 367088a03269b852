"""The arguments of kintsugi.compile(): checked, and turned into what the C++ core takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from . import _guard_filter, _logs, backends
from ._config import MOST, shown
from ._place import program_place

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

# Settings of kintsugi.config that options={...} sets for one callable.
PER_CALLABLE = ("audit", "recompile_limit", "trace_length_limit")
# Of the options, what is ours whatever the backend, as in torch.
GUARD_FILTER = "guard_filter_fn"
# Switches of the native backend.
NATIVE_SWITCHES = ("sync", "strict", "keep_memory", "autotune", "fp_contract")
# torch's switches that are taken, and change nothing: what each is for, and why there is no need.
WITHOUT_EFFECT = {
    "optimize_ddp": "DistributedDataParallel breaks no graph, and native code gives gradients bucket by bucket",
}
# What the modes mean to it.
_NATIVE_MODES = {
    "reduce-overhead": {"keep_memory": True},
    "max-autotune": {"keep_memory": True, "autotune": True},
    "max-autotune-no-cudagraphs": {"keep_memory": True, "autotune": True},
}


def report_without_effect(name: str, value: object, where: str) -> None:
    """Checks the value of one of torch's switches that change nothing here, and says so."""
    if not isinstance(value, (bool, str)):
        raise TypeError(f"{where}: {name!r} must be True, False or the name of a mode, got {shown(value)}.")
    _logs.warn(f"{where}: {name} has no effect: {WITHOUT_EFFECT[name]}.")


def _check_count(name: str, value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise ValueError(
            f"kintsugi.compile: {what} {name!r} must be an int from 1 to {MOST}, got {shown(value)}."
        )


@dataclasses.dataclass(frozen=True)
class CompileOptions:
    """What a callable was compiled with. Equal options make the same compiled callable."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: str | Callable[..., Any] = "native"
    mode: str | None = None
    options: Mapping[str, Any] | None = None
    name: str | None = None
    recompile_limit: int | None = None
    isolate_recompiles: bool = False
    audit: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.fullgraph, bool):
            raise TypeError(f"kintsugi.compile: fullgraph must be True or False, got {self.fullgraph!r}.")
        if self.dynamic is not None and not isinstance(self.dynamic, bool):
            raise TypeError(f"kintsugi.compile: dynamic must be None, True or False, got {self.dynamic!r}.")
        if self.mode is not None and self.mode not in MODES:
            raise ValueError(f"kintsugi.compile: unknown mode {self.mode!r}. Known: {', '.join(MODES)}.")
        if self.mode is not None and self.options is not None:
            raise ValueError("kintsugi.compile takes mode or options, not both.")
        backends.check(self.backend)
        self._check_arguments()
        if self.options is not None:
            self._check_options(self.options)

    def _check_arguments(self) -> None:
        if self.name is not None and not isinstance(self.name, str):
            raise TypeError(f"kintsugi.compile: name must be a string, got {self.name!r}.")
        if not isinstance(self.isolate_recompiles, bool):
            raise TypeError(
                f"kintsugi.compile: isolate_recompiles must be True or False, got {self.isolate_recompiles!r}."
            )
        for name in ("recompile_limit", "audit"):
            value = getattr(self, name)
            if value is None:
                continue
            _check_count(name, value, "argument")
            if self.options is not None and name in self.options and backends.is_ours(self.backend):
                raise ValueError(
                    f"kintsugi.compile: {name} is given twice, as an argument and among the options."
                )

    def _check_options(self, options: Mapping[str, Any]) -> None:
        if not isinstance(options, Mapping):
            raise TypeError(f"kintsugi.compile: options must be a dict, got {type(options).__name__}.")
        chosen = options.get(GUARD_FILTER)
        if chosen is not None and not callable(chosen):
            raise TypeError(
                f"kintsugi.compile: option {GUARD_FILTER!r} must be a function, got {shown(chosen)}."
            )
        if not backends.is_ours(self.backend):
            return  # they are the backend's own
        switches = NATIVE_SWITCHES if self.backend == "native" else ()
        for name, value in options.items():
            if name == GUARD_FILTER:
                continue
            if name in WITHOUT_EFFECT:
                report_without_effect(name, value, "kintsugi.compile")
                continue
            if name in switches:
                if not isinstance(value, bool):
                    raise TypeError(
                        f"kintsugi.compile: option {name!r} must be True or False, got {value!r}."
                    )
                continue
            if name not in PER_CALLABLE:
                known = ", ".join((*PER_CALLABLE, GUARD_FILTER, *switches))
                raise ValueError(f"kintsugi.compile: unknown option {name!r}. Known: {known}.")
            _check_count(name, value, "option")

    def to_core(self, fn: object = None) -> dict[str, Any]:
        """The dict that `_C.Compiled` takes, with fn."""
        core: dict[str, Any] = {
            "place": program_place(fn),
            "fullgraph": self.fullgraph,
            "dynamic": self.dynamic,
            "backend": backends.segment_compiler(self.backend, mode=self.mode, options=self._backends()),
            "native": self.backend == "native",
            "name": self.name,
            "recompile_limit": self.recompile_limit,
            "audit": self.audit,
        }
        chosen = (self.options or {}).get(GUARD_FILTER)
        if chosen is not None:
            core["guard_filter"] = _guard_filter.for_core(chosen)
        if self.backend == "native":
            core.update(_NATIVE_MODES.get(self.mode or "default", {}))
        if self.options is not None and backends.is_ours(self.backend):
            core.update(
                {
                    name: value
                    for name, value in self.options.items()
                    if name not in WITHOUT_EFFECT and name != GUARD_FILTER
                }
            )
        return core

    def _backends(self) -> Mapping[str, Any] | None:
        """The options that are the backend's own."""
        if self.options is None or GUARD_FILTER not in self.options:
            return self.options
        return {name: value for name, value in self.options.items() if name != GUARD_FILTER} or None
