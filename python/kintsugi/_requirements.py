"""What this build of Kintsugi runs on. Checked at import, before the extension module is loaded."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from . import _built_with

VERSION = "0.1.0"
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))

# torch213/_C.cpython-311-x86_64-linux-gnu.so: a folder for each minor version of torch, named without the point, and in
# it a module for each version of CPython.
FOLDERS = "torch[0-9]*"


def check(search: Iterable[str]) -> Path:
    """The file of the extension module for this Python and this torch, of those below the folders `search`.

    Raises ImportError with one sentence when there is none.
    """
    name = platform.python_implementation()
    if name != "CPython" or sys.version_info[:2] not in PYTHONS:
        wanted = " or ".join(".".join(map(str, version)) for version in PYTHONS)
        found = ".".join(map(str, sys.version_info[:2]))
        raise ImportError(f"kintsugi {VERSION} needs CPython {wanted}, and this is {name} {found}.")
    if "t" in sys.abiflags:
        raise ImportError(
            f"kintsugi {VERSION} needs a CPython with the global interpreter lock, and this is a free-threaded build."
        )
    modules = _modules(search)
    if not modules:
        raise ImportError(f"kintsugi {VERSION} has no extension module for this Python: run make build.")
    listed = " or ".join(sorted(modules, key=_as_numbers))
    newest = max(modules, key=_as_numbers)
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"kintsugi {VERSION} needs torch {listed}, which is not installed: pip install torch=={newest}.*"
        ) from None
    module = modules.get(_built_with.minor_of(torch.__version__))
    if module is None:
        raise ImportError(
            f"kintsugi {VERSION} needs torch {listed}, and torch {torch.__version__} is installed: "
            f"pip install torch=={newest}.*"
        )
    _check_release(module, torch.__version__, Path(torch.__file__).parent)
    return module


def _check_release(module: Path, version: str, torch_folder: Path) -> None:
    built = _built_with.read(_built_with.beside(module))
    if _built_with.release_of(version) == built.release:
        return
    headers = _built_with.headers_of(torch_folder)
    if not headers or headers != built.headers:
        raise ImportError(
            f"kintsugi {VERSION} was built with torch {built.release}, and the headers of torch {version}, which is "
            f"installed, {'differ' if headers else 'are missing'}: pip install torch=={built.release}"
        )


def _modules(search: Iterable[str]) -> dict[str, Path]:
    """The modules for this Python, by torch's minor version. The first folder that has one wins."""
    found: dict[str, Path] = {}
    for module in _candidates(search):
        digits = module.parent.name.removeprefix("torch")
        found.setdefault(f"{digits[0]}.{digits[1:]}", module)
    return found


def _candidates(search: Iterable[str]) -> Iterator[Path]:
    for folder in search:
        for pair in sorted(Path(folder).glob(FOLDERS)):
            for suffix in importlib.machinery.EXTENSION_SUFFIXES:
                module = pair / f"_C{suffix}"
                if module.exists() and pair.name.removeprefix("torch").isdigit():
                    yield module


def _as_numbers(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))


def load(package: ModuleType) -> None:
    """Makes the module of this pair `kintsugi._C`, whatever folder it lies in: names and pickles know no other."""
    path = check(package.__path__)
    name = f"{package.__name__}._C"
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    package._C = module  # type: ignore[attr-defined]
