"""Writes hashes to the pins of requirement files: `lock.py [--wheels FOLDER] [FILE ...]`, without FILE all of them.

    .venv/bin/python scripts/lock.py requirements/build.txt         # after an edit of its pins
    .venv/bin/python scripts/lock.py --torch 2.15.0                 # new files for a release of torch

The hashes are those of all wheels that a pair of requirements/pairs.txt can take, on x86_64 and aarch64, and of the
source package where a pair has no wheel. uv asks the index (`pip install uv`, in an environment of its own); set
UV to its path if it is not on the PATH. `--wheels`: a folder with wheels that the index lacks, as torch's
build for the processor alone, which torch's own index has; pins with a `+` have hashes of such wheels alone, and keep
them where there is no `--wheels`.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
MACHINES = ("x86_64", "aarch64")
# Files that a source package is taken from, whatever wheels there are.
SOURCES = ("sources.txt", "wheel_sources.txt")
NO_PINS = ("pairs.txt",)
PIN = re.compile(r"^[A-Za-z0-9][^#\s]*==")
HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


@dataclasses.dataclass(frozen=True)
class Pin:
    """`name==1.2 ; marker`, and its hashes."""

    text: str
    hashes: tuple[str, ...] = ()

    @property
    def requirement(self) -> Requirement:
        return Requirement(self.text)

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        (specifier,) = self.requirement.specifier
        return specifier.version

    def __str__(self) -> str:
        return " \\\n".join([self.text, *(f"    --hash={each}" for each in self.hashes)])


def parts(text: str) -> Iterator[Pin | str]:
    """Pins of a requirement file, and its other lines as they are."""
    for line in text.replace("\\\n", " ").splitlines():
        if PIN.match(line):
            yield Pin(line.split("--hash")[0].split(" #")[0].strip(), tuple(HASH.findall(line)))
        else:
            yield line


def pins(path: Path) -> list[Pin]:
    """Those of the file itself, not of the files that it takes in."""
    return [part for part in parts(path.read_text()) if isinstance(part, Pin)]


def files() -> list[Path]:
    return sorted(path for path in FOLDER.glob("*.txt") if path.name not in NO_PINS)


def pythons() -> list[tuple[int, int]]:
    rows = [line.split() for line in (FOLDER / "pairs.txt").read_text().splitlines() if line[:1] != "#"]
    return sorted({(int(major), int(minor)) for major, minor in (row[0].split(".") for row in rows)})


def tags(python: tuple[int, int], machine: str) -> frozenset[Tag]:
    """What pip of that Python takes, on a Linux with glibc."""
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(5, 60)]
    platforms += [f"{old}_{machine}" for old in ("manylinux1", "manylinux2010", "manylinux2014", "linux")]
    interpreter = "cp{}{}".format(*python)
    return frozenset(cpython_tags(python, platforms=platforms)) | frozenset(
        compatible_tags(python, interpreter, platforms)
    )


def wheel_tags(filename: str) -> frozenset[Tag]:
    try:
        return parse_wheel_filename(filename)[3]
    except InvalidWheelFilename:
        return frozenset()


def chosen(package: dict[str, Any], source: bool) -> list[str]:
    """The hashes of a package of uv's answer that a pair can take."""
    wheels = {each["url"].rsplit("/", 1)[1]: each["hashes"]["sha256"] for each in package.get("wheels", ())}
    found: set[str] = set()
    lacking = source
    for python in pythons():
        for machine in MACHINES:
            known = tags(python, machine)
            fitting = {digest for name, digest in wheels.items() if known & wheel_tags(name)}
            lacking |= not fitting and machine == MACHINES[0]
            found |= fitting
    archive = package.get("sdist")
    if lacking and archive:
        found = {archive["hashes"]["sha256"]} if source else found | {archive["hashes"]["sha256"]}
    return sorted(f"sha256:{digest}" for digest in found)


def ask(lines: Iterable[str], *options: str) -> list[dict[str, Any]]:
    """What uv answers for requirements: packages with their files."""
    uv = os.environ.get("UV", "uv")
    with tempfile.TemporaryDirectory() as work:
        wanted, answer = Path(work, "wanted.txt"), Path(work, "pylock.toml")
        wanted.write_text("".join(f"{line}\n" for line in lines))
        first = ".".join(map(str, pythons()[0]))
        command = [uv, "pip", "compile", "-q", "--universal", "--python-version", first, *options, "--format"]
        subprocess.run([*command, "pylock.toml", "-o", answer, wanted], check=True, stdout=subprocess.DEVNULL)
        packages: list[dict[str, Any]] = tomllib.loads(answer.read_text())["packages"]
        return packages


def local(pin: Pin, folder: Path | None) -> Pin:
    """A pin with a `+`, with the hashes of the folder's wheels, or with those that it has."""
    if folder is None:
        return pin
    wheels = [
        path
        for path in folder.glob("*.whl")
        if parse_wheel_filename(path.name)[:2] == (pin.name, Version(pin.version))
    ]
    hashes = sorted("sha256:" + hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels)
    return dataclasses.replace(pin, hashes=tuple(hashes) or pin.hashes)


def lock(path: Path, folder: Path | None) -> None:
    """Writes the file anew."""
    asked = [pin.text for pin in pins(path) if "+" not in pin.version]
    answer = {package["name"]: package for package in (ask(asked, "--no-deps") if asked else ())}
    lines = []
    for part in parts(path.read_text()):
        if isinstance(part, Pin):
            if "+" in part.version:
                part = local(part, folder)
            else:
                part = dataclasses.replace(
                    part, hashes=tuple(chosen(answer[part.name], path.name in SOURCES))
                )
            if not part.hashes:
                sys.exit(f"{path.name}: no pair can take {part.text}")
        lines.append(f"{part}\n")
    path.write_text("".join(lines))


def torch_files(release: str) -> list[Path]:
    """Writes the pins of a release of torch: itself, and what its build with CUDA asks for beside build.txt."""
    known = [*pins(FOLDER / "build.txt"), *pins(FOLDER / "tools.txt")]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("".join(f"{pin.text}\n" for pin in known))
        constraints.flush()
        packages = ask([f"torch=={release}"], "-c", constraints.name)
    others = [each for each in packages if each["name"] not in {"torch", *(pin.name for pin in known)}]
    alone, cuda = FOLDER / f"torch-{release}.txt", FOLDER / f"torch-{release}-cuda.txt"
    alone.write_text(f"# Torch itself, the build that the index has.\ntorch=={release}\n")
    cuda.write_text(
        f"# What torch {release} asks for beside build.txt where it is a build with CUDA.\n"
        + "".join(f"{each['name']}=={each['version']}\n" for each in others)
    )
    return [alone, cuda]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lock.py", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--torch", help="write the files of this release of torch anew")
    parser.add_argument("--wheels", type=Path, help="a folder whose wheels may be taken too")
    options = parser.parse_args(arguments)
    for path in torch_files(options.torch) if options.torch else options.files or files():
        lock(path, options.wheels)
    return 0


if __name__ == "__main__":
    sys.exit(main())
