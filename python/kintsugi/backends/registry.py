"""Names of backends, and how a name becomes something that compiles graphs."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import torch

from .. import _config

FxBackend = Callable[..., Any]

OURS = ("eager", "native")
# Looked up in torch's own registry when they are used, since importing torch._dynamo takes a second.
FROM_TORCH = ("aot_eager", "cudagraphs", "inductor")

_registered: dict[str, FxBackend] = {}


_USUAL = ("debug", "experimental")


def list_backends(exclude_tags: Sequence[str] | None = _USUAL) -> list[str]:
    """The names that kintsugi.compile(backend=...) knows, sorted.

    `exclude_tags`: of torch's own backends those with these tags are left out; None: none are.
    """
    names = {*OURS, *FROM_TORCH, *_registered}
    if tuple(exclude_tags or ()) != _USUAL:
        from torch._dynamo.backends.registry import list_backends as torch_backends

        names |= set(torch_backends(exclude_tags or ())) - {"kintsugi"}
    return sorted(names)


@overload
def register_backend(compiler_fn: FxBackend, name: str | None = ...) -> FxBackend: ...
@overload
def register_backend(
    compiler_fn: None = None, name: str | None = ...
) -> Callable[[FxBackend], FxBackend]: ...
def register_backend(compiler_fn: FxBackend | None = None, name: str | None = None) -> Any:
    """Registers `compiler_fn(gm, example_inputs)` under a name (its own by default). Also a decorator."""
    if compiler_fn is None:
        return functools.partial(register_backend, name=name)
    if not callable(compiler_fn):
        raise TypeError(
            f"kintsugi.register_backend expects a callable(gm, example_inputs), got {type(compiler_fn).__name__}."
        )
    chosen = name or getattr(compiler_fn, "__name__", None)
    if not isinstance(chosen, str) or not chosen:
        raise ValueError("kintsugi.register_backend: this backend has no name of its own; pass name=...")
    if chosen in OURS or chosen in FROM_TORCH:
        raise ValueError(f"kintsugi.register_backend: {chosen!r} is the name of a built-in backend.")
    if _registered.get(chosen, compiler_fn) is not compiler_fn:
        raise ValueError(f"kintsugi.register_backend: another backend is registered as {chosen!r}.")
    _registered[chosen] = compiler_fn
    return compiler_fn


def default_name(backend: str | FxBackend | None) -> str | FxBackend:
    """The backend that is meant where none is named."""
    if backend is not None:
        return backend
    config = _config.current()
    return config.default_backend if config is not None else "native"


def is_ours(backend: object) -> bool:
    """Whether the core runs it without FX."""
    return isinstance(backend, str) and backend in OURS


def check(backend: object) -> None:
    """Raises what the user should see for a backend that does not exist or can't run here."""
    if not isinstance(backend, str):
        if not callable(backend):
            raise TypeError(
                "kintsugi.compile: backend must be a name or a callable(gm, example_inputs), "
                f"got {type(backend).__name__}."
            )
        return
    if backend == "cudagraphs" and not torch.cuda.is_available():
        raise RuntimeError(
            "kintsugi.compile: backend 'cudagraphs' needs a CUDA device, and torch finds none here. "
            "Use backend='native'."
        )
    if backend not in OURS and backend not in FROM_TORCH and backend not in _registered:
        _check_torch(backend)


def _check_torch(backend: str) -> None:
    """A name that only torch may know, as one of its plug-ins."""
    from torch._dynamo.backends.registry import list_backends as torch_backends

    others = torch_backends(exclude_tags=())
    if backend in others and backend != "kintsugi":
        return
    close = difflib.get_close_matches(backend, list_backends(), 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"kintsugi.compile: unknown backend {backend!r}.{hint} Known: {', '.join(list_backends())}; "
        "or pass a callable(gm, example_inputs), or register one with kintsugi.register_backend."
    )


def lookup(backend: str | FxBackend) -> FxBackend:
    """The callable(gm, example_inputs) that a name stands for."""
    if not isinstance(backend, str):
        return backend
    if backend in _registered:
        return _registered[backend]
    from torch._dynamo.backends.registry import lookup_backend

    found: FxBackend = lookup_backend(backend)
    return found


@dataclasses.dataclass(frozen=True)
class SegmentCompiler:
    """What the core calls with each pure tensor segment; returns a callable(*inputs) -> tuple."""

    backend: str | FxBackend
    mode: str | None = None
    options: Mapping[str, Any] | None = None

    def __call__(self, segment: Mapping[str, Any]) -> Callable[..., tuple[Any, ...]]:
        from . import fx  # torch.fx takes a while to import

        return fx.backend_compile(segment, lookup(self.backend), name=self.name, **self._backend_options())

    def prepare(self) -> None:
        """Imports what the first graph will need."""
        from . import fx

        fx.load()
        lookup(self.backend)

    @property
    def name(self) -> str:
        return self.backend if isinstance(self.backend, str) else getattr(self.backend, "__name__", "custom")

    def _backend_options(self) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self.backend == "inductor":
            # inductor takes its modes as settings; None means default.
            if self.mode is not None and self.mode != "default":
                from torch._inductor import list_mode_options

                extra["config_patches"] = list_mode_options(self.mode)
            elif self.options is not None:
                extra["config_patches"] = dict(self.options)
        elif self.options is not None:
            extra["options"] = dict(self.options)
        return extra


def segment_compiler(
    backend: str | FxBackend, *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> SegmentCompiler | None:
    """What the core gets as `backend`: None for its own executors."""
    if is_ours(backend):
        return None
    return SegmentCompiler(backend, mode, options)
