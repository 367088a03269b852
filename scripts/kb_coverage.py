#!/usr/bin/env python3
"""Which entry of the knowledge base stands for which of torch's reasons: writes docs/internals/kb-coverage.md.

`--check` compares instead. Which reasons apply is read from the installed torch: those whose text its source gives,
without those that need an accelerator. Needs torch and the package's `cli` extra; runs nothing of either.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
import types
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "internals" / "kb-coverage.md"
# Reasons about streams and Triton kernels: torch gives them on machines with an accelerator alone.
ACCELERATOR = ("Unsupported event method", "triton kernel", "triton hop", "create_tma_descriptor")

HEAD = """# Coverage of torch's reasons

Made by `scripts/kb_coverage.py`; do not edit. One row for each id of the registry of torch {version}
(`torch/_dynamo/graph_break_registry.json`). An id *applies* if torch's source gives its text and it needs no
accelerator. *Shown* counts the runs of torch.compile in which a program of ours got it, as `kintsugi kb verify`
wrote it down. What no program shows is grouped under the entry with its cause; the entry says for each what was tried.

| | ids |
|---|---|
| in the registry | {total} |
| not in the source of torch {version} any more | {gone} |
| needs an accelerator | {accelerator} |
| **applies on a CPU** | **{applies}** |
| has an entry, or is grouped under one | {covered} ({share:.1f} %) |
| of these, shown by a program that was run | {shown} ({shown_share:.1f} %) |

| id | reason | entry | shown |
|---|---|---|---|
"""


def torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def given(folder: Path) -> set[str]:
    """The texts that torch's source gives as reasons."""
    found: set[str] = set()
    for path in sorted([*(folder / "_dynamo").rglob("*.py"), *(folder / "_higher_order_ops").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.keyword)
                and node.arg == "gb_type"
                and isinstance(node.value, ast.Constant)
            ):
                found.add(str(node.value.value).strip())
    return found


def entries() -> dict[str, tuple[str, str]]:
    """Of each id, its entry, and the runs that showed it (empty: none)."""
    package = types.ModuleType("kintsugi")  # the package itself would load torch
    package.__path__ = [str(ROOT / "python" / "kintsugi")]
    sys.modules.setdefault("kintsugi", package)
    from kintsugi.kb import load

    def runs(measured: dict[str, object]) -> str:
        found = measured.get("torch.compile")
        return "" if found is None else f"{found.n - found.failures}/{found.n}"  # type: ignore[attr-defined]

    covered: dict[str, tuple[str, str]] = {}
    for entry in load():
        if (entry.error_code or "").startswith("GB") and entry.error_code is not None:
            covered[entry.error_code] = (entry.id, runs(entry.evidence.problem) if entry.evidence else "")
        for member in entry.members:
            covered[member.id] = (entry.id, runs(member.measured))
    return covered


def page() -> str:
    folder = torch_folder()
    version = (
        (folder / "version.py")
        .read_text()
        .partition("__version__ = '")[2]
        .partition("+")[0]
        .partition("'")[0]
    )
    registry = json.loads((folder / "_dynamo" / "graph_break_registry.json").read_text(encoding="utf-8"))
    texts = {gb: rows[0]["Gb_type"].strip() for gb, rows in registry.items()}
    covered, source = entries(), given(folder)
    rows, counts = [], dict.fromkeys(("gone", "accelerator", "applies", "covered", "shown"), 0)
    for gb, text in sorted(texts.items()):
        entry, runs = covered.get(gb, ("", ""))
        if text not in source:
            counts["gone"] += 1
            entry = entry or "not given any more"
        elif any(part in text for part in ACCELERATOR):
            counts["accelerator"] += 1
            entry = entry or "needs an accelerator"
        else:
            counts["applies"] += 1
            counts["covered"] += bool(entry)
            counts["shown"] += bool(runs) and not runs.startswith("0/")
            entry = entry or "none"
        shown = text.replace("|", "\\|").replace("`", "'")
        rows.append(f"| {gb} | {shown} | {entry} | {runs} |\n")
    shares = {
        "share": 100 * counts["covered"] / counts["applies"],
        "shown_share": 100 * counts["shown"] / counts["applies"],
    }
    return HEAD.format(version=version, total=len(texts), **counts, **shares) + "".join(rows)


def main() -> int:
    made = page()
    if "--check" in sys.argv[1:]:
        same = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == made
        if not same:
            print(f"{PAGE.relative_to(ROOT)} is out of date: run scripts/kb_coverage.py")
        return 0 if same else 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
