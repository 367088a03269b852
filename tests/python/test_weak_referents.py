"""What weak references refer to. Tensors are read as attributes are, as long as the trace has done nothing that could
end them; other objects by the call, in each run."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fx_recorder import Recorder
from harness import describe
from torch import nn

import kintsugi

Tensor = torch.Tensor


class Node:
    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.child: Any = None
        self.kept: Any = None
        self.spare: Any = None
        self.seen: list[Any] = []


def _tree(scale: float) -> Node:
    root = Node(scale)
    root.child = Node(scale + 1)
    root.child.parent = weakref.ref(root)
    root.kept = Node(7.0)
    root.weak = weakref.ref(root.kept)
    root.many = [weakref.ref(root.kept), weakref.ref(root.child), weakref.ref(root, lambda ref: None)]
    return root


def parents(x: Tensor, root: Node) -> Any:
    parent = root.child.parent()
    return x * parent.scale, parent is root


def may_be_gone(x: Tensor, root: Node) -> Any:
    held = root.weak()
    return (x, None) if held is None else (x * held.scale, held is root.kept)


def asked_twice(x: Tensor, root: Node) -> Any:
    before = root.weak() is None
    root.seen.append(1)
    return x + len(root.seen), before, root.weak() is None


def dropped_between(x: Tensor, root: Node) -> Any:
    root.spare = root.kept  # a call that is recorded holds what nothing else does
    before = root.weak() is None
    root.kept = None
    return x * 2, before, root.weak() is None


def held_by_a_variable(x: Tensor, root: Node) -> Any:
    root.spare = root.kept
    held = root.weak()
    root.kept = None
    after = root.weak() is held
    if held is not None:
        held.scale = held.scale + 1
        x = x * held.scale
    del held
    return x, after, root.weak() is None


def replaced(x: Tensor, root: Node) -> Any:
    root.kept = Node(3.0)
    gone = root.weak() is None
    root.weak = weakref.ref(root.kept)
    return x * root.weak().scale, gone


def in_a_list(x: Tensor, root: Node) -> Any:
    for ref in root.many:
        held = ref()
        if held is not None:
            x = x * held.scale
    return x, [ref() is None for ref in root.many]


def behind_a_step(x: Tensor, root: Node) -> Any:
    a = root.weak() is None
    n = len(sorted([3, 1], key=lambda k: root.seen.append(k) or k))
    return x + n, a, root.weak() is None


def behind_code_that_drops(x: Tensor, root: Node) -> Any:
    root.spare = root.kept

    def drop(k: int) -> int:
        if len(root.seen) % 2:
            root.kept = None
        root.seen.append(k)
        return k

    a = root.weak() is None
    list(map(drop, [1]))
    return x + 1, a, root.weak() is None


class _Ref(weakref.ref):  # type: ignore[type-arg]
    def __call__(self) -> Any:
        return 5


def other_kinds(x: Tensor, root: Node) -> Any:
    sub, proxy = _Ref(root), weakref.proxy(root.child)
    return x * sub() * proxy.scale


PROGRAMS: list[Callable[..., Any]] = [
    parents,
    may_be_gone,
    asked_twice,
    dropped_between,
    held_by_a_variable,
    replaced,
    in_a_list,
    behind_a_step,
    behind_code_that_drops,
    other_kinds,
]


def _change(root: Node, call: int) -> None:
    if call == 2:
        root.kept = root.spare = None
    if call == 3:
        root.kept = Node(4.0)
        root.weak = weakref.ref(root.kept)
        root.many[0] = root.weak
    if call == 5:
        root.child.parent = weakref.ref(root.child)
    if call == 6:
        root.child = Node(9.0)
        root.child.parent = weakref.ref(root)
    if call == 7:
        root.scale = 11.0


@pytest.mark.parametrize("backend", ["eager", "native", "fx"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_like_eager_mode(program: Callable[..., Any], backend: str) -> None:
    compiled = kintsugi.compile(program, backend=Recorder() if backend == "fx" else backend)
    mine, theirs = _tree(2.0), _tree(2.0)
    for call in range(10):
        x = torch.full((3,), float(call + 1))
        _change(mine, call)
        _change(theirs, call)
        expected = describe((program(x, theirs), theirs.scale, theirs.seen, theirs.weak() is None))
        got = compiled(x, mine)
        assert describe((got, mine.scale, mine.seen, mine.weak() is None)) == expected, call
        if backend == "native" and call % 3 == 2:
            kintsugi.wait()


def test_what_has_ended_is_seen_between_calls() -> None:
    kept = Node(2.0)
    ref = weakref.ref(kept)

    def f(x: Tensor) -> Any:
        held = ref()
        return x if held is None else x * held.scale

    compiled = kintsugi.compile(f, backend="eager")
    x = torch.ones(3)
    assert [compiled(x)[0].item() for _ in range(3)] == [2, 2, 2]
    kept.scale = 3.0
    assert compiled(x)[0].item() == 3
    del kept
    assert [compiled(x)[0].item() for _ in range(3)] == [1, 1, 1]


def _function() -> Any:
    k = 3

    def h(x: Tensor) -> Tensor:
        return x * k

    return h


class _Holder:
    def g(self, x: Tensor) -> Tensor:
        return x * 3


def _with_a_function() -> Any:
    made = _Holder()
    made.g = _function()  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize(
    "make, use",
    [
        (_function, lambda o, x: o(x)),
        (lambda: re.compile("b(a+)"), lambda o, x: x * len(o.match("baaa").group(1))),
        (_with_a_function, lambda o, x: o.g(x)),
        (lambda: torch.full((3,), 3.0), lambda o, x: x * o),
    ],
)
def test_what_ends_is_not_held_by_traces(make: Any, use: Any, backend: str) -> None:
    holder: dict[str, Any] = {}

    def f(x: Tensor) -> Any:
        held = holder["weak"]()
        return x if held is None else use(held, x)

    compiled = kintsugi.compile(f, backend=backend)
    re.purge()
    holder["strong"] = make()
    holder["weak"] = weakref.ref(holder["strong"])
    results = []
    for call in range(6):
        if call == 3:
            holder["strong"] = None
            re.purge()
            gc.collect()
        results.append(compiled(torch.ones(3))[0].item())
    assert results == [3, 3, 3, 1, 1, 1]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTM(4, 4, batch_first=True, bidirectional=True)
        self.second = nn.GRU(8, 4, batch_first=True)
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.first(x.relu() + 1)
        z, _ = self.second(y * 2)
        return self.out(z.tanh())


@pytest.mark.parametrize("train", [False, True])
def test_recurrent_layers_are_in_one_graph(train: bool) -> None:
    torch.manual_seed(0)
    model = Recurrent().train(train)
    backend = Recorder()
    compiled = kintsugi.compile(model, backend=backend)
    for _ in range(3):
        x = torch.randn(2, 5, 4)
        assert torch.equal(compiled(x), model(x))
    assert len(backend.graphs) == 1
    model.first.weight_ih_l0 = nn.Parameter(model.first.weight_ih_l0.detach() * 2)
    for _ in range(3):
        x = torch.randn(2, 5, 4)
        assert torch.equal(compiled(x), model(x))
