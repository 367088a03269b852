"""Graphs for sizes and numbers that vary: one FX graph whose sizes are symbols, as torch.compile hands to backends.

The backend traces with fake tensors whose open dimensions are symbols (torch's `ShapeEnv`), and integers are symbols,
too. What it decides on them torch notes as guards on the symbols; a graph serves all inputs that fulfil these.

Each symbol is an input of the graph, in front of the others, whether or not the graph uses it: torch's caches of
compiled graphs look at such inputs alone when they ask whether the guards of a graph hold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx


def is_number(value: object) -> bool:
    """An input that is a symbol of the graph; other numbers are constants of it."""
    return type(value) is int


def kind(tensor: torch.Tensor) -> Any:
    """What no graph leaves open."""
    return tensor.dtype, tensor.device, tensor.dim(), tensor.requires_grad


class Symbols:
    """Fake inputs with symbols for what varies, and the guards that the backend puts on the symbols."""

    def __init__(self, inputs: Sequence[Any], dynamic: Sequence[Sequence[int] | None]) -> None:
        """`dynamic`: of each tensor the dimensions whose size varies; None: all."""
        import torch._refs  # decompositions of operators whose kernels for fake tensors take no symbols
        from torch._dynamo.source import ConstantSource
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

        self._environment = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self._environment, allow_non_fake_inputs=True)
        self.fakes: list[Any] = []
        self.examples: list[Any] = []  # what the backend gets: real tensors, and symbols for integers
        for index, (value, varies) in enumerate(zip(inputs, dynamic, strict=True)):
            source = ConstantSource(f"_kintsugi_{index}")
            if isinstance(value, torch.Tensor):
                dims = [
                    DimDynamic.DYNAMIC if varies is None or dim in varies else DimDynamic.STATIC
                    for dim in range(value.dim())
                ]
                context: Any = StatelessSymbolicContext(dynamic_sizes=dims)
                fake: Any = self.mode.from_tensor(value, source=source, symbolic_context=context)
                self.examples.append(value)
            else:
                fake = self._environment.create_unspecified_symint_and_symbol(
                    value, source, DimDynamic.DYNAMIC
                )
                self.examples.append(fake)
            self.fakes.append(fake)

    def add_sizes(self, module: fx.GraphModule) -> list[tuple[int, int]]:
        """Makes sizes that are symbols inputs of the graph. Returns the input and the dimension that each is read
        from. For when fake tensors have come through the graph: sizes that it fixes are no symbols any more."""
        found: dict[Any, tuple[int, int]] = {}
        known = {fake.node.expr for fake in self.fakes if isinstance(fake, torch.SymInt)}
        for index, fake in enumerate(self.fakes):
            if not isinstance(fake, torch.Tensor):
                continue
            for dim, size in enumerate(fake.shape):
                if (
                    isinstance(size, torch.SymInt)
                    and size.node.expr.is_symbol
                    and size.node.expr not in known
                ):
                    found.setdefault(size.node.expr, (index, dim))
        first = next(iter(module.graph.nodes))
        sizes = [self.fakes[index].shape[dim] for index, dim in found.values()]
        with module.graph.inserting_before(first):
            for symbol, size in zip(found, sizes, strict=True):
                node = module.graph.placeholder(str(symbol))
                node.meta["val"] = node.meta["example_value"] = size
        module.recompile()
        self.examples[:0] = sizes
        return list(found.values())

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Where the backend runs: it finds the fake tensors of the real ones."""
        with torch._guards.tracing(torch._guards.TracingContext(self.mode)):
            yield

    def seal(self) -> Callable[[Sequence[Any]], bool]:
        """Tells which other inputs fulfil what was decided. For when the backend is done."""
        environment = self._environment
        text = environment.produce_guards_expression(self.fakes, ignore_static=False)
        code: Any = compile(text, "<guards of a graph>", "eval") if text else None
        fixed = [_fixed(fake) for fake in self.fakes]

        def accepts(inputs: Sequence[Any]) -> bool:
            if any(_differs(value, each) for value, each in zip(inputs, fixed, strict=True)):
                return False
            return code is None or bool(environment.evaluate_guards_expression(code, inputs))

        return accepts


def _numbers(values: Sequence[Any]) -> list[tuple[int, int]]:
    return [(at, value) for at, value in enumerate(values) if isinstance(value, int)]


def _fixed(fake: Any) -> Any:
    """The sizes and strides that are no symbols, with their positions: guards on symbols say nothing of them."""
    if not isinstance(fake, torch.Tensor):
        return None
    return kind(fake), _numbers(fake.shape), _numbers(fake.stride())


def _differs(value: Any, fixed: Any) -> bool:
    if fixed is None:
        return False
    wanted, sizes, strides = fixed
    if kind(value) != wanted:
        return True
    shape, steps = value.shape, value.stride()
    return any(shape[at] != size for at, size in sizes) or any(steps[at] != step for at, step in strides)
