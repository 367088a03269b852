"""Installs each wheel of dist into an empty environment beside each torch it is for, and tries it: `make wheel-test`.

    wheel_test.py [--dist FOLDER] [--pairs 3.11-2.14 ...] [--quick]

Nothing is downloaded: torch, and later what the command and the tests import, are lent by the environment of the pair,
package by package, as links. So the environment has what torch needs and nothing else; pip installs the wheel alone,
since it would write through the links. In it:

  1. `pip install` of the wheel, and the program of the README, timed together; what the wheel asks for is there;
  2. the command without its extra says which extra to install;
  3. with the extra, `kintsugi doctor`;
  4. the tests of tests/smoke.txt (not with --quick), against the installed package.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "wheels" / "test"
# Seconds of processor time from the installation to the first result; the clock also counts what else the machine does.
PATIENCE = 60.0
# What the tests import beside the library; packages that they ask for come along.
FOR_TESTS = ("pytest", "hypothesis", "expecttest", "numpy", "transformers")
FILES = """
import importlib.metadata as m, json, sys
from packaging.requirements import Requirement
found, done, wanted = {}, set(), [(name, "") for name in sys.argv[1:]]
while wanted:
    name, extra = wanted.pop()
    name = name.lower().replace("_", "-")
    if (name, extra) in done:
        continue
    done.add((name, extra))
    try:
        distribution = m.distribution(name)
    except m.PackageNotFoundError:
        continue
    tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    found[name] = sorted(str(distribution.locate_file(top)) for top in tops)
    for text in distribution.requires or ():
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": extra}):
            wanted += [(needed.name, each) for each in ("", *needed.extras)]
print(json.dumps(found))
"""
# What the wheel's metadata ask for has to be there, in a version that they permit; and what was loaded is of this pair.
CHECK = """
import importlib.metadata as m, pathlib, sys
from packaging.requirements import Requirement
import torch, kintsugi._C
for text in m.requires("kintsugi-torch"):
    needed = Requirement(text)
    if needed.marker is None or needed.marker.evaluate({"extra": ""}):
        assert m.version(needed.name).partition("+")[0] in needed.specifier, text
print(torch.__version__, pathlib.Path(kintsugi._C.__file__).parent)
"""


def output(*command: str | Path) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def program() -> str:
    """The README's first program in Python."""
    match = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    if match is None:
        sys.exit("wheel_test: the README has no program")
    return match.group(1)


class Trial:
    """An environment with one wheel and one torch."""

    def __init__(self, wheel: Path, pair: str) -> None:
        self.wheel, self.pair = wheel, pair
        self.lender = ROOT / output("make", "--no-print-directory", "-s", "interpreter", f"PAIR={pair}")
        self.folder = WORK / pair
        shutil.rmtree(self.folder, ignore_errors=True)
        python = output(ROOT / "scripts" / "pair.sh", "python", pair)
        subprocess.run([python, "-m", "venv", self.folder], check=True)
        self.python = self.folder / "bin" / "python"
        (self.packages,) = self.folder.glob("lib/python*/site-packages")

    def lend(self, *names: str) -> None:
        """Links packages, and those that they need, from the environment of the pair."""
        for paths in json.loads(output(self.lender, "-c", FILES, *names)).values():
            for path in map(Path, paths):
                if not (self.packages / path.name).exists():
                    (self.packages / path.name).symlink_to(path)

    def run(self, *command: str | Path, code: int = 0, cwd: Path | None = None, show: bool = False) -> str:
        """Both streams of a command that has to end with `code`; no variable of ours is set, and no cache there."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KINTSUGI_")}
        environment |= {"XDG_CACHE_HOME": str(self.folder / "cache"), "NO_COLOR": "1", "COLUMNS": "120"}
        done = subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=environment,
            stdout=None if show else subprocess.PIPE,
            stderr=None if show else subprocess.STDOUT,
            text=True,
        )
        if done.returncode != code:
            words = " ".join(map(str, command))
            sys.exit(f"{done.stdout or ''}\nwheel_test: {self.pair}: {words} ended with {done.returncode}")
        return done.stdout or ""

    def first_result(self) -> str:
        """How long it took from the installation to the end of the README's program."""
        self.lend("torch")
        file = self.folder / "program.py"
        file.write_text(program())
        start, before = time.monotonic(), os.times()
        self.run(
            self.python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps",
            self.wheel,
        )  # fmt: skip
        text = self.run(self.python, file)
        seconds, after = time.monotonic() - start, os.times()
        spent = sum(after[2:4]) - sum(before[2:4])
        if "graph_count=" not in text:
            sys.exit(f"{text}\nwheel_test: {self.pair}: the README's program printed something else")
        if spent > PATIENCE:
            sys.exit(f"wheel_test: {self.pair}: {spent:.0f} s of processor time until the first result")
        return f"{seconds:.1f} s ({spent:.1f} s of processor time)"

    def check(self) -> None:
        """Without it, another torch than the pair's could have been tried."""
        self.lend("packaging")
        version, folder = self.run(self.python, "-c", CHECK).splitlines()[-1].split()
        minor = self.pair.split("-")[1]
        expected = self.packages / "kintsugi" / f"torch{minor.replace('.', '')}"
        if not version.startswith(f"{minor}.") or Path(folder) != expected:
            sys.exit(f"wheel_test: {self.pair}: torch {version} and {folder} were loaded")

    def command_without_extra(self) -> None:
        text = self.run(self.folder / "bin" / "kintsugi", "doctor", code=1)
        last = text.splitlines()[-1]  # torch may warn of its own before
        if not last.startswith("kintsugi: ") or "kintsugi-torch[cli]" not in last:
            sys.exit(f"{text}\nwheel_test: {self.pair}: the command does not name its extra")

    def doctor(self) -> None:
        self.lend(*re.findall(r"Requires-Dist: ([\w-]+).*; extra ==", self.metadata()))
        self.run(self.folder / "bin" / "kintsugi", "doctor")

    def metadata(self) -> str:
        (file,) = self.packages.glob("kintsugi_torch-*.dist-info/METADATA")
        return file.read_text()

    def smoke(self) -> None:
        subprocess.run(["make", "-s", "test-environment", f"PAIR={self.pair}"], cwd=ROOT, check=True)
        self.lend(*FOR_TESTS)
        files = [
            line
            for line in (ROOT / "tests" / "smoke.txt").read_text().split("\n")
            if line[:1] not in ("#", "")
        ]
        self.run(
            self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--isolate", *files,
            cwd=ROOT, show=True,
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--pairs", action="append", help="only these pairs")
    parser.add_argument("--quick", action="store_true", help="without the smoke tests")
    options = parser.parse_args()
    wheels = {path.name.split("-")[2]: path.resolve() for path in options.dist.glob("*.whl")}
    if not wheels:
        sys.exit(f"wheel_test: {options.dist} has no wheel: run make wheels")
    for pair in output(ROOT / "scripts" / "pair.sh", "list").splitlines():
        wheel = wheels.get(f"cp{pair.split('-')[0].replace('.', '')}")
        if wheel is None or (options.pairs and pair not in options.pairs):
            continue
        trial = Trial(wheel, pair)
        took = trial.first_result()
        trial.check()
        trial.command_without_extra()
        trial.doctor()
        print(f"{pair}: {wheel.name} installed, first result after {took}; doctor is content")
        if not options.quick:
            trial.smoke()


if __name__ == "__main__":
    main()
