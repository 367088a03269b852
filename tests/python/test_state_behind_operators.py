"""Python code of the program that torch's dispatcher calls, and what it changes in some calls only.

Kernels of operators, `setup_context`, dispatch modes, hooks for saved tensors, `__int__` of an argument: a call is
recorded in which they change nothing (or something), and what the program reads behind them is compared with eager mode
in later calls, in which they do the opposite.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from harness import describe
from native_harness import native
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

import kintsugi

BACKENDS = ["eager", "native"]
FEW = ["attribute", "list length", "size", "parameter", "grad mode"]  # natively, where a program takes longer
SCHEDULES = [(0, 0, 0, 1, 0, 1), (1, 0, 0, 1, 1, 0)]
factor = 1


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x


class State:
    shared = 1

    def __init__(self) -> None:
        self.n = 0
        self.numbers = [0]
        self.log: list[int] = []
        self.found = {"a": 0}
        self.tensor = torch.zeros(2)
        self.square = torch.arange(4.0).view(2, 2)
        self.leaf = nn.Parameter(torch.ones(2))
        self.module = nn.Linear(2, 2)
        self.tensors = [torch.ones(2)]
        self.way: Callable[[torch.Tensor], torch.Tensor] = torch.neg

    def size(self) -> int:
        return 1


current: list[State] = []
flag = False
effect: Callable[[State], Any] = lambda s: None


def act() -> None:
    if flag:
        effect(current[0])


def change_global(s: State) -> None:
    global factor
    factor += 1


def replace_function(s: State) -> None:
    global scaled
    scaled = lambda x: x * 70


def replace_parameter(s: State) -> None:
    s.module.weight = nn.Parameter(s.module.weight.detach() + 1)


def other_dtype(s: State) -> None:
    s.leaf.data = s.leaf.data.double() if s.leaf.dtype == torch.float32 else s.leaf.data.float()


def other_default(s: State) -> None:
    double = torch.get_default_dtype() == torch.float64
    torch.set_default_dtype(torch.float32 if double else torch.float64)


def add_hundred(module: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
    return out + 100


def another_class(s: State) -> None:
    s.__class__ = type("Another", (State,), {"size": lambda self: 2})


EFFECTS: dict[str, Callable[[State], Any]] = {
    "attribute": lambda s: setattr(s, "n", s.n + 10),
    "new attribute": lambda s: setattr(s, "extra", getattr(s, "extra", 0) + 1),
    "list item": lambda s: s.numbers.__setitem__(0, s.numbers[0] + 1),
    "list length": lambda s: s.log.append(1),
    "dict": lambda s: s.found.update(a=s.found["a"] + 1, b=1),
    "global": change_global,
    "function": replace_function,
    "class attribute": lambda s: setattr(State, "shared", State.shared + 1),
    "method": lambda s: setattr(State, "size", lambda self: 3),
    "own method": lambda s: setattr(s, "size", lambda: 4),
    "class": another_class,
    "callable": lambda s: setattr(s, "way", torch.abs),
    "values": lambda s: s.tensor.add_(1),
    "size": lambda s: s.tensor.resize_(s.tensor.numel() + 1).fill_(1.0),
    "memory": lambda s: s.tensor.set_(torch.ones(s.tensor.numel() + 2)),
    "stride": lambda s: s.square.t_(),
    "requires_grad": lambda s: s.tensor.requires_grad_(not s.tensor.requires_grad),
    "dtype": other_dtype,
    "gradient": lambda s: setattr(s.leaf, "grad", torch.ones_like(s.leaf) if s.leaf.grad is None else None),
    "tensor": lambda s: setattr(s, "tensor", torch.ones(s.tensor.numel() + 1)),
    "tensors": lambda s: s.tensors.append(torch.ones(2)),
    "parameter": replace_parameter,
    "training": lambda s: s.module.train(not s.module.training),
    "module hook": lambda s: s.module._forward_hooks.update({len(s.module._forward_hooks): add_hundred}),
    "grad mode": lambda s: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "default dtype": other_default,
    "seed": lambda s: torch.default_generator.manual_seed(7),
}


def read(s: State, x: torch.Tensor) -> tuple[Any, ...]:
    doubled = s.tensor * 2
    branch = x + 1 if s.n > 5 else x - 1
    return (
        (
            s.n,
            getattr(s, "extra", None),
            s.numbers[0],
            len(s.log),
            s.found["a"],
            len(s.found),
            factor,
            s.shared,
        ),
        (s.size(), s.module.training, torch.is_grad_enabled(), torch.get_default_dtype(), s.tensor.shape),
        (s.tensor.requires_grad, s.leaf.dtype, s.leaf.grad, s.square.stride()),
        (
            doubled.detach(),
            branch,
            (s.leaf * 2).detach(),
            (s.square @ s.square).detach(),
            scaled(x),
            s.way(x),
        ),
        (
            s.module(x.to(s.module.weight.dtype)).detach(),
            torch.ones(2),
            torch.rand(1),
            torch.stack(s.tensors).sum(),
        ),
    )


# --- operators whose kernels are Python code ---


@torch.library.custom_op("kintsugi_behind::custom", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    act()
    return x * 1


@torch.library.custom_op("kintsugi_behind::set_up", mutates_args=())
def set_up(x: torch.Tensor) -> torch.Tensor:
    return x * 1


set_up.register_autograd(lambda ctx, g: g, setup_context=lambda ctx, inputs, output: act())


@torch.library.custom_op("kintsugi_behind::filled", mutates_args=("x",))
def filled(x: torch.Tensor) -> None:
    act()
    x.add_(1)


@torch.library.custom_op("kintsugi_behind::outer", mutates_args=())
def outer(x: torch.Tensor) -> torch.Tensor:
    return custom(x * 2) + 1


@torch.library.triton_op("kintsugi_behind::triton", mutates_args=())
def triton(x: torch.Tensor) -> torch.Tensor:
    act()
    return x * 1


library = torch.library.Library("kintsugi_behind_lib", "DEF")
for name, key in {
    "implicit": "CompositeImplicitAutograd",
    "explicit": "CompositeExplicitAutograd",
    "cpu": "CPU",
    "autograd": "Autograd",
}.items():
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: (act(), x * 1)[1], key)
library.define("count(Tensor x) -> int")
library.impl("count", lambda x: (act(), 3)[1], "CPU")
library.define("next(int n) -> int")
library.impl("next", lambda n: (act(), n + 1)[1], "CompositeExplicitAutograd")
ops = torch.ops.kintsugi_behind_lib


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.cos.default:
            act()
        return func(*args, **(kwargs or {}))


class Number:
    def __int__(self) -> int:
        act()
        return 3

    __index__ = __int__


def pack(tensor: torch.Tensor) -> torch.Tensor:
    act()
    return tensor


class Pack:
    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        act()
        return tensor


same = lambda tensor: tensor


def by_custom(s: State, x: torch.Tensor) -> Any:
    custom(x)
    return read(s, x)


def by_result(s: State, x: torch.Tensor) -> Any:
    y = custom(x) * s.n
    return y, read(s, y)


def by_set_up(s: State, x: torch.Tensor) -> Any:
    set_up(x.clone().requires_grad_())
    return read(s, x)


def by_filled(s: State, x: torch.Tensor) -> Any:
    y = x * 2
    filled(y)
    return y, read(s, x)


def by_outer(s: State, x: torch.Tensor) -> Any:
    return outer(x), read(s, x)


def by_triton(s: State, x: torch.Tensor) -> Any:
    return triton(x), read(s, x)


def by_implicit(s: State, x: torch.Tensor) -> Any:
    return ops.implicit(x), read(s, x)


def by_explicit(s: State, x: torch.Tensor) -> Any:
    return ops.explicit(x), read(s, x)


def by_cpu(s: State, x: torch.Tensor) -> Any:
    return ops.cpu(x), read(s, x)


def by_autograd(s: State, x: torch.Tensor) -> Any:
    return ops.autograd(x.clone().requires_grad_()).detach(), read(s, x)


def by_count(s: State, x: torch.Tensor) -> Any:
    return ops.count(x), read(s, x)


def by_next(s: State, x: torch.Tensor) -> Any:
    return ops.next(3), read(s, x)


def in_a_loop(s: State, x: torch.Tensor) -> Any:
    found = []
    for _ in range(3):
        x = custom(x) * (1 + s.n)
        found.append(s.n)
    return x, found, read(s, x)


def in_a_call(s: State, x: torch.Tensor) -> Any:
    def inner(y: torch.Tensor) -> torch.Tensor:
        y = custom(y) + s.n
        return y * len(s.log)

    return inner(x) + inner(x + 1), read(s, x)


def by_mode(s: State, x: torch.Tensor) -> Any:
    with Mode():
        y = torch.cos(x)
        found = read(s, x)
    return y, found, read(s, x)


def by_hooks(s: State, x: torch.Tensor) -> Any:
    x = x.clone().requires_grad_()
    with saved_tensors_hooks(pack, same):
        y = x.sin()
        found = read(s, x.detach())
    return y.detach(), found


def by_partial_hooks(s: State, x: torch.Tensor) -> Any:
    x = x.clone().requires_grad_()
    with saved_tensors_hooks(functools.partial(pack), same):
        y = x.sin()
        found = read(s, x.detach())
    return y.detach(), found


def by_callable_hooks(s: State, x: torch.Tensor) -> Any:
    x = x.clone().requires_grad_()
    with saved_tensors_hooks(Pack(), same):
        y = x.sin()
        found = read(s, x.detach())
    return y.detach(), found


def by_seed(s: State, x: torch.Tensor) -> Any:
    torch.manual_seed(Number())
    return read(s, x)


def by_index(s: State, x: torch.Tensor) -> Any:
    y = torch.zeros(Number())
    return y, read(s, x)


def by_replaced(s: State, x: torch.Tensor) -> Any:
    y = torch.special.i0e(x + 1) + 1
    return y, read(s, x)


WAYS = [value for name, value in list(globals().items()) if name.startswith(("by_", "in_a_"))]


@contextlib.contextmanager
def replaced_kernels() -> Iterator[None]:
    """A kernel of ATen's is replaced, which native code would not call."""
    with warnings.catch_warnings(), torch.library._scoped_library("aten", "IMPL") as kernels:
        warnings.simplefilter("ignore")
        kernels.impl("special_i0e", lambda x: (act(), x * 100)[1], "CPU", allow_override=True)
        yield


def reset() -> None:
    global factor, scaled, flag, effect
    factor, scaled, flag = 1, same, False
    State.shared = 1
    State.size = lambda self: 1  # type: ignore[method-assign]
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)


def compiled_by(backend: str, program: Callable[..., Any]) -> Callable[..., Any]:
    return native(program) if backend == "native" else kintsugi.compile(program, backend=backend)


def outcomes(
    program: Callable[..., Any], changes: Callable[[State], Any], schedule: tuple[int, ...], close: bool
) -> list[Any]:
    global flag, effect
    reset()
    torch.default_generator.manual_seed(0)
    state = State()
    current[:] = [state]
    found = []
    for now in schedule:
        flag, effect = bool(now), changes
        try:
            result: Any = program(state, torch.ones(2))
        except Exception as error:
            result = (type(error).__name__, str(error))
        with torch.no_grad():
            flag = False
            found.append(describe(result, vars(state), factor, State.shared, close=close))
    reset()
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_changes_of_later_calls(way: Callable[..., Any], backend: str) -> None:
    def reads_before(s: State, x: torch.Tensor) -> Any:
        before = read(s, x)
        return before, way(s, x)

    close = backend == "native"
    with replaced_kernels() if way is by_replaced else contextlib.nullcontext():
        for kind in FEW if close else EFFECTS:
            for program in (way, reads_before):
                schedule = SCHEDULES[program is reads_before]
                expected = outcomes(program, EFFECTS[kind], schedule, close)
                got = outcomes(compiled_by(backend, program), EFFECTS[kind], schedule, close)
                for call, (theirs, mine) in enumerate(zip(expected, got, strict=True)):
                    assert mine == theirs, f"{kind}, call {call}, {program.__name__}"


# --- objects of the function itself, exceptions ---

holder: list[Any] = [None]


def own_list(s: State, x: torch.Tensor) -> Any:
    made: list[int] = []
    holder[0] = made
    y = custom(x)
    return len(made), y, made


def own_list_by_index(s: State, x: torch.Tensor) -> Any:
    made: list[int] = []
    holder[0] = made
    y = torch.zeros(Number())
    return len(made), y, made


def own_list_by_seed(s: State, x: torch.Tensor) -> Any:
    made: list[int] = []
    holder[0] = made
    torch.manual_seed(Number())
    return len(made), x * 2, made


def own_list_under_a_mode(s: State, x: torch.Tensor) -> Any:
    made: list[int] = []
    holder[0] = made
    with Mode():
        y = torch.cos(x)
        return len(made), y, made


def own_object(s: State, x: torch.Tensor) -> Any:
    made = State()
    holder[0] = made.log
    y = custom(x)
    return len(made.log), y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "program", [own_list, own_list_by_index, own_list_by_seed, own_list_under_a_mode, own_object]
)
def test_objects_that_the_call_has_made(program: Callable[..., Any], backend: str) -> None:
    changes = lambda s: holder[0].append(1)
    for schedule in SCHEDULES:
        expected = outcomes(program, changes, schedule, True)
        assert outcomes(compiled_by(backend, program), changes, schedule, True) == expected


def caught(s: State, x: torch.Tensor) -> Any:
    y = x * 2
    try:
        y = custom(y)
    except ValueError as error:
        return s.n, str(error), y
    return s.n, y


def caught_outside(s: State, x: torch.Tensor) -> Any:
    try:
        return outer(x), s.n
    except ValueError:
        s.log.append(s.n)
    return len(s.log), s.n


def caught_seed(s: State, x: torch.Tensor) -> Any:
    before = s.n
    try:
        torch.manual_seed(Number())
    except ValueError:
        return before, s.n, x * 2
    return before, s.n, x


def caught_under_a_mode(s: State, x: torch.Tensor) -> Any:
    with Mode():
        try:
            y = torch.cos(x)
        except ValueError:
            y = x * s.n
        return y + s.n, len(s.log)


def raised(s: State, x: torch.Tensor) -> Any:
    return custom(x), s.n


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [caught, caught_outside, caught_seed, caught_under_a_mode, raised])
def test_kernels_that_raise(program: Callable[..., Any], backend: str) -> None:
    def changes(s: State) -> None:
        s.n += 10
        if s.n % 20 == 0:
            raise ValueError(f"at {s.n}")

    for schedule in [*SCHEDULES, (1, 1, 0, 0, 1, 1, 0, 1, 1), (0, 0, 1, 1, 1, 1, 1, 0)]:
        expected = outcomes(program, changes, schedule, True)
        assert outcomes(compiled_by(backend, program), changes, schedule, True) == expected


def held(s: State, x: torch.Tensor) -> Any:
    """Tensors that variables hold, whose metadata the kernel changes."""
    tensor, square = s.tensor, s.square
    doubled = tensor * 2
    custom(x)
    again = tensor * 3
    return doubled, again.detach(), tensor.shape, tensor.requires_grad, square.stride(), (square + 1).stride()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["size", "memory", "stride", "requires_grad", "values", "tensor"])
def test_tensors_in_variables(kind: str, backend: str) -> None:
    for schedule in SCHEDULES:
        expected = outcomes(held, EFFECTS[kind], schedule, True)
        assert outcomes(compiled_by(backend, held), EFFECTS[kind], schedule, True) == expected


# --- graphs of others ---


def test_graphs_stay_whole() -> None:
    """Nothing is read behind the operator, so no graph ends there."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        graphs.append(gm)
        return gm.forward

    def program(x: torch.Tensor) -> torch.Tensor:
        y = custom(x.sin()) * 2
        return y.cos() + x

    compiled = kintsugi.compile(program, backend=backend, fullgraph=True)
    for call in range(3):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x), program(x), msg=f"call {call}")
    assert len(graphs) == 1
    targets = [node.target for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert targets.count(torch.ops.kintsugi_behind.custom.default) == 1
    assert compiled.stats().hits == 2


@pytest.mark.parametrize(
    "kind", ["attribute", "list length", "dict", "global", "tensor", "size", "grad mode"]
)
def test_graphs_that_read_behind_operators(kind: str) -> None:
    """A dispatch mode has no schema that would say what it changes, as kernels of torch.library have."""

    def program(s: State, x: torch.Tensor) -> Any:
        with Mode():
            y = torch.cos(x.sin()) * 2
            found = s.n, len(s.log), s.found["a"], factor, s.tensor.shape, torch.is_grad_enabled()
            return (torch.cos(y) + s.n).detach(), found, (s.tensor * 2).detach()

    compiled = kintsugi.compile(program, backend=lambda gm, examples: gm.forward)
    for schedule in SCHEDULES:
        expected = outcomes(program, EFFECTS[kind], schedule, True)
        assert outcomes(compiled, EFFECTS[kind], schedule, True) == expected


def test_code_of_torch_alone_reads_nothing_again() -> None:
    """No kernel of the program runs: all reads are of the entry."""

    def program(s: State, x: torch.Tensor) -> Any:
        torch.manual_seed(3)
        y = torch.nn.functional.dropout(x.relu(), 0.5) + s.n
        return torch.nn.functional.gelu(y) * s.numbers[0], str(y.shape)

    compiled = kintsugi.compile(program, backend="eager")
    for _ in range(3):
        compiled(State(), torch.ones(2))
    (trace,) = compiled.traces()
    assert "global_state" not in str(trace).partition("guards 1")[2]
