"""licenses/: what is linked or compiled into the core and the modules has a row and the text of its licence."""

from __future__ import annotations

import fnmatch
import re
import struct
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import SANITIZER

import kintsugi
from kintsugi import _C

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "licenses"
LIBRARIES = tomllib.loads((FOLDER / "third_party.toml").read_text())["library"]
# The core is where the loader has found it: in a build tree, or beside the package of a wheel.
CORE = {
    Path(line.split()[-1])
    for line in Path("/proc/self/maps").read_text().splitlines()
    if "libkintsugi_core" in line
}
MODULES = [Path(_C.__file__), *sorted(Path(kintsugi.__file__).parent.glob("_*.so")), *sorted(CORE)]
OURS = {"kintsugi_core"}
BUILDS = sorted((ROOT / "build").glob("*/build.ninja")) + sorted(
    (ROOT / "build" / "wheels").glob("*/build.ninja")
)
WRITTEN_BY_CMAKE = {"kintsugi_torch_features.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def patterns(field: str) -> list[str]:
    return [pattern for library in LIBRARIES for pattern in library[field]]


def unclaimed(names: set[str], field: str) -> list[str]:
    """Names that no row of third_party.toml speaks of."""
    return sorted(n for n in names if not any(fnmatch.fnmatchcase(n, p) for p in patterns(field)))


def link_name(text: str) -> str:
    """What `-lz`, `-l:libz.a`, `libz.so.1` and `/somewhere/libz.a` have in common."""
    file = text.removeprefix("-l:")
    name = file.removeprefix("-l") if file.startswith("-l") else Path(file).name.removeprefix("lib")
    return re.sub(r"\.(a|so)\b.*$", "", name)


def needed(module: Path) -> Iterator[str]:
    """DT_NEEDED of an ELF file of 64 bits: the shared libraries that are loaded with it."""
    data = module.read_bytes()
    assert data[:5] == b"\x7fELF\x02"
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    # kind, offset, length, number of the section that has the names
    sections = [struct.unpack_from("<4xI16xQQI", data, table + i * size) for i in range(count)]
    for kind, offset, length, strings in sections:
        if kind == 6:  # SHT_DYNAMIC
            for tag, value in struct.iter_unpack("<QQ", data[offset : offset + length]):
                if tag == 1:  # DT_NEEDED
                    start = sections[strings][1] + value
                    yield data[start : data.index(b"\0", start)].decode()


def linked(build: Path) -> set[str]:
    """What the linker was given for the core and the modules, by the build file that CMake wrote."""
    found: set[str] = set()
    for block in build.read_text().split("\n\n"):
        if re.search(
            r"^build \S*(_(C|kb)|_core)\.\S*: CXX_(MODULE|SHARED)_LIBRARY_LINKER", block, re.MULTILINE
        ):
            line = re.search(r"^\s*LINK_LIBRARIES = (.*)$", block, re.MULTILINE)
            assert line is not None
            words = [word for word in line.group(1).split() if not word.startswith("-Wl,")]
            found |= {link_name(word) for word in words if not word.endswith(".o")}
    return found - OURS


def included() -> set[str]:
    """Headers from outside that our sources name; those without a folder and a suffix are of C++ itself."""
    csrc = ROOT / "csrc"
    names = {
        name
        for path in csrc.rglob("*")
        if path.suffix in (".cc", ".h", ".def", ".inc")
        for name in INCLUDE.findall(path.read_text())
        if not (csrc / name).exists()
    }
    names -= WRITTEN_BY_CMAKE
    return {name if "/" in name or name.endswith(".h") else "<C++>" for name in names}


def test_each_library_has_a_licence_and_each_licence_a_library() -> None:
    for library in LIBRARIES:
        assert library["license"] and library["use"] and library["from"], library
        assert len((FOLDER / library["text"]).read_text()) > 500, library
    texts = {path.name for path in FOLDER.iterdir()} - {"third_party.toml"}
    assert texts == {library["text"] for library in LIBRARIES}


def test_an_unknown_library_is_found() -> None:
    names = {
        link_name(text)
        for text in (
            "-lLLVMCore",
            "libz.so.1",
            "-l:libzstd.a",
            "/x/libtorch_cpu.so",
            "libfmt.a",
            "-labsl_base",
        )
    }
    assert unclaimed(names, "links") == ["absl_base", "fmt"]
    assert unclaimed({"tsl/robin_map.h", "fmt/core.h"}, "headers") == ["fmt/core.h"]


def test_every_header_from_outside_has_a_licence() -> None:
    names = included()
    assert {"nanobind/nanobind.h", "tsl/robin_map.h"} <= names
    assert unclaimed(names, "headers") == []


@pytest.mark.skipif(SANITIZER, reason="a build that is not given away")
def test_every_shared_library_has_a_licence() -> None:
    assert len(CORE) == 1
    names = {link_name(name) for module in MODULES for name in needed(module)} - OURS
    assert {"torch_cpu", "c"} <= names
    assert unclaimed(names, "links") == []


def test_everything_the_linker_was_given_has_a_licence() -> None:
    names = {name for build in BUILDS for name in linked(build)}
    if not names:
        pytest.skip("the extension was not built by make build")
    assert "nanobind-static" in names and "LLVMCore" in names
    assert unclaimed(names, "links") == []


def test_licences_are_packaged() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packaged = {path for pattern in project["license-files"] for path in ROOT.glob(pattern)}
    assert packaged == {ROOT / "LICENSE", *FOLDER.iterdir()}
