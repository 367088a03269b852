"""Builds each pair of requirements/pairs.txt and runs its tests: `test_matrix.py [--smoke | --whole] [PAIR ...]`.

Every pair has an environment and a build folder of its own (`make build PAIR=3.11-2.14`), so a second run is
incremental. A pair whose Python is not on the machine is a row of the table too, and the run has failed: nothing was
shown of it. What the steps printed is in build/matrix/.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "matrix"
SUMMARY = re.compile(r"^(?:=+ )?(\d+ (?:passed|failed|skipped|error).*?) in [\d.]+s", re.MULTILINE)
KINDS = ("passed", "failed", "error", "skipped", "xfailed")


@dataclass
class Row:
    pair: str
    torch: str
    tests: str
    result: str = ""
    counts: str = ""
    minutes: float = 0.0

    @property
    def good(self) -> bool:
        return self.result == "passed"


def ask(*words: str) -> tuple[bool, str]:
    """What scripts/pair.sh says, or why it says nothing."""
    done = subprocess.run([ROOT / "scripts" / "pair.sh", *words], capture_output=True, text=True)
    return done.returncode == 0, (done.stdout or done.stderr).strip()


def rows(names: list[str]) -> list[Row]:
    found = []
    for pair in names or ask("list")[1].split():
        known, torch = ask("torch", pair)
        if not known:
            sys.exit(torch)
        found.append(Row(pair, torch, ask("tests", pair)[1]))
    return found


def counts(text: str) -> dict[str, int]:
    """Sums of what pytest's last lines say; the tests run in two processes."""
    total = dict.fromkeys(KINDS, 0)
    for line in SUMMARY.findall(text):
        for number, kind in re.findall(r"(\d+) (\w+)", line):
            kind = kind.removesuffix("s") if kind.startswith("error") else kind
            if kind in total:
                total[kind] += int(number)
    return {kind: number for kind, number in total.items() if number}


def make(row: Row, target: str, log: Path) -> bool:
    with log.open("a") as file:
        # ARGS are ours, not those of what is run here.
        command = ["make", "--no-print-directory", target, f"PAIR={row.pair}", "ARGS="]
        return subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT).returncode == 0


def run(row: Row) -> None:
    there, interpreter = ask("python", row.pair)
    if not there:
        row.result, row.counts = "missing", interpreter.removeprefix("pair: ")
        return
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{row.pair}.log"
    log.write_text("")
    start = time.monotonic()
    if not make(row, "build", log):
        row.result, row.counts = "not built", f"see {log.relative_to(ROOT)}"
    else:
        passed = make(row, "test-python" if row.tests == "whole" else "test-smoke", log)
        found = counts(log.read_text())
        row.result = "passed" if passed and found.get("passed") else "failed"
        row.counts = ", ".join(f"{number} {kind}" for kind, number in found.items())
        row.counts += "" if row.good else f" (see {log.relative_to(ROOT)})"
    row.minutes = (time.monotonic() - start) / 60


def table(done: list[Row]) -> str:
    lines = ["| pair | torch | tests | result | | minutes |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {r.pair} | {r.torch} | {r.tests} | {r.result} | {r.counts} | {r.minutes:.0f} |" for r in done
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", nargs="*", metavar="PAIR", help="as 3.11-2.14 (default: all)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--smoke", action="store_true", help="of every pair only the smoke tests")
    which.add_argument("--whole", action="store_true", help="of every pair all tests of Python")
    arguments = parser.parse_args()
    todo = rows(arguments.pairs)
    for row in todo:
        row.tests = "smoke" if arguments.smoke else "whole" if arguments.whole else row.tests
        print(f"{row.pair}: {row.tests} ...", flush=True)
        run(row)
    print(table(todo))
    bad = [row.pair for row in todo if not row.good]
    print(f"not shown to work: {', '.join(bad)}" if bad else "all pairs passed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
