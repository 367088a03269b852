"""What a trace takes for granted of sizes, in graphs whose sizes vary.

A trace goes one way where the program has asked for a size (`if x.shape[0] > 8`), and holds as many results of `unbind`
or `split` as there were when it was recorded. A graph can't leave the trace in the middle. So checks stand in it while
it is made, and fake tensors run through it: where they come by, the check holds, and torch has noted what that takes of
the symbols; then it is taken out again. Sizes for which it does not hold have no graph: their runs go along the trace's
own instructions, which leave it there. A check that the fake tensors do not reach (behind a step of the program, or an
operator without a fake kernel) stays and is made in each run.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx


class OtherSizes(RuntimeError):
    """The trace takes other sizes for granted."""


def _require(holds: Any, what: str) -> None:
    if not holds:
        raise OtherSizes(what)


def as_many(made: Sequence[Any], count: int) -> Sequence[Any]:
    """`made`; raises OtherSizes unless these are `count`."""
    _require(len(made) == count, f"{len(made)} tensors where the trace holds {count}")
    return made


def is_true(value: Any) -> None:
    """Raises OtherSizes unless a comparison of sizes holds."""
    _require(value, "a comparison of sizes does not hold")


def is_false(value: Any) -> None:
    """Raises OtherSizes if a comparison of sizes holds."""
    _require(not value, "a comparison of sizes holds")


def is_value(value: Any, expected: Any) -> None:
    """Raises OtherSizes unless a number that was computed of sizes is this one."""
    _require(value == expected, f"{value} where the trace holds {expected}")


def looks_like(
    tensor: torch.Tensor,
    dtype: torch.dtype,
    device: torch.device,
    sizes: Sequence[int | None],
    strides: Sequence[int | None] | None,
    contiguous: bool | None,
    requires_grad: bool,
    itself: bool = True,
) -> None:
    """Raises OtherSizes unless the tensor is like that. None: it does not matter. `itself`: of no subclass, as all that
    operators make in a graph."""
    _require(itself, "a subclass of tensors")
    kind = tensor.dtype, tensor.device, tensor.dim(), tensor.requires_grad
    _require(kind == (dtype, device, len(sizes), requires_grad), f"{kind}")
    for size, expected in zip(tensor.shape, sizes, strict=True):
        _require(expected is None or size == expected, f"{tensor.shape}")
    for stride, expected in zip(tensor.stride(), strides or (), strict=bool(strides)):
        _require(expected is None or stride == expected, f"{tensor.stride()}")
    _require(contiguous is None or tensor.is_contiguous() == contiguous, f"{tensor.shape}, {tensor.stride()}")


# Operations of a description that are checks.
GUARDS: Mapping[str, Callable[..., None]] = {
    "guard.true": is_true,
    "guard.false": is_false,
    "guard.value": is_value,
    "guard.meta": looks_like,
}
_CHECKS = frozenset([as_many, *GUARDS.values()])
for _check in _CHECKS:
    fx.node.has_side_effect(_check)  # so that no pass drops it though nobody may use what it gives


def gives_list(operator: torch._ops.OpOverload) -> bool:
    """Does it return one list of tensors?"""
    returns = operator._schema.returns
    return len(returns) == 1 and isinstance(returns[0].type, torch.ListType)


def _graphs(module: torch.nn.Module) -> Iterator[fx.GraphModule]:
    """The module's graph, and those inside."""
    return (each for each in module.modules() if isinstance(each, fx.GraphModule))


def take_out(module: fx.GraphModule, reached: Container[fx.Node] | None, numbers: Container[Any]) -> bool:
    """Removes the checks among the nodes that fake tensors have reached (None: all, also of graphs inside), and the
    `numbers` that nothing else needs. True if other checks remain."""
    remain = False
    for each in _graphs(module):
        graph = each.graph
        for node in reversed(list(graph.nodes)):
            if node.target in _CHECKS:
                if reached is not None and node not in reached:
                    remain = True
                    continue
                if node.users:
                    node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)
            elif node.op == "call_function" and node.target in numbers and not node.users:
                graph.erase_node(node)
        each.recompile()
    return remain
