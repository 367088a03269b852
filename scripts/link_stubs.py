"""Libraries to link with that stop at the versions of symbols that a manylinux policy permits.

    link_stubs.py POLICY FOLDER        (POLICY as manylinux_2_28, FOLDER is written)

A linker binds to the newest version of a symbol that the machine's library has, so what is built on a new system does
not load on an old one. The stubs have the machine's symbols, but only in versions that the policy has, and no code:
`-L FOLDER` makes the linker bind to these. What is newer altogether is then undefined. For the C library,
csrc/manylinux/ stands in; for C++'s, its archive, whose members are linked and hidden.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile

# What g++ calls a library, and the name that is recorded of it.
LIBRARIES = {
    "c": "libc.so.6",
    "m": "libm.so.6",
    "stdc++": "libstdc++.so.6",
    "gcc_s": "libgcc_s.so.1",
}
LOADER = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
SECTIONS = {"STT_FUNC": ".text", "STT_LOOS": ".text", "STT_NOTYPE": ".text", "STT_TLS": ".tbss"}
HIDDEN = 0x8000  # of a version's index
TYPES = {".text": "@function", ".tbss": "@tls_object", ".data": "@object"}


class Symbol(NamedTuple):
    name: str
    version: str
    section: str
    size: int
    linked: bool  # a linker may bind to it; false for what is kept for programs that were linked long ago


def permitted(policy: str, machine: str) -> dict[str, set[str]]:
    """GLIBC, GLIBCXX, ...: the versions that the policy has, as auditwheel knows it."""
    text = files("auditwheel").joinpath("policy/manylinux-policy.json").read_text()
    rows = [row for row in json.loads(text) if row["name"] == policy]
    if not rows:
        sys.exit(f"link_stubs: auditwheel has no policy {policy}")
    return {prefix: set(versions) for prefix, versions in rows[0]["symbol_versions"][machine].items()}


def as_numbers(version: str) -> tuple[int, ...]:
    number = version.partition("_")[2]
    return tuple(int(part) for part in number.split(".")) if number.replace(".", "").isdigit() else ()


def symbols(library: Path) -> Iterator[Symbol]:
    """What a library defines, each version of it."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        names = {}
        for definition, auxiliary in elf.get_section_by_name(".gnu.version_d").iter_versions():
            names[definition["vd_ndx"]] = next(auxiliary).name
        versions = elf.get_section_by_name(".gnu.version")
        for number, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            index = versions.get_symbol(number)["ndx"]
            kind = symbol["st_info"]["type"]
            if symbol["st_shndx"] in ("SHN_UNDEF", "SHN_ABS") or not isinstance(index, int):
                continue
            section, linked = SECTIONS.get(kind, ".data"), index & HIDDEN == 0
            yield Symbol(symbol.name, names[index & ~HIDDEN], section, symbol["st_size"], linked)


def newest(found: Iterator[Symbol], limits: dict[str, set[str]]) -> list[Symbol]:
    """Of each symbol the newest version that is permitted. It is linked to if any version of the symbol is."""
    chosen: dict[str, Symbol] = {}
    linked = set()
    for symbol in found:
        if symbol.linked:
            linked.add(symbol.name)
        prefix, _, number = symbol.version.partition("_")
        if number not in limits.get(prefix, ()):
            continue
        known = chosen.get(symbol.name)
        if known is None or as_numbers(known.version) < as_numbers(symbol.version):
            chosen[symbol.name] = symbol
    return sorted(symbol._replace(linked=symbol.name in linked) for symbol in chosen.values())


def assembly(chosen: list[Symbol]) -> str:
    lines = [
        '.section .text,"ax",@progbits',
        '.section .data,"aw",@progbits',
        '.section .tbss,"awT",@nobits',
    ]
    for number, symbol in enumerate(chosen):
        kind, size = TYPES[symbol.section], max(symbol.size, 1) if symbol.section != ".text" else 1
        name = symbol.name if symbol.linked else f"kept_{number}"
        lines += [
            symbol.section if symbol.section != ".tbss" else '.section .tbss,"awT",@nobits',
            f".globl {name}",
            f".type {name}, {kind}",
            f".size {name}, {size}",
            f"{name}: .zero {size}",
        ]
        if not symbol.linked:
            lines.append(f".symver {name}, {symbol.name}@{symbol.version}, remove")
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""])


def version_script(chosen: list[Symbol]) -> str:
    nodes: dict[str, list[str]] = {}
    for symbol in chosen:
        names = nodes.setdefault(symbol.version, [])
        if symbol.linked:
            names.append(symbol.name)
    listed = {version: "".join(f"{name}; " for name in names) for version, names in nodes.items()}
    return "".join(
        f"{version} {{ {'global: ' + names if names else ''}}};\n"
        for version, names in sorted(listed.items())
    )


def compiler(*arguments: str) -> str:
    done = subprocess.run(["c++", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def write_stub(soname: str, limits: dict[str, set[str]], folder: Path) -> Path:
    chosen = newest(symbols(Path(compiler(f"-print-file-name={soname}"))), limits)
    source, script, stub = (folder / f"{soname}{suffix}" for suffix in (".s", ".map", ""))
    source.write_text(assembly(chosen))
    script.write_text(version_script(chosen))
    compiler(
        "-shared", "-nostdlib", f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}",
        str(source), "-o", str(stub),
    )  # fmt: skip
    source.unlink()
    script.unlink()
    return stub


def main() -> None:
    policy, folder = sys.argv[1], Path(sys.argv[2])
    machine = platform.machine()
    limits = permitted(policy, machine)
    folder.mkdir(parents=True, exist_ok=True)
    loader = write_stub(LOADER[machine], limits, folder)
    for name, soname in LIBRARIES.items():
        stub = write_stub(soname, limits, folder)
        # As the machine's own: some functions are in an archive beside the library.
        beside = {
            "c": f"{compiler('-print-file-name=libc_nonshared.a')} AS_NEEDED({loader})",
            "gcc_s": "-lgcc",
        }
        (folder / f"lib{name}.so").write_text(f"GROUP({stub} {beside.get(name, '')})\n")


if __name__ == "__main__":
    main()
