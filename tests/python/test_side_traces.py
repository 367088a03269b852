"""Side traces: exits are recorded and linked, and whatever path a call takes, it does what eager does.

Each program runs over the same inputs again and again: results, output and state have to be eager's in every call,
and when all paths have been seen, no guard leaves the compiled code any more.
"""

from __future__ import annotations

import contextlib
import gc
import io
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import in_threads

import kintsugi

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {}
COUNTS = {"n": 0}


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def branch(x: torch.Tensor) -> Any:
    y = x * 2
    y = y + 1 if y.sum() > 0 else y - 1
    return y.relu()


@program
def nested_calls(x: torch.Tensor) -> Any:
    def inner(v: torch.Tensor, k: int) -> torch.Tensor:
        if v.sum() > k:
            return v * 2
        return v - 1

    a = inner(x, 0)
    b = inner(a, 1)
    return [inner(b, 2), a]


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
        self.count = 0

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if x.mean() > 0:
                x = x.relu()
                self.count += 1
            else:
                print("negative", i)
        return {"out": x, "count": self.count}


MODULE = Counting()


@program
def module_state(x: torch.Tensor) -> Any:
    MODULE.count = 0
    with torch.no_grad():
        result = MODULE(x)
    return result["out"], result["count"], MODULE.count


@program
def loop_until(x: torch.Tensor) -> Any:
    n = 0
    y = x.abs()
    while y.sum() > 1:
        y = y * 0.5
        n += 1
    return y, n


@program
def exceptions(x: torch.Tensor) -> Any:
    out = []
    try:
        with torch.no_grad():
            for v in x:
                if v.sum() < -2:
                    raise ValueError("small")
                out.append(v * 2)
    except ValueError as e:
        out.append(x.sum())
        print("caught", e)
    finally:
        print("done", len(out))
    return out


@program
def scalar_decides(x: torch.Tensor) -> Any:
    k = int(x.abs().sum().item()) % 3
    if k == 0:
        return x + k
    d = {"k": k, "x": x}
    return d["x"] * d["k"]


@program
def random_number(x: torch.Tensor) -> Any:
    t = random.randrange(3)
    if t == 1:
        return x + t
    return x * t


@program
def closures(x: torch.Tensor) -> Any:
    total: list[torch.Tensor] = []

    def add(v: torch.Tensor) -> None:
        nonlocal total
        total = [*total, v]
        if v.max() > 1:
            total.append(v.min())

    for i in range(2):
        add(x + i)
    return total


class Pair:
    def __init__(self, a: torch.Tensor) -> None:
        self.a = a
        if a.sum() > 0:
            self.b = a + 1
        else:
            self.b = a - 1

    @property
    def c(self) -> torch.Tensor:
        if self.b.mean() > 0.5:
            return self.b * 2
        return self.b


@program
def instances(x: torch.Tensor) -> Any:
    p, q = Pair(x), Pair(-x)
    return p.c + q.c, p, q


@program
def global_state(x: torch.Tensor) -> Any:
    COUNTS["n"] = 0
    with torch.enable_grad():
        if x.sum() > 0:
            COUNTS["n"] += 1
            y = x.detach().requires_grad_()
        else:
            y = x
        z = y * 2
    return z.requires_grad, COUNTS["n"], torch.is_grad_enabled()


@program
def iterators(x: torch.Tensor) -> Any:
    seen = []
    for (i, v), (name, w) in zip(enumerate(x, 1), {"a": 1, "b": 2}.items(), strict=False):
        seen.append((i, name))
        if v.sum() > 0:
            seen.append(v.sum() * w)
    for v, w in zip(reversed([x, x + 1]), (1, 2), strict=True):
        if v.sum() > 0:
            seen.append(v.sum() * w)
    return seen


@program
def written_in_place(x: torch.Tensor) -> Any:
    y = x.clone()
    view = y[0]
    if x.sum() > 0:
        view.add_(1)
    else:
        y.mul_(2)
    return y, view


def run(function: Callable[..., Any], x: torch.Tensor, seed: int) -> tuple[Any, str]:
    random.seed(seed)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = function(x.clone())
    return describe(result), out.getvalue()


def describe(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, value.stride(), value.requires_grad, value.tolist())
    if isinstance(value, (list, tuple)):
        return (type(value), [describe(v) for v in value])
    if isinstance(value, dict):
        return {k: describe(v) for k, v in value.items()}
    if hasattr(value, "__dict__"):
        return (type(value), describe(vars(value)))
    return value


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_path(name: str) -> None:
    function = PROGRAMS[name]
    compiled = kintsugi.compile(function, backend="eager")
    torch.manual_seed(0)
    inputs = [torch.randn(4, 4) for _ in range(12)]
    exits = []
    for _ in range(10):
        for seed, x in enumerate(inputs):
            assert run(compiled, x, seed) == run(function, x, seed), f"input {seed}"
        exits.append(compiled.stats().side_exits)
    stats = compiled.stats()
    assert stats.trace_count == 1, stats
    assert exits[-1] == exits[-2], (exits, stats)


def test_a_value_that_is_always_new_costs_few_recordings() -> None:
    def f(x: torch.Tensor) -> Any:
        return x * x.sum().item() if int(x.sum().item()) % 1000 != 7 else x

    compiled = kintsugi.compile(f)
    for i in range(100):
        x = torch.full((2,), float(i))
        assert torch.equal(compiled(x), f(x))
    assert compiled.stats().side_traces <= 8


def test_exit_in_a_callers_loop_reraises() -> None:
    def check(v: torch.Tensor) -> torch.Tensor:
        if v.sum() < 0:
            raise RuntimeError(f"negative {v.shape[0]}")
        return v

    def f(x: torch.Tensor) -> Any:
        return sum(check(v) for v in (x, x + 1)) if x.dim() == 1 else [check(v) for v in x]

    compiled = kintsugi.compile(f)
    good, bad = torch.ones(3), -torch.ones(3)
    for _ in range(3):
        assert torch.equal(compiled(good), f(good))
        with pytest.raises(RuntimeError, match="negative 3"):
            compiled(bad)


def test_threads_take_different_paths() -> None:
    function = PROGRAMS["nested_calls"]
    compiled = kintsugi.compile(function, backend="eager")
    wrong: list[int] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for i in range(60):
            x = torch.randn(4, 4, generator=generator)
            if describe(compiled(x)) != describe(function(x)):
                wrong.append(i)

    in_threads(8, work)
    assert not wrong


def test_reset_frees_side_traces() -> None:
    class Held:
        pass

    held = Held()
    names = {"a": held}

    def f(x: torch.Tensor) -> Any:
        if x.sum() > 0:
            return x + 1
        return x - len(names)

    compiled = kintsugi.compile(f)
    compiled(torch.ones(2))
    compiled(-torch.ones(2))
    assert compiled.stats().side_traces == 1
    compiled.reset()
    assert compiled.stats().side_traces == 0
    ref = weakref.ref(held)
    del held
    names.clear()
    gc.collect()
    assert ref() is None


def test_paths_that_never_come_again_are_recorded_less_and_less() -> None:
    """As of an adaptive solver: each of many steps goes one way or the other."""

    def f(x: torch.Tensor) -> Any:
        y, taken = x, 0
        for k in range(12):
            if x[k] > 0:
                taken += 1
                y = y + 0.25
            else:
                y = y * 0.5
        return y, taken

    torch.manual_seed(0)
    compiled = kintsugi.compile(f, backend="eager")
    for _ in range(120):
        x = torch.randn(12)
        wanted, found = f(x), compiled(x)
        assert torch.equal(wanted[0], found[0]) and wanted[1] == found[1]
    stats = compiled.stats()
    assert stats.side_exits > 60 and stats.side_traces < 32
    x = torch.ones(12)
    for _ in range(400):  # what comes again and again pays, and is recorded
        compiled(x)
    exits = compiled.stats().side_exits
    compiled(x)
    assert compiled.stats().side_exits == exits


def test_two_arguments_that_were_one_when_the_exit_was_recorded() -> None:
    """What is found out about an object that has two names holds only where both are one again."""

    def program(a: Any, b: Any) -> tuple[Any, ...]:
        x = b[0] + 1
        if x.sum() > 1:
            x = x * 0.9
        return a[0][1:] + 1, a is b, a, x

    other = [torch.full((4,), 2.0)]
    below = [torch.full((4,), -5.0)]
    compiled = kintsugi.compile(program, backend="eager")
    for a, b in ((other, other[:]), (below, below), (other, below), (below, other), (below, below[:])):
        for _ in range(3):
            got, wanted = compiled(a, b), program(a, b)
            assert torch.equal(got[0], wanted[0]) and got[1] == wanted[1] and torch.equal(got[3], wanted[3])
            assert got[2] is a


def test_two_tensors_that_were_one_when_the_exit_was_recorded() -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[Any, ...]:
        y = a * 2
        x = b + 1
        if x.sum() > 1:
            x = x * 0.9
        return a[1:] + 1, y, x, a

    above, below = torch.ones(4), torch.full((4,), -5.0)
    compiled = kintsugi.compile(program, backend="eager")
    for a, b in (
        (above, above.clone()),
        (below, below),
        (above, below),
        (below, above),
        (below, below.clone()),
    ):
        for _ in range(3):
            for mine, theirs in zip(compiled(a, b), program(a, b), strict=True):
                assert torch.equal(mine, theirs)
