"""Well-known models under the installed version of `transformers`, each way of calling them held against eager mode.

    model_table.py [NAME ...] [--backends eager,native] [--results FILE]
    model_table.py --table FILE ...              the results of several runs as one table

With and without padding, with and without a cache, and generate() by greedy search, sampling, beam search and with a
static cache: generate() calls the compiled forward, or is compiled itself. Replay has to be equal in every bit, native
code as close to float64 as eager mode is (bench/accuracy.py); generated tokens have to be the same.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import warnings
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch

from bench import measure
from bench.models.ways import ARCHITECTURES, CALLS, Architecture, Case, attempt, build, cases

ALLOWED_SECONDS = 240.0


def outcome(arch: Architecture, case: Case, backend: str) -> dict[str, Any]:
    def eager() -> bool:
        run = case(build(arch), lambda what: what)
        for turn in range(CALLS):
            run(turn)
        return True

    def work() -> dict[str, Any]:
        try:
            eager()
        except Exception as error:
            return {"excluded": f"{type(error).__name__}: {error}"[:200]}
        return attempt(arch, case, backend)

    kind, value = measure.isolated(work, ALLOWED_SECONDS)
    return value if kind == "ok" else {"failed": f"{kind}: {str(value)[-1500:]}"}


def verdict(row: dict[str, Any]) -> str:
    if "excluded" in row:
        return "not in eager mode"
    if "failed" in row:
        return "fails"
    if row["differences"]:
        return "differs"
    return "equal, whole" if not row["breaks"] else f"equal, {len(row['breaks'])} breaks"


def run(options: argparse.Namespace) -> None:
    import transformers

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in options.names or ARCHITECTURES:
        arch = ARCHITECTURES[name]
        build(arch)  # imports, before the children are made
        for way, case in cases(arch):
            for backend in options.backends.split(","):
                row = {"version": transformers.__version__, "model": name, "way": way, "backend": backend}
                row |= outcome(arch, case, backend)
                print(f"{row['version']} {name}, {way}, {backend}: {verdict(row)}", flush=True)
                for text in [*row.get("differences", ()), row.get("failed", ""), row.get("excluded", "")]:
                    if text:
                        print("    " + text[-options.most :].replace("\n", "\n    "), flush=True)
                if options.results:
                    with options.results.open("a") as out:
                        out.write(json.dumps(row) + "\n")


def table(paths: list[pathlib.Path]) -> None:
    """A row for each model and version: of how many ways of calling it the results are equal, and whole."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            rows[row["model"], row["version"], row["backend"], row["way"]] = row
    print(
        "| model | transformers | backend | ways of calling | equal | without a break | calls that ran a trace |"
    )
    print("|---|---|---|---|---|---|---|")
    for key in dict.fromkeys(k[:3] for k in rows):
        here = [row for k, row in rows.items() if k[:3] == key and "excluded" not in row]
        equal = [row for row in here if "failed" not in row and not row["differences"]]
        whole = [row for row in equal if not row["breaks"]]
        hits = sum(row["hits"] for row in equal)
        calls = hits + sum(row["misses"] for row in equal)
        print("|", " | ".join(map(str, [*key, len(here), len(equal), len(whole), f"{hits} of {calls}"])), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(ARCHITECTURES))
    parser.add_argument("--backends", default="eager,native")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--most", type=int, default=300, help="how many characters of an error are shown")
    parser.add_argument("--table", type=pathlib.Path, nargs="+")
    options = parser.parse_intermixed_args()
    if options.table:
        table(options.table)
    else:
        run(options)


if __name__ == "__main__":
    main()
