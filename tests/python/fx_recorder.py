"""A backend that keeps what it was given, for tests of FX graphs."""

from __future__ import annotations

from typing import Any

from torch import fx


class Recorder:
    """A backend that keeps what it was given and runs it as it is."""

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []
        self.examples: list[list[Any]] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        self.graphs.append(gm)
        self.examples.append(example_inputs)
        return gm.forward

    def targets(self) -> list[list[str]]:
        return [[str(n.target) for n in gm.graph.nodes if n.op == "call_function"] for gm in self.graphs]


def tensor_inputs(gm: fx.GraphModule) -> list[fx.Node]:
    """The placeholders that are no sizes."""
    return [
        node for node in gm.graph.nodes if node.op == "placeholder" and hasattr(node.meta["val"], "shape")
    ]
