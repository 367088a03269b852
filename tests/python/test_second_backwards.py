"""Backwards one behind the other through one graph, each of which may keep the graph or not: eager mode's nodes raise
where what they have kept has been freed, and run as often as one likes where they keep nothing. Random functions
and random backwards, compared with eager mode."""

from __future__ import annotations

import itertools
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import kintsugi

SEEDS = 120
F = torch.nn.functional
Tensors = list[torch.Tensor]

# Those that keep nothing come more often: a way through them has to be found.
UNARY: list[Callable[[torch.Tensor], torch.Tensor]] = [
    *(lambda x: x + 1, lambda x: x.t(), lambda x: x.flip(0), lambda x: x.cumsum(0), lambda x: x.tril()),
    *(lambda x: x.sum(0, keepdim=True).expand(3, 3), lambda x: x.clone(), lambda x: -x, lambda x: x - 0.5),
    *(lambda x: x.double().float(), lambda x: x.reshape(-1).view(3, 3), lambda x: x[:2].repeat(2, 1)[:3]),
    *(lambda x: F.pad(x, (1, 1))[:, 1:4], lambda x: torch.cat([x[:1], x[1:]]), lambda x: x.mean(1) + x),
    *(torch.exp, torch.tanh, torch.relu, lambda x: x * 2, lambda x: x * x, lambda x: x.softmax(1)),
    *(lambda x: x.detach(), lambda x: F.rms_norm(x, (3,)), lambda x: x.norm(dim=1) + x),
]
BINARY: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    *(torch.add, torch.sub, lambda x, y: torch.lerp(x, y, 0.3), lambda x, y: torch.stack([x, y])[0] + y),
    *(lambda x, y: torch.cat([x, y])[1:4], lambda x, y: torch.add(x, y, alpha=2)),
    *(torch.mul, torch.matmul, lambda x, y: torch.where(x > 0, x, y), torch.maximum),
]


@dataclass
class Step:
    outputs: list[int]
    leaves: list[int] | None  # None: backward()
    retain: bool
    create: bool
    inside: int | None  # the output from whose hook the step is taken, while another backward runs


@dataclass
class Program:
    function: Callable[..., Any]
    count: int
    outputs: int
    steps: list[Step]


def make(rng: random.Random) -> Program:
    count = rng.randint(1, 3)
    code: list[tuple[Any, list[int]]] = []
    for made in range(rng.randint(1, 6)):
        table, arity = rng.choice([(UNARY, 1), (UNARY, 1), (BINARY, 2)])
        known = count + made
        code.append((rng.choice(table), [rng.randrange(max(0, known - 4), known) for _ in range(arity)]))
    last = count + len(code) - 1
    chosen = sorted({last, *(rng.randrange(count, last + 1) for _ in range(rng.randint(0, 3)))})

    def function(*inputs: torch.Tensor) -> Any:
        values = list(inputs)
        for operator, operands in code:
            values.append(operator(*(values[k] for k in operands)))
        return [values[k] for k in chosen]

    def subset(size: int) -> list[int]:
        return sorted(rng.sample(range(size), rng.randint(1, size)))

    steps = [
        Step(
            subset(len(chosen)),
            None if rng.random() < 0.4 else subset(count),
            retain=rng.random() < 0.3,
            create=rng.random() < 0.2,
            inside=rng.randrange(len(chosen)) if rng.random() < 0.2 else None,
        )
        for _ in range(rng.randint(2, 4))
    ]
    return Program(function, count, len(chosen), steps)


def differentiate(step: Step, outputs: Tensors, leaves: Tensors) -> Any:
    losses = [outputs[k].sum() * (k + 1) for k in step.outputs if outputs[k].requires_grad]
    if not losses:
        return "nothing"
    keep = {"retain_graph": step.retain, "create_graph": step.create}
    try:
        if step.leaves is None:
            torch.autograd.backward(losses, **keep)  # type: ignore[arg-type]
            given = [leaf.grad for leaf in leaves]
            for leaf in leaves:
                leaf.grad = None
        else:
            given = list(
                torch.autograd.grad(losses, [leaves[k] for k in step.leaves], allow_unused=True, **keep)
            )
    except RuntimeError as error:
        for leaf in leaves:
            leaf.grad = None
        return str(error).split(".")[0].split(" (")[0]
    return [None if g is None else g.detach().clone() for g in given]


def outcomes(function: Callable[..., Any], program: Program, seed: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    leaves = [torch.rand(3, 3, generator=generator).requires_grad_() for _ in range(program.count)]
    outputs = function(*leaves)
    found: list[Any] = []
    for step in program.steps:
        hooked = None if step.inside is None else outputs[step.inside]
        if hooked is None or not hooked.requires_grad:
            found.append(differentiate(step, outputs, leaves))
            continue

        due = [step]

        def run(gradient: torch.Tensor, due: list[Step] = due) -> None:
            if due:  # the backward inside calls the hook, too
                with torch.enable_grad():
                    found.append(differentiate(due.pop(), outputs, leaves))

        handle = hooked.register_hook(run)
        outer = Step([step.inside or 0], list(range(program.count)), True, False, None)
        found.append(differentiate(outer, outputs, leaves))
        handle.remove()
    return found


def check(expected: list[Any], actual: list[Any], what: str) -> None:
    assert len(expected) == len(actual), what
    for k, (e, a) in enumerate(zip(expected, actual, strict=True)):
        if isinstance(e, str) or isinstance(a, str):
            assert e == a, f"{what}: step {k}: {a} instead of {e}"
            continue
        for x, y in zip(e, a, strict=True):
            assert (x is None) == (y is None), f"{what}: step {k}: {y} instead of {x}"
            if x is not None:
                torch.testing.assert_close(y, x, rtol=1e-4, atol=1e-5, msg=f"{what}: step {k}")


def options(backend: str) -> dict[str, Any]:
    return {"sync": True} if backend == "native" else {}


@pytest.mark.parametrize("first", range(0, SEEDS, 30))
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_random_backwards(backend: str, first: int) -> None:
    for seed in range(first, first + 30):
        program = make(random.Random(seed))
        compiled = kintsugi.compile(program.function, backend=backend, options=options(backend))
        for call in range(3):
            expected = outcomes(program.function, program, seed + call)
            check(expected, outcomes(compiled, program, seed + call), f"seed {seed}, call {call}")


ROWS = torch.tensor([2, 0])
PLACES = torch.tensor([[0, 1, 2], [2, 1, 0]])
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "beside what keeps": lambda a, b: (a + b, a.exp()),
    "two ways to one input": lambda a, b: (a.exp() + b, b + 1),
    "on the way": lambda a, b: (a.flip(0) - b, (a - b).exp()),
    "views": lambda a, b: (a.t() + b, b.t(), a.tanh().t()),
    "in place": lambda a, b: ((a + b).add_(1), (a * b).relu_()),
    "none": lambda a, b: (a - b, torch.stack([a, b])),
    "raises for zeros": lambda a, b: (a + torch.linalg.cholesky(b.detach() @ b.detach().t() + torch.eye(3)), a * b),
    "means": lambda a, b: (F.adaptive_avg_pool2d(a[None] - 0, 1) + 1, F.adaptive_avg_pool2d(b[None, None], (1, 1)) - a),
    "pool": lambda a, b: (F.adaptive_avg_pool2d(a[None] - 0, (1, 2)) + 1, F.adaptive_avg_pool2d(b[None], 2) - 1),
    "added rows": lambda a, b: (a.index_add(0, ROWS, b.detach()[:2]) + 1, b.index_add(1, ROWS, a[:, :2], alpha=2) - 1),
    "scattered": lambda a, b: (a.scatter_add(0, PLACES, b.detach()) + 1, b.scatter_add(1, PLACES, a[:2]) - 1),
    "rows of one": lambda a, b: (a.index_add(0, ROWS, torch.ones(2, 3)) - b, b.scatter_add(0, PLACES, PLACES * 1.0)),
    "norm": lambda a, b: (F.rms_norm(a.detach() * 1, (3,), b[0]), a + b),
}  # fmt: skip
STEPS = [
    Step([k], leaves, retain, create, None)
    for k in (0, 1)
    for leaves in (None, [0], [1])
    for retain, create in ((False, False), (True, False), (False, True))
]


def pairs() -> Iterator[list[Step]]:
    rng = random.Random(7)
    every = list(itertools.product(STEPS, STEPS))
    for two in rng.sample(every, 60):
        yield [*two, two[0], two[1]]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_pairs_of_backwards(backend: str, name: str) -> None:
    function = FUNCTIONS[name]
    compiled = kintsugi.compile(function, backend=backend, options=options(backend))
    for number, steps in enumerate(pairs()):
        program = Program(function, 2, 2, steps)
        expected = outcomes(function, program, number)
        check(expected, outcomes(compiled, program, number), f"{name}: {steps}")


def test_what_is_kept_is_freed() -> None:
    """Behind a backward that does not keep the graph, results hold nothing of the forward."""

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        return (x * w).exp(), x + w

    compiled = kintsugi.compile(function, backend="native", options={"sync": True})
    for _ in range(4):
        x = torch.rand(3, 3)
        w = torch.rand(3, 3, requires_grad=True)
        y, z = compiled(x, w)
        y.sum().backward()
        held = weakref.ref(x)
        del x
        assert held() is None
        z.sum().backward()
        del y, z, w
