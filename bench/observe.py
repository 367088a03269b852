"""A model beside its twin in eager mode: the same inputs and seeds, and everything that can be seen after each call."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch import nn

import kintsugi
from bench import accuracy, compare
from bench.models.spec import ModelSpec
from kintsugi._callable import core_of

CALLS = 3


def seed(value: int) -> None:
    torch.manual_seed(value)
    numpy.random.seed(value)
    random.seed(value)


def _random_states() -> dict[str, Any]:
    kind, keys, *rest = numpy.random.get_state()
    return {
        "torch": torch.random.get_rng_state(),
        "numpy": [kind, keys.tolist(), rest],
        "random": random.getstate(),
    }


def _loss(out: Any) -> torch.Tensor:
    parts = [
        (t if t.dtype == torch.float64 else t.float()).pow(2).mean()
        for t in compare.tensors(out)
        if t.requires_grad and t.is_floating_point()
    ]
    return torch.stack(parts).sum()


def after_call(call: Any, module: nn.Module, inputs: Any, train: bool) -> dict[str, Any]:
    """Outputs, their autograd nodes, aliasing, gradients, what the call changed in the module and in its inputs, and
    the state of every random generator."""
    args, kwargs = copy.deepcopy(inputs)
    module.zero_grad(set_to_none=True)
    out = call(*args, **kwargs)
    seen = {"out": out, "inputs": (args, kwargs), "random": _random_states()}
    seen["aliasing"] = compare.aliasing(
        [out, args, kwargs, list(module.parameters()), list(module.buffers())]
    )
    if train:
        _loss(out).backward()
        seen["gradients"] = {name: p.grad for name, p in module.named_parameters()}
    seen["state"] = {
        name: value.clone() for name, value in (*module.named_buffers(), *module.named_parameters())
    }
    return seen


def _exact(wide: nn.Module, state: dict[str, Any], inputs: Any, turn: int, train: bool) -> dict[str, Any]:
    """A call in float64, of a module with that state."""
    wide.load_state_dict(state)
    seed(turn)
    with torch.set_grad_enabled(train):
        return after_call(accuracy.widened(wide), wide, inputs, train)


@dataclasses.dataclass
class Twin:
    """One call of both: what eager mode gives and what the compiled module gives."""

    turn: int
    expected: dict[str, Any]
    actual: dict[str, Any]
    exact: Callable[[], dict[str, Any]]  # in float64

    def differences(self, parts: Iterator[str] | tuple[str, ...], tolerance: float) -> list[str]:
        found: list[str] = []
        for part in parts:
            if part in self.expected:
                found += compare.differences(self.expected[part], self.actual[part], part, tolerance)
        return found

    def far(self, *parts: str) -> list[str]:
        """Where these are further from float64 than bench/accuracy.py allows, or have another form."""
        wide = functools.cache(self.exact)
        found = []
        for part in parts:
            factor = accuracy.GRADIENTS if part == "gradients" else accuracy.RESULTS
            if part in self.expected:
                exact = functools.partial(lambda part: wide()[part], part)
                found += accuracy.far(self.expected[part], self.actual[part], exact, part, factor)
        return found


def calls(
    spec: ModelSpec,
    size: str,
    train: bool,
    compiled_too: list[Any],
    *,
    initialized: bool = False,
    backend: str = "eager",
) -> Iterator[Twin]:
    """`CALLS` calls with fresh inputs each. The compiled module is put into `compiled_too` before the first.

    `initialized`: both have been called once in eager mode before. Native code is waited for behind each call.
    """
    reference = spec.build(size).train(train)
    module = spec.build(size).train(train)
    wide = copy.deepcopy(reference).double()
    for each in (reference, module) if initialized else ():
        seed(CALLS)
        after_call(each, each, spec.inputs(reference, size, CALLS), train)
    compiled = kintsugi.compile(module, backend=backend)
    compiled_too.append(compiled)
    with torch.set_grad_enabled(train):
        for turn in range(CALLS):
            inputs = spec.inputs(reference, size, turn)
            seed(turn)
            state = copy.deepcopy(reference.state_dict())
            expected = after_call(reference, reference, inputs, train)
            seed(turn)
            actual = after_call(compiled, module, inputs, train)
            yield Twin(turn, expected, actual, functools.partial(_exact, wide, state, inputs, turn, train))
            kintsugi.wait()


def runs_in_eager(spec: ModelSpec, train: bool, size: str = "tiny") -> None:
    """Raises what eager mode raises."""
    module = spec.build(size).train(train)
    with torch.set_grad_enabled(train):
        for turn in range(2):
            after_call(module, module, spec.inputs(module, size, turn), train)


ROUNDED = ("out", "gradients", "state")


def outcome(
    spec: ModelSpec,
    train: bool,
    size: str = "tiny",
    *,
    initialized: bool = False,
    backend: str = "eager",
) -> dict[str, Any]:
    """What `CALLS` calls show, as data: differences from eager mode, breaks with their codes, traces, hits.

    Replay is equal in every bit; natively what is computed is as close to float64 as bench/accuracy.py asks for.
    """
    kept: list[Any] = []
    found: list[str] = []
    with kintsugi.config.patch(report_compiling=False):
        made = calls(spec, size, train, kept, initialized=initialized, backend=backend)
        with contextlib.closing(made) as twins:
            for twin in twins:
                rounded = ROUNDED if backend == "native" else ()
                exact = tuple(part for part in twin.expected if part not in rounded)
                texts = twin.differences(exact, 0.0) + twin.far(*rounded)
                found += [f"call {twin.turn + 1}: {text}" for text in texts]
    return {"differences": found[:4], **wholeness(kept[0])}


def wholeness(compiled: Any) -> dict[str, Any]:
    stats, core = compiled.stats(), core_of(compiled)
    assert core is not None
    return {
        "breaks": [_described(found) for found in core.breaks()],
        "graphs": stats.graph_count,
        "break_count": stats.graph_break_count,
        "misses": stats.misses,
        "side_traces": stats.side_traces,
        "again": [str(found)[:300] for found in core.recompiles()[:4]],
    }


def _described(found: dict[str, Any]) -> dict[str, Any]:
    stack = [f"{frame['file'].split('site-packages/')[-1]}:{frame['line']}" for frame in found["stack"]]
    return {"code": found["code"], "message": found["message"][:160], "at": stack[-2:]}
