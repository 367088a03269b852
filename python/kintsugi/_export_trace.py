"""A recorded trace, and how it is gone through once more: on the stand-ins of torch.export, say.

`Trace` is what csrc/driver/trace_data.h describes. `Run` computes what the trace does, from the arguments of a call:
operators are called, sizes and numbers may be symbols, and results are built as the program built them. No line of the
program runs again, but for the functions that are operators by themselves (`Plan.called`).
"""

from __future__ import annotations

import collections
import dataclasses
import linecache
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from . import _C, _export_modes
from .backends import fx

Frame = tuple[str, int, str, types.CodeType]
"""file, line, function, code"""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a trace."""

    index: int
    op: str
    target: str | None
    """The operator, of an `aten`."""
    operands: list[Any]
    results: list[int]
    frames: list[Frame]
    """Outermost first; those of the step before where it has none of its own."""
    keywords: list[str]
    """Names of the last operands of a call."""


class Trace:
    """The tables of a trace, and its steps."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.sources: list[tuple[str, int | None, Any, int | None]] = data["sources"]
        self.paths: list[str] = data["paths"]
        self.guards: list[tuple[str, int | None, Any]] = data["guards"]
        self.constants: list[Any] = data["constants"]
        self.values: list[str] = data["values"]
        self.metas: list[tuple[list[int], torch.dtype]] = data["metas"]
        self.recipes: list[tuple[str, Any, list[Any]]] = data["recipes"]
        self.arguments: int = data["arguments"]
        self.keywords: tuple[str, ...] = data["keywords"]
        self.steps: list[Step] = []
        frames: list[Frame] = []
        for index, (op, target, operands, results, snap, keywords) in enumerate(data["code"]):
            frames = frames if snap is None else data["snaps"][snap]
            self.steps.append(Step(index, op, target, operands, results, frames, keywords))

    def callee(self, step: Step) -> Any:
        """What a call calls; None: it is not known before the trace runs."""
        kind, number = step.operands[0] if isinstance(step.operands[0], tuple) else ("", 0)
        if kind == "#":
            return self.constants[number]
        if kind == "$" and self.sources[number][0] == "pinned":
            return self.sources[number][2]
        return None

    def root(self, source: int) -> int:
        """The source that the path begins with."""
        while (parent := self.sources[source][1]) is not None:
            source = parent
        return source

    def _leaves(self, operand: Any) -> Iterator[tuple[str, Any]]:
        """The values and sources that an operand is made of, those in the parts of recipes included."""
        seen: set[int] = set()
        waiting = [operand]
        while waiting:
            item = waiting.pop()
            if isinstance(item, list):
                waiting += item
            elif isinstance(item, tuple) and item[0] != "@":
                yield item[0], item[1]
            elif isinstance(item, tuple) and item[1] not in seen:
                seen.add(item[1])
                waiting += self.recipes[item[1]][2]

    def values_in(self, operand: Any) -> set[int]:
        """The values that are needed to make an operand."""
        found: set[int] = set()
        for kind, number in self._leaves(operand):
            if kind == "%":
                found.add(number)
            elif kind == "$":
                begin = self.sources[self.root(number)]
                if begin[0] == "value" and begin[3] is not None:
                    found.add(begin[3])
        return found

    def sources_in(self, operand: Any) -> set[int]:
        """The sources that are needed to make an operand."""
        return {number for kind, number in self._leaves(operand) if kind == "$"}

    def canonical(self, source: int) -> Any:
        """Equal for two sources with the same path: what is read after a step is another source of the same path."""
        kind, parent, key, index = self.sources[source]
        return kind, None if parent is None else self.canonical(parent), known_key(key), index


def known_key(key: Any) -> Any:
    """Equal for keys that find the same entry."""
    return (type(key), key) if isinstance(key, (str, bytes, int, float, type(None))) else id(key)


def _partial(parent: Any, index: int) -> Any:
    return (parent.func, parent.args, parent.keywords)[index]


# How a part is read from what it is a part of: (parent, key, index). As csrc/guard/source.h says, no code of the
# program's runs.
_READERS: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "type": lambda parent, key, index: type(parent),
    "dict": lambda parent, key, index: object.__getattribute__(parent, "__dict__"),
    "item": lambda parent, key, index: dict.__getitem__(parent, key),
    "list": lambda parent, key, index: list.__getitem__(parent, index),
    "tuple": lambda parent, key, index: tuple.__getitem__(parent, index),
    "member": lambda parent, key, index: key.__get__(parent),
    "getset": lambda parent, key, index: key.__get__(parent),
    "cell": lambda parent, key, index: parent.cell_contents,
    "closure": lambda parent, key, index: parent.__closure__[index],
    "defaults": lambda parent, key, index: parent.__defaults__,
    "kwdefaults": lambda parent, key, index: parent.__kwdefaults__,
    "globals": lambda parent, key, index: parent.__globals__,
    "builtins": lambda parent, key, index: parent.__builtins__,
    "func": lambda parent, key, index: parent.__func__,
    "self": lambda parent, key, index: parent.__self__,
    "partial": lambda parent, key, index: _partial(parent, index),
}


def _to_int(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else torch.sym_int(value)


# As fx.SCALAR_TARGETS, but for those that would take a symbol for the number that it stands for.
SCALARS: Mapping[str, Callable[..., Any]] = {
    **fx.SCALAR_TARGETS,
    "to.float": torch.sym_float,
    "to.int": _to_int,
    "to.bool": lambda value: value if isinstance(value, (bool, torch.SymBool)) else value != 0,
    "bool.not": torch.sym_not,
}


class Unfit(RuntimeError):
    """The call is another one than the trace was recorded of."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which steps of a trace an export makes again."""

    kept: frozenset[int] = frozenset()
    called: frozenset[int] = frozenset()
    """Among them, those whose function is called as it is."""
    assigned: frozenset[int] = frozenset()
    """Among them, assignments of buffers: at the end of the run, the last value is copied into the buffer."""
    checked: frozenset[int] = frozenset()
    """Among them, guards that are checks of the program's own."""


class Run:
    """Computes what a trace computes. `at` is the step that is under way."""

    def __init__(self, trace: Trace, plan: Plan, entry: Sequence[Any]) -> None:
        self.at: Step | None = None
        self._trace = trace
        self._plan = plan
        self._entry = entry
        self._values: dict[int, Any] = {}
        self._recipes: dict[int, Any] = {}
        self._buffers: dict[tuple[int, str], _Buffer] = {}
        self._modes = _export_modes.Modes()

    def run(self) -> Any:
        """The result of the call."""
        result = None
        for step in self._trace.steps:
            if step.index in self._plan.assigned:
                container, key = map(self.operand, step.operands[:2])
                self._buffers[id(container), key] = _Buffer(container[key])
        try:
            with torch.fx.traceback.preserve_node_meta():
                for step in self._trace.steps:
                    if step.op == "ret":
                        result = self.operand(step.operands[0])
                    elif step.index in self._plan.kept:
                        self.at = step
                        torch.fx.traceback.set_stack_trace([stack_text(step.frames)])
                        self._make(step)
                for buffer in self._buffers.values():
                    buffer.write()
            self.at = None
        finally:
            self._modes.close()
        return result

    def _make(self, step: Step) -> None:
        if step.op == "aten":
            self._modes.enter()
            self._operator(step)
        elif step.op == "input" or step.op == "build":
            self._values[step.results[0]] = self.operand(step.operands[0])
        elif step.op in SCALARS:
            made = SCALARS[step.op](*map(self.operand, step.operands))
            for number in step.results:
                self._values[number] = made
        elif step.op.startswith("guard."):
            self._check(step)
        elif step.index in self._plan.assigned:
            container, key, value = map(self.operand, step.operands)
            self._buffers[id(container), key].value = value
        else:
            self._call(step)

    def _operator(self, step: Step) -> None:
        assert step.target is not None
        overload = fx.find_operator(step.target)
        args, kwargs = fx._place_arguments(overload, step.operands, {})
        made = overload(
            *(self.operand(value) for value in args),
            **{name: self.operand(value) for name, value in kwargs.items()},
        )
        returns = overload._schema.returns
        parts = made if len(returns) != 1 or isinstance(returns[0].type, torch.ListType) else [made]
        flat: list[Any] = []
        for part in parts if returns else []:
            flat += part if isinstance(part, (list, tuple)) else [part]
        for number, part in zip(step.results, flat, strict=False):
            self._values[number] = part

    def _check(self, step: Step) -> None:
        """A guard. On a symbol it becomes one of torch's."""
        if step.index in self._plan.checked:
            self._assert(self.operand(step.operands[0]))
            return
        if step.op == "guard.meta":
            tensor = self.operand(step.operands[0])
            sizes, _ = self._trace.metas[step.operands[1]]
            fits = len(sizes) == tensor.dim() and all(
                bool(tensor.size(dim) == size) for dim, size in enumerate(sizes) if size >= 0
            )
        elif step.op == "guard.value":
            seen, expected = map(self.operand, step.operands)
            fits = bool(seen == expected)
        else:
            fits = bool(self.operand(step.operands[0])) is (step.op == "guard.true")
        if not fits:
            raise Unfit(f"{step.op} fails for these arguments")

    @staticmethod
    def _assert(holds: Any) -> None:
        torch._check(holds)
        if isinstance(holds, torch.SymBool):
            # What torch knows is asserted by itself, but for numbers with a fraction.
            torch.ops.aten._assert_scalar.default(holds, "a check of the program's own failed")

    def _call(self, step: Step) -> None:
        callee, *args = map(self.operand, step.operands)
        count = len(args) - len(step.keywords)
        kwargs = dict(zip(step.keywords, args[count:], strict=True))
        if step.index in self._plan.called:
            self._modes.enter()
            made = callee(*args[:count], **kwargs)
        else:
            made = self._modes.call(callee, args)
        for number in step.results:
            self._values[number] = made

    def operand(self, operand: Any) -> Any:
        """The object that an operand stands for."""
        if isinstance(operand, list):
            return [self.operand(item) for item in operand]
        if not isinstance(operand, tuple):
            return operand
        kind, number = operand
        if kind == "%":
            return self._values[number]
        if kind == "#":
            return self._trace.constants[number]
        if kind == "$":
            return self.source(number)
        if kind == "@":
            return self._recipe(number)
        raise Unfit("an empty slot is no object")

    def source(self, number: int) -> Any:
        """The object at the end of a path."""
        kind, parent, key, index = self._trace.sources[number]
        if kind == "pinned":
            return key
        if kind == "arg":
            return self._entry[index or 0]
        if kind == "value":
            return self._values[index or 0]
        assert parent is not None
        holder = self.source(parent)
        if kind == "item" and (id(holder), key) in self._buffers:
            return self._buffers[id(holder), key].read()
        return _READERS[kind](holder, key, index)

    def _recipe(self, number: int) -> Any:
        if number not in self._recipes:
            kind, cls, parts = self._trace.recipes[number]
            if kind == "cell":  # what it holds may hold the cell
                cell = self._recipes[number] = types.CellType()
                if parts and not _is_null(parts[0]):
                    cell.cell_contents = self.operand(parts[0])
            elif kind not in BUILDERS:
                raise Unfit(f"an object of the kind {kind!r} can't be built")
            else:
                self._recipes[number] = BUILDERS[kind](cls, [self.operand(part) for part in parts])
        return self._recipes[number]


def stack_text(frames: Sequence[Frame]) -> str:
    """The program's own frames, outermost first, as nodes of torch.fx have them."""
    own = [frame for frame in frames if not _C.is_library(frame[0])]
    lines = []
    for file, line, function, _ in own:
        lines.append(
            f'File "{file}", line {line}, in {function}\n    {linecache.getline(file, line).strip()}\n'
        )
    return "".join(lines)


def _is_null(operand: Any) -> bool:
    return isinstance(operand, tuple) and operand[0] == "null"


class _Buffer:
    """A buffer that the program assigns. What it held before stays what it was, for those that have read it."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer
        self.value: torch.Tensor | None = None

    def read(self) -> torch.Tensor:
        if self.value is None:
            self.value = self._buffer.clone()
        return self.value

    def write(self) -> None:
        if self.value is None:
            return
        if self._buffer.dtype != self.value.dtype or self._buffer.shape != self.value.shape:
            raise Unfit("a buffer gets another dtype or other sizes")
        with torch.no_grad():
            self._buffer.copy_(self.value)


def _pairs(parts: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(parts[::2], parts[1::2], strict=True))


def _set_attributes(instance: Any, parts: Sequence[Any]) -> Any:
    # What was recorded is what the instance holds: a `__setattr__` of the class must not run again.
    for name, value in _pairs(parts):
        object.__setattr__(instance, name, value)
    return instance


def _instance(cls: Any, parts: list[Any]) -> Any:
    if cls is None:
        cls, *parts = parts
    return _set_attributes(_new(cls), parts)


def _new(cls: Any) -> Any:
    """An empty instance. A `__new__` in Python was recorded itself."""
    found = (vars(base).get("__new__") for base in cls.__mro__)
    return next(maker for maker in found if isinstance(maker, types.BuiltinFunctionType))(cls)


def _dict_instance(cls: Any, parts: list[Any]) -> Any:
    count = 1 + 2 * parts[0]
    made = _new(cls)
    base = collections.OrderedDict if isinstance(made, collections.OrderedDict) else dict
    for key, value in _pairs(parts[1:count]):
        base.__setitem__(made, key, value)  # around the class's own
    return _set_attributes(made, parts[count:])


def _named_tuple(cls: Any, parts: list[Any]) -> Any:
    return cls(parts) if cls is torch.Size or hasattr(cls, "n_sequence_fields") else tuple.__new__(cls, parts)


def _function(cls: Any, parts: list[Any]) -> Any:
    code, names, name, qualname, defaults, keyword_defaults, closure, annotations, *rest = parts
    made = types.FunctionType(code, names, name, defaults, closure)
    made.__qualname__ = qualname
    made.__kwdefaults__ = keyword_defaults
    if isinstance(annotations, dict):
        made.__annotations__ = annotations
    if rest:
        made.__module__, made.__doc__, made.__dict__ = rest
    return made


# Of the kinds of recipes (ir/trace.h), those that may be in results and arguments of a program without state.
BUILDERS: Mapping[str, Callable[[Any, list[Any]], Any]] = {
    "tuple": lambda cls, parts: tuple(parts),
    "list": lambda cls, parts: list(parts),
    "dict": lambda cls, parts: dict(_pairs(parts)),
    "set": lambda cls, parts: set(parts),
    "frozenset": lambda cls, parts: frozenset(parts),
    "slice": lambda cls, parts: slice(*parts),
    "instance": _instance,
    "dictinstance": _dict_instance,
    "namedtuple": _named_tuple,
    "function": _function,
    "method": lambda cls, parts: types.MethodType(*parts),
    "call": lambda cls, parts: parts[0](*parts[1:]),
    "callex": lambda cls, parts: parts[0](*parts[1], **parts[2]),
}
