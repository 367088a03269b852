"""Audit mode: one call in N runs twice, compiled and not, in two processes that began as one.

The process forks. The *child* runs the compiled call and writes down all that can be observed of it; the parent runs
the original, so that the program gets eager's result and effects whatever the trace does, and compares. Forking clones
everything that a call can reach - tensors, modules, globals, generators' states - at the cost of a page table.

What a child records is lost with it. So where every call is audited and the callable has something to learn - it has no
trace yet, the last call was recorded in the child, or its native code is not there yet - the two change places: the
parent runs the compiled call, the child the original. If they differ then, the program has got the compiled call's
result, once.

A difference is a wrong trace: the callable is left to eager mode (its traces are in quarantine), a warning says so
(KTG0401), and a bundle with what is needed to look into it is written.

What the child writes to files and sockets that were open already goes nowhere; files that the call opens itself are
written twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import json
import math
import os
import pickle
import random
import signal
import sys
import tempfile
import time
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, cast

import torch

from . import _C, _config, _logs

# As far as the order of additions explains: the child computes on one thread.
TOLERANCES = {
    torch.float64: (1e-9, 1e-10),
    torch.float32: (1e-4, 1e-5),
    torch.complex64: (1e-4, 1e-5),
    torch.complex128: (1e-9, 1e-10),
    torch.float16: (1e-2, 1e-3),
    torch.bfloat16: (5e-2, 1e-2),
}
PATIENCE_S = 60.0  # the least time that the child is given

_ATOMS = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, range, slice)
_OPAQUE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, io.IOBase)
_MOST_LEAVES = 200_000

Leaves = list[tuple[str, Any]]


@dataclasses.dataclass
class _TensorLeaf:
    form: str
    value: torch.Tensor | None  # None: not written to since the call began


class _Walk:
    """Lists what is reachable, in an order that is the same in both processes."""

    def __init__(self, before: _Versions | None) -> None:
        self.leaves: Leaves = []
        self.kept: list[Any] = []
        self._before = before  # None: values are not wanted
        self._seen: dict[int, str] = {}

    def add(self, path: str, value: Any) -> None:
        if len(self.leaves) >= _MOST_LEAVES:
            return
        if isinstance(value, torch.Tensor):
            if not self._repeated(path, value):
                self._tensor(path, value)
        elif isinstance(value, _ATOMS):
            self.leaves.append((path, f"{type(value).__name__} {value!r}"))
        elif isinstance(value, _OPAQUE) or _is_ours(value):
            self.leaves.append((path, type(value).__name__))
        elif not self._repeated(path, value):
            self._container(path, value)

    def _repeated(self, path: str, value: Any) -> bool:
        first = self._seen.setdefault(id(value), path)
        if first is path:
            self.kept.append(value)
            return False
        self.leaves.append((path, f"is {first}"))
        return True

    def _tensor(self, path: str, t: torch.Tensor) -> None:
        form = f"{type(t).__name__} {t.dtype} {tuple(t.shape)} {t.device} requires_grad={t.requires_grad}"
        if t.layout is torch.strided:
            form += f" {t.stride()}"
        new = self._before is not None and not self._before.unchanged(t)
        plain = (
            type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout is torch.strided and not t.is_quantized
        )
        value = t.detach().resolve_conj().resolve_neg().clone() if plain and new else None
        self.leaves.append((path, _TensorLeaf(form, value)))
        if t.is_leaf and t.grad is not None:
            self.add(f"{path}.grad", t.grad)

    def _container(self, path: str, value: Any) -> None:
        name = type(value).__qualname__
        if isinstance(value, Mapping):
            self.leaves.append((path, f"{name} of {len(value)}"))
            for key, item in list(value.items()):
                self.add(
                    f"{path}[{key!r}]" if isinstance(key, _ATOMS) else f"{path}[{type(key).__name__}]", item
                )
        elif isinstance(value, (list, tuple)):
            self.leaves.append((path, f"{name} of {len(value)}"))
            for index, item in enumerate(value):
                self.add(f"{path}[{index}]", item)
        elif isinstance(value, Set):
            self.leaves.append(
                (
                    path,
                    f"{name} {sorted(map(repr, value)) if all(isinstance(v, _ATOMS) for v in value) else len(value)}",
                )
            )
        else:
            self.leaves.append((path, name))
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            for key in sorted(k for k in attributes if isinstance(k, str)):
                self.add(f"{path}.{key}", attributes[key])


def _is_ours(value: Any) -> bool:
    return isinstance(value, _C.Compiled) or _is_from(type(value), ("kintsugi", "torch._C", "_thread"))


def _is_from(cls: type, packages: tuple[str, ...]) -> bool:
    """Is this the class that a module of these packages has under its name?"""
    name = cls.__module__
    if not any(name == package or name.startswith(package + ".") for package in packages):
        return False
    found: Any = sys.modules.get(name)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls


def _roots(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a call can reach: its arguments, its self, its closure, the globals that it names."""
    roots: dict[str, Any] = {"args": args, "kwargs": kwargs}
    if isinstance(fn, types.MethodType):
        roots["self"], fn = fn.__self__, fn.__func__
    elif not isinstance(fn, types.FunctionType):
        roots["self"] = fn
        return roots
    if isinstance(fn, types.FunctionType):
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
            with contextlib.suppress(ValueError):
                roots[name] = cell.cell_contents
        for name in sorted(set(fn.__code__.co_names) & fn.__globals__.keys()):
            roots[f"global {name}"] = fn.__globals__[name]
    return roots


class _Versions:
    """How often each reachable tensor had been written to. Keeps them alive: no identity is used twice."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        walk = _Walk(None)
        for name, value in roots.items():
            walk.add(name, value)
        found = (t for t in walk.kept if isinstance(t, torch.Tensor) and not t.is_inference())
        self._known = {id(t): (t, t._version) for t in found}

    def unchanged(self, t: torch.Tensor) -> bool:
        known = self._known.get(id(t))
        return known is not None and not t.is_inference() and known[1] == t._version


def _random_states() -> list[tuple[str, Any]]:
    return [("random", hash(random.getstate())), ("torch.random", _TensorLeaf("", torch.get_rng_state()))]


class _Output:
    """What a call writes to the two standard streams, whatever Python objects they are behind."""

    def __enter__(self) -> _Output:
        self._streams = [s for s in (sys.stdout, sys.stderr) if s is not None]
        self._marks = []
        self._files: list[tuple[int, int, Any]] = []
        descriptors = {1, 2}
        for stream in self._streams:
            with contextlib.suppress(Exception):
                stream.flush()
                descriptors.add(stream.fileno())
            read = getattr(stream, "getvalue", None)
            self._marks.append(len(read()) if callable(read) else None)
        for descriptor in sorted(descriptors):
            try:
                saved = os.dup(descriptor)
            except OSError:
                continue
            file = tempfile.TemporaryFile()
            os.dup2(file.fileno(), descriptor)
            self._files.append((descriptor, saved, file))
        return self

    def __exit__(self, *_exception: object) -> None:
        self.written: list[tuple[str, Any]] = []
        for stream, mark in zip(self._streams, self._marks, strict=True):
            with contextlib.suppress(Exception):
                stream.flush()
            if mark is not None:
                self.written.append((f"{type(stream).__name__} written", cast(Any, stream).getvalue()[mark:]))
        for descriptor, saved, file in self._files:
            os.dup2(saved, descriptor)
            os.close(saved)
            file.seek(0)
            data = file.read()
            file.close()
            self.written.append((f"descriptor {descriptor} written", data))
            with contextlib.suppress(OSError):
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]


def _observe(
    run: Callable[[], Any], roots: Mapping[str, Any], before: _Versions
) -> tuple[Leaves, Any, BaseException | None]:
    result: Any = None
    error: BaseException | None = None
    output = _Output()
    with output:
        try:
            result = run()
        except BaseException as raised:
            error = raised
    walk = _Walk(before)
    walk.leaves.append(("raised", "nothing" if error is None else f"{type(error).__qualname__}: {error}"))
    walk.add("result", result)
    for name, value in roots.items():
        walk.add(name, value)
    walk.leaves += output.written
    walk.leaves += _random_states()
    return walk.leaves, result, error


def _mute_files() -> None:
    """Files and sockets that are open for writing belong to the parent."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        with contextlib.suppress(OSError):
            flags = int(Path(f"/proc/self/fdinfo/{descriptor}").read_text().split("flags:")[1].split()[0], 8)
            target = os.readlink(f"/proc/self/fd/{descriptor}")
            if flags & os.O_ACCMODE and not target.startswith(("/dev/", "anon_inode:")):
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, descriptor)
                os.close(null)


def _learned(compiled: _C.Compiled) -> int:
    """Grows with each trace that is recorded."""
    stats = compiled.stats()
    return stats["misses"] + stats["side_traces"]


_MOST_TURNS = 16
_turns: weakref.WeakKeyDictionary[_C.Compiled, int] = weakref.WeakKeyDictionary()
"""Callables that have something to learn: in how many of their next audited calls the parent runs the compiled one."""


def _parent_learns(compiled: _C.Compiled, every: int) -> bool:
    if every != 1:
        return False  # the calls between teach it
    stats = compiled.stats()
    if not stats["trace_count"] or _turns.get(compiled, 0) > 0:
        return True
    done = stats["native_ready"] + stats["native_plain"] + stats["native_refused"]
    warm = done >= stats["native_segments"]
    return not warm


def _child(
    path: str,
    state: Any,
    compiled: _C.Compiled,
    run: Callable[[], Any],
    roots: Mapping[str, Any],
    before: _Versions,
) -> None:
    status = 1
    try:
        gc.disable()
        random.setstate(state)  # which forking has changed
        torch.set_num_threads(1)
        _mute_files()
        known = _learned(compiled)
        leaves, _, _ = _observe(run, roots, before)
        with open(path, "wb") as file:
            answer = (_learned(compiled) > known, leaves)
            torch.save(answer, file, pickle_protocol=pickle.HIGHEST_PROTOCOL)
        status = 0
    finally:
        os._exit(status)


def _wait(child: int, allowed: float) -> int | None:
    """The child's exit status; None: it took too long and was ended."""
    end = time.monotonic() + allowed
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.001)


def _signs_of_zeros_differ(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    return bool(((a == 0) & (b == 0) & (a.signbit() != b.signbit())).any())


def _same_tensor(a: torch.Tensor | None, b: torch.Tensor | None) -> str:
    if a is None or b is None:
        return "" if a is b else "written to on one side only"
    if not a.is_floating_point() and not a.is_complex():
        return "" if torch.equal(a, b) else "values"
    rtol, atol = TOLERANCES.get(a.dtype, (1e-2, 1e-2))
    if a.dtype not in TOLERANCES:  # the 8-bit types have no arithmetic
        a, b = a.float(), b.float()
    if _signs_of_zeros_differ(a, b):
        return "values, in the sign of zero"
    if torch.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    gap = (a - b).abs().nan_to_num(math.inf, math.inf).max().item()
    return f"values, by up to {gap:g}"


def differences(expected: Leaves, seen: Leaves) -> Iterator[str]:
    """What differs, a line each: eager's leaves and those of the compiled call."""
    for (path, a), (other, b) in zip(expected, seen, strict=False):
        if path != other:
            yield f"{path}: there is {other} instead"
            return
        if isinstance(a, _TensorLeaf) and isinstance(b, _TensorLeaf):
            text = f"{b.form} instead of {a.form}" if a.form != b.form else _same_tensor(a.value, b.value)
            if text:
                yield f"{path}: {text}"
        elif a != b:
            yield f"{path}: {b!r} instead of {a!r}"[:400]
    if len(expected) != len(seen):
        yield f"{len(seen)} observations instead of {len(expected)}"


def run(compiled: _C.Compiled, args: tuple[Any, ...], kwargs: dict[str, Any], every: int) -> Any:
    """The audited call, one of `every`. Called by the core, which audits no call inside."""
    fn = compiled.fn
    roots = _roots(fn, args, kwargs)
    before = _Versions(roots)
    learns = _parent_learns(compiled, every)
    here, there = (compiled, fn) if learns else (fn, compiled)
    with tempfile.NamedTemporaryFile(prefix="kintsugi-audit-") as file:
        state = random.getstate()
        child = os.fork()
        if child == 0:
            _child(file.name, state, compiled, lambda: there(*args, **kwargs), roots, before)
        start = time.monotonic()
        known = _learned(compiled)
        leaves, result, error = _observe(lambda: here(*args, **kwargs), roots, before)
        if learns:
            _turns[compiled] = 0 if _learned(compiled) > known else _turns.get(compiled, 0) - 1
        status = _wait(child, max(PATIENCE_S, 20 * (time.monotonic() - start)))
        found: list[str] = []
        if status is None:
            _logs.warn("KTG0402 an audited call did not end in time and was not compared")
        elif status == 0:
            recorded, seen = torch.load(file.name, weights_only=False)
            found = list(differences(seen, leaves) if learns else differences(leaves, seen))
            if recorded:
                _turns[compiled] = _MOST_TURNS
        elif status < 0 and not learns:
            found = [f"the compiled call died of {signal.Signals(-status).name}"]
        else:
            _logs.warn("KTG0402 the result of an audited call could not be written down and was not compared")
    if found:
        _quarantine(compiled, args, kwargs, found)
    if error is not None:
        raise error
    return result


def _quarantine(
    compiled: _C.Compiled, args: tuple[Any, ...], kwargs: dict[str, Any], found: list[str]
) -> None:
    name = getattr(compiled.fn, "__qualname__", type(compiled.fn).__qualname__)
    bundle = _write_bundle(compiled, name, args, kwargs, found)
    compiled._quarantine(found[0])
    _logs.warn(
        f"KTG0401 a trace of {name} differs from eager mode and is in quarantine; the callable runs in eager mode from "
        f"now on. First difference: {found[0]}. What is needed to look into it: {bundle}"
    )


_REPRODUCE = '''"""Runs the call that was found to differ, compiled and not. `python reproduce.py`"""
import importlib, pathlib, torch, kintsugi
here = pathlib.Path(__file__).parent
module, name = {module!r}, {name!r}
found = importlib.import_module(module)
for part in name.split("."):
    found = getattr(found, part)
args, kwargs = torch.load(here / "inputs.pt", weights_only=False)
for backend, options in (("eager", None), ("native", {{"sync": True}})):
    with kintsugi.config.patch(audit=1):
        compiled = kintsugi.compile(found, backend=backend, options=options)
        for _ in range(4):
            compiled(*args, **kwargs)
'''


def _write_bundle(
    compiled: _C.Compiled, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], found: list[str]
) -> str:
    """A folder with differences, versions, the traces' text, the inputs and a program that makes the call again."""
    settings = _config.current()
    root = Path(tempfile.gettempdir()) if settings is None else Path(settings.cache_dir)
    try:
        folder = root / "audit" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{abs(hash(name)) % 10**6}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "differences.txt").write_text("\n".join(found) + "\n")
        (folder / "traces.txt").write_text("\n\n".join(compiled.traces()) + "\n")
        versions = {"torch": torch.__version__, "python": sys.version, "callable": name}
        (folder / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")
        module = getattr(compiled.fn, "__module__", "")
        (folder / "reproduce.py").write_text(_REPRODUCE.format(module=module, name=name))
        with contextlib.suppress(Exception):  # not everything can be written to a file
            torch.save((args, kwargs), folder / "inputs.pt")
        return str(folder)
    except OSError as error:
        return f"could not be written ({error})"
