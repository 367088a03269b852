"""Which torch a module of ours was built with, and whether another release of that minor version is laid out alike.

    python _built_with.py TORCH_FOLDER FILE      (cmake/Torch.cmake: writes FILE, which lies beside the module)

libtorch promises no stable ABI. Between minor versions its structures do change, so each has a module of its own.
Within one they hardly ever do, and what tells is the headers: our module has their layouts and inline functions
compiled in. Another release than the one that it was built with is taken if the headers are the same, byte for byte.
(Symbols are bound when the module is loaded, so a function that is missing shows there.)
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import NamedTuple

# Folders below include/ that have what csrc/torchapi/ is compiled with. Not those whose files differ between builds of
# one release (ATen/ itself lists the kernels of the devices), nor the header that has the release's number.
FOLDERS = ("ATen/core", "c10/core", "c10/util", "torch/csrc", "torch/headeronly")
NUMBER = "torch/headeronly/version.h"


class BuiltWith(NamedTuple):
    release: str  # as "2.14.1"
    headers: str  # the digest


def release_of(version: str) -> str:
    """The version without its local part: builds for a CPU and for CUDA have the same structures."""
    return version.partition("+")[0]


def minor_of(version: str) -> str:
    """As "2.14"."""
    return ".".join(version.split(".")[:2])


def headers_of(torch_folder: Path) -> str:
    """A digest of the headers of an installed torch; "" where it came without them."""
    root = torch_folder / "include"
    found = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.h"))
    digest = hashlib.sha256()
    for path in found:
        name = path.relative_to(root).as_posix()
        if name != NUMBER:
            digest.update(f"{name}\n".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest() if found else ""


def beside(module: Path) -> Path:
    """The file that this script wrote for a module."""
    return module.with_name(module.name.removesuffix(".so") + ".json")


def read(path: Path) -> BuiltWith:
    return BuiltWith(**json.loads(path.read_text()))


def installed(torch_folder: Path) -> BuiltWith:
    values: dict[str, object] = {}
    exec((torch_folder / "version.py").read_text(), values)
    return BuiltWith(release_of(str(values["__version__"])), headers_of(torch_folder))


if __name__ == "__main__":
    target = Path(sys.argv[2])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(installed(Path(sys.argv[1]))._asdict(), indent=2) + "\n")
