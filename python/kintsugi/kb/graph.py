"""The transition graph: which entries lead to which, computed from all entries."""

from __future__ import annotations

import dataclasses

from .model import EntryId
from .store import KnowledgeBase

KINDS = ("leads_to", "frequently_confused_with")


@dataclasses.dataclass(frozen=True)
class Graph:
    nodes: list[EntryId]
    edges: list[tuple[EntryId, EntryId, str]]
    unresolved: list[tuple[EntryId, EntryId]]
    """Ids that are named but are no entries."""


def graph(base: KnowledgeBase) -> Graph:
    """`preceded_by` is `leads_to` seen from the other end; being confused with is mutual."""
    edges: dict[tuple[str, str, str], None] = {}
    unresolved: list[tuple[str, str]] = []
    for entry in base:
        parts = entry.transition_graph
        for other in (*parts.leads_to, *parts.preceded_by, *parts.frequently_confused_with):
            if other not in base.entries:
                unresolved.append((entry.id, other))
        for other in parts.leads_to:
            edges[entry.id, other, "leads_to"] = None
        for other in parts.preceded_by:
            edges[other, entry.id, "leads_to"] = None
        for other in parts.frequently_confused_with:
            first, second = sorted((entry.id, other))
            edges[first, second, "frequently_confused_with"] = None
    kept = [edge for edge in edges if edge[0] in base.entries and edge[1] in base.entries]
    return Graph(sorted(base.entries), sorted(kept), unresolved)


def to_dot(made: Graph) -> str:
    lines = ["digraph kb {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    lines += [f'  "{node}";' for node in made.nodes]
    for a, b, kind in made.edges:
        style = "" if kind == "leads_to" else " [style=dashed, dir=none]"
        lines.append(f'  "{a}" -> "{b}"{style};')
    return "\n".join([*lines, "}"]) + "\n"


def to_mermaid(made: Graph) -> str:
    number = {node: f"n{index}" for index, node in enumerate(made.nodes)}
    lines = ["graph LR", *(f'  {number[node]}["{node}"]' for node in made.nodes)]
    lines += [
        f"  {number[a]} {'-->' if kind == 'leads_to' else '-.-'} {number[b]}" for a, b, kind in made.edges
    ]
    return "\n".join(lines) + "\n"
