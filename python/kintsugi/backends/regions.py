"""Regions of a graph that run under a mechanism of torch's: activation checkpoints.

The core describes the two ends of a region as operations among the others. Here they become one operation that holds
what lies between, and a module that computes it: nothing that autograd would save inside is kept, and the backward runs
the region's own graph again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import ops as torch_operators
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils import checkpoint as torch_checkpoint

from .._polyfill_checkpoint import entered_freely
from .pieces import references

Segment = Mapping[str, Any]
Operation = Mapping[str, Any]

REGION = "region"

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Checkpoint(torch.nn.Module):  # type: ignore[misc]
    """A call of torch.utils.checkpoint.checkpoint(): `body` is the graph of what it is given.

    `kept` are the positions of the inputs that the program passes as arguments, which must not be written to before the
    backward; the others are what its function reads besides. Who traces the graph gets torch's higher-order operator,
    which marks what is to be computed again.
    """

    def __init__(
        self, body: Callable[..., Any], kept: Sequence[int], options: Mapping[str, Any], acts: bool
    ) -> None:
        super().__init__()
        self.body = body
        self._kept = tuple(kept)
        self._options = dict(options)
        self._acts = acts
        self._is_impure = acts  # torch.fx keeps it, though nobody may use what it gives

    def forward(self, *inputs: Any) -> Any:
        if get_proxy_mode() is not None and torch.is_grad_enabled():
            if self._acts:
                raise NotImplementedError(
                    "a checkpoint that draws random numbers or writes to tensors can't be traced"
                )
            return torch_operators.higher_order.tag_activation_checkpoint(self.body, *inputs)
        if not torch.is_grad_enabled() or not _are_real(inputs):
            return self.body(*inputs)
        besides = [None if at in self._kept else value for at, value in enumerate(inputs)]
        body = self.body

        def run(*kept: Any) -> Any:
            given = list(besides)
            for at, value in zip(self._kept, kept, strict=True):
                given[at] = value
            return body(*given)

        kept = [inputs[at] for at in self._kept]
        return torch_checkpoint.checkpoint(run, *kept, use_reentrant=False, **self._options)


def _are_real(inputs: Sequence[Any]) -> bool:
    """Are these tensors of a run, and nobody's who looks at the graph?"""
    return torch._C._len_torch_dispatch_stack() == 0 and not any(
        isinstance(value, fx.Proxy) or (isinstance(value, torch.Tensor) and type(value) not in _PLAIN)
        for value in inputs
    )


def _is_end(op: Operation) -> bool:
    return op["target"] == REGION and "opens" in op


def _arguments(op: Operation) -> Iterator[int]:
    return references([*op["args"], *(op.get("kwargs") or {}).values()])


def _made(op: Operation) -> list[int]:
    return [number for number in op["results"] if number is not None]


def _grouped(ops: Iterator[Operation]) -> Iterator[Any]:
    """Up to the end of the region that is open: operations, and pairs of an opening end and what is inside."""
    for op in ops:
        if not _is_end(op):
            yield op
        elif op["opens"]:
            yield op, list(_grouped(ops))
        else:
            return


def _named(group: Sequence[Any], needed: set[int]) -> list[Operation]:
    """The operations, with what regions take and give. `needed`: what is used behind them, to which they add."""
    named: list[Operation] = []
    for item in reversed(group):
        if not isinstance(item, tuple):
            named.append(item)
            needed.update(_arguments(item))
            continue
        opens, inside = item
        behind = set(needed)
        ops = _named(inside, needed)
        made = list(itertools.chain.from_iterable(_made(op) for op in ops))
        inputs = list(dict.fromkeys(itertools.chain.from_iterable(_arguments(op) for op in ops)))
        inputs = [number for number in inputs if number not in made]
        named.append(
            {
                "target": REGION,
                "by": opens["by"],
                "given": opens["given"],
                "inputs": inputs,
                "args": [("%", number) for number in inputs],
                "ops": ops,
                "results": [number for number in made if number in behind],
            }
        )
    return named[::-1]


def nested(segment: Segment) -> Segment:
    """The description with each region as one operation."""
    if not any(map(_is_end, segment["ops"])):
        return segment
    needed = {number for number in segment["outputs"] if number is not None}
    return {**segment, "ops": _named(list(_grouped(iter(segment["ops"]))), needed)}


def flat(ops: Sequence[Operation]) -> Iterator[Operation]:
    """All operations, those inside regions in the place of these."""
    for op in ops:
        if op["target"] == REGION:
            yield from flat(op["ops"])
        else:
            yield op


def options(op: Operation) -> dict[str, Any]:
    """Of checkpoint(), for a region. What else there is makes no difference where the graph itself runs again."""
    return {"preserve_rng_state": op["by"] is not entered_freely}


def kept(op: Operation, inputs: Sequence[int]) -> list[int]:
    return [at for at, number in enumerate(inputs) if number in op["given"]]
