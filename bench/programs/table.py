"""The table of the programs, and what falls short of the figures to reach."""

from __future__ import annotations

from typing import Any

from rich.table import Table

Result = dict[str, Any]

WORST_WINDOW = 0.95  # eager mode's time as a multiple of ours, in any window of ten calls behind the tenth
FIRST_CALL = 3.0  # times eager mode's


def _measured(result: Result) -> list[tuple[str, str, Result]]:
    return [
        (name, system, row)
        for name, entry in result.get("programs", {}).items()
        for system, row in entry.get("rows", {}).items()
        if "windows" in row
    ]


def programs_table(result: Result) -> Table:
    table = Table(title="Programs in which tensors are the smaller part (x eager: more is faster)")
    columns = (
        "eager us",
        "first call, x",
        "calls 2-10",
        "worst window",
        "steady",
        "left to eager",
        "differs",
    )
    table.add_column("program")
    table.add_column("system")
    for column in columns:
        table.add_column(column, justify="right")
    for name, entry in result["programs"].items():
        if "failed" in entry:
            table.add_row(name, f"{entry['failed']}: {entry['why']}")
        for system, row in entry.get("rows", {}).items():
            if "windows" not in row:
                table.add_row(name, system, f"{row['failed']}: {str(row['why']).strip().splitlines()[-1]}")
                continue
            left = row["counts"].get("left_to_eager", "")
            cells = [f"{row[key]:.2f}" for key in ("first", "early", "worst", "steady")]
            differs = "" if row["differs"] is None else f"call {row['differs']}"
            table.add_row(name, system, f"{row['eager_us']:.0f}", *cells, str(left), differs)
    return table


def summarize_programs(result: Result, add: Any) -> None:
    """Adds the figures of each of our systems to the summary."""
    rows = [row for row in _measured(result) if row[1].startswith("kintsugi")]
    for system in sorted({system for _, system, _ in rows}):
        ours = [(name, row) for name, other, row in rows if other == system]
        slow = [f"{name} {row['worst']:.2f}" for name, row in ours if row["worst"] < WORST_WINDOW]
        late = [f"{name} {row['first']:.1f}" for name, row in ours if row["first"] > FIRST_CALL]
        wrong = [name for name, row in ours if row["differs"] is not None]
        worst = min(row["worst"] for _, row in ours)
        first = max(row["first"] for _, row in ours)
        add(f"programs, {system}, worst window of ten calls", worst, WORST_WINDOW, False, slow)
        add(f"programs, {system}, first call, x eager (worst)", first, FIRST_CALL, True, late)
        add(f"programs, {system}, that differ", len(wrong), 0, True, wrong)
