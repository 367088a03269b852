"""The transition graph of a report as SVG: what leads to the entries of this run, they themselves, what follows."""

from __future__ import annotations

from typing import Any

WIDTH, HEIGHT, GAP, COLUMN = 300, 30, 14, 360


def layout(related: dict[str, Any]) -> dict[str, Any]:
    """Places for the nodes, and lines between them; the template draws them."""
    here = {node["id"] for node in related["nodes"] if node["here"]}
    before = {a for a, b, kind in related["edges"] if kind == "leads_to" and b in here} - here
    columns: list[list[str]] = [[], [], []]
    for node in related["nodes"]:
        columns[1 if node["id"] in here else 0 if node["id"] in before else 2].append(node["id"])
    tallest = max(map(len, columns), default=0)
    place = {}
    for number, column in enumerate(columns):
        top = (tallest - len(column)) * (HEIGHT + GAP) / 2
        for row, node in enumerate(column):
            place[node] = (10 + number * COLUMN, 10 + top + row * (HEIGHT + GAP))
    lines = []
    for a, b, kind in related["edges"]:
        (ax, ay), (bx, by) = place[a], place[b]
        # From the side that faces the other one; within a column, around it.
        start = ax + WIDTH if bx >= ax else ax
        end = bx if bx > ax else bx + WIDTH
        bend = 50 if ax == bx else 0
        ay, by = ay + HEIGHT / 2, by + HEIGHT / 2
        middle = (start + end) / 2 + bend
        path = f"M{start:g},{ay:g} C{middle:g},{ay:g} {middle:g},{by:g} {end:g},{by:g}"
        lines.append({"path": path, "kind": kind, "from": a, "to": b})
    return {
        "nodes": [{"id": n, "x": x, "y": y, "here": n in here} for n, (x, y) in place.items()],
        "lines": lines,
        "width": 2 * COLUMN + WIDTH + 60,
        "height": max(1, tallest) * (HEIGHT + GAP) + 10,
        "box": (WIDTH, HEIGHT),
    }
