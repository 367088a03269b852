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
OBJDUMP = shutil.which("objdump") or ""

pytestmark = pytest.mark.skipif(not OBJDUMP, reason="there is no objdump, which reads symbols")
# Of what a program can write. Constants in which the loader writes addresses are in .data.rel.ro.
WRITABLE = {".data", ".bss", ".tdata", ".tbss"}


def core() -> Path:
    """The library that the loader has found."""
    (path,) = {
        Path(line.split()[-1])
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "libkintsugi_core" in line
    }
    return path


def symbols(library: Path, table: str) -> Iterator[tuple[str, str]]:
    """The section and the name of what a library defines: `-t` for all there is, `-T` for what others can see."""
    done = subprocess.run([OBJDUMP, table, str(library)], check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        left, tab, right = line.partition("\t")
        section = left.split()[-1] if tab else "*UND*"
        if section != "*UND*":
            yield section, right.split()[-1]


def exported(library: Path) -> set[str]:
    return {name for _, name in symbols(library, "-T")}


def written(library: Path) -> set[str]:
    return {name for section, name in symbols(library, "-t") if section in WRITABLE}


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
    in_core, in_module = written(core()), written(MODULE)
    if not in_core:
        pytest.skip("this library is stripped")
    both = {name for name in in_core & in_module if "8kintsugi" in name and not name.startswith("DW.ref.")}
    assert both == set()
