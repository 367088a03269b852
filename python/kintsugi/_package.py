"""Packages: what has been compiled for a callable, written to a file, and used by another process.

See docs/howto/packages.md. The parts: _package_traces (what of a trace is kept), _package_describe and _package_ways
(objects), _package_file (bytes and files).
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import importlib
import io
import os
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from . import _C, _config, _logs, _package_file, _public
from ._callable import CompiledFunction, core_of
from ._module import CompiledModule
from ._options import CompileOptions
from ._package_describe import CannotDescribe, Describer, digest
from ._package_file import BadPackage
from ._package_traces import LeftOut, Loader, Writer, title


@dataclasses.dataclass(frozen=True)
class PackageReport:
    """What a package holds of a callable, or what of a package a callable uses."""

    path: str
    """The file; "" for bytes."""
    traces: int = 0
    """Root traces that were written, or that are used."""
    side_traces: int = 0
    """Side traces that were written."""
    waiting: int = 0
    """Traces that no call has been made for yet."""
    left_out: tuple[tuple[str, str], ...] = ()
    """What was not written, or is not used: the trace, and why."""

    def __str__(self) -> str:
        lines = [f"{self.path or 'a package'}: {self.traces} traces"]
        lines += [f"  left out: {name}: {reason}" for name, reason in self.left_out]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class CacheInfoOfArtifacts:
    """What save_cache_artifacts() has packed, or load_cache_artifacts() has found."""

    callables: int
    traces: int
    left_out: tuple[tuple[str, str], ...] = ()


# Of each compiled callable: what it loads from, and why it does not.
_loaders: weakref.WeakKeyDictionary[_C.Compiled, Loader] = weakref.WeakKeyDictionary()
_reasons: weakref.WeakKeyDictionary[_C.Compiled, tuple[str, str]] = weakref.WeakKeyDictionary()
# Callables of artifacts that were loaded, by what their entry is.
_artifacts: dict[str, list[Any]] = {}


def options_of(compiled: object) -> CompileOptions | None:
    """What a callable was compiled with."""
    if isinstance(compiled, CompiledModule):
        return compiled._kintsugi_options
    return compiled._options if isinstance(compiled, CompiledFunction) else None


def _need(compiled: object, who: str) -> tuple[_C.Compiled, CompileOptions]:
    core, options = core_of(compiled), options_of(compiled)
    if core is None or options is None:
        raise TypeError(
            f"kintsugi.{who} needs what kintsugi.compile() returned, not {type(compiled).__name__}."
        )
    return core, options


def _conditions(options: CompileOptions) -> list[Any]:
    """What a recording depends on beside the program."""
    backend = options.backend
    name = (
        backend
        if isinstance(backend, str)
        else f"{type(backend).__qualname__} {getattr(backend, '__qualname__', '')}"
    )
    config = _config.current()
    reports = bool(config is not None and config.report_compiling)
    assumes = bool(config is not None and config.assume_static_by_default)
    return [name, options.dynamic, reports, assumes, options.mode]


def _entry_of(core: _C.Compiled) -> str:
    """What the function is that a call of it runs, and of what class its object. Raises CannotDescribe."""
    describer = Describer()
    bound = getattr(core.fn, "__self__", None) if isinstance(core.fn, types.MethodType) else core.fn
    of = None if isinstance(bound, types.FunctionType) else describer.describe(type(bound))
    return digest([describer.describe(core._entry), of])


def _pack(core: _C.Compiled, options: CompileOptions) -> tuple[dict[str, Any], Writer, int]:
    """One callable, for a package. Raises CannotDescribe."""
    entry = core._entry
    writer = Writer(entry)
    rows = []
    for data in core._package_data():
        try:
            rows.append(writer.write(data))
        except LeftOut as error:
            writer.left_out.append((title(data["text"]), str(error)))
    name = [getattr(core.fn, "__module__", None), getattr(core.fn, "__qualname__", None)]
    packed = {"entry": _entry_of(core), "name": name, "conditions": _conditions(options), "traces": rows}
    return packed, writer, len(rows)


def package(compiled: object, path: str | Path) -> PackageReport:
    """Writes what has been compiled for a callable, for load_package() in another process.

    What another process can't have is left out; the report says why. Raises OSError where the file can't be written.
    """
    core, options = _need(compiled, "package")
    path = Path(path)
    try:
        packed, writer, count = _pack(core, options)
    except CannotDescribe as error:
        return PackageReport(
            str(path), left_out=((str(getattr(core.fn, "__qualname__", core.fn)), str(error)),)
        )
    _package_file.write(path, _package_file.encode([packed]))
    return PackageReport(str(path), count, writer.sides, left_out=tuple(writer.left_out))


def load_package(model: Any, path: str | Path, **options: Any) -> Any:
    """Compiles `model` (options as compile() takes them), or takes what is compiled, and uses the package at `path`.

    Nothing is recorded where a trace of the package fits. A package that can't be used is as good as none: the reason
    is logged (`recompiles`), and in package_report(). Raises FileNotFoundError where there is none.
    """
    compiled = model
    if core_of(model) is None or options:
        compiled = _public.compile(model, **options)
    core, chosen = _need(compiled, "load_package")
    try:
        rows = _package_file.decode(_package_file.read(Path(path)))
        if len(rows) != 1:
            raise BadPackage("it holds several callables: load_cache_artifacts() takes those")
        _attach(core, chosen, rows[0], str(path))
    except BadPackage as error:
        _refuse(core, str(path), str(error))
    return compiled


def _attach(core: _C.Compiled, options: CompileOptions, row: dict[str, Any], origin: str) -> None:
    """The core asks these traces before it records a call. Raises BadPackage."""
    try:
        entry = _entry_of(core)
    except CannotDescribe as error:
        raise BadPackage(str(error)) from None
    if row.get("entry") != entry:
        raise BadPackage("it is of another function, or the function has changed")
    if row.get("conditions") != _conditions(options):
        raise BadPackage("it was compiled with other options")
    traces = row.get("traces")
    if not isinstance(traces, list) or not all(
        isinstance(each, dict) and isinstance(each.get("text"), str) for each in traces
    ):
        raise BadPackage("it holds no traces")
    loader = Loader(core, traces, origin)
    _loaders[core] = loader
    _reasons.pop(core, None)
    if traces:
        core._set_package(loader)


def _refuse(core: _C.Compiled, origin: str, reason: str) -> None:
    _reasons[core] = (origin, reason)
    core._note_package(origin, reason)


def package_report(compiled: object) -> PackageReport:
    """What a callable uses of the package that it was given."""
    core, _ = _need(compiled, "package_report")
    if core in _reasons:
        origin, reason = _reasons[core]
        return PackageReport(origin, left_out=(("the package", reason),))
    loader = _loaders.get(core)
    if loader is None:
        return PackageReport("")
    return PackageReport(loader._origin, loader.used, waiting=loader.waiting, left_out=tuple(loader.refused))


# -- compile(cache=...)


class _Cache:
    """A file that a callable begins with, and that it writes at the end of the process."""

    def __init__(self, path: Path, options: CompileOptions) -> None:
        self.path = path
        self.options = options

    def write(self, core: _C.Compiled) -> None:
        """Where there is anything new."""
        stats, loader = core.stats(), _loaders.get(core)
        used, sides = (loader.used, loader.sides) if loader is not None else (0, 0)
        if stats["trace_count"] <= used and stats["side_traces"] <= sides:
            return
        try:
            packed, _, count = _pack(core, self.options)
            if count:
                _package_file.write(self.path, _package_file.encode([packed]))
        except (CannotDescribe, OSError) as error:
            _logs.warn(f"the cache at {self.path} was not written: {error}")


# By their files: what was compiled last for one is kept, to be written at the end.
_caches: dict[str, tuple[_C.Compiled, _Cache]] = {}


def use_cache(compiled: Any, path: str | Path) -> None:
    """The callable begins with what is at `path`, and what it has at the end of the process is written there."""
    core, options = _need(compiled, "compile")
    with contextlib.suppress(FileNotFoundError):
        load_package(compiled, path)
    if not _caches:
        atexit.register(_write_caches)
    _caches[os.path.abspath(path)] = core, _Cache(Path(path).absolute(), options)


def _write_caches() -> None:
    for core, cache in list(_caches.values()):
        cache.write(core)


# -- Artifacts: what all callables of a process have


def save_cache_artifacts() -> tuple[bytes, CacheInfoOfArtifacts] | None:
    """As torch.compiler's: what has been compiled in this process, as bytes, and what they hold. None: nothing was."""
    rows = []
    left_out: list[tuple[str, str]] = []
    traces = 0
    for core, options in list(_public.live.items()):
        try:
            packed, writer, count = _pack(core, options)
        except CannotDescribe as error:
            left_out.append((str(getattr(core.fn, "__qualname__", core.fn)), str(error)))
            continue
        left_out += writer.left_out
        if count:
            rows.append(packed)
            traces += count
    if not rows:
        return None
    return _package_file.encode(rows), CacheInfoOfArtifacts(len(rows), traces, tuple(left_out))


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfoOfArtifacts | None:
    """Callables that are compiled from now on begin with these. None: the bytes can't be used; the log says why."""
    try:
        rows = _package_file.decode(bytes(serialized_artifacts))
    except BadPackage as error:
        _logs.warn(f"load_cache_artifacts: the artifacts are not used: {error}.")
        return None
    for row in rows:
        if isinstance(row.get("entry"), str):
            _artifacts.setdefault(row["entry"], []).append(row)
    return CacheInfoOfArtifacts(len(rows), sum(len(row.get("traces") or ()) for row in rows))


def _look_up(compiled: object) -> None:
    """A callable has been compiled: it may be among the artifacts."""
    core, options = core_of(compiled), options_of(compiled)
    if core is None or options is None or not _artifacts:
        return
    try:
        found = _artifacts.get(_entry_of(core), [])
    except CannotDescribe:
        return
    for row in found:
        try:
            _attach(core, options, row, "")
            return
        except BadPackage as error:
            _refuse(core, "", str(error))


_public.observers.append(_look_up)


# -- Ahead of time


class AotCompiledFunction:
    """What aot_compile() gives: called like the original; save_compiled_function() writes it."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    def save_compiled_function(self, path: str | Path) -> PackageReport:
        """Writes it, for load_compiled_function() in another process."""
        return package(self._compiled, path)


def aot_compile(
    compiled: Any, example_inputs: tuple[tuple[Any, ...], Mapping[str, Any]]
) -> AotCompiledFunction:
    """Records the call `compiled(*args, **kwargs)`, really making it, and compiles it to the end.

    Raises RuntimeError where nothing was recorded, or nothing of it can be kept for another process.
    """
    core, options = _need(compiled, "aot_compile")
    args, kwargs = example_inputs
    for _ in range(3):  # a first call may make things ready, and be recorded again
        compiled(*args, **kwargs)
        if core.stats()["trace_count"]:
            break
    _public.wait()
    _, writer, count = _pack(core, options)
    if not count:
        reasons = "; ".join(reason for _, reason in writer.left_out) or "nothing was recorded"
        raise RuntimeError(f"kintsugi.aot_compile: there is no trace that could be saved: {reasons}.")
    return AotCompiledFunction(compiled)


def load_compiled_function(
    file: str | Path | BinaryIO | io.BytesIO, *, f_globals: Mapping[str, Any] | None = None, **options: Any
) -> Any:
    """The callable that save_compiled_function() has written: its function is found by module and name.

    `f_globals`: where it is looked for instead of in its module. Raises ValueError where it is not there, or another.
    """
    try:
        content = _package_file.read(Path(file)) if isinstance(file, (str, Path)) else file.read()
        rows = _package_file.decode(content)
        if len(rows) != 1:
            raise BadPackage("it holds several callables")
        model = _find(rows[0].get("name"), f_globals)
        backend = rows[0]["conditions"][0] if "backend" not in options else options.pop("backend")
        compiled = _public.compile(model, backend=backend, dynamic=rows[0]["conditions"][1], **options)
        core, chosen = _need(compiled, "load_compiled_function")
        _attach(core, chosen, rows[0], "" if not isinstance(file, (str, Path)) else str(file))
    except (BadPackage, LookupError, TypeError) as error:
        raise ValueError(f"kintsugi.load_compiled_function: {error}.") from None
    return compiled


def _find(name: Any, f_globals: Mapping[str, Any] | None) -> Callable[..., Any]:
    module, qualified = name if isinstance(name, list) and len(name) == 2 else (None, None)
    if not isinstance(qualified, str) or not isinstance(module, str):
        raise BadPackage("its callable has no name")
    parts = qualified.split(".")
    if f_globals is None:
        try:
            space: Any = sys.modules.get(module) or importlib.import_module(module)
        except ImportError as error:
            raise BadPackage(f"module {module} can't be imported ({error})") from None
        found: Any = space
    else:
        if parts[0] not in f_globals:
            raise BadPackage(f"{parts[0]} is not among f_globals")
        found, parts = f_globals[parts[0]], parts[1:]
    for part in parts:
        if not hasattr(found, part):
            raise BadPackage(f"{qualified} is not found in module {module}")
        found = getattr(found, part)
    found = found.__wrapped__ if isinstance(found, CompiledFunction) else found
    if not callable(found) or isinstance(found, torch.nn.Module):
        raise BadPackage(f"{qualified} is no function")
    return found  # type: ignore[no-any-return]
