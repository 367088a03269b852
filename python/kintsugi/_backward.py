"""What autograd will run backwards: the graph of a result's grad_fn, as text, as FX code, and for Graphviz.

Replay gives results their gradients through torch's own autograd, so the backward graph is the one that hangs on the
results. The text and the drawing list its nodes; the FX code is what those nodes do, traced while they run once (with
`torch.autograd.grad`, so nothing is accumulated; tensor hooks of the program do run).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch


@dataclasses.dataclass(frozen=True)
class BackwardDump:
    """The backward graph of one call."""

    text: str
    fx: str
    graphviz: str


def _tensors(value: Any) -> list[torch.Tensor]:
    leaves, _ = torch.utils._pytree.tree_flatten(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _shape(tensor: torch.Tensor) -> str:
    sizes = ",".join(str(size) for size in tensor.shape)
    return f"{str(tensor.dtype).removeprefix('torch.')}[{sizes}]"


class _Walk:
    """The nodes, results first; it ends at leaves and at the inputs of the call."""

    def __init__(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        self.nodes: list[Any] = []
        self.number: dict[Any, int] = {}
        self.targets: list[torch.Tensor] = []
        """With respect to what: the leaves that are reached, and inputs that have a history of their own."""
        ends = {tensor.grad_fn: tensor for tensor in inputs if tensor.grad_fn is not None}
        self.ends: dict[int, torch.Tensor] = {}
        waiting = [tensor.grad_fn for tensor in outputs]
        while waiting:
            node = waiting.pop(0)
            if node is None or node in self.number:
                continue
            self.number[node] = len(self.nodes)
            self.nodes.append(node)
            end = ends.get(node, getattr(node, "variable", None))
            if end is not None:
                self.ends[self.number[node]] = end
                self.targets.append(end)
                continue
            waiting += [following for following, _ in node.next_functions]

    def edges(self, index: int) -> list[int]:
        if index in self.ends:
            return []
        return [self.number[following] for following, _ in self.nodes[index].next_functions if following]


def _saved(node: Any) -> str:
    """What the forward kept for this node."""
    found = []
    for name in sorted(dir(node)):
        if name.startswith("_saved_"):
            try:
                value = getattr(node, name)
            except RuntimeError:  # freed, or changed in place since
                continue
            if isinstance(value, torch.Tensor):
                found.append(f"{name.removeprefix('_saved_')}: {_shape(value)}")
    return ", ".join(found)


def _text(walk: _Walk) -> str:
    lines = []
    for index, node in enumerate(walk.nodes):
        end = walk.ends.get(index)
        if end is not None:
            lines.append(f"  %{index} = gradient of {_shape(end)}")
            continue
        uses = ", ".join(f"%{other}" for other in walk.edges(index))
        saved = _saved(node)
        lines.append(
            f"  %{index} = {node.name()} -> {uses or 'nothing'}" + (f"  ; saved {saved}" if saved else "")
        )
    return "\n".join(["backward {", *lines, "}"]) + "\n"


def _dot(walk: _Walk, name: str) -> str:
    lines = [f'digraph "{name}" {{', '  node [shape=box, fontname="monospace"];']
    for index, node in enumerate(walk.nodes):
        end = walk.ends.get(index)
        label = node.name() if end is None else f"gradient of {_shape(end)}"
        lines.append(f'  n{index} [label="{label}"{", style=rounded" if end is not None else ""}];')
        lines += [f"  n{index} -> n{other};" for other in walk.edges(index)]
    return "\n".join([*lines, "}"]) + "\n"


def _fx(outputs: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> str:
    from torch.fx.experimental.proxy_tensor import make_fx

    def backward(*gradients: torch.Tensor) -> list[torch.Tensor | None]:
        return list(
            torch.autograd.grad(
                list(outputs), list(targets), list(gradients), retain_graph=True, allow_unused=True
            )
        )

    try:
        traced = make_fx(backward)(*[torch.ones_like(tensor) for tensor in outputs])
    except Exception as error:  # what the program's own autograd functions do may not be traceable
        return f"# not traced: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}\n"
    code: str = traced.print_readable(print_output=False)
    return code


def dump_backward(result: Any, inputs: Any, name: str = "backward") -> BackwardDump | None:
    """The backward graph behind `result`; None: nothing in it has a gradient."""
    outputs = [tensor for tensor in _tensors(result) if tensor.grad_fn is not None]
    if not outputs:
        return None
    walk = _Walk(outputs, _tensors(inputs))
    return BackwardDump(_text(walk), _fx(outputs, walk.targets), _dot(walk, name))
