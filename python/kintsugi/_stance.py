"""set_stance(): what compiled callables do with calls that no trace serves, for the whole process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.utils._contextlib import _DecoratorContextManager

from . import _C, _config, backends

STANCES = (
    "default",
    "force_eager",
    "eager_on_recompile",
    "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile",
)
# In eager mode, checkpoints save their memory as they do under AOTAutograd: both run the first call there.
_CORE_NAMES = {"aot_eager_then_compile": "eager_then_compile"}

Backend = str | Callable[..., Any]


@functools.cache
def _forced(backend: Backend) -> tuple[bool, Any]:
    """What the core takes for a backend. The same object each time, by which the core knows its traces."""
    return backend == "native", backends.segment_compiler(backend)


class set_stance(_DecoratorContextManager):  # type: ignore[misc, unused-ignore]
    """Sets the stance of the process: a call for good, a context manager for a block, a decorator for a function.

        kintsugi.set_stance("fail_on_recompile")

        with kintsugi.set_stance("force_eager"): ...

        @kintsugi.set_stance("eager_on_recompile")
        def serve(x): ...

    * "default": calls that no trace serves are recorded.
    * "force_eager": compiled callables run in eager mode.
    * "eager_on_recompile": calls that a trace serves run along it, all others in eager mode; nothing is recorded.
    * "fail_on_recompile": a call that no trace serves is a RuntimeError, which says which guards failed; so is an exit
      from a trace where no side trace goes on, raised at the line of the exit.
    * "eager_then_compile", "aot_eager_then_compile": the first call of a callable runs in eager mode; sizes and numbers
      of its arguments that are others in the second call are values of the trace that is recorded then.

    `skip_guard_eval_unsafe`: of the guards at a call's entry only those are checked that have told calls of the
    callable apart; for a program that has been warmed up with all that will come. Where other inputs come all the same,
    results are wrong without a word.
    `force_backend`: with "default": this backend in place of each callable's own, with traces of its own.

    Not in compiled code, where it is a RuntimeError.
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: Backend | None = None,
    ) -> None:
        if stance not in STANCES:
            raise ValueError(f"kintsugi.set_stance: unknown stance {stance!r}. Known: {', '.join(STANCES)}.")
        if not isinstance(skip_guard_eval_unsafe, bool):
            raise TypeError(
                f"kintsugi.set_stance: skip_guard_eval_unsafe must be True or False, got {skip_guard_eval_unsafe!r}."
            )
        if force_backend is not None:
            if stance != "default":
                raise RuntimeError(
                    f"kintsugi.set_stance: force_backend goes with the stance 'default', not with {stance!r}."
                )
            backends.check(force_backend)
        self.stance = stance
        self.skip_guard_eval_unsafe = skip_guard_eval_unsafe
        self.force_backend = force_backend
        self._before = _set(self)

    def __call__(self, orig_func: Any) -> Any:
        _restore(self._before)  # the stance is the function's alone
        return super().__call__(orig_func)

    def __enter__(self) -> None:
        _set(self)

    def __exit__(self, *_exception: object) -> None:
        _restore(self._before)

    def clone(self) -> set_stance:
        """The same stance for one call of a decorated function, without setting it yet."""
        made = object.__new__(set_stance)
        made.stance = self.stance
        made.skip_guard_eval_unsafe = self.skip_guard_eval_unsafe
        made.force_backend = self.force_backend
        made._before = _current
        return made


_current: set_stance | None = None


def _set(wanted: set_stance) -> set_stance | None:
    """Returns the stance that was in force; None for the one that the process begins with."""
    global _current
    before = _current
    forced = None if wanted.force_backend is None else _forced(wanted.force_backend)
    _C.set_stance(_CORE_NAMES.get(wanted.stance, wanted.stance), wanted.skip_guard_eval_unsafe, forced)
    _current = wanted
    return before


def _restore(before: set_stance | None) -> None:
    global _current
    if before is None:
        _C.set_stance("default", False, None)
        _current = None
    else:
        _set(before)


def set_default_backend(backend: Backend | None) -> None:
    """The backend of compile() where none is named: a name, or a callable(gm, example_inputs). None: "native" again."""
    settings = _config.current()
    assert settings is not None
    chosen = "native" if backend is None else backend
    backends.check(chosen)
    settings.default_backend = chosen


def get_default_backend() -> Backend:
    """The backend of compile() where none is named."""
    settings = _config.current()
    assert settings is not None
    chosen: Backend = settings.default_backend
    return chosen
