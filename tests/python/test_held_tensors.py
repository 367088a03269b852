"""Tensors that the call holds while code that may change anything runs, and what their metadata is behind it.

Place by kind by way: where the tensor is held, what changes (in some calls only), and which code changes it. What the
function reads of the tensor behind that code is compared with eager mode.
"""

from __future__ import annotations

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

BACKENDS = ["eager", "fx", "native"]
SCHEDULES = [(0, 0, 0, 1, 0, 1, 1), (1, 0, 0, 1, 0)]


class State:
    def __init__(self) -> None:
        self.tensor = torch.zeros(2)
        self.square = torch.arange(6.0).view(2, 3)
        self.leaf = nn.Parameter(torch.ones(2))


class Box:
    tensor: torch.Tensor


state: list[State] = []
effect: list[Callable[[State], Any]] = []


def act() -> None:
    if effect:
        effect[0](state[0])


# --- what changes ---


def resize(s: State) -> None:
    s.tensor.resize_(s.tensor.numel() + 1).fill_(1.0)


def other_memory(s: State) -> None:
    s.tensor.set_(torch.ones(s.tensor.numel() + 2))  # type: ignore[call-overload]


def other_strides(s: State) -> None:
    s.square.t_()


def requires_grad(s: State) -> None:
    s.tensor.requires_grad_(not s.tensor.requires_grad)


def followed(s: State) -> None:
    if s.tensor.is_leaf:
        s.tensor.mul_(s.leaf[0])
    else:
        s.tensor.detach_()


def other_data(s: State) -> None:
    s.leaf.data = s.leaf.data.double() if s.leaf.dtype == torch.float32 else s.leaf.data.float()


def gradient(s: State) -> None:
    s.leaf.grad = torch.ones_like(s.leaf) if s.leaf.grad is None else None


# The tensor, and whether the call may have made it.
KINDS: dict[Callable[[State], None], tuple[str, bool]] = {
    resize: ("tensor", True),
    other_memory: ("tensor", True),
    other_strides: ("square", True),
    requires_grad: ("tensor", True),
    followed: ("tensor", True),
    other_data: ("leaf", False),
    gradient: ("leaf", False),
}

# --- which code changes it ---

library = torch.library.Library("kintsugi_held", "DEF")
library.define("op(Tensor x) -> Tensor")
library.impl("op", lambda x: (act(), x * 1)[1], "CPU")


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.cos.default:
            act()
        return func(*args, **(kwargs or {}))


class Acts:
    def __int__(self) -> int:
        act()
        return 3

    def __str__(self) -> str:
        act()
        return "acts"


@kintsugi.disable
def opaque(x: torch.Tensor) -> None:
    act()


@kintsugi.disable
def opaque_that_raises(x: torch.Tensor) -> None:
    act()
    raise ValueError


def pack(x: torch.Tensor) -> torch.Tensor:
    act()
    return x


def by_operator(x: torch.Tensor) -> Any:
    return torch.ops.kintsugi_held.op(x)


def by_step(x: torch.Tensor) -> Any:
    opaque(x)


def by_raising_step(x: torch.Tensor) -> Any:
    try:
        opaque_that_raises(x)
    except ValueError:
        return None


def by_mode(x: torch.Tensor) -> Any:
    with Mode():
        return torch.cos(x)


def by_hook(x: torch.Tensor) -> Any:
    with saved_tensors_hooks(pack, lambda saved: saved):
        return x.clone().requires_grad_().sin().detach()


def by_seed(x: torch.Tensor) -> Any:
    torch.manual_seed(Acts())  # type: ignore[arg-type]


def by_text(x: torch.Tensor) -> Any:
    return str(Acts())


WAYS = [by_operator, by_step, by_raising_step, by_mode, by_hook, by_seed, by_text]

# --- where the tensor is held ---


def read(t: torch.Tensor) -> Any:
    twice = t * 2
    return (
        (t.shape, t.stride(), t.dtype, t.is_contiguous(), t.numel(), t.size(0)),
        (t.requires_grad, t.is_leaf, twice.requires_grad, twice.shape, (t + t).stride()),
        (None if t.grad is None or not t.is_leaf else t.grad.clone(), twice.detach()),
    )


def second(first: Any, then: Any) -> Any:
    return then


def in_variable(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    way(x)
    return read(t)


def read_before(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    before = read(t)
    way(x)
    return before, read(t)


def on_the_stack(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    return t.mul(second(way(x), 2)).shape, (t, way(x), t.shape, t.requires_grad)[2:]


def in_tuple(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    held = (t, 1)
    way(x)
    return read(held[0])


def in_list(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    held = [t]
    way(x)
    return read(held[0])


def in_dict(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    held = {"a": t}
    way(x)
    return read(held["a"])


def in_cell(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    def inner() -> Any:
        return read(t)

    way(x)
    return inner()


def in_object(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    box = Box()
    box.tensor = t
    way(x)
    return read(box.tensor)


def in_iterator(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    held = iter([t])
    pairs = zip([t], [1], strict=True)
    way(x)
    return read(next(held)), read(next(pairs)[0])


def waits(t: torch.Tensor) -> Iterator[Any]:
    yield 1
    yield read(t)


def in_generator(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    held = waits(t)
    next(held)
    way(x)
    return next(held)


def in_methods(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    size, stride, twice = t.size, t.stride, t.mul
    way(x)
    return size(), stride(), twice(2).shape


def in_caller(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    def inner(y: torch.Tensor) -> Any:
        way(y)
        return y.shape

    inner(x)
    return read(t)


def in_a_loop(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    found = []
    for _ in range(3):
        way(x)
        found.append(read(t))
    return found


def behind_a_decision(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    way(x)
    return read(t) if x.sum() > 0 else t.shape


def in_rows(t: torch.Tensor, way: Any, x: torch.Tensor) -> Any:
    way(x)
    return [row.shape for row in t], len(t)


PLACES = [
    value for name, value in list(globals().items()) if name.startswith(("in_", "on_", "read_", "behind_"))
]


def old(s: State, name: str, place: Any, way: Any, x: torch.Tensor) -> Any:
    return place(getattr(s, name), way, x)


def made(s: State, name: str, place: Any, way: Any, x: torch.Tensor) -> Any:
    """The tensor is one that the call has made, and that others reach."""
    tensor = torch.zeros(2, 3)
    setattr(s, name, tensor)
    return place(tensor, way, x)


def compiled_by(backend: str, program: Callable[..., Any]) -> Callable[..., Any]:
    if backend == "native":
        return native(program)
    return kintsugi.compile(
        program, backend="eager" if backend == "eager" else lambda gm, examples: gm.forward
    )


def outcomes(
    call: Callable[..., Any], kind: Callable[[State], None], place: Any, way: Any, schedule: tuple[int, ...]
) -> list[Any]:
    state[:] = [State()]
    found = []
    for number, acts in enumerate(schedule):
        effect[:] = [kind] if acts else []
        try:
            result: Any = call(state[0], KINDS[kind][0], place, way, torch.full((2,), 1.0 - number % 2))
        except RuntimeError as error:
            result = (type(error).__name__, str(error))
        effect.clear()
        with torch.no_grad():
            found.append(describe(result, close=True))
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_metadata_of_later_calls(way: Callable[..., Any], backend: str) -> None:
    if backend == "fx" and way is by_operator:
        pytest.skip("the schema of an operator of torch.library is taken at its word there")
    kinds = [resize, requires_grad] if backend == "native" else KINDS
    for place in PLACES:
        if backend == "fx" and place is in_rows:
            continue  # graphs of others do not ask how many rows there are
        for kind in kinds:
            for program in (old, made) if KINDS[kind][1] else (old,):
                for schedule in SCHEDULES:
                    expected = outcomes(program, kind, place, way, schedule)
                    got = outcomes(compiled_by(backend, program), kind, place, way, schedule)
                    for call, (theirs, mine) in enumerate(zip(expected, got, strict=True)):
                        where = (
                            f"{place.__name__}, {kind.__name__}, {program.__name__}, {schedule}, call {call}"
                        )
                        assert mine == theirs, where


@pytest.mark.parametrize("way", [by_operator, by_step, by_seed])
def test_nothing_changes_and_the_trace_is_kept(way: Callable[..., Any]) -> None:
    """Behind the code one comparison for each tensor that is used there, and sizes that stay constants."""

    def program(t: torch.Tensor, x: torch.Tensor) -> Any:
        kept, unused = x * 2, x * 3
        way(x)
        return t + kept, (t * kept).shape, unused

    program(torch.ones(3), torch.ones(3))  # the first call of a process imports modules of torch
    compiled = kintsugi.compile(program, backend="eager")
    for _ in range(4):
        compiled(torch.ones(3), torch.ones(3))
    assert compiled.stats().hits == 3
    (trace,) = compiled.traces()
    text = str(trace)
    assert text.count("guard.meta") == 2
    assert " size " not in text
