"""Tensor graphs from their text, run node by node through ATen: what native code is compared with.

A value is memory (a flat tensor), an offset, sizes and strides, as in the graph; each node is one call of torch on
what it reads. `wide`: floats are computed in float64, to see how far float32 itself is from the exact result.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from bench import compare
from kintsugi import _C

DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}

POINTS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "fma": lambda a, b, c: (a.double() * b.double() + c.double()).to(a.dtype),
    "neg": torch.neg,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "exp": torch.exp,
    "log": torch.log,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "not": torch.bitwise_not,
    "select": torch.where,
}


@dataclasses.dataclass
class Value:
    """Elements of `memory`, which is flat."""

    memory: torch.Tensor
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def places(self) -> torch.Tensor:
        places = torch.full(self.sizes, self.offset, dtype=torch.int64)
        for dim, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            along = [1] * len(self.sizes)
            along[dim] = size
            places = places + (torch.arange(size) * stride).view(along)
        return places

    def read(self) -> torch.Tensor:
        """Where it lies beyond its memory, anything: only parts look there, and they do not."""
        places = self.places().clamp(0, max(self.memory.numel() - 1, 0))
        return self.memory[places] if self.memory.numel() else self.memory.new_empty(self.sizes)


def extent(sizes: Sequence[int], strides: Sequence[int]) -> int:
    if 0 in sizes:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def laid_out(value: torch.Tensor, strides: Sequence[int]) -> Value:
    """The elements in memory of their own, with those strides."""
    sizes = tuple(value.shape)
    made = Value(value.new_zeros(extent(sizes, strides)), 0, sizes, tuple(strides))
    made.memory[made.places()] = value
    return made


def of_tensor(tensor: torch.Tensor) -> Value:
    span = extent(tensor.shape, tensor.stride())
    memory = torch.as_strided(tensor, (span,), (1,), tensor.storage_offset()).clone()
    return Value(memory, 0, tuple(tensor.shape), tuple(tensor.stride()))


def _reduce(node: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
    end = value.dim() - node["trailing"]
    dims = tuple(range(end - node["reduced"], end))
    if not dims:
        return value
    op = node["op"].removeprefix("reduce.")
    if op == "sum":
        return value.sum(dims, keepdim=True, dtype=value.dtype)
    if op in ("max", "min"):
        return (torch.amax if op == "max" else torch.amin)(value, dims, keepdim=True)
    flat = value.flatten(dims[0], dims[-1])
    places = (torch.argmax if op == "argmax" else torch.argmin)(flat, dims[0], keepdim=True)
    return places.view([1 if d in dims else size for d, size in enumerate(value.shape)])


def _part(node: dict[str, Any], inside: torch.Tensor, outside: torch.Tensor) -> torch.Tensor:
    within = torch.ones(node["sizes"], dtype=torch.bool)
    for dim, low, high in node["bounds"]:
        along = [1] * len(node["sizes"])
        along[dim] = node["sizes"][dim]
        at = torch.arange(node["sizes"][dim]).view(along)
        within = within & (at >= low) & (at < high)
    return torch.where(within, inside.expand(node["sizes"]), outside.expand(node["sizes"]))


class Unsupported(Exception):
    """A kind of node that has no rule here."""


class Evaluator:
    """One run. `graph`: of `_C._graph_testing.describe`."""

    def __init__(self, graph: dict[str, Any], wide: bool = False) -> None:
        self.graph = graph
        self.wide = wide
        self.values: list[Value] = []

    def dtype(self, elem: str) -> torch.dtype:
        dtype = DTYPES[elem]
        return torch.float64 if self.wide and dtype.is_floating_point else dtype

    def compute(self, node: dict[str, Any]) -> torch.Tensor:
        args = [self.values[k].read() for k in node["args"]]
        dtype = self.dtype(node["elem"])
        kind, op = node["kind"], node["op"]
        if kind == "const":
            return torch.tensor(node["number"], dtype=dtype)
        if kind == "point":
            if op == "cast":
                return args[0].to(dtype).expand(node["sizes"])
            if op == "part":
                return _part(node, *args)
            if op in POINTS:
                return POINTS[op](*args).to(dtype).expand(node["sizes"])
        if kind == "reduce":
            return _reduce(node, args[0]).to(dtype)
        if kind == "product":
            right = args[1].mT if node["by_rows"] else args[1]
            return (args[0].flatten(0, -2) @ right).view(node["sizes"])
        if kind == "join":
            joined = torch.stack(args, node["dim"]) if node["stacked"] else torch.cat(args, node["dim"])
            return joined
        raise Unsupported(f"{kind} {op}")

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """The outputs; what is written goes to the inputs."""
        given = dict(zip(self.graph["inputs"], inputs, strict=True))
        for number, node in enumerate(self.graph["nodes"]):
            if node["kind"] == "input":
                tensor = given[number]
                self.values.append(of_tensor(tensor.to(self.dtype(node["elem"]))))
            elif node["kind"] == "view":
                base = self.values[node["args"][0]]
                offset = base.offset + node["offset"]
                self.values.append(Value(base.memory, offset, tuple(node["sizes"]), tuple(node["strides"])))
            else:
                value = self.compute(node)
                # Where a part of a join lies is no matter of its value.
                strides = (
                    node["strides"] if node["home"] is None and node["strides"] else contiguous(value.shape)
                )
                self.values.append(laid_out(value, strides))
        outputs = [None if k is None else self.values[k].read() for k in self.graph["outputs"]]
        writes = self.graph["writes"]
        written = outputs[len(outputs) - len(writes) :] if writes else []
        for (number, offset, sizes, strides), value in zip(writes, written, strict=True):
            target = inputs[number]
            place = torch.as_strided(target, sizes, strides, target.storage_offset() + offset)
            place.copy_(value)
        return outputs[: len(outputs) - len(writes)] if writes else outputs


def contiguous(sizes: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size or 1
    return strides[::-1]


def reference(text: str, inputs: Sequence[torch.Tensor], wide: bool = False) -> list[torch.Tensor | None]:
    """The outputs of the graph on those inputs, whose memory is written to where the graph says so."""
    return Evaluator(_C._graph_testing.describe(text), wide).run(inputs)


FACTOR = 16.0  # chains of operations amplify what differs
UNITS = 64.0


def problems(
    actual: Sequence[torch.Tensor | None],
    expected: Sequence[torch.Tensor | None],
    exact: Sequence[torch.Tensor | None],
) -> list[str]:
    """Where results are not those of ATen: other types or sizes, other integers, infinities, NaN or signs of zeros, or
    numbers that are further from the exact result than FACTOR times ATen's own and UNITS units in the last place."""
    found = []
    for k, (a, e, w) in enumerate(zip(actual, expected, exact, strict=True)):
        if a is None or e is None or w is None:
            if a is not e:
                found.append(f"output {k}: {a} where ATen has {e}")
            continue
        if a.dtype != e.dtype or a.shape != e.shape:
            found.append(f"output {k}: {a.dtype} {list(a.shape)}, ATen {e.dtype} {list(e.shape)}")
        elif not e.dtype.is_floating_point:
            if not torch.equal(a, e):
                found.append(f"output {k}: other values, first {a.flatten()[:4].tolist()}")
        else:
            found += [f"output {k}: {problem}" for problem in _float_problems(a, e, w)]
    return found


def _float_problems(a: torch.Tensor, e: torch.Tensor, w: torch.Tensor) -> list[str]:
    special = compare.special_difference(e, a)
    if special:
        return [special]
    normal = e.isfinite() & w.isfinite()
    if not normal.any():
        return []
    wide = w[normal]
    largest = max(wide.abs().max().item(), torch.finfo(e.dtype).tiny)
    of_aten = (e[normal].double() - wide).abs().max().item()
    ours = (a[normal].double() - wide).abs().max().item()
    bound = FACTOR * of_aten + UNITS * torch.finfo(e.dtype).eps * largest
    if not math.isfinite(ours) or ours > bound:
        return [f"{ours:.3g} from the exact result, at most {bound:.3g} is right"]
    return []
