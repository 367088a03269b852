"""What a backward lets the program see: which hooks and functions it calls, in which order, with what, and which
gradients are there by then, also where one of them raises. Random functions, compared with eager mode."""

from __future__ import annotations

import itertools
import random
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import kintsugi

SEEDS = 160

Tensors = tuple[torch.Tensor, ...]


def views(x: torch.Tensor) -> torch.Tensor:
    return x.unsqueeze(0).squeeze(0)


def halves(x: torch.Tensor) -> Tensors:
    return torch.cat([x.expand(6), x.expand(6)]).split(6)


def pair(x: torch.Tensor) -> Tensors:
    return torch.var_mean(x * 1.0, correction=0)


UNARY = [torch.tanh, torch.sin, torch.sigmoid, torch.exp, torch.floor, views, halves, pair]
BINARY = [torch.add, torch.mul]
INPUTS = ["leaf", "leaf hook", "leaf post", "function", "hook", "plain", "no grad"]
OUTPUTS = ["none", "hook", "function", "retain"]


@dataclass
class Log:
    """Events, each with the leaves that have a gradient by then. `raises`: the event that raises, from 1."""

    raises: int | None
    leaves: list[torch.Tensor] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)

    def add(self, name: str, gradient: torch.Tensor | None) -> None:
        there = "".join("-" if leaf.grad is None else "g" for leaf in self.leaves)
        self.events.append((name, None if gradient is None else round(gradient.sum().item(), 3), there))
        if self.raises == len(self.events):
            raise ValueError(name)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, log: Log, name: str) -> torch.Tensor:
        ctx.log, ctx.name = log, name
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.log.add("function " + ctx.name, gradient)
        return gradient * 1.5, None, None


@dataclass
class Program:
    function: Callable[..., Any]
    inputs: list[str]
    outputs: list[str]
    chosen: list[bool]


def make(rng: random.Random) -> Program:
    inputs = count = rng.randint(1, 4)
    code: list[tuple[Any, list[int]]] = []
    for _ in range(rng.randint(1, 8)):
        table, arity = rng.choice([(UNARY, 1), (BINARY, 2)])
        code.append((rng.choice(table), [rng.randrange(count) for _ in range(arity)]))
        count += 2 if code[-1][0] in (halves, pair) else 1
    given = rng.sample(range(inputs, count), min(rng.randint(1, 3), count - inputs))

    def function(*tensors: torch.Tensor) -> Tensors:
        values = list(tensors)
        for operator, arguments in code:
            made = operator(*(values[k] for k in arguments))
            values.extend(made if isinstance(made, tuple) else (made,))
        return tuple(values[k] for k in given)

    kinds = [rng.choice(INPUTS) for _ in range(inputs)]
    if rng.random() < 0.5:  # hooks of leaves leave the segment to replay
        kinds = [kind.split()[0] if kind.startswith("leaf") else kind for kind in kinds]
    if all(kind == "no grad" for kind in kinds):
        kinds[0] = "leaf"
    chosen = [rng.random() < 0.7 for _ in given]
    chosen[0] = chosen[0] or not any(chosen)
    return Program(function, kinds, [rng.choice(OUTPUTS) for _ in given], chosen)


def argument(kind: str, k: int, log: Log) -> torch.Tensor:
    leaf = torch.linspace(-1 + 0.1 * k, 1, 6).requires_grad_(kind != "no grad")
    log.leaves.append(leaf)
    name = f"input {k}"

    def hook(gradient: torch.Tensor | None) -> torch.Tensor | None:
        log.add(name, gradient)
        return None if gradient is None else gradient * 2

    if kind == "leaf hook":
        leaf.register_hook(hook)
    elif kind == "leaf post":
        leaf.register_post_accumulate_grad_hook(lambda tensor: log.add(name, tensor.grad))
    elif kind == "function":
        result: torch.Tensor = Function.apply(leaf, log, name)  # type: ignore[no-untyped-call]
        return result
    elif kind in ("hook", "plain"):
        x = leaf * 1.0
        if kind == "hook":
            x.register_hook(hook)
        return x
    return leaf


def numbers(tensor: torch.Tensor | None) -> list[float] | None:
    return None if tensor is None else [round(number, 3) for number in tensor.flatten().tolist()]


def loss_of(program: Program, outputs: list[torch.Tensor], log: Log) -> torch.Tensor:
    loss = torch.zeros(())
    for k, output in enumerate(outputs):
        kind, name, given = program.outputs[k], f"output {k}", output
        if not output.requires_grad:
            continue
        if kind == "hook":
            output.register_hook(lambda gradient, name=name: log.add(name, gradient))
        elif kind == "retain":
            output.retain_grad()
        elif kind == "function":
            given = Function.apply(output, log, name)  # type: ignore[no-untyped-call]
        if program.chosen[k]:
            loss = loss + (given * (k + 1)).sum()
    return loss


def differentiate(how: str, loss: torch.Tensor, inputs: list[torch.Tensor], log: Log) -> Any:
    if how == "backward":
        loss.backward()
    elif how == "retained":
        loss.backward(retain_graph=True)
        loss.backward()
    elif how == "twice":
        loss.backward()
        loss.backward()
    elif how == "some":
        loss.backward(inputs=[leaf for leaf in log.leaves if leaf.requires_grad][:1])
    else:
        of = [x for x in inputs if x.requires_grad][-2:]
        return [numbers(x) for x in torch.autograd.grad(loss, of, allow_unused=True)]
    return None


def run(program: Program, function: Callable[..., Any], how: str, raises: int | None) -> Any:
    log = Log(raises)
    inputs = [argument(kind, k, log) for k, kind in enumerate(program.inputs)]
    outputs = list(function(*inputs))
    loss = loss_of(program, outputs, log)
    error: str | None = None
    given = None
    if loss.requires_grad:
        try:
            given = differentiate(how, loss, inputs, log)
        except (ValueError, RuntimeError) as raised:
            error = f"{type(raised).__name__}: {str(raised)[:40]}"
    seen = [output.grad if output.requires_grad and output.retains_grad else None for output in outputs]
    return log.events, error, given, [numbers(x.grad) for x in log.leaves], [numbers(x) for x in seen]


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_random_functions(backend: str, first: int) -> None:
    warnings.simplefilter("ignore")
    native = 0
    for seed in range(first, first + 20):
        rng = random.Random(seed)
        program = make(rng)
        options = {"sync": True} if backend == "native" else None
        compiled = kintsugi.compile(program.function, backend=backend, options=options)
        for how in ("backward", "retained", "twice", "some", "grad"):
            for raises in (None, rng.randint(1, 2), rng.randint(2, 4)):
                expected = run(program, program.function, how, raises)
                for _ in range(2 if raises is None else 1):
                    assert run(program, compiled, how, raises) == expected, (seed, how, raises, program)
        native += compiled._kintsugi_compiled.stats()["native_runs"] > 0
    assert backend == "eager" or native > 10


def test_many_backwards_of_one_graph_at_a_time() -> None:
    """48 threads are inside a backward of one retained graph; each gets its gradients."""

    def function(a, b):
        return a.exp(), a * b, b.tanh()

    compiled = kintsugi.compile(function, backend="native", options={"sync": True})
    count = 48
    for _ in range(3):
        a, b = (torch.full((4,), 0.5, requires_grad=True) for _ in range(2))
        expected = torch.autograd.grad(sum(y.sum() for y in function(a, b)), [a, b])
        outputs = compiled(a, b)
        together = threading.Barrier(count)
        outputs[1].register_hook(lambda gradient, together=together: (together.wait(60), None)[1])
        seen: list[Any] = [None] * count

        def work(number: int, a=a, b=b, outputs=outputs, seen=seen) -> None:
            total = sum(y.sum() for y in outputs)
            seen[number] = torch.autograd.grad(total, [a, b], retain_graph=True)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for got in seen:
            torch.testing.assert_close(got, expected)


def _used_first(a: torch.Tensor, b: torch.Tensor) -> Tensors:
    return b + 1, a.exp(), a * b


def _used_by_each(a: torch.Tensor, b: torch.Tensor) -> Tensors:
    y = a + b
    return y, b.double(), a.sum(0, keepdim=True)


def _looked_at(a: torch.Tensor, b: torch.Tensor) -> Tensors:
    return torch.nn.functional.gelu(a @ a), b.t(), torch.stack(b.unbind(0), 1)


def _looked_at_first(a: torch.Tensor, b: torch.Tensor) -> Tensors:
    return a.t(), a.exp(), b.t() + a


def _looked_at_between(a: torch.Tensor, b: torch.Tensor) -> Tensors:
    h = a * 2
    v = b.t()
    return v, h.exp()


def _view_inside(a: torch.Tensor, b: torch.Tensor) -> Tensors:
    v = b.t()
    y = a.tanh()
    return y, v @ a, v


EVENTS = [_used_first, _used_by_each, _looked_at, _looked_at_first, _looked_at_between, _view_inside]


@pytest.mark.parametrize("function", EVENTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_hooks_behind_the_forward(backend: str, function: Callable[..., Any]) -> None:
    """Hooks of outputs, one of them may raise, and one of a leaf, all of them put on behind the forward: which of them
    are called, in which order, and which gradients are there behind."""
    options = {"sync": True} if backend == "native" else {}
    compiled = kintsugi.compile(function, backend=backend, options=options)

    def run(given: Callable[..., Any], hooked: int, chosen: int, leaf: int, raises: int) -> Any:
        leaves = [torch.ones(4, 4, requires_grad=True) for _ in range(2)]
        outputs = given(*leaves)
        events: list[Any] = []

        def hook(name: str, fails: bool) -> Callable[[torch.Tensor], None]:
            def call(gradient: torch.Tensor) -> None:
                events.append((name, gradient.stride()))
                if fails:
                    raise ValueError(name)

            return call

        for k, output in enumerate(outputs):
            if hooked >> k & 1:
                output.register_hook(hook(f"output {k}", k == raises))
        if leaf < 2:
            leaves[leaf].register_hook(hook("leaf", False))
        try:
            sum(y.sum() for k, y in enumerate(outputs) if chosen >> k & 1).backward()  # type: ignore[union-attr]
        except ValueError as error:
            events.append(str(error))
        there = [None if x.grad is None else (x.grad.sum().item(), x.grad.stride()) for x in leaves]
        return events, [None if x is None else (round(x[0], 2), x[1]) for x in there]

    count = len(function(torch.ones(4, 4), torch.ones(4, 4)))
    for hooked, chosen in itertools.product(range(2**count), range(1, 2**count)):
        for leaf, raises in itertools.product(range(3), range(count + 1)):
            if raises < count and not hooked >> raises & 1:
                continue
            expected = run(function, hooked, chosen, leaf, raises)
            assert run(compiled, hooked, chosen, leaf, raises) == expected, (hooked, chosen, leaf, raises)
