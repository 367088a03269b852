"""Runs the own test suites of libraries, from their source packages, in eager mode and under --kintsugi-compile.

    library_suites.py run [NAME ...]         what the results have not yet (a run can be cut at any time)
    library_suites.py table                  what the results say
    library_suites.py lost [NAME ...]        the tests that pass in eager mode alone, with their errors
    library_suites.py slow [NAME ...]        the tests that take much longer compiled

bench/models/suites.toml lists the suites. Each library is installed into an environment under --cache that sees this
project's packages, and its source package is unpacked there. Some test files at a time run in a process of their own,
with a seed for each test; what passes in eager mode has to pass compiled.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
SUITES = ROOT / "bench" / "models" / "suites.toml"
COMMON = ("pytest==9.2.0", "hypothesis==6.170.15", "parameterized", "expecttest", "scipy")
BUILDERS = (
    "setuptools>=77,<82",
    "setuptools-scm",
    "wheel",
    "hatchling",
    "hatch-vcs",
    "poetry-core",
    "flit_core",
    "pdm-backend",
)
PATIENCE = 4  # compiled runs may take this many times as long as eager ones, and a minute more
LONGEST_INSTALL = 1200.0
SLOW_SECONDS, SLOW_TIMES = 2.0, 10.0  # a test is slow that takes longer than both

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Suite:
    """One library's tests."""

    name: str
    package: str
    tests: tuple[str, ...]
    requires: tuple[str, ...] = ()
    dependencies: bool = True
    alone: tuple[str, ...] = ()
    declares: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    pattern: tuple[str, ...] = ("test_*.py", "*_test.py")
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    together: int = 40
    every: int = 1
    offset: int = 0
    seconds: float = 300.0
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    excluded: dict[str, str] = dataclasses.field(default_factory=dict)


def suites() -> dict[str, Suite]:
    with SUITES.open("rb") as file:
        rows = tomllib.load(file)
    return {
        name: Suite(name, **{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()})
        for name, row in rows.items()
    }


class Environment:
    """A folder with one virtual environment for all libraries, and their sources."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"

    def _pip(self, *arguments: str) -> None:
        # What a library asks for may not bring a torch of its own: it would hide the project's.
        ours = self.folder / "constraints.txt"
        ours.write_text(f"torch=={importlib.metadata.version('torch').partition('+')[0]}\n")
        command = [self.python, "-m", "pip", *arguments, "-c", ours, "-q", "--disable-pip-version-check"]
        subprocess.run(command, check=True, timeout=LONGEST_INSTALL)

    def prepare(self) -> None:
        if self.python.exists():
            return
        venv = self.folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        ours = pathlib.Path(sys.prefix) / "lib" / "python3.11" / "site-packages"
        pointer = venv / "lib" / "python3.11" / "site-packages" / "project.pth"
        pointer.write_text(f"import site; site.addsitedir({str(ours)!r})\n")
        self._pip("install", *BUILDERS, *COMMON)

    def source(self, suite: Suite) -> pathlib.Path:
        """The unpacked source package; the first time, the library is installed too."""
        folder = self.folder / "sources" / suite.name
        if not folder.exists():
            self._pip("install", "--no-build-isolation", *self._wanted(suite), *suite.requires)
            # PyPI's torchvision has no operators for the project's torch. Who needs it has it `alone`.
            subprocess.run([self.python, "-m", "pip", "uninstall", "-q", "-y", "torchvision"], check=True)
            if suite.alone:
                self._pip("install", "--no-deps", "--target", str(self.own_packages(suite)), *suite.alone)
            archives = self.folder / "archives" / suite.name
            build = ("--no-binary", ":all:", "--no-deps", "--no-build-isolation")
            self._pip("download", *build, "-d", str(archives), suite.package)
            unpacked = self.folder / "sources" / f".{suite.name}"
            for archive in archives.glob("*.tar.gz"):
                with tarfile.open(archive) as tar:
                    tar.extractall(unpacked, filter="data")
            unpacked.rename(folder)
        (inner,) = folder.iterdir()
        for part in suite.packages:
            (inner / part / "__init__.py").touch()
        return inner

    def own_packages(self, suite: Suite) -> pathlib.Path:
        """Packages that no other suite is to see."""
        return self.folder / "alone" / suite.name

    @staticmethod
    def _wanted(suite: Suite) -> tuple[str, ...]:
        return (suite.package,) if suite.dependencies else ("--no-deps", suite.package)


def test_files(suite: Suite, source: pathlib.Path) -> Iterator[pathlib.Path]:
    for part in suite.tests:
        place = source / part
        if place.is_file():
            yield place
            continue
        found = {file for pattern in suite.pattern for file in place.rglob(pattern)}
        for file in sorted(found):
            if file.relative_to(source).as_posix() not in suite.files:
                yield file


def _outcomes(path: pathlib.Path) -> dict[str, Row]:
    """The last of a test counts: but what failed once has failed."""
    found: dict[str, Row] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        row = json.loads(line)
        if found.get(row["test"], {}).get("outcome") != "failed":
            found[row["test"]] = row
    return found


def test_groups(suite: Suite, source: pathlib.Path) -> Iterator[list[str]]:
    """The test files that run in one process."""
    files = [file.relative_to(source).as_posix() for file in test_files(suite, source)]
    for start in range(0, len(files), suite.together):
        yield files[start : start + suite.together]


def run_files(
    env: Environment,
    suite: Suite,
    source: pathlib.Path,
    files: list[str],
    mode: str,
    seconds: float,
    only: list[str] | None,
) -> Row:
    """How the tests of some files end in one mode, or those in `only`.

    A test in which the process dies is left out of the next attempt.
    """
    done: dict[str, Row] = {}
    captured: Row = {}
    deselected = [f"--deselect={name}" for name in suite.excluded]
    began, status = time.monotonic(), "done"
    notes = env.folder / f"outcomes-{os.getpid()}.jsonl"
    summary = env.folder / f"captured-{os.getpid()}.json"
    selected = env.folder / f"selected-{os.getpid()}.json"
    selected.write_text(json.dumps(only))
    for _ in range(4):
        notes.unlink(missing_ok=True)
        summary.unlink(missing_ok=True)
        options = [] if mode == "none" else [f"--kintsugi-compile={mode}", f"--kintsugi-captured={summary}"]
        command = [
            env.python,
            "-m",
            "pytest",
            "-q",
            "--continue-on-collection-errors",
            "-o",
            "addopts=",
            "-p",
            "no:cacheprovider",
            "-p",
            "suite_outcomes",
            *options,
        ]
        command += [*suite.arguments, *deselected, *files]
        variables = {
            **os.environ,
            **suite.environment,
            "PYTHONPATH": f"{ROOT / 'scripts'}:{source}:{env.own_packages(suite)}",
            "KINTSUGI_SUITE_SELECTED": str(selected),
            "KINTSUGI_SUITE_EVERY": str(suite.every),
            "KINTSUGI_SUITE_OFFSET": str(suite.offset),
            "KINTSUGI_SUITE_DECLARES": "\n".join(suite.declares),
            "KINTSUGI_SUITE_OUTCOMES": str(notes),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "MPLBACKEND": "agg",
        }
        status = _run(command, source, variables, seconds)
        new = _outcomes(notes)
        done.update(new)
        captured = json.loads(summary.read_text()) if summary.exists() else captured
        inside = [name for name, row in new.items() if row["outcome"] == "began"]
        if status in ("done", "too long", "pytest could not run") or not inside:
            break
        done[inside[-1]] = {"test": inside[-1], "outcome": "failed", "error": f"the process died: {status}"}
        deselected += [f"--deselect={name}" for name in new]
    notes.unlink(missing_ok=True)
    summary.unlink(missing_ok=True)
    selected.unlink(missing_ok=True)
    seconds = round(time.monotonic() - began, 1)
    return {"status": status, "seconds": seconds, "tests": list(done.values()), "captured": captured}


def _run(command: list[Any], folder: pathlib.Path, variables: dict[str, str], seconds: float) -> str:
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "too long"
    if code < 0:
        return signal.Signals(-code).name
    return "pytest could not run" if code in (3, 4) else "done"


def read(path: pathlib.Path) -> dict[tuple[str, str], Row]:
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(row["suite"], row["file"]): row for row in rows}


def lost(row: Row, mode: str) -> list[Row]:
    """Tests that pass in eager mode and not in `mode`."""
    if mode not in row:
        return []
    passed = {test["test"] for test in row["none"]["tests"] if test["outcome"] == "passed"}
    return [t for t in row[mode]["tests"] if t["test"] in passed and t["outcome"] not in ("passed", "began")]


def _reached(row: Row) -> list[str] | None:
    """The tests that the eager run had time for; None: all of them."""
    if row.get("none", {}).get("status") != "too long":
        return None
    return [test["test"] for test in row["none"]["tests"] if test["outcome"] != "began"]


def run(options: argparse.Namespace) -> None:
    env = Environment(options.cache.resolve())
    env.folder.mkdir(parents=True, exist_ok=True)
    env.prepare()
    known = suites()
    done = read(options.results)
    modes = options.modes.split(",")
    with options.results.open("a") as out:
        for name in options.names or known:
            suite = known[name]
            source = env.source(suite)
            left = suite.seconds
            for files in test_groups(suite, source):
                if options.file:
                    files = [file for file in files if options.file in file]
                if not files:
                    continue
                key = (name, files[0])
                row = {
                    "suite": name,
                    "file": key[1],
                    "files": len(files),
                    **({} if options.again else done.get(key, {})),
                }
                missing = [mode for mode in ("none", *modes) if mode not in row]
                if not missing or left <= 0:
                    continue
                for mode in missing:
                    most = left if mode == "none" else PATIENCE * row["none"]["seconds"] + 60
                    row[mode] = run_files(env, suite, source, files, mode, most, _reached(row))
                    if not any(test["outcome"] == "passed" for test in row["none"]["tests"]):
                        break  # nothing to hold the others against
                left -= row["none"]["seconds"]
                _tell(row)
                out.write(json.dumps(row) + "\n")
                out.flush()


def _tell(row: Row) -> None:
    parts = [f"{row['suite']} {row['file']}:"]
    for mode in ("none", "native", "eager", "fn"):
        if mode in row:
            passed = sum(test["outcome"] == "passed" for test in row[mode]["tests"])
            parts.append(
                f"{mode} {passed}/{len(row[mode]['tests'])} in {row[mode]['seconds']} s ({row[mode]['status']})"
            )
    parts += [
        f"\n    LOST {mode}: {test['test']}" for mode in ("native", "eager", "fn") for test in lost(row, mode)
    ]
    print(*parts, flush=True)


def table(options: argparse.Namespace) -> None:
    rows = read(options.results)
    titles = "library, files, tests, passed in eager, mode, lost, not reached, modules, whole, calls that ran a trace"
    print("|", titles.replace(", ", " | "), "|")
    print("|---" * (titles.count(",") + 1) + "|")
    for name in dict.fromkeys(suite for suite, _ in rows):
        here = [row for (suite, _), row in rows.items() if suite == name]
        tests = [test for row in here for test in row["none"]["tests"] if test["outcome"] != "not collected"]
        passed = sum(test["outcome"] == "passed" for test in tests)
        for mode in ("native", "eager", "fn"):
            ran = [row for row in here if mode in row]
            if not ran:
                continue
            gone = sum(len(lost(row, mode)) for row in ran)
            total = _totals(row[mode]["captured"] for row in ran)
            units = total["modules"] + total["functions"]
            cells = [
                name,
                sum(row["files"] for row in here),
                len(tests),
                passed,
                mode,
                gone,
                _unreached(ran, mode),
                units,
            ]
            cells += [total["whole"], f"{total['hits']} of {total['calls']}"]
            print("|", " | ".join(map(str, cells)), "|")


def _totals(parts: Iterator[Row]) -> dict[str, int]:
    total = dict.fromkeys(("modules", "functions", "calls", "hits", "whole", "eager"), 0)
    for part in parts:
        for name in total:
            total[name] += part.get(name, 0)
    return total


def _unreached(rows: list[Row], mode: str) -> int:
    """Tests that pass in eager mode and that the compiled run had no time for."""
    count = 0
    for row in rows:
        reached = {test["test"] for test in row[mode]["tests"] if test["outcome"] != "began"}
        count += sum(t["outcome"] == "passed" and t["test"] not in reached for t in row["none"]["tests"])
    return count


def show_lost(options: argparse.Namespace) -> None:
    for (name, file), row in read(options.results).items():
        if options.names and name not in options.names:
            continue
        for mode in options.modes.split(","):
            for test in lost(row, mode):
                print(f"=== {name} {file} {mode}: {test['test']}")
                print(test.get("error", test["outcome"])[-options.most :])


def show_slow(options: argparse.Namespace) -> None:
    for (name, _), row in read(options.results).items():
        if options.names and name not in options.names:
            continue
        before = {test["test"]: test.get("seconds", 0.0) for test in row["none"]["tests"]}
        for mode in options.modes.split(","):
            for test in row.get(mode, {}).get("tests", ()):
                eager, now = before.get(test["test"], 0.0), test.get("seconds", 0.0)
                if now > SLOW_SECONDS and now > SLOW_TIMES * eager:
                    print(f"{name} {mode}: {eager} s in eager mode, {now} s: {test['test']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=["run", "table", "lost", "slow"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--modes", default="native")
    parser.add_argument("--file", default="", help="only files whose path has this part")
    parser.add_argument("--again", action="store_true", help="also what the results have already")
    parser.add_argument("--most", type=int, default=1500, help="how many characters of an error `lost` shows")
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / "build" / "libraries")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build" / "suites.jsonl")
    options = parser.parse_intermixed_args()
    {"run": run, "table": table, "lost": show_lost, "slow": show_slow}[options.command](options)


if __name__ == "__main__":
    main()
