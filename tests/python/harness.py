"""Eager as the adversary: runs a program twice, compiled and not, and compares all that can be observed.

A *case* is a small function, or a factory that makes one with its own state. Each side gets fresh state and equal
inputs, and is called several times. After each call the two sides are compared in: the result, the arguments and the
state (values bit by bit, dtypes, strides, which tensors share storage, which objects are the same), the exception with
its traceback, what was printed, warnings, gradients, the states of the random generators, and torch's global modes.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import gc
import hashlib
import io
import os
import random
import re
import struct
import threading
import traceback
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import process_flags
import torch

import kintsugi
from bench import compare

CALLS = 4
# A sanitizer keeps what was freed in quarantine, so the size of the process says nothing under it; and its builds abort
# where a check of our own fails.
SANITIZER = "asan" in os.environ.get("LD_PRELOAD", "")
Inputs = Callable[[int], tuple[Any, ...]]
# Where the inputs of cases are: tests written for the processor say something of an accelerator as well.
DEVICE = torch.device(os.environ.get("KINTSUGI_TEST_DEVICE", "cpu"))


def floats(*shapes: tuple[int, ...], grad: bool = False, dtype: torch.dtype = torch.float32) -> Inputs:
    """Random tensors of the given shapes, other ones for each call."""

    def make(call: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(1000 + call)
        made = [torch.randn(shape, generator=generator).to(DEVICE, dtype) for shape in shapes]
        return tuple(t.requires_grad_() if grad else t for t in made)

    return make


def signs(call: int) -> tuple[torch.Tensor, ...]:
    """A random tensor in every second call, and one with all signs changed in the others."""
    (x,) = floats((3, 4))(call)
    return (x if call % 2 else -x,)


@dataclasses.dataclass(frozen=True)
class Case:
    """A program and what its calls get. With `factory`, `program()` gives the function, or (function, state...)."""

    program: Callable[..., Any]
    inputs: Inputs
    kwargs: Callable[[int], dict[str, Any]]
    factory: bool
    calls: int
    traces: int | None  # how many recordings the calls may need; None: any number
    breaks: int | None  # how many graph breaks; None: any number
    backward: bool
    prepare: Callable[[tuple[Any, ...]], None] = lambda state: None  # before each call, on each side

    @property
    def name(self) -> str:
        return self.program.__name__.removeprefix("make_")

    def start(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A function with fresh state."""
        if not self.factory:
            return self.program, ()
        made = self.program()
        return (made[0], tuple(made[1:])) if isinstance(made, tuple) else (made, ())


class Suite:
    """The cases of one test module."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def case(
        self,
        *shapes: tuple[int, ...],
        inputs: Inputs | None = None,
        kwargs: Callable[[int], dict[str, Any]] = lambda call: {},
        grad: bool = False,
        calls: int = CALLS,
        traces: int | None = 1,
        breaks: int | None = 0,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Adds a function. Its inputs are tensors of `shapes` (one of (3, 4) when none is given) or inputs(call)."""
        return self._adder(shapes, inputs, kwargs, grad, calls, traces, breaks, factory=False)

    def factory(
        self,
        *shapes: tuple[int, ...],
        inputs: Inputs | None = None,
        kwargs: Callable[[int], dict[str, Any]] = lambda call: {},
        grad: bool = False,
        calls: int = CALLS,
        traces: int | None = 1,
        breaks: int | None = 0,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Adds a function that returns the function to run, and after it the state to compare."""
        return self._adder(shapes, inputs, kwargs, grad, calls, traces, breaks, factory=True)

    def _adder(
        self,
        shapes: tuple[tuple[int, ...], ...],
        inputs: Inputs | None,
        kwargs: Callable[[int], dict[str, Any]],
        grad: bool,
        calls: int,
        traces: int | None,
        breaks: int | None,
        factory: bool,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        make = inputs or floats(*(shapes or ((3, 4),)), grad=grad)

        def add(program: Callable[..., Any]) -> Callable[..., Any]:
            self.cases.append(Case(program, make, kwargs, factory, calls, traces, breaks, grad))
            return program

        return add

    def parametrize(self) -> Any:
        import pytest

        return pytest.mark.parametrize("case", self.cases, ids=[case.name for case in self.cases])


@dataclasses.dataclass
class Watched:
    """State that has to be looked up when it is compared: globals, closures."""

    look: Callable[[], Any]


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(_is_plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str, bytes)


# (relative, absolute) by the type of the numbers: what other rounding explains in a program of many steps.
NEAR = {torch.float32: (1e-4, 1e-4), torch.float64: (1e-8, 1e-8), torch.bfloat16: (3e-2, 3e-2)}
DROPPED = re.compile(
    r"(Exception ignored in: .*\n)Traceback .*\n(?:  .*\n)*"
)  # by which frame is not compared
ADDRESS = re.compile(r"at 0x[0-9a-f]+")
THREAD = re.compile(r"Thread-\d+")  # counted for all of the process
DECIMAL = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?")


class Near:
    """Numbers in a description that are equal to others when rounding explains the difference."""

    def __init__(self, values: torch.Tensor, tolerance: tuple[float, float] | None = None) -> None:
        self.values = values
        self.tolerance = tolerance or NEAR.get(values.dtype, (0.0, 0.0))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Near) or self.values.shape != other.values.shape:
            return False
        if compare.special_difference(self.values, other.values):
            return False
        return torch.allclose(self.values, other.values, *self.tolerance, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.values.tolist())


def near_text(text: str) -> Any:
    """Text whose decimal numbers are compared as numbers, by the digits that are printed."""
    numbers = torch.tensor([float(number) for number in DECIMAL.findall(text)], dtype=torch.float64)
    words = DECIMAL.sub(" # ", text).split()
    return (tuple(words), Near(numbers, (2e-3, 2e-3)))


def _node(tensor: torch.Tensor) -> tuple[bool, str | None]:
    """Is it a leaf, and its autograd node. A view that was written to in a forbidden way has none: torch says why."""
    try:
        return tensor.is_leaf, tensor.grad_fn.name() if tensor.grad_fn else None
    except RuntimeError as error:
        return False, str(error)


@functools.lru_cache(64)  # few: it holds the classes
def _slots(cls: type) -> tuple[str, ...]:
    """The names that the classes of an object declare as slots."""
    declared = (vars(base).get("__slots__", ()) for base in cls.__mro__)
    names = ((slots,) if isinstance(slots, str) else slots for slots in declared)
    return tuple(name for group in names for name in group if not name.startswith("__"))


class _Describer:
    """Turns objects into nested tuples that are equal when the objects can't be told apart.

    Objects with an identity are numbered in the order in which they are met, so sharing is part of the description.
    With `close` floating-point numbers may differ by rounding.
    """

    def __init__(self, close: bool = False) -> None:
        self._close = close
        self._numbers: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._alive: list[Any] = []

    def describe(self, value: Any) -> Any:
        if type(value) is str:
            text = ADDRESS.sub("at 0x", value)
            return ("str", near_text(text) if self._close and DECIMAL.search(text) else text)
        if value is None or isinstance(value, (bool, int, str, bytes, complex, range, slice)):
            return (type(value).__name__, _text(value))
        if isinstance(value, float):
            if self._close:
                return (
                    type(value).__name__,
                    Near(torch.tensor(value, dtype=torch.float64), NEAR[torch.float32]),
                )
            return (type(value).__name__, value.hex() if value == value else struct.pack("d", value))
        if isinstance(value, torch.Size):  # its text shows bools as numbers
            return (type(value).__name__, tuple(map(self.describe, value)))
        if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return (type(value).__name__, _text(value))
        if isinstance(value, enum.Enum) or isinstance(value, (type, types.ModuleType)):
            return ("named", str(value).split(" at 0x")[0])
        if type(value) is tuple and _is_plain(value):  # which of two equal ones it is, Python leaves open
            return ("tuple", tuple(map(self.describe, value)))
        known = self._numbers.get(id(value))
        if known is not None:
            return ("again", known)
        self._alive.append(value)
        self._numbers[id(value)] = number = len(self._numbers)
        return (number, *self._contents(value))

    def _contents(self, value: Any) -> tuple[Any, ...]:
        name = type(value).__qualname__
        if isinstance(value, Watched):
            return (name, self.describe(value.look()))
        if isinstance(value, torch.Tensor):
            with torch._C.DisableTorchFunctionSubclass():
                return self._tensor(value)
        if isinstance(value, np.ndarray):
            return (name, str(value.dtype), value.shape, value.strides, value.tobytes())
        if isinstance(value, Mapping):
            items = tuple((self.describe(k), self.describe(v)) for k, v in value.items())
            return (name, items, self._attributes(value))
        if isinstance(value, (set, frozenset)):
            return (name, tuple(sorted(repr(self.describe(item)) for item in value)))
        if isinstance(value, (list, tuple, collections.deque)):
            return (name, tuple(self.describe(item) for item in value), self._attributes(value))
        if isinstance(value, types.FunctionType):
            cells = tuple(self._cell(cell) for cell in value.__closure__ or ())
            return (name, value.__qualname__, cells, self.describe(value.__defaults__))
        if isinstance(value, types.MethodType):
            return (name, value.__func__.__qualname__, self.describe(value.__self__))
        if isinstance(value, BaseException):
            return (name, tuple(self.describe(a) for a in value.args), self._attributes(value))
        if isinstance(value, np.generic):
            if self._close and isinstance(value, np.floating):
                return (name, self.describe(float(value)))
            return (name, value.tobytes())
        if isinstance(value, functools.partial):
            return (name, self.describe(value.func), self.describe(value.args), self.describe(value.keywords))
        if isinstance(value, (bytearray, memoryview)):
            return (name, bytes(value))
        if isinstance(value, weakref.ref):
            return (name, self.describe(value()))
        if isinstance(value, types.GeneratorType):
            waits_at = value.gi_frame.f_lineno if value.gi_frame is not None else None
            return (name, value.__qualname__, waits_at, value.gi_running)
        return (name, self._attributes(value))

    def _cell(self, cell: types.CellType) -> Any:
        try:
            return self.describe(cell.cell_contents)
        except ValueError:
            return "empty"

    def _attributes(self, value: Any) -> Any:
        found = dict(getattr(value, "__dict__", {}))
        for slot in _slots(type(value)):
            if hasattr(value, slot):
                found[slot] = getattr(value, slot)
        return tuple((name, self.describe(item)) for name, item in found.items() if not name.startswith("__"))

    def _tensor(self, value: torch.Tensor) -> tuple[Any, ...]:
        meta = (
            type(value).__name__,
            str(value.dtype),
            tuple(value.shape),
            str(value.device),
            str(value.layout),
        )
        is_leaf, node = _node(value)
        # A whole segment of native code is one node.
        autograd = (value.requires_grad, is_leaf, node is not None if self._close else node)
        grad = self.describe(value.grad) if is_leaf else None
        if value.layout != torch.strided:
            return (*meta, *autograd, repr(value.detach().to_dense().tolist()))
        if torch._C._functorch.is_functorch_wrapped_tensor(value):
            return (*meta, *autograd, "of a transform that is over")  # nobody may look into it
        storage = value.untyped_storage()
        number = (
            self._storages.setdefault(storage.data_ptr(), len(self._storages)) if storage.nbytes() else -1
        )
        self._alive.append(storage)
        place = (value.stride(), value.storage_offset(), number, value.is_conj(), value.is_neg())
        attributes = self._attributes(value)
        if self._close and value.is_floating_point():
            return (
                *meta,
                *autograd,
                grad,
                attributes,
                *place,
                Near(value.detach().clone().as_subclass(torch.Tensor)),
            )
        data = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).clone().view(torch.uint8)
        return (
            *meta,
            *autograd,
            grad,
            attributes,
            *place,
            data.cpu().numpy().tobytes() if value.numel() else b"",
        )


def describe(*values: Any, close: bool = False) -> Any:
    """One description of several objects, sharing among them included."""
    return _Describer(close).describe(values)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """All that can be seen of one call."""

    seen: Any
    raised: Any
    out: Any
    err: Any
    warned: tuple[Any, ...]
    random_states: tuple[str, ...]
    modes: tuple[Any, ...]
    gradients: Any
    shown: str  # for people: the result

    def differences(self, other: Outcome) -> Iterator[str]:
        for field in dataclasses.fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if field.name != "shown" and mine != theirs:
                if field.name == "seen":
                    shown = f"eager {self.shown}, compiled {other.shown}"
                    yield f"result, arguments or state: {shown}; {_first(mine, theirs)}"
                else:
                    yield f"{field.name}: eager {mine!r}, compiled {theirs!r}"


def _first(mine: Any, theirs: Any, path: str = "") -> str:
    """Where two descriptions first differ."""
    if isinstance(mine, tuple) and isinstance(theirs, tuple) and len(mine) == len(theirs):
        for index, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if a != b:
                return _first(a, b, f"{path}.{index}")
    return f"at {path or 'top'}: {str(mine)[:300]} / {str(theirs)[:300]}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _accelerator_state() -> bytes:
    if not torch.cuda.is_initialized():
        return b""
    return b"".join(state.numpy().tobytes() for state in torch.cuda.get_rng_state_all())


def _numpy_state() -> str:
    _, keys, *rest = np.random.get_state()
    return _digest(keys.tobytes() + repr(rest).encode())


def _seed_torch(seed: int) -> None:
    """torch.manual_seed() formats a stack for devices that are not in use."""
    if torch.cuda.is_initialized():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


DEEP = 100  # frames of a traceback that are compared where a program has recursed to the limit


def _describe_error(error: BaseException | None, close: bool = False, depth: int = 4) -> Any:
    """The exception with its arguments, attributes, notes and traceback, and those that it came of."""
    if error is None or not depth:
        return None
    stack = traceback.extract_tb(error.__traceback__)
    frames = tuple((frame.name, frame.lineno) for frame in stack if "/harness" not in frame.filename)
    if isinstance(error, RecursionError) and len(frames) > DEEP:
        # A call through a compiled name counts as one more, and so the limit is met in another operation.
        return type(error).__name__, "maximum recursion depth exceeded" in str(error), frames[:DEEP]
    text = ADDRESS.sub("at 0x", str(error))
    chain = tuple(_describe_error(e, close, depth - 1) for e in (error.__cause__, error.__context__))
    inner = tuple(_describe_error(e, close, depth - 1) for e in getattr(error, "exceptions", ()))
    return (
        type(error).__name__,
        near_text(text) if close else text,
        describe(error.args, vars(error), close=close),
        error.__suppress_context__,
        frames,
        chain,
        inner,
    )


def _float_tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.requires_grad and _node(value)[1] is not None:
            yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _float_tensors(item)
    elif isinstance(value, dict):
        yield from _float_tensors(list(value.values()))


def _show(error: BaseException | None, result: Any) -> str:
    text = f"{type(error).__name__}: {error}" if error is not None else _text(_plain(result))
    return " ".join(text.split())[:400]


def _text(value: Any) -> str:
    """Its repr(), which may fail in a program's own way."""
    try:
        return repr(value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _plain(value: Any) -> Any:
    """Tensors as lists of numbers: torch takes a while to format one."""
    if isinstance(value, torch.Tensor):
        return value.tolist() if value.layout is torch.strided and value.numel() < 100 else value
    return [_plain(item) for item in value] if type(value) in (list, tuple) else value


def observe(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: Any,
    *,
    seed: int,
    backward: bool,
    close: bool = False,
) -> Outcome:
    """Calls fn and notes everything."""
    _seed_torch(seed)
    random.seed(seed)
    np.random.seed(seed)
    out, err = io.StringIO(), io.StringIO()
    result, error = None, None
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        warnings.simplefilter("always")
        collects = gc.isenabled()
        gc.disable()  # what is in a cycle would go, and be warned of, at any time
        try:
            result = fn(*args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as caught:
            error = caught
        finally:
            if collects:
                gc.enable()
    if "generator ignored GeneratorExit" in err.getvalue():
        gc.collect()  # what is left of it is in a cycle with that error, and would go at any time
    seen = describe(result, args, kwargs, state, close=close)
    raised = _describe_error(error, close)
    random_states = (
        _digest(torch.get_rng_state().numpy().tobytes() + _accelerator_state()),
        _digest(np.array(random.getstate()[1]).tobytes() + repr(random.getstate()[2]).encode()),
        _numpy_state(),
    )
    modes = process_flags.read()
    gradients = None
    if backward and error is None:
        gradients = _differentiate(result), describe(args, kwargs, state, close=close)
    noted = tuple((w.category.__name__, str(w.message), *_place(w)) for w in warned)
    shown = _show(error, result)
    if error is not None:
        error.__traceback__ = None  # it holds this frame, which holds it: the frames would go at any time
    text = [
        DROPPED.sub(r"\1", THREAD.sub("Thread-", ADDRESS.sub("at 0x", stream.getvalue())))
        for stream in (out, err)
    ]
    text = [near_text(part) for part in text] if close else text
    return Outcome(seen, raised, text[0], text[1], noted, random_states, modes, gradients, shown)


def _place(warning: warnings.WarningMessage) -> tuple[str, int]:
    """Where it is said to come from. A file that nobody has closed says so wherever its last reference goes.

    A level beyond the program is a frame of this file, and a compiled function has one more of them.
    """
    nowhere = warning.category is ResourceWarning or warning.filename == __file__
    return ("", 0) if nowhere else (warning.filename, warning.lineno)


def _differentiate(result: Any) -> Any:
    """Backward from all results. What was written in place may forbid it, with the same words on both sides."""
    try:
        total = [t.sum() for t in _float_tensors(result)]
        if total:
            torch.autograd.backward(total)
    except RuntimeError as error:
        return str(error)
    return None


def run(
    case: Case, wrap: Callable[[Callable[..., Any]], Callable[..., Any]], close: bool = False
) -> tuple[list[Outcome], Any]:
    """All calls of a case on one side; also what wrap() made."""
    fn, state = case.start()
    called = wrap(fn)
    outcomes = []
    for call in range(case.calls):
        args, kwargs = case.inputs(call), case.kwargs(call)
        case.prepare(state)
        outcomes.append(observe(called, args, kwargs, state, seed=call, backward=case.backward, close=close))
    return outcomes, called


replay = kintsugi.compile
through_native = False


def use_native(shipped: bool = False) -> None:
    """What the tests would replay is compiled, before its first call returns; comparisons allow rounding.

    `shipped`: as it is for a user who has touched no setting, in the background.
    """
    global through_native
    through_native = True
    kintsugi.compile = _shipped if shipped else _compiled
    bits = compare.differences

    def near(expected: Any, actual: Any, path: str = "out", tolerance: float = 0.0) -> list[str]:
        return bits(expected, actual, path, max(tolerance, NEAR[torch.float32][1]))

    compare.differences = near


def _compiled(model: Any = None, *, backend: Any = None, options: Any = None, **more: Any) -> Any:
    if backend in (None, "eager"):
        backend, options = "native", {"sync": True, **(options or {})}
    return replay(model, backend=backend, options=options, **more)


def _shipped(model: Any = None, *, backend: Any = None, **more: Any) -> Any:
    return replay(model, **({} if backend in (None, "eager") else {"backend": backend}), **more)


def compile_for_test(fn: Callable[..., Any]) -> Any:
    return kintsugi.compile(fn, backend="eager")


def check(
    case: Case,
    wrap: Callable[..., Any] = compile_for_test,
    close: bool = False,
    expected: list[Outcome] | None = None,
    settings: dict[str, Any] | None = None,
) -> Any:
    """The compiled program can't be told from the eager one, but for rounding if `close`. Returns what was compiled.

    `expected`: what eager mode gives, where that is known. `settings`: those that are not what ships; by default
    `report_compiling` is False."""
    close = close or through_native
    if expected is None:
        expected, _ = run(case, lambda fn: fn, close)
    with kintsugi.config.patch(**({"report_compiling": False} if settings is None else settings)):
        found, compiled = run(case, wrap, close)
    for call, (mine, theirs) in enumerate(zip(expected, found, strict=True)):
        different = list(mine.differences(theirs))
        assert not different, f"call {call}: " + "; ".join(different)
    return compiled


def guards_inside(core: Any) -> list[tuple[int, int]]:
    """(trace, index) of the guards among the instructions of all traces of a callable, side traces included."""
    return sorted((trace, index) for trace, index, op, _ in core.instructions() if op.startswith("guard."))


class Stressed:
    """A compiled callable one of whose guards fails at every run from the fourth call on, whatever it is asked."""

    FREE = 3  # calls

    def __init__(
        self, fn: Callable[..., Any], guard: int, wrap: Callable[..., Any] = compile_for_test
    ) -> None:
        self.compiled = wrap(fn)
        self.guard = guard
        self.calls = 0
        self.guards = 0  # how many there are
        self.exits = 0  # how often it has failed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        core = self.compiled._kintsugi_compiled
        if self.calls == self.FREE:
            guards = guards_inside(core)
            self.guards = len(guards)
            if self.guard < self.guards:
                core._force_exit(*guards[self.guard])
        self.calls += 1
        before = core._forced_exits()
        try:
            return self.compiled(*args, **kwargs)
        finally:
            self.exits += core._forced_exits() - before


def check_captured(case: Case) -> None:
    """The program was captured: as many recordings and breaks as the case allows, all other calls hit a trace."""
    with kintsugi.config.patch(report_compiling=False):
        _, compiled = run(case, compile_for_test)
    stats = compiled.stats()
    why = "; ".join(f"{b['code']} {b['message']} ({b['function']}:{b['line']})" for b in compiled.breaks())
    changed = "; ".join(f"{r['guard']}: {r['expected']} / {r['seen']}" for r in compiled.recompiles())
    if case.traces is not None:
        assert stats.misses <= case.traces, f"{stats.misses} calls missed [{why}] [{changed}]"
        assert stats.trace_count >= 1, f"nothing was captured [{why}]"
    if case.breaks is not None:
        assert stats.graph_break_count <= case.breaks, f"{stats.graph_break_count} breaks: {why}"


# --- what several test modules use ---


@contextlib.contextmanager
def scaled(log: list[str]) -> Iterator[float]:
    """A context manager of a generator, for programs that leave a trace inside."""
    log.append("in")
    try:
        yield 2.0
    finally:
        log.append("out")


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Runs work(0), work(1) ... at the same time. An exception in one of them is raised here."""
    errors: list[BaseException] = []

    def guarded(seed: int) -> None:
        try:
            work(seed)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def check_gradients(compiled: Any, net: torch.nn.Module, x: torch.Tensor, close: bool = False) -> None:
    """The gradients of a compiled module's parameters are those of the module itself."""
    net.zero_grad()
    compiled(x).sum().backward()
    found = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    net(x).sum().backward()
    for p, gradient in zip(net.parameters(), found, strict=True):
        if close:
            torch.testing.assert_close(p.grad, gradient)
        else:
            assert p.grad is not None and torch.equal(p.grad, gradient)


def shown(value: Any) -> Any:
    """Exact types and numbers alone, without identities and layouts."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    if isinstance(value, (tuple, list)):
        return type(value), [shown(v) for v in value]
    if isinstance(value, dict):
        return type(value), [(k, shown(v)) for k, v in value.items()]
    return type(value), value
