"""The file of a package: how it is written, and what is believed of one that is read.

    kintsugi-package 1
    <SHA-256 of the rest, in hex>
    <JSON>

A file is written under another name and then renamed, with mode 0600, so that nobody reads half of one. A checksum is
no signature: whoever may write the file decides what is in it. So a file that another user owns, or may write, is not
read. And what is read is not executed: it is text, numbers and names, which the core verifies
(csrc/driver/package_data.h).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import mmap
import os
import platform
import secrets
import stat
import struct
import sys
from pathlib import Path
from typing import Any

import torch

from . import _C, _requirements

MAGIC = b"kintsugi-package 1\n"
MOST_BYTES = 1 << 30


class BadPackage(Exception):
    """Why a file, or some bytes, are no package that can be used. One sentence without its end."""


# -- What a package depends on


def _build_id(file: Path) -> str:
    """The build id of an ELF file, or the digest of all of it where it has none."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return _note_of(content) or hashlib.sha256(content).hexdigest()


def _note_of(content: mmap.mmap) -> str:
    with contextlib.suppress(struct.error, IndexError):
        offset, size, count = (
            struct.unpack_from("<Q", content, 32)[0],
            *struct.unpack_from("<HH", content, 54),
        )
        for i in range(count):
            kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", content, offset + i * size)
            at, end = start, start + length
            while kind == 4 and at + 12 <= end:  # PT_NOTE
                name, words, note = struct.unpack_from("<III", content, at)
                begin = at + 12 + (name + 3) // 4 * 4
                if note == 3 and content[at + 12 : at + 16] == b"GNU\0":  # NT_GNU_BUILD_ID
                    return content[begin : begin + words].hex()
                at = begin + (words + 3) // 4 * 4
    return ""


def _core_files() -> list[Path]:
    """The library of the core, wherever this process has it from."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if "libkintsugi_core" in line}
    return [Path(path) for path in sorted(paths)]


@functools.cache
def _own_build() -> str:
    """Which build of Kintsugi this is: traces are written and read by the same one."""
    digest = hashlib.sha256()
    for file in (Path(_C.__file__), *_core_files()):
        digest.update(_build_id(file).encode())
    for file in sorted(Path(__file__).parent.glob("_polyfill*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:32]


def versions() -> dict[str, Any]:
    """All of these have to be what they were: operators, bytecode and kernels follow from them."""
    return {
        "kintsugi": _requirements.VERSION,
        "build of kintsugi": _own_build(),
        "torch": torch.__version__,
        "build of torch": str(torch.version.git_version),
        "Python": platform.python_implementation() + " " + sys.version,
        "flags of Python": [sys.flags.optimize, sys.flags.utf8_mode, sys.flags.dev_mode],
        "machine": f"{platform.system()} {platform.machine()}",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "devices": torch.cuda.device_count() if torch.cuda.is_available() else 0,
    }


def check_versions(found: Any) -> None:
    """Raises BadPackage where one differs."""
    if not isinstance(found, dict):
        raise BadPackage("it does not say for which versions it is")
    for name, value in versions().items():
        if found.get(name) != value:
            raise BadPackage(f"it is for another version: {name} is {value} here, and was {found.get(name)}")


# -- Bytes


def encode(callables: list[dict[str, Any]]) -> bytes:
    """A package of these callables, as bytes."""
    body = json.dumps(
        {"versions": versions(), "callables": callables}, ensure_ascii=True, allow_nan=False
    ).encode()
    return MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def decode(content: bytes) -> list[dict[str, Any]]:
    """The callables of a package. Raises BadPackage."""
    checksum = MAGIC + b"0" * 64 + b"\n"
    if not content.startswith(MAGIC) or len(content) < len(checksum):
        raise BadPackage("it is no package of Kintsugi, or one of another format")
    body = content[len(checksum) :]
    if hashlib.sha256(body).hexdigest().encode() != content[len(MAGIC) : len(checksum) - 1]:
        raise BadPackage("its checksum is wrong: it is damaged or was changed")
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        raise BadPackage("it is no JSON") from None
    if not isinstance(read, dict):
        raise BadPackage("it holds something else")
    check_versions(read.get("versions"))
    callables = read.get("callables")
    if not isinstance(callables, list) or not all(isinstance(each, dict) for each in callables):
        raise BadPackage("it holds no callables")
    return callables


# -- Files


def write(path: Path, content: bytes) -> None:
    """All of it or nothing; only for the user. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def read(path: Path) -> bytes:
    """Raises BadPackage, and FileNotFoundError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadPackage(f"it can't be read: {error.strerror}") from None
    info = os.fstat(handle)
    reason = _why_not(info)
    if reason:
        os.close(handle)
        raise BadPackage(reason)
    with os.fdopen(handle, "rb") as file:
        try:
            return file.read(MOST_BYTES)
        except OSError as error:
            raise BadPackage(f"it can't be read: {error.strerror}") from None


def _why_not(info: os.stat_result) -> str:
    """Why a file is not read; "" where it may be."""
    if not stat.S_ISREG(info.st_mode):
        return "it is no file"
    if info.st_uid != os.geteuid():
        return "it belongs to another user"
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write it"
    return "it is too large" if info.st_size > MOST_BYTES else ""
