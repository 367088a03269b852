"""How far models of float32 are from float64, in eager mode and natively (`python -m bench.accuracy`).

Results of a model are as good as its arithmetic: eager mode's own distance from the same model in float64 says how good
that is. Native code may be so many times as far away as RESULTS and GRADIENTS say and UNITS units in the last place of
the largest element on top, not more; there is no other tolerance for models. A distance is the largest difference of
a tensor's elements, by its largest element; of tensors that are next to nothing, by a thousandth of the largest of all.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import itertools
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

import kintsugi
from bench import compare
from bench.models import select
from bench.models.spec import ModelSpec

RESULTS = 2.0
GRADIENTS = 3.0  # where they are ill-conditioned, so is how far two ways of rounding are apart
UNITS = 8.0
ANY_NUMBERS = 1e30  # for compare.differences(): the form, integers, infinities, NaN and signs of zeros
CALLS = 3
EPSILON = torch.finfo(torch.float32).eps

Call = Callable[..., Any]


class SameNumbers(TorchDispatchMode):
    """In float64: random numbers are those of float32; products of groups, which ATen has no code for, are loops."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags:
            if kwargs.get("dtype") == torch.float64:
                return func(*args, **{**kwargs, "dtype": torch.float32}).double()
            if args and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.float64:
                drawn = func(*narrower(args), **narrower(kwargs))
                written = func._schema.arguments[0].is_write
                return args[0].copy_(drawn) if written else wider(drawn)
        if func is torch.ops.aten._grouped_mm.default and args[0].dtype == torch.float64:
            return _grouped_product(*args, **kwargs)
        return func(*args, **kwargs)


def _grouped_product(
    left: torch.Tensor, right: torch.Tensor, ends: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    """Rows of one group times its own matrix; or the products of groups of columns and rows."""
    starts = [0, *ends.tolist()]
    ranges = [slice(a, b) for a, b in itertools.pairwise(starts)]
    if right.dim() == 3:
        out = left.new_zeros(left.shape[0], right.shape[2])
        for rows, matrix in zip(ranges, right, strict=True):
            out[rows] = left[rows] @ matrix
        return out
    return torch.stack([left[:, part] @ right[part] for part in ranges])


class Refused(Exception):
    """Eager mode can't do it either."""


@dataclasses.dataclass
class Found:
    """What a call gave: results, and gradients of parameters where it was a training step."""

    results: list[torch.Tensor]
    gradients: list[torch.Tensor]


def leaves(result: object) -> list[torch.Tensor]:
    """Tensors among the results (the library's caches are objects of their own: other tests compare them)."""
    parts = list(result.values()) if isinstance(result, dict) else result
    return [part for part in tree_leaves(parts) if isinstance(part, torch.Tensor)]


def wider(value: Any) -> Any:
    """The same in float64."""
    return tree_map_only(torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, value)


def narrower(value: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda t: t.float() if t.dtype == torch.float64 else t, value)


def widened(call: Call) -> Call:
    """The call of a module of float64, for callers that have float32."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with SameNumbers():
            return call(*wider(args), **wider(kwargs))

    return run


def _loss(results: list[torch.Tensor]) -> torch.Tensor:
    parts = [t.float() if t.dtype != torch.float64 else t for t in results if t.requires_grad]
    return sum((t.square().mean() for t in parts), torch.zeros(()))


def step(
    run: Call, module: nn.Module, spec: ModelSpec, call: int, *, train: bool, wide: bool = False
) -> Found:
    """One call, with its own inputs; `train`: and its backward. `wide`: the inputs in float64."""
    inputs = spec.inputs(module, "tiny", call)
    args, kwargs = wider(inputs) if wide else inputs
    torch.manual_seed(call)
    numpy.random.seed(call)  # speech models choose what to hide with it
    if not train:
        with torch.no_grad():
            return Found([t.clone() for t in leaves(run(*args, **kwargs))], [])
    module.zero_grad()
    results = leaves(run(*args, **kwargs))
    _loss(results).backward()
    gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    return Found([t.detach() for t in results], gradients)


def away(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """The largest distance of a tensor. What is not finite is none: special_difference() compares that."""
    pairs = [(a, b) for a, b in zip(found, exact, strict=True) if a.is_floating_point() and a.numel()]
    gaps = [
        torch.where(a.isfinite() & b.isfinite(), a.double() - b.double(), 0.0).abs().max() for a, b in pairs
    ]
    sizes = [float(torch.where(b.isfinite(), b.double(), 0.0).abs().max()) for _, b in pairs]
    least = max(1e-3 * max(sizes, default=0.0), 1e-30)
    return max((float(gap) / max(size, least) for gap, size in zip(gaps, sizes, strict=True)), default=0.0)


@dataclasses.dataclass(frozen=True)
class Distance:
    """From float64, the largest of several calls."""

    eager: float
    native: float
    factor: float

    @property
    def allowed(self) -> float:
        return self.factor * self.eager + UNITS * EPSILON

    def __str__(self) -> str:
        return f"{self.native:.3g} from float64, eager mode's {self.eager:.3g}: {self.allowed:.3g} is allowed"


DECIDED = 1e-3  # a model this far from float64 has taken another way there, and says nothing


def far(
    expected: Any, actual: Any, exact: Callable[[], Any], path: str, factor: float = RESULTS
) -> list[str]:
    """Where tensors of `actual`, which took another way than eager mode, are further from float64 than allowed.

    In all but the numbers of floats the two have to be equal. `exact` makes the same results in float64: it is asked
    only where some bits differ.
    """
    if not compare.differences(expected, actual, path):
        return []
    problems = compare.differences(expected, actual, path, ANY_NUMBERS)
    if problems:
        return problems
    wide = compare.tensors(exact())
    sides = [compare.tensors(side) for side in (expected, actual)]
    distance = Distance(*(away(side, wide) for side in sides), factor)
    if distance.eager > DECIDED:
        return [f"{path}: eager mode is {distance.eager:.3g} from float64, which is no measure"]
    return [f"{path}: {distance}"] if distance.native > distance.allowed else []


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a model was seen to do, and what was wrong in other ways."""

    results: Distance
    gradients: Distance | None
    problems: list[str]

    def failures(self) -> list[str]:
        found = list(self.problems)
        for name in ("results", "gradients"):
            distance = getattr(self, name)
            if distance is not None and distance.native > distance.allowed:
                found.append(f"{name} are {distance}")
        return found


def _problems(mine: list[torch.Tensor], theirs: list[torch.Tensor], what: str) -> list[str]:
    if len(mine) != len(theirs):
        return [f"{len(mine)} {what}, expected {len(theirs)}"]
    found = []
    for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        form = [
            (t.dtype, t.shape, [s for n, s in zip(t.shape, t.stride(), strict=True) if n != 1])
            for t in (a, b)
        ]
        if form[0] != form[1]:
            found.append(f"{what} {k}: {form[0]}, expected {form[1]}")
        elif a.is_floating_point():
            text = compare.special_difference(b, a)
            found += [f"{what} {k}: {text}"] if text else []
        elif not torch.equal(a, b):
            found.append(f"{what} {k}: {a}, expected {b}")
    return found


def measure(spec: ModelSpec, *, train: bool, backward: bool) -> Measured:
    """Three calls each: in eager mode, natively, and in float64. `train`: the mode; `backward`: with gradients."""
    model = spec.build("tiny").train(train)
    state = copy.deepcopy(model.state_dict())
    with kintsugi.config.patch(report_compiling=False):
        try:
            eager = [step(model, model, spec, call, train=backward) for call in range(CALLS)]
        except RuntimeError as error:
            raise Refused(str(error)) from error
        wide = spec.build("tiny").train(train)
        wide.load_state_dict(state)
        wide = wide.double()
        with SameNumbers():
            exact = [step(wide, wide, spec, call, train=backward, wide=True) for call in range(CALLS)]
        model.load_state_dict(state)
        runner = kintsugi.compile(model, backend="native", options={"sync": True})
        native = [step(runner, model, spec, call, train=backward) for call in range(CALLS)]
    problems = []
    for mine, theirs in zip(native, eager, strict=True):
        problems += _problems(mine.results, theirs.results, "results")
        problems += _problems(mine.gradients, theirs.gradients, "gradients")

    def distance(name: str, factor: float) -> Distance:
        pairs = [
            max(away(getattr(a, name), getattr(b, name)) for a, b in zip(side, exact, strict=True))
            for side in (eager, native)
        ]
        return Distance(*pairs, factor)

    return Measured(
        distance("results", RESULTS), distance("gradients", GRADIENTS) if backward else None, problems
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="only models whose name contains one of these comma-separated parts")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(
        "| model | results: eager | native | in training: results: eager | native | gradients: eager | native |"
    )
    print("|---|---|---|---|---|---|---|")
    failed = 0
    for spec in select(arguments.model, quick=False):
        cells = [spec.name]
        for train in (False, True):
            try:
                measured = measure(spec, train=train, backward=train)
            except Refused as error:
                cells += [f"eager mode: {str(error)[:60]}"] + ["-"] * (3 if train else 1)
                continue
            for distance in (measured.results, measured.gradients):
                cells += [f"{distance.eager:.1e}", f"{distance.native:.1e}"] if distance is not None else []
            for text in measured.failures():
                failed += 1
                print(f"{spec.name} {'train' if train else 'eval'}: {text}", file=sys.stderr)
            kintsugi.reset()
        print("| " + " | ".join(cells) + " |", flush=True)
    return failed > 0


if __name__ == "__main__":
    raise SystemExit(main())
