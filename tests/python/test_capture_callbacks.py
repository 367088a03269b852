"""Builtins that call back, sets, signatures and vmap: what stands in for C code is recorded, and equals eager."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest
import torch
from harness import Case, Suite, check, check_captured, signs
from torch import nn

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


# --- keys ---


@case()
def sorted_by_key(x):
    words = ["pear", "fig", "banana", "kiwi", "date"]
    return x + 1, sorted(words, key=len), sorted(words, key=lambda w: w[-1], reverse=True), sorted(words)


@case(calls=6, traces=None, breaks=None)
def sorted_by_tensors(x):
    rows = sorted(x, key=lambda r: r.sum())
    return rows[0], sorted([r.sum().item() for r in x], reverse=True)


@case()
def sort_in_place(x):
    pairs = [(2, "b"), (1, "z"), (2, "a"), (1, "a")]
    pairs.sort(key=lambda p: p[0])
    first = list(pairs)
    pairs.sort(key=lambda p: (-p[0], p[1]), reverse=True)
    return x * pairs[0][0], first, pairs


@case()
def stable_in_both_directions(x):
    rows = [("a", 1), ("b", 0), ("c", 1), ("d", 0), ("e", float("inf"))]
    return x, sorted(rows, key=lambda r: r[1]), sorted(rows, key=lambda r: r[1], reverse=True)


@case()
def nan_keys(x):
    values = [3.0, float("nan"), 1.0, 2.0, float("nan"), 0.5]
    return x, sorted(values, key=lambda v: v), sorted(values, key=lambda v: -v, reverse=True)


@case()
def extremes_by_key(x):
    words = ["pear", "fig", "banana", "kiwi"]
    return (
        x * len(max(words, key=len)),
        min(words, key=lambda w: w[-1]),
        max("a", "bb", "cc", key=len),
        max([], key=len, default=None),
        min((3, -4, 2), key=abs),
    )


@case(calls=6, traces=None)
def extremes_of_tensors(x):
    return max(list(x), key=lambda r: r.sum()) + min(list(x), key=lambda r: r[0])


@case(traces=None, breaks=None)
def empty_sequence(x):
    try:
        return max([], key=len)
    except ValueError as error:
        return x + 1, str(error)


@case(traces=None, breaks=None)
def incomparable(x):
    try:
        return sorted([1, "a"], key=lambda v: v)
    except TypeError as error:
        return x + 1, str(error)


@case(traces=None, breaks=None)
def key_that_raises(x):
    return sorted([2, 1, 0], key=lambda v: x / [1][v])


# --- reductions ---


@case()
def fold(x):
    rows = list(x)
    return (
        functools.reduce(lambda a, b: a * b, rows),
        functools.reduce(torch.add, rows, torch.ones(4)),
        functools.reduce(lambda a, b: a + b, [], 5),
    )


@case(traces=None, breaks=None)
def fold_of_nothing(x):
    return functools.reduce(lambda a, b: a + b, [])


@case(inputs=signs, calls=6, traces=None)
def any_and_all_of_tensors(x):
    if any(row.sum() > 0 for row in x):
        x = x + 1
    if all(row[0] > 0 for row in x):
        x = x * 2
    return x


@case()
def any_and_all_of_numbers(x):
    return x, any(i > 2 for i in range(5)), all(i > 2 for i in range(5)), any(i for i in ())


# --- map, filter, chain, reversed ---


@case()
def maps(x):
    total = x
    for row in map(lambda r: r * 2, x):
        total = total + row
    return (
        total,
        list(map(torch.sin, x)),
        tuple(map(lambda a, b: a + b, x, x)),
        sum(map(lambda r: r.sum(), x)),
    )


@case()
def filters(x):
    return x, list(filter(lambda n: n % 2, range(6))), list(filter(None, [0, 1, "", "a"]))


@case(traces=None, breaks=None)
def map_that_stops(x):
    def stop(value):
        if value > 1:
            raise StopIteration
        return value

    return x + 1, list(map(stop, range(5)))


@case(traces=None, breaks=None)
def map_is_returned(x):
    made = map(abs, [1, -2])
    return x + 1, type(made).__name__, list(made)


@factory()
def make_module_lists():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.down = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
            self.up = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])

        def forward(self, x):
            for a, b in list(zip(self.down, self.up)):
                x = b(a(x))
            for layer in reversed(self.up):
                x = layer(x)
            for i, layer in list(enumerate(self.down)):
                x = layer(x) * (i + 1)
            return x

    net = Net()
    return (lambda x: net(x)), net


# --- sets ---


@factory()
def make_parameters_of_a_module():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    net[1].weight = nn.Parameter(torch.ones(2, 4))

    def f(x):
        first = next(net.parameters())
        names = [name for name, p in net.named_parameters() if p.ndim == 2]
        return net(x).to(first.dtype), names, len(list(net.modules()))

    return f, net


@case((3, 4), (3, 4))
def tensors_in_a_set(x, y):
    seen = set()
    seen.add(x)
    seen.add(y)
    seen.add(x)
    return x + y, len(seen), x in seen, (x + 1) in seen, (x + 1) not in seen


def test_two_arguments_that_become_one() -> None:
    import kintsugi

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        seen = set()
        seen.add(x)
        return x + y, y in seen

    compiled = kintsugi.compile(f)
    a, b = torch.ones(2), torch.ones(2)
    for args in ((a, b), (a, a), (b, a), (b, b), (a, b)):
        assert compiled(*args)[1] == f(*args)[1]


@case()
def set_methods(x):
    s = {1, 2}
    s.update([3, 4], (5,))
    s.discard(1)
    s.remove(2)
    t = s.union({9}) - {3}
    return (
        x * len(s),
        sorted(s),
        sorted(t),
        s.issubset({3, 4, 5, 6}),
        s.isdisjoint({7}),
        sorted(s.difference({3})),
    )


# --- signatures ---


@factory()
def make_signatures():
    def layer(x, scale=2.0, *, bias=None):
        return x * scale

    @functools.wraps(layer)
    def wrapped(*args, **kwargs):
        return layer(*args, **kwargs)

    def f(x):
        parameters = inspect.signature(layer).parameters
        keys = set(parameters.keys())
        given = {name: 3.0 for name in ("scale", "other") if name in keys}
        unknown = [name for name in parameters if name not in given]
        default = parameters["scale"].default
        other = inspect.signature(wrapped).parameters
        return wrapped(x, **given) * default, len(parameters), unknown, list(other), "bias" in other

    return f


def test_a_signature_that_changes() -> None:
    import kintsugi

    def layer(x: Any, scale: float = 2.0) -> Any:
        return x * scale

    def f(x: torch.Tensor) -> Any:
        return x * inspect.signature(layer).parameters["scale"].default

    compiled = kintsugi.compile(f)
    x = torch.ones(2)
    for _ in range(3):
        assert torch.equal(compiled(x), x * 2)
    layer.__defaults__ = (5.0,)
    for _ in range(3):
        assert torch.equal(compiled(x), x * 5)


# --- vmap ---


@case((3, 4), (3, 4))
def batched(x, y):
    scale = 3.0
    w = torch.ones(4) * 2

    def dot(a, b):
        c = (a * b * w).sum() + scale
        return c, torch.relu(a) @ b

    return torch.vmap(dot)(x, y), torch.vmap(lambda v: v.softmax(-1), in_dims=1, out_dims=1)(x)


@case((3, 4), breaks=None, traces=None)
def batched_twice(x):
    return torch.vmap(torch.vmap(lambda v: v * 2 + 1))(x)


@case((3, 4))
def batched_with_a_number(x):
    return torch.vmap(lambda a, b: a + b, in_dims=(0, None))(x, 2.0)


@case((3, 4), (4,), grad=True)
def batched_with_gradients(x, w):
    return torch.vmap(lambda row: torch.tanh(row * w).sum())(x).sum()


@case((3, 4), breaks=None, traces=None)
def batched_gradients(x):
    return torch.vmap(torch.func.grad(lambda v: (v**3).sum()))(x)


@case((3, 4), breaks=None, traces=None)
def branch_under_vmap(x):
    try:
        return torch.vmap(lambda v: v * 2 if v.sum() > 0 else v)(x)
    except RuntimeError as error:
        return x, type(error).__name__


@case((3, 4))
def random_under_vmap(x):
    return torch.vmap(lambda v: v + torch.rand(4), randomness="different")(x)


@case((3, 4), breaks=None, traces=None)
def scan(x):
    from torch._higher_order_ops.associative_scan import associative_scan

    return associative_scan(lambda a, b: a + b, x, dim=1, combine_mode="generic")


@SUITE.parametrize()
def test_equals_eager(case: Case) -> None:
    check(case)


@SUITE.parametrize()
@pytest.mark.filterwarnings("ignore")
def test_captured(case: Case) -> None:
    check_captured(case)
