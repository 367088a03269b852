"""Pins of requirements/: each has hashes, each pair has its torch, what installed packages ask for is pinned."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest
import script_loader
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

lock = script_loader.load("lock")

ROOT = Path(__file__).resolve().parents[2]
FILES = lock.files()
RELEASES = sorted(
    {
        line.split()[2]
        for line in (ROOT / "requirements/pairs.txt").read_text().splitlines()
        if line[:1] != "#"
    }
)


def with_included(path: Path) -> list[Path]:
    """A file, and those that it takes in."""
    found = re.findall(r"^-r (\S+)$", path.read_text(), re.MULTILINE)
    return [path, *(file for name in found for file in with_included(path.parent / name))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_pin_has_hashes(path: Path) -> None:
    pins = lock.pins(path)
    rest = [part for part in lock.parts(path.read_text()) if isinstance(part, str)]
    assert pins and all(re.fullmatch(r"(#.*|-r \w+\.txt)?", line) for line in rest), rest
    assert [pin.text for pin in pins if not pin.hashes] == []
    for pin in pins:
        (specifier,) = pin.requirement.specifier
        assert specifier.operator == "==" and "*" not in specifier.version
    assert len({pin.name for pin in pins}) == len(pins)


def test_files_agree_on_what_they_both_pin() -> None:
    known: dict[str, object] = {}
    for name in ("test", "demo", "docs"):
        for path in with_included(ROOT / "requirements" / f"{name}.txt"):
            for pin in lock.pins(path):
                assert known.setdefault(pin.name, pin) == pin, f"{path.name}: {pin.text}"


@pytest.mark.parametrize("release", RELEASES)
def test_each_pair_has_its_torch(release: str) -> None:
    (torch,) = lock.pins(ROOT / "requirements" / f"torch-{release}.txt")
    assert torch.text == f"torch=={release}"
    others = {pin.name for pin in lock.pins(ROOT / "requirements" / f"torch-{release}-cuda.txt")}
    assert "triton" in others and "torch" not in others
    built = {pin.name for pin in lock.pins(ROOT / "requirements" / "build.txt")}
    assert not others & built


def test_files_of_torch_are_those_of_pairs() -> None:
    named = {path.stem.split("-")[1] for path in FILES if path.stem.startswith("torch-")}
    assert named == set(RELEASES)


def test_what_is_installed_finds_its_requirements_pinned() -> None:
    """As pip resolves nothing: torch, and what tests need, ask only for what is pinned, in a version that fits."""
    pins = {
        pin.name: pin
        for name in ("test", "demo")
        for path in with_included(ROOT / "requirements" / f"{name}.txt")
        for pin in lock.pins(path)
    }
    release = importlib.metadata.version("torch").partition("+")[0]
    if (cuda := ROOT / "requirements" / f"torch-{release}-cuda.txt").exists():
        pins = {pin.name: pin for pin in lock.pins(cuda)} | pins
    wanted, done = [("torch", ""), *((name, "") for name in pins)], set()
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in done:
            continue
        done.add((name, extra))
        try:
            asked = importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue  # of a build with CUDA, or for another make target
        for needed in map(Requirement, asked):
            if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
                continue
            other = canonicalize_name(needed.name)
            if other != "torch":
                assert other in pins, f"{name} asks for {needed}, which is not pinned"
                assert pins[other].version in needed.specifier, (
                    f"{name} asks for {needed}: {pins[other].text}"
                )
            wanted += [(other, each) for each in ("", *needed.extras)]


def test_pip_is_called_with_hashes() -> None:
    """Where requirement files are installed."""
    for name in ("Makefile", "scripts/setup.sh", "scripts/wheels.py"):
        text = (ROOT / name).read_text().replace("\\\n", " ")
        calls = [line for line in text.splitlines() if re.search(r"-m pip (install|download)", line)]
        assert calls or name == "scripts/wheels.py"
        for line in calls:
            assert "--require-hashes" in line or line.rstrip().endswith("-e ."), line


def test_wheels_of_other_machines_are_left_out() -> None:
    python = (3, 11)
    known = lock.tags(python, "x86_64")
    fits = [
        name
        for name in (
            "a-1-py3-none-any.whl",
            "a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
            "a-1-cp39-abi3-manylinux_2_28_x86_64.whl",
            "a-1-cp312-cp312-manylinux_2_28_x86_64.whl",
            "a-1-cp311-cp311-manylinux_2_28_aarch64.whl",
            "a-1-cp311-cp311-musllinux_1_2_x86_64.whl",
            "a-1-cp313-cp313t-manylinux_2_28_x86_64.whl",
            "a-1-cp311-cp311-win_amd64.whl",
        )
        if known & lock.wheel_tags(name)
    ]
    assert len(fits) == 3 and not any(part in "".join(fits) for part in ("cp312", "aarch64", "musl", "win"))


def test_a_pin_is_written_as_it_is_read() -> None:
    text = "# one\n-r other.txt\n\nname==1.2 \\\n    --hash=sha256:" + "a" * 64 + "\nother==1\n"
    parts = list(lock.parts(text))
    assert "".join(f"{part}\n" for part in parts) == text
    first, second = (part for part in parts if not isinstance(part, str))
    assert (first.name, first.version, first.hashes) == ("name", "1.2", ("sha256:" + "a" * 64,))
    assert (second.text, second.hashes) == ("other==1", ())
