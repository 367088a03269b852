"""optimize(): the older spelling of compile(), as a decorator and as a context manager."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch

M = TypeVar("M", bound=Callable[..., Any])


class Optimize:
    """What kintsugi.optimize(...) returns.

    As a decorator it compiles what it is given. In a `with` statement it compiles what the block calls by a name of the
    module's level: the module's functions and torch modules have compiled ones in their place until the block ends.
    A profiler that is given as the backend collects during the block.
    """

    def __init__(self, compile: Callable[[Any], Any], backend: Any) -> None:
        self._compile = compile
        self._backend = backend
        self._replaced: list[tuple[dict[str, Any], str, Any, Any]] = []

    def __call__(self, model: M) -> M:
        compiled: M = self._compile(model)
        return compiled

    def __enter__(self) -> Optimize:
        frame = sys._getframe(1)
        if frame.f_locals is not frame.f_globals:
            raise RuntimeError(
                "kintsugi.optimize(...) as a context manager compiles names of the module's level; inside a function, "
                "use it as a decorator: fast = kintsugi.optimize(...)(fn)"
            )
        if hasattr(self._backend, "__enter__"):
            self._backend.__enter__()
        names = frame.f_globals
        for name, value in list(names.items()):
            own = isinstance(value, types.FunctionType) and value.__globals__ is names
            if own or isinstance(value, torch.nn.Module):
                compiled = self._compile(value)
                names[name] = compiled
                self._replaced.append((names, name, value, compiled))
        return self

    def __exit__(self, *error: Any) -> None:
        for names, name, value, compiled in self._replaced:
            if names.get(name) is compiled:
                names[name] = value
        self._replaced.clear()
        if hasattr(self._backend, "__exit__"):
            self._backend.__exit__(*error)
