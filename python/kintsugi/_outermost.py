"""Compiles every outermost call of an nn.Module, whoever makes it: what `pytest --kintsugi-compile` runs tests under.

The `__call__` of nn.Module, and of each subclass that has one of its own, gives way to a function that compiles the
original, once for each module. Calls that such a call makes run inside it, as the original. Modules stay as they are:
nothing is kept in them, nothing wraps them, and nothing here keeps one alive.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from . import _C, _public
from ._callable import CompiledFunction
from ._explain import BreakReason
from ._marks import assume_constant_result
from ._options import CompileOptions

# How torch's own decorators are handed functions: their classes' __call__ makes the decorated function.
_CONTEXT_DECORATOR = torch.utils._contextlib._DecoratorContextManager

Call = Callable[..., Any]


class _Thread(threading.local):
    inside = False


_thread = _Thread()


@assume_constant_result
def _inside() -> bool:
    """Is a compiled call under way in this thread? In a trace always, so that it costs nothing there."""
    return _thread.inside


@dataclasses.dataclass
class Captured:
    """What was compiled, added up over modules (and functions)."""

    modules: int = 0
    functions: int = 0
    calls: int = 0
    hits: int = 0
    native_runs: int = 0
    whole: int = 0
    """Modules and functions that have traces without a break."""
    breaks: dict[str, int] = dataclasses.field(default_factory=dict)
    """How often a place split a trace, by the first line of the reason."""
    eager: int = 0
    """Modules and functions that were called and have no trace."""

    def add(self, core: _C.Compiled) -> None:
        counters = core.stats()
        calls = counters["hits"] + counters["misses"]
        if calls == 0:
            return
        self.calls += calls
        self.hits += counters["hits"]
        self.native_runs += counters["native_runs"]
        self.whole += counters["trace_count"] > 0 and counters["graph_break_count"] == 0
        self.eager += counters["trace_count"] == 0
        for event in core.breaks():
            reason = str(BreakReason.from_core(event)).splitlines()[0]
            self.breaks[reason] = self.breaks.get(reason, 0) + 1

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class OutermostCalls:
    """Between start() and stop(), outermost calls of modules are compiled with `options`.

    `functions`: functions that are handed to torch.compile and to torch's decorators (`@torch.no_grad()` and the like)
    are compiled too. `wait`: after each outermost call, wait until native code has been made for it.
    """

    def __init__(self, options: CompileOptions, *, functions: bool = False, wait: bool = False) -> None:
        self._options = options
        self._functions = functions
        self._wait = wait
        self._captured = Captured()
        self._cores: dict[tuple[int, Call], _C.Compiled] = {}
        self._compiled_functions: list[_C.Compiled] = []
        self._undo: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        self._replace_calls(torch.nn.Module)
        self._watch_new_classes()
        if self._functions:
            self._replace(torch, "compile", self._compile)
            self._replace(_CONTEXT_DECORATOR, "__call__", self._decorator(_CONTEXT_DECORATOR.__call__))

    def stop(self) -> None:
        while self._undo:
            self._undo.pop()()

    def captured(self) -> Captured:
        """What was compiled up to now."""
        total = dataclasses.replace(self._captured, breaks=dict(self._captured.breaks))
        for core in [*self._cores.values(), *self._compiled_functions]:
            total.add(core)
        return total

    # --- modules ---

    def _replace_calls(self, root: type) -> None:
        pending, seen = [root], set()
        while pending:
            cls = pending.pop()
            if cls in seen:
                continue
            seen.add(cls)
            own = vars(cls).get("__call__")
            if isinstance(own, types.FunctionType):
                self._replace(cls, "__call__", self._compiling(own))
            pending += type.__subclasses__(cls)

    def _watch_new_classes(self) -> None:
        """Classes that are made later may have a __call__ of their own too."""
        before = vars(torch.nn.Module).get("__init_subclass__")

        def init_subclass(cls: type, /, **kwargs: Any) -> None:
            if before is None:
                super(torch.nn.Module, cls).__init_subclass__(**kwargs)  # type: ignore[misc]
            else:
                before.__get__(None, cls)(**kwargs)
            own = vars(cls).get("__call__")
            if isinstance(own, types.FunctionType):
                self._replace(cls, "__call__", self._compiling(own))

        self._replace(torch.nn.Module, "__init_subclass__", classmethod(init_subclass))

    def _compiling(self, original: Call) -> Call:
        """What stands in place of `original`, a class's __call__."""
        if getattr(original, "_kintsugi_outermost", None) is not None:
            return original

        @functools.wraps(original)
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            if _inside():
                return original(self, *args, **kwargs)
            return run(self, original, args, kwargs)

        run = self._run
        call._kintsugi_outermost = original  # type: ignore[attr-defined]
        return call

    def _run(self, module: torch.nn.Module, original: Call, args: Any, kwargs: Any) -> Any:
        core = self._core(module, original)
        _thread.inside = True
        try:
            return core(module, *args, **kwargs)
        finally:
            _thread.inside = False
            if self._wait:
                _C.wait(None)

    def _core(self, module: torch.nn.Module, original: Call) -> _C.Compiled:
        key = (id(module), original)
        found = self._cores.get(key)
        return self._new_core(key, module) if found is None else found

    def _new_core(self, key: tuple[int, Call], module: torch.nn.Module) -> _C.Compiled:
        with self._lock:
            found = self._cores.get(key)
            if found is not None:
                return found
            made = self._cores[key] = _C.Compiled(key[1], self._options.to_core(key[1]))
            self._captured.modules += 1
        end = weakref.finalize(module, self._forget, key)
        end.atexit = False
        return made

    def _forget(self, key: tuple[int, Call]) -> None:
        core = self._cores.pop(key, None)
        if core is not None:
            self._captured.add(core)

    # --- functions ---

    def _compile(self, model: Any = None, **_options: Any) -> Any:
        """torch.compile, by Kintsugi. A torch module is compiled where it is called, so it stays as it is."""
        if model is None:
            return self._compile
        compiled = _public._compile(model, self._options)
        self._note(compiled)
        return compiled

    def _decorator(self, original: Call) -> Call:
        @functools.wraps(original)
        def decorate(manager: Any, decorated: Any) -> Any:
            if isinstance(decorated, types.FunctionType):
                made = CompiledFunction(decorated, self._options)
                self._note(made)
                decorated = functools.wraps(decorated)(self._function(decorated, made))
            return original(manager, decorated)

        return decorate

    def _function(self, original: Call, compiled: CompiledFunction) -> Call:
        def call(*args: Any, **kwargs: Any) -> Any:
            if _inside():
                return original(*args, **kwargs)
            _thread.inside = True
            try:
                return compiled(*args, **kwargs)
            finally:
                _thread.inside = False

        return call

    def _note(self, compiled: CompiledFunction) -> None:
        self._captured.functions += 1
        self._compiled_functions.append(compiled._kintsugi_compiled)

    # --- names and what they stood for ---

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        own = vars(owner)
        had, before = name in own, own.get(name)
        keeps = weakref.ref(owner)  # a class of a test may go

        def undo() -> None:
            target = keeps()
            if target is not None and had:
                setattr(target, name, before)
            elif target is not None:
                delattr(target, name)

        setattr(owner, name, value)
        self._undo.append(undo)
