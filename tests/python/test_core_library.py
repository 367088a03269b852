"""libkintsugi_core.so: what it exports; it shares no state with the module (docs/adr/0018-the-core-is-a-library.md)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import SANITIZER

from kintsugi import _C

ROOT = Path(__file__).resolve().parents[2]
MODULE = Path(_C.__file__)
NM = shutil.which("nm") or ""

pytestmark = pytest.mark.skipif(not NM, reason="there is no nm, which reads symbols")
# Letters of nm for what a program can write: data, zeros, and objects that several files define.
WRITABLE = set("bBdDuVv")


def core() -> Path:
    """The library that the loader has found."""
    (path,) = {
        Path(line.split()[-1])
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "libkintsugi_core" in line
    }
    return path


def symbols(library: Path, *options: str) -> Iterator[tuple[str, str]]:
    done = subprocess.run([NM, *options, str(library)], check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        *_, kind, name = line.split()
        yield kind, name.split("@")[0]


def exported(library: Path) -> set[str]:
    return {name for _, name in symbols(library, "-D", "--defined-only")}


def test_the_core_exports_our_names_only() -> None:
    names = exported(core())
    assert len(names) > 100
    assert [name for name in names if "8kintsugi" not in name] == []


@pytest.mark.skipif(SANITIZER, reason="sanitizers export names of their own")
def test_a_module_exports_nothing_but_its_start() -> None:
    modules = [MODULE, *sorted(Path(_C.__spec__.origin or "").parent.parent.glob("_kb*.so"))]
    for module in modules:
        assert [name for name in exported(module) if not name.startswith("PyInit_")] == [], module


def test_no_state_is_in_both() -> None:
    """An inline variable or a static of an inline function would be two: one in the core, one in the module."""
    in_core = {name for kind, name in symbols(core(), "--defined-only") if kind in WRITABLE}
    if not in_core:
        pytest.skip("this library is stripped")
    in_module = {name for kind, name in symbols(MODULE, "--defined-only") if kind in WRITABLE}
    # Tables of classes and of handlers of exceptions: the loader writes addresses there, and nobody else.
    constant = ("_ZTV", "_ZTI", "_ZTS", "_ZTT", "_ZTC", "DW.ref.")
    both = {name for name in in_core & in_module if "8kintsugi" in name and not name.startswith(constant)}
    assert both == set()
