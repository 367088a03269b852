"""Lists of tensors in graphs whose sizes vary: as many as the trace holds, or the graph is not run.

A trace holds as many results of `unbind` or `split` as there were when it was recorded. A graph takes its elements out
of the list, and would neither miss one nor see that there is one more. So `as_many` stands behind each such operator
where sizes vary. Fake tensors run through the graph when it is made: where they come by, there are as many, and torch
has noted what that takes of the symbols; then the check is taken out again. A check that they do not reach (behind a
step of the program, or an operator without a fake kernel) stays and is made in each run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx


class OtherCount(RuntimeError):
    """An operator gives another number of tensors than the trace holds. The trace's own instructions can leave it."""


def as_many(made: Sequence[Any], count: int) -> Sequence[Any]:
    """`made`; raises OtherCount unless these are `count`."""
    if len(made) != count:
        raise OtherCount(f"{len(made)} tensors where the trace holds {count}")
    return made


def gives_list(operator: torch._ops.OpOverload) -> bool:
    """Does it return one list of tensors?"""
    returns = operator._schema.returns
    return len(returns) == 1 and isinstance(returns[0].type, torch.ListType)


def _checks(module: torch.nn.Module) -> Iterator[tuple[fx.GraphModule, fx.Node]]:
    """All checks, with the graph that each stands in."""
    for each in module.modules():
        if isinstance(each, fx.GraphModule):
            yield from ((each, node) for node in list(each.graph.nodes) if node.target is as_many)


def take_out(module: fx.GraphModule, whole: bool) -> bool:
    """Removes the checks that fake tensors have come by; `whole`: by all of them. True if others remain."""
    remain = False
    touched = {}
    for graph, node in _checks(module):
        if not (whole or "val" in node.meta):
            remain = True
            continue
        node.replace_all_uses_with(node.args[0])
        graph.graph.erase_node(node)
        touched[id(graph)] = graph
    for graph in touched.values():
        graph.recompile()
    return remain
