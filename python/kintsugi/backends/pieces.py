"""A graph in pieces, for backends that can't take it whole.

Some operations of a graph stop compilers that trace it with fake tensors: those whose results have sizes that depend on
data, calls of the program's, and regions with a mechanism of torch's. Where a backend fails on such a graph, these run
by themselves, and the backend gets what lies between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Segment = Mapping[str, Any]
Operation = Mapping[str, Any]
Runner = Callable[..., Any]


def stands_alone(op: Operation) -> bool:
    return bool(op.get("sizes_of_data")) or op["target"] in ("step", "region")


def references(value: Any) -> Iterator[int]:
    """The values that an argument names."""
    if isinstance(value, list):
        for item in value:
            yield from references(item)
    elif isinstance(value, tuple):
        yield value[1]


def _used(ops: Sequence[Operation]) -> list[int]:
    """What these take, in order, each once, but for what they make themselves."""
    made: set[int] = set()
    used: dict[int, None] = {}
    for op in ops:
        arguments = [*op["args"], *(op.get("kwargs") or {}).values()]
        used.update((number, None) for number in references(arguments) if number not in made)
        made.update(_made(op))
    return list(used)


def _made(op: Operation) -> list[int]:
    return [number for number in op["results"] if number is not None]


class Piece:
    """Operations that follow each other, with what goes in and what comes out."""

    def __init__(self, ops: Sequence[Operation], needed: set[int]) -> None:
        self.ops = ops
        self.alone = stands_alone(ops[0])
        self.inputs = _used(ops)
        self.outputs = [number for op in ops for number in _made(op) if number in needed]

    def segment(self, name: str, open_values: set[int], examples: Sequence[Any]) -> Segment:
        """The piece as a description of its own. Sizes of `open_values` may differ from run to run."""
        return {
            "name": name,
            "inputs": self.inputs,
            "example_inputs": list(examples),
            "dynamic": [at for at, number in enumerate(self.inputs) if number in open_values],
            "ops": self.ops,
            "outputs": self.outputs,
        }


def cut(segment: Segment) -> list[Piece]:
    """The pieces in order: what stands alone, and what lies between."""
    groups: list[list[Operation]] = []
    for op in segment["ops"]:
        if groups and not stands_alone(op) and not stands_alone(groups[-1][0]):
            groups[-1].append(op)
        else:
            groups.append([op])
    needed = {number for number in segment["outputs"] if number is not None}
    pieces: list[Piece] = []
    for group in reversed(groups):
        pieces.append(Piece(group, needed))
        needed |= set(pieces[-1].inputs)
    return pieces[::-1]


class Pieces:
    """Runs the pieces one after the other. Each is compiled when its inputs are there for the first time."""

    def __init__(
        self,
        segment: Segment,
        compile_piece: Callable[[Segment], Runner],
        run_alone: Callable[[Segment], Runner],
    ) -> None:
        self._segment = segment
        self._pieces = cut(segment)
        self._runners: list[Runner | None] = [None] * len(self._pieces)
        self._compile = compile_piece
        self._run_alone = run_alone
        self._open = {segment["inputs"][at] for at in segment.get("dynamic") or ()}
        for piece in self._pieces:
            if piece.alone or not self._open.isdisjoint(piece.inputs):
                self._open.update(piece.outputs)

    @property
    def _kintsugi_graphs(self) -> int:
        """How many graphs the backend gets. The core asks."""
        return sum(not piece.alone for piece in self._pieces)

    def _runner(self, at: int, inputs: Sequence[Any]) -> Runner:
        found = self._runners[at]
        if found is None:
            piece = self._pieces[at]
            described = piece.segment(f"{self._segment.get('name', 'graph')}_{at}", self._open, inputs)
            found = self._runners[at] = (self._run_alone if piece.alone else self._compile)(described)
        return found

    def __call__(self, *inputs: Any) -> Any:
        values = dict(zip(self._segment["inputs"], inputs, strict=True))
        for at, piece in enumerate(self._pieces):
            given = [values[number] for number in piece.inputs]
            results = self._runner(at, given)(*given)
            if results is NotImplemented:  # too many sizes
                results = self._run_alone(piece.segment("graph", self._open, given))(*given)
            values.update(zip(piece.outputs, results, strict=True))
        return tuple([None if number is None else values[number] for number in self._segment["outputs"]])
