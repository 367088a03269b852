"""Tensor segments as torch.fx graphs: what backends other than our own executors get.

The C++ core cuts a trace into *segments*, runs of tensor operations with nothing of Python in between that could not
wait until they are done, and describes each one as a dict:

    {
        "name": "forward_0",                   # for messages; optional
        "inputs": [0, 1],                      # value ids, in the order of the call
        "input_names": ["x", "weight"],        # optional; made from the ids where missing
        "example_inputs": [tensor, tensor],    # real values of a call; ints, floats and bools are allowed
        "dynamic": [],                         # optional: positions of the inputs whose value (numbers) or sizes
                                               # (tensors) may differ from run to run
        "open_sizes": [],                      # optional: of each of these the dimensions that may; None: all
        "ops": [
            {
                "target": "aten.linear.default",            # namespace.operator.overload, or a name of SCALAR_TARGETS
                "args": [("%", 0), ("%", 1), None],         # in the order of the operator's schema
                "kwargs": {},                               # optional, by the schema's names
                "results": [2],
                "sizes_of_data": True,                      # optional: the results' sizes depend on contents
            },
            {"target": "guard.true", "args": [("%", 3)], "results": []},   # a check of sizes: a name of checks.GUARDS
            {
                "target": "step",                           # a call of the program's that is made between others
                "name": "register_hook",                    # for people
                "call": step,                               # in runs of the graph alone; missing: to be looked at
                "args": [("%", 2)],                         # what it takes of the graph
                "results": [3],                             # tensors that the graph goes on with
            },
            {"target": "region", "opens": True, "by": entered, "given": [0]},   # what follows is an activation
            {"target": "region", "opens": False, "by": left, "given": []},      # checkpoint, up to here
        ],
        "writes": False,                       # optional: an operator writes to tensors, whatever its schema says
        "outputs": [2, None, 0],               # value ids; None stays None
    }

A value is referred to as the tuple `("%", id)`, the only tuple that occurs. Lists are lists and may hold references;
everything else is a constant, of the type that torch's Python bindings take (`torch.float32`, `torch.device("cpu")`,
`torch.strided`, `torch.contiguous_format`, numbers, strings, None). `args` may hold all arguments, keyword-only ones
too: those, and defaults at the end, are put where the schema wants them.

`results` are the ids of the values that the operation makes, in order: one for one tensor, several where the schema
returns several or a list of tensors (flattened), None for a value that does not exist or that nobody uses. An operation
that writes to an argument names its result like any other; the graph keeps the operations in order and keeps those
that write, so later readers of the argument see the change.

`backend_compile(segment, backend)` returns a callable(*inputs) -> tuple with one element an output. Backends take the
sizes and numbers that they see for constants, so a segment with dynamic inputs is compiled again for others (see
`_Specialized`).
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import keyword
import logging
import operator as python_operator
import re
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from .. import _C, _config, _logs
from . import checks, pieces, regions, symbolic

Segment = Mapping[str, Any]
Runner = Callable[..., tuple[Any, ...]]

REFERENCE = "%"


class BackendError(RuntimeError):
    """A custom backend raised, or returned something that can't be called. The cause has the backend's exception."""


def find_operator(target: str) -> torch._ops.OpOverload:
    """The overload that `aten.linear.default` names."""
    namespace, _, rest = target.partition(".")
    name, _, overload = rest.rpartition(".")
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except AttributeError:
        raise ValueError(f"no operator {target!r} is registered") from None
    if not isinstance(found, torch._ops.OpOverload):
        raise ValueError(f"{target!r} does not name an operator with its overload")
    return found


def _dim(tensor: torch.Tensor) -> int:
    return int(tensor.dim())


# Operations of the trace that are none of the dispatcher's: sizes, scalar arithmetic as Python does it, grad mode.
SCALAR_TARGETS: Mapping[str, Callable[..., Any]] = {
    "size": torch.ops.aten.sym_size.int,
    "stride": torch.ops.aten.sym_stride.int,
    "numel": torch.ops.aten.sym_numel.default,
    "dim": _dim,
    "int.add": python_operator.add,
    "int.sub": python_operator.sub,
    "int.mul": python_operator.mul,
    "int.floordiv": python_operator.floordiv,
    "int.mod": python_operator.mod,
    "int.neg": python_operator.neg,
    "float.add": python_operator.add,
    "float.sub": python_operator.sub,
    "float.mul": python_operator.mul,
    "float.truediv": python_operator.truediv,
    "float.pow": python_operator.pow,
    "float.neg": python_operator.neg,
    "to.float": float,
    "to.int": int,
    "to.bool": bool,
    "num.eq": python_operator.eq,
    "num.ne": python_operator.ne,
    "num.lt": python_operator.lt,
    "num.le": python_operator.le,
    "num.gt": python_operator.gt,
    "num.ge": python_operator.ge,
    "bool.not": python_operator.not_,
    "state.grad": torch._C._set_grad_enabled,
}
_NUMBERS = frozenset(SCALAR_TARGETS.values()) - {torch._C._set_grad_enabled}


def _is_reference(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and value[0] == REFERENCE


def _place_arguments(
    operator: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments as the schema wants them, without defaults that need not be said."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    schema = operator._schema.arguments
    if len(args) > len(schema):
        raise ValueError(f"{operator} takes {len(schema)} arguments, got {len(args)}")
    for argument, value in zip(schema, args, strict=False):
        if not argument.kwarg_only:
            positional.append(value)
        elif not _is_default(argument, value):
            named[argument.name] = value
    while positional and not kwargs and _is_default(schema[len(positional) - 1], positional[-1]):
        positional.pop()
    return tuple(positional), {**named, **kwargs}


def _is_default(argument: Any, value: Any) -> bool:
    if not argument.has_default_value() or _is_reference(value) or isinstance(value, (list, torch.Tensor)):
        return False
    default = argument.default_value
    return type(default) is type(value) and bool(default == value)


STEP = "step"


class Step(torch.nn.Module):  # type: ignore[misc]
    """A call of the program's that a graph makes in its place: a hook is registered, a Function gets its node.

    It is made in runs of the graph alone. Who traces the graph with tensors of its own gets an exception.
    """

    _is_impure = True  # torch.fx keeps it, though nobody may use what it gives

    def __init__(self, name: str, call: Callable[..., tuple[torch.Tensor, ...]] | None) -> None:
        super().__init__()
        self.label = re.sub(r"\W+", "_", name.rpartition(".")[2]).strip("_") or STEP
        self._call = call

    def forward(self, *given: Any) -> tuple[Any, ...]:
        """What it is given comes first in what it gives, so that nothing that follows is moved in front of it."""
        if self._call is None:
            raise BackendError("a graph that was made to be looked at can't be run")
        return (*given, *self._call(*given))


class _Builder:
    """Makes the graph of one segment."""

    def __init__(self, segment: Segment, symbolic: bool = False, checking: bool = False) -> None:
        self._segment = segment
        self._checking = checking  # sizes vary: see `checks`
        self._graph = fx.Graph()
        self._root = torch.nn.Module()
        self._nodes: dict[int, fx.Node] = {}
        # Numbers among the inputs are constants of the graph.
        pairs = zip(segment["inputs"], segment["example_inputs"], strict=True)
        self._fixed = {number: value for number, value in pairs if not _is_input(value, symbolic)}

    def build(self) -> fx.GraphModule:
        for number, name in zip(self._segment["inputs"], self._input_names(), strict=True):
            if number not in self._fixed:
                self._nodes[number] = self._graph.placeholder(name)
        for op in regions.nested(self._segment)["ops"]:
            self._add(op)
        outputs = tuple(None if number is None else self._node(number) for number in self._segment["outputs"])
        self._graph.output(outputs)
        self._graph.lint()
        return fx.GraphModule(self._root, self._graph, class_name="KintsugiGraph")

    def _input_names(self) -> list[str]:
        inputs = self._segment["inputs"]
        given = self._segment.get("input_names") or [None] * len(inputs)
        used: set[str] = set()
        names = []
        for number, wanted in zip(inputs, given, strict=True):
            name = re.sub(r"\W+", "_", wanted or f"arg{number}").strip("_") or f"arg{number}"
            if name[0].isdigit() or keyword.iskeyword(name):
                name = f"_{name}"
            fresh = next(
                c
                for c in itertools.chain((name,), (f"{name}_{i}" for i in itertools.count(1)))
                if c not in used
            )
            used.add(fresh)
            names.append(fresh)
        return names

    def _node(self, number: int) -> Any:
        if number in self._fixed:
            return self._fixed[number]
        node = self._nodes.get(number)
        if node is None:
            raise ValueError(f"value %{number} is used before it is made")
        return node

    def _argument(self, value: Any) -> Any:
        if _is_reference(value):
            return self._node(value[1])
        if isinstance(value, list):
            return [self._argument(item) for item in value]
        if isinstance(value, tuple):
            raise ValueError(f"a tuple is no argument of an operator: {value!r}")
        return value

    def _add(self, op: Mapping[str, Any]) -> None:
        if op["target"] == STEP:
            self._add_step(op)
            return
        if op["target"] == regions.REGION:
            self._add_region(op)
            return
        if op["target"] in checks.GUARDS:
            if self._checking:
                check = checks.GUARDS[op["target"]]
                self._graph.call_function(check, tuple(self._argument(value) for value in op["args"]))
            return
        scalar = SCALAR_TARGETS.get(op["target"])
        if scalar is not None:
            made = self._graph.call_function(scalar, tuple(self._argument(value) for value in op["args"]))
            self._name(op["results"], [made] * len(op["results"]))
            return
        operator = find_operator(op["target"])
        args, kwargs = _place_arguments(operator, op["args"], op.get("kwargs") or {})
        node = self._graph.call_function(
            operator,
            tuple(self._argument(value) for value in args),
            {name: self._argument(value) for name, value in kwargs.items()},
        )
        results = op["results"]
        returns = operator._schema.returns
        if len(returns) == 1 and not isinstance(returns[0].type, torch.ListType):
            self._name(results, [node] * len(results))
        else:
            self._name_parts(node, results, returns)

    def _add_step(self, op: Mapping[str, Any]) -> None:
        step = Step(op.get("name") or STEP, op.get("call"))
        name = f"step_{len(self._root._modules)}_{step.label}"
        self._root.add_module(name, step)
        made = self._graph.call_module(name, tuple(self._argument(value) for value in op["args"]))
        for index, number in enumerate([*pieces.references(op["args"]), *op["results"]]):
            self._nodes[number] = self._graph.call_function(python_operator.getitem, (made, index))

    def _add_region(self, op: Mapping[str, Any]) -> None:
        inputs = [number for number in op["inputs"] if number not in self._fixed]
        inside = {"inputs": inputs, "example_inputs": [None] * len(inputs), "outputs": op["results"]}
        builder = _Builder({**inside, "ops": op["ops"]}, checking=self._checking)
        builder._fixed = self._fixed
        module = regions.Checkpoint(
            builder.build(), regions.kept(op, inputs), regions.options(op), _acts(op["ops"])
        )
        name = f"checkpoint_{len(self._root._modules)}"
        self._root.add_module(name, module)
        made = self._graph.call_module(name, tuple(self._node(number) for number in inputs))
        for index, number in enumerate(op["results"]):
            self._nodes[number] = self._graph.call_function(python_operator.getitem, (made, index))

    def _name_parts(self, node: fx.Node, results: Sequence[int | None], returns: Sequence[Any]) -> None:
        """Several returns, or one list: an element each, made only where it is used."""
        if len(returns) > 1 and any(isinstance(r.type, torch.ListType) for r in returns):
            raise ValueError(f"{node.target} returns lists among other values, which a segment can't hold")
        if self._checking and len(returns) == 1:
            node = self._graph.call_function(checks.as_many, (node, len(results)))
        for index, number in enumerate(results):
            if number is not None:
                self._nodes[number] = self._graph.call_function(python_operator.getitem, (node, index))

    def _name(self, results: Sequence[int | None], nodes: Sequence[fx.Node]) -> None:
        if len(results) > 1:
            raise ValueError(f"{nodes[0].target} makes one value, but the segment names {len(results)}")
        for number, node in zip(results, nodes, strict=True):
            if number is not None:
                self._nodes[number] = node


def build_graph(segment: Segment, symbols: symbolic.Symbols | None = None) -> fx.GraphModule:
    """The segment's graph; `meta["val"]` of every node holds a fake tensor where shapes can be told without running.

    Its placeholders are the tensors among the inputs: numbers are the constants that `example_inputs` has. With
    `symbols` integers are placeholders, too, and the fake tensors are the symbolic ones. Raises checks.OtherSizes where
    the graph is none for these inputs.
    """
    checking = _is_open(segment)
    module = _Builder(segment, symbols is not None, checking).build()
    reached = _add_meta(module, tensors(segment["example_inputs"]), symbols)
    if checking and checks.take_out(module, reached, _NUMBERS) and _changes(segment):
        raise checks.OtherSizes("it is seen in a run alone, and what the graph has written by then stays")
    return module


def graphs_of(segments: Sequence[Segment]) -> list[fx.GraphModule]:
    """Graphs of descriptions without examples, to be looked at: all inputs are placeholders."""
    made = []
    for segment in segments:
        builder = _Builder({**segment, "example_inputs": [None] * len(segment["inputs"])})
        builder._fixed = {}
        made.append(builder.build())
    return made


def _is_input(value: object, symbolically: bool) -> bool:
    return isinstance(value, torch.Tensor) or (symbolically and symbolic.is_number(value))


def tensors(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """What a graph is called with."""
    return [value for value in inputs if isinstance(value, torch.Tensor)]


@functools.cache
def load() -> None:
    """Imports what graphs need besides torch.fx, by describing one that does nothing."""
    graph = fx.Graph()
    graph.output((graph.placeholder("x"),))
    _add_meta(fx.GraphModule(torch.nn.Module(), graph), [torch.empty(1)], None)


def _open_inputs(inputs: Sequence[Any]) -> list[Any]:
    """What a graph with symbols is called with."""
    return [value for value in inputs if _is_input(value, True)]


# Are fake tensors running through a graph to see how far they come?
_trying: contextvars.ContextVar[bool] = contextvars.ContextVar("_trying", default=False)


@functools.cache
def _hush() -> None:
    """Torch logs as an error what fails while we are trying. Where a backend fails on it, too, it is said there."""
    for name in ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes"):
        logging.getLogger(name).addFilter(lambda record: not _trying.get())


def _add_meta(
    module: fx.GraphModule, example_inputs: Sequence[Any], symbols: symbolic.Symbols | None
) -> Container[fx.Node] | None:
    """The nodes that fake tensors have come through. None: all."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    mode = FakeTensorMode(allow_non_fake_inputs=True) if symbols is None else symbols.mode
    # An operator with no fake implementation, or one whose result's shape depends on data, ends the propagation: the
    # meta data is a help for backends, and they do without it.
    kept_mode = torch.set_grad_enabled(torch.is_grad_enabled())  # which the graph may change
    _hush()
    trying = _trying.set(True)
    run = FakeTensorProp(module, mode)
    run.garbage_collect_values = False
    reached: Container[fx.Node] | None = run.env
    try:
        # The dispatcher's kernels in Python take symbols where those in C++ may not, as for torch.compile.
        with torch._guards.tracing(None), kept_mode, enable_python_dispatcher():
            fakes = [mode.from_tensor(v) for v in example_inputs] if symbols is None else symbols.fakes
            run.propagate_dont_convert_inputs(*fakes)
            reached = None
    except checks.OtherSizes:
        raise
    except Exception:
        pass
    finally:
        _trying.reset(trying)
    for node in module.graph.nodes:
        if node.op == "placeholder" and "val" in node.meta:
            node.meta["example_value"] = node.meta["val"]
    return reached


def _as_runner(compiled: Callable[..., Any], count: int, name: str) -> Runner:
    """Makes the results a tuple: backends return tuples, lists, or the value alone."""

    def run(*inputs: Any) -> tuple[Any, ...]:
        results = compiled(*inputs)
        if not isinstance(results, (tuple, list)):
            results = (results,)
        if len(results) != count:
            raise BackendError(
                f"backend {name!r}: its function returned {len(results)} values, the graph has {count}"
            )
        return tuple(results)

    run._kintsugi_direct = compiled  # type: ignore[attr-defined]  # the core looks at the results itself
    return run


# While a backend compiles, torch.compiler.is_compiling() is true, as under torch.compile.
_compile_session = getattr(torch.compiler, "_compile_session_context", contextlib.nullcontext)


_RESIZED = re.compile("An output with one or more elements was resized")


@contextlib.contextmanager
def _tracing_says_nothing() -> Iterator[None]:
    """Torch's kernels in Python warn of an `out=` tensor of another size, which it need not be in a run: while tensors
    without elements run through a graph, their sizes may be symbols. What a run resizes it warns of by itself.

    The list is changed in place and without a new version of the filters, so that no warning is shown again for it.
    """
    quiet = ("ignore", _RESIZED, UserWarning, re.compile(r"torch\._prims_common"), 0)
    warnings.filters.insert(0, quiet)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            warnings.filters.remove(quiet)  # type: ignore[attr-defined]


@_tracing_says_nothing()
def _compile(
    segment: Segment,
    backend: Callable[..., Any],
    name: str,
    options: Mapping[str, Any],
    symbols: symbolic.Symbols | None = None,
) -> Runner:
    module = build_graph(segment, symbols)
    count = len(segment["outputs"])
    sizes = [] if symbols is None else symbols.add_sizes(module)
    _logs.emit("graph_code", f"{segment.get('name', 'graph')} for backend {name}:\n{module.graph}")

    def call() -> Any:
        with _compile_session():
            if symbols is None:
                return backend(module, tensors(segment["example_inputs"]), **options)
            with symbols.tracing():
                return backend(module, symbols.examples, **options)

    try:
        # torch's tracers put methods of their own into nn.Module for a while, which would make guards on classes fail.
        compiled = _C._with_types_kept(torch.nn.Module, call)
        if not callable(compiled):
            raise TypeError(f"it returned {type(compiled).__name__}, which can't be called")
    except Exception as error:
        if symbols is not None or _has_pieces(segment):  # it may do better with numbers, or with less
            raise
        settings = _config.current()
        if settings is None or not settings.suppress_errors:
            raise BackendError(
                f"backend {name!r} failed on {segment.get('name', 'a graph')}: {type(error).__name__}: {error}"
            ) from error
        _logs.warn(
            f"KTG0112 backend {name!r} failed on {segment.get('name', 'a graph')}, which runs uncompiled "
            f"(kintsugi.config.suppress_errors=False raises this): {type(error).__name__}: {error}"
        )
        return _as_runner(module.forward, count, name)
    return _as_runner(_with_sizes(compiled, sizes) if sizes else compiled, count, name)


def _with_sizes(compiled: Callable[..., Any], sizes: Sequence[tuple[int, int]]) -> Callable[..., Any]:
    """Hands over the sizes that are inputs of the graph, in front of the others."""

    def run(*inputs: Any) -> Any:
        return compiled(*[inputs[index].shape[dim] for index, dim in sizes], *inputs)

    return run


def _signature(value: Any) -> Any:
    """What a compiled graph may have taken for a constant."""
    if not isinstance(value, torch.Tensor):
        # 1, 1.0 and True are equal; 0.0 and -0.0 are, too.
        return type(value), repr(value)
    return value.dtype, value.device, tuple(value.shape), value.stride(), value.requires_grad


def _sharing(inputs: Sequence[Any]) -> tuple[int, ...]:
    """Which tensors share their memory: for each the position of the first one with the same storage."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(t.untyped_storage()._cdata, i) for i, t in enumerate(tensors(inputs)))


def _any_symbol(inputs: Sequence[Any], dynamic: Sequence[int]) -> bool:
    return any(_is_input(inputs[i], True) and not _is_scalar(inputs[i]) for i in dynamic)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0


def _operators(ops: Sequence[Mapping[str, Any]]) -> list[torch._ops.OpOverload]:
    targets = dict.fromkeys(op["target"] for op in regions.flat(ops))
    others = {STEP, *SCALAR_TARGETS, *checks.GUARDS}
    return [find_operator(target) for target in targets if target not in others]


def _writes(segment: Segment) -> bool:
    return any(operator._schema.is_mutable for operator in _operators(segment["ops"]))


def _changes(segment: Segment) -> bool:
    """Does it write to tensors, also where a schema does not say so?"""
    return bool(segment.get("writes")) or _writes(segment)


def _acts(ops: Sequence[Mapping[str, Any]]) -> bool:
    """Do they draw random numbers, or write to tensors?"""
    drawing = torch.Tag.nondeterministic_seeded
    return any(each._schema.is_mutable or drawing in each.tags for each in _operators(ops))


def _has_pieces(segment: Segment) -> bool:
    """Are there operations that make it worth trying in pieces?"""
    return any(map(pieces.stands_alone, segment["ops"]))


def _sizes_of_data(segment: Segment) -> bool:
    return any(op.get("sizes_of_data") for op in regions.flat(segment["ops"]))


def _varying(segment: Segment) -> list[int]:
    """The positions of the inputs that differ from run to run."""
    examples = segment["example_inputs"]
    numbers = {i for i, value in enumerate(examples) if not isinstance(value, torch.Tensor)}
    return sorted(numbers | set(segment.get("dynamic") or ()))


def _asks(segment: Segment) -> bool:
    return any(op["target"] in checks.GUARDS for op in regions.flat(segment["ops"]))


def _is_open(segment: Segment) -> bool:
    return _asks(segment) or bool(_varying(segment)) or _sizes_of_data(segment)


def _is_checked(segment: Segment) -> bool:
    """Does it take anything for granted of sizes?"""
    return _asks(segment) or any(map(checks.gives_list, _operators(segment["ops"])))


def _declined(*_inputs: Any) -> Any:
    """Stands for a graph where there is none for such inputs: the core runs the instructions."""
    return NotImplemented


class _Specialized:
    """A segment whose graph depends on more than the metadata of its inputs.

    Sizes and integers that vary are symbols of one graph, where the backend can do with that (see `symbolic`). Else,
    and for other numbers, there is a graph for each combination, as there is for one that writes to its inputs: it is
    only right for inputs that share their memory as the first ones did. Past the limit it declines (NotImplemented),
    and the core runs the segment's instructions: new numbers must not wait for a compiler again and again. A graph that
    the backend can't take whole is cut into pieces, where that may help (see `pieces`).
    """

    def __init__(
        self,
        segment: Segment,
        dynamic: Sequence[int],
        compile_one: Callable[..., Runner],
        compile_piece: Callable[[Segment], Runner],
    ) -> None:
        self._segment = segment
        self._compile_piece = compile_piece
        self._pieces: Runner | None = None
        self._compile = compile_one
        self._dynamic = tuple(dynamic)
        self._open_sizes: dict[int, Sequence[int] | None] = dict.fromkeys(dynamic)
        self._open_sizes.update(
            zip(segment.get("dynamic") or (), segment.get("open_sizes") or (), strict=False)
        )
        self._writes = _writes(segment)
        self._runners: dict[Any, Runner] = {}
        self._symbolic = _any_symbol(segment["example_inputs"], self._dynamic) or _sizes_of_data(segment)
        self._open: dict[Any, list[tuple[Callable[[Sequence[Any]], bool], Runner]]] = {}

    def _open_key(self, inputs: Sequence[Any]) -> Any:
        numbers = tuple(_signature(inputs[i]) for i in self._dynamic if not _is_input(inputs[i], True))
        return numbers, _sharing(inputs) if self._writes else ()

    def open_runner(self, inputs: Sequence[Any]) -> Runner | None:
        """A graph whose symbols may stand for these inputs."""
        given = _open_inputs(inputs)
        graphs = self._open.setdefault(self._open_key(inputs), [])
        for accepts, runner in graphs:
            if accepts(given):
                return runner
        if self._full():
            return None
        varies = [self._open_sizes.get(i, ()) for i, value in enumerate(inputs) if _is_input(value, True)]
        try:
            symbols = symbolic.Symbols(given, varies)
            runner = self._compile({**self._segment, "example_inputs": list(inputs)}, symbols=symbols)
            graphs.append((symbols.seal(), runner))
        except checks.OtherSizes:
            graphs.append((symbols.seal(), _declined))
            return _declined
        except Exception as error:  # sizes that depend on data, or a backend that wants numbers
            _logs.emit(
                "dynamic", f"{self._segment.get('name', 'a graph')} is compiled for each size: {error}"
            )
            self._symbolic = False
            return None
        return runner

    @property
    def _kintsugi_graphs(self) -> int:
        """How many graphs the backend has got. The core asks."""
        if self._pieces is not None:
            return 0 if self._pieces is _declined else int(getattr(self._pieces, "_kintsugi_graphs", 1))
        return sum(runner is not _declined for runner in self._all())

    def _all(self) -> Iterator[Runner]:
        yield from self._runners.values()
        for graphs in self._open.values():
            yield from (runner for _, runner in graphs)

    def _full(self) -> bool:
        settings = _config.current()
        limit = 8 if settings is None else settings.recompile_limit
        return sum(1 for _ in self._all()) >= limit

    def key(self, inputs: Sequence[Any]) -> Any:
        signatures = tuple(_signature(inputs[i]) for i in self._dynamic)
        return signatures, _sharing(inputs) if self._writes else ()

    def runner(self, inputs: Sequence[Any]) -> Runner | None:
        key = self.key(inputs)
        runner = self._runners.get(key)
        if runner is None:
            if self._full():
                return None
            segment = {**self._segment, "example_inputs": list(inputs)}
            try:
                runner = self._compile(segment)
            except checks.OtherSizes:
                runner = _declined
            self._runners[key] = runner
        return runner

    def prepare(self, inputs: Sequence[Any]) -> None:
        self._choose(inputs)

    def _choose(self, inputs: Sequence[Any]) -> tuple[Runner | None, Sequence[Any]]:
        """What runs these inputs, and what of them it is given."""
        if self._pieces is not None:
            return self._pieces, inputs
        try:
            runner = self.open_runner(inputs) if self._symbolic else None
            return (runner, _open_inputs(inputs)) if runner else (self.runner(inputs), tensors(inputs))
        except Exception as error:
            if not _has_pieces(self._segment):
                raise
            # A piece may find that it is none for these sizes when those before it have written.
            undone = _changes(self._segment) and _is_checked(self._segment)
            self._pieces = _declined if undone else _in_pieces(self._segment, self._compile_piece, error)
        return self._pieces, inputs

    def __call__(self, *inputs: Any) -> Any:
        runner, given = self._choose(inputs)
        return NotImplemented if runner is None else runner(*given)


def backend_compile(
    segment: Segment, backend: Callable[..., Any], *, name: str = "custom", **options: Any
) -> Runner:
    """Builds the segment's graph, has `backend(gm, example_inputs)` compile it, and returns what runs it.

    With config.suppress_errors a failing backend is reported, and the graph runs uncompiled.
    """
    segment = regions.nested(segment)
    examples = segment["example_inputs"]
    compile_one = functools.partial(_compile, backend=backend, name=name, options=options)
    dynamic = _varying(segment)
    compile_piece = functools.partial(backend_compile, backend=backend, name=name, **options)
    if not _is_open(segment) and not _writes(segment):
        try:
            return compile_one(segment)
        except Exception as error:
            if not _has_pieces(segment):
                raise
            return _in_pieces(segment, compile_piece, error)
    specialized = _Specialized(segment, dynamic, compile_one, compile_piece)
    specialized.prepare(examples)
    return specialized


def _in_pieces(segment: Segment, compile_piece: Callable[[Segment], Runner], error: Exception) -> Runner:
    """What runs a graph that the backend has failed on."""
    _logs.emit("dynamic", f"{segment.get('name', 'a graph')} is compiled in pieces: {error}")
    return pieces.Pieces(segment, compile_piece, _interpreted)


def _interpreted(segment: Segment) -> Runner:
    """Runs a segment as it is, on whatever it is given."""
    ops = [(_callable_of(op), op) for op in segment["ops"]]

    def run(*inputs: Any) -> tuple[Any, ...]:
        values: dict[int | None, Any] = dict(zip(segment["inputs"], inputs, strict=True))
        values[None] = None

        def argument(value: Any) -> Any:
            if isinstance(value, list):
                return [argument(item) for item in value]
            return values[value[1]] if _is_reference(value) else value

        for call, op in ops:
            made = call([argument(value) for value in op["args"]], op.get("kwargs") or {})
            values.update(zip(op["results"], checks.as_many(made, len(op["results"])), strict=True))
            values[None] = None
        return tuple([values[number] for number in segment["outputs"]])

    return run


def _callable_of(op: Mapping[str, Any]) -> Callable[[list[Any], Mapping[str, Any]], list[Any]]:
    target = op["target"]
    if target == regions.REGION:
        inside = _interpreted({"inputs": op["inputs"], "ops": op["ops"], "outputs": op["results"]})
        module = regions.Checkpoint(
            inside, regions.kept(op, op["inputs"]), regions.options(op), _acts(op["ops"])
        )
        return lambda args, _kwargs: list(module(*args))
    if target == STEP:
        step = op["call"]
        return lambda args, _kwargs: list(step(*args))
    if target in checks.GUARDS:
        check = checks.GUARDS[target]

        def asked(args: list[Any], _kwargs: Mapping[str, Any]) -> list[Any]:
            check(*args)
            return []

        return asked
    scalar = SCALAR_TARGETS.get(target)
    if scalar is not None:
        return lambda args, _kwargs: [scalar(*args)]
    operator = find_operator(target)

    def call(args: list[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        positional, named = _place_arguments(operator, args, kwargs)
        made = operator(*positional, **named)
        if not isinstance(made, (tuple, list)):
            return [made]
        return [each for part in made for each in (part if isinstance(part, (tuple, list)) else (part,))]

    return call
