"""Writes the API reference from the docstrings: `api_reference.py [FOLDER]`, without one to build/docs.

A warning of pdoc is an error, and so is a public name without a docstring. The package is imported, so its extension
module has to be built.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
# What is public of the private modules is a name of the package.
MODULES = ("kintsugi", "kintsugi.torchdynamo", "kintsugi.pytest_plugin")


def documented(value: object) -> bool:
    """True for what has a docstring of its own; a class would give its base's otherwise."""
    text = vars(value).get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
    return bool(text and text.strip())


def methods(cls: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties that the class itself defines; what it forwards is documented elsewhere."""
    for name, entry in vars(cls).items():
        function = getattr(entry, "__func__", getattr(entry, "fget", entry))
        own = inspect.isfunction(function) and function.__qualname__ == f"{cls.__qualname__}.{name}"
        if own and not name.startswith("_"):
            yield name, function


def undocumented(package: ModuleType) -> list[str]:
    """Public names of the package, and methods of its public classes, that have no docstring."""
    found = []
    for name in package.__all__:
        value = getattr(package, name)
        if not documented(value):
            found.append(name)
        if inspect.isclass(value):
            found += [f"{name}.{method}" for method, function in methods(value) if not documented(function)]
    return found


def make_visible(package: ModuleType) -> None:
    """pdoc reads a module's dict: puts there what is imported when it is used first, and the class of the settings."""
    for name in package.__all__:
        setattr(package, name, getattr(package, name))
    package.Config = type(package.config)
    package.__all__ = [*package.__all__, "Config"]


def write(folder: Path) -> list[str]:
    """Writes the pages; what is wrong with the docstrings."""
    import pdoc
    import pdoc.render

    import kintsugi

    problems = [f"{name} has no docstring" for name in undocumented(kintsugi)]
    make_visible(kintsugi)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdoc.render.configure(docformat="markdown", show_source=False)
        pdoc.pdoc(*MODULES, output_directory=folder)
    return problems + [str(warning.message) for warning in caught]


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "docs"
    problems = write(folder)
    print("\n".join(problems) if problems else f"api_reference: {folder / 'index.html'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
