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
from types import FunctionType, ModuleType

ROOT = Path(__file__).resolve().parent.parent
# What is public of the private modules is a name of the package.
MODULES = ("kintsugi", "kintsugi.torchdynamo", "kintsugi.pytest_plugin")


def documented(value: object) -> bool:
    """True for what has a docstring of its own; a class would give its base's otherwise."""
    text = vars(value).get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
    return bool(text and text.strip())


def methods(cls: type) -> Iterator[tuple[str, FunctionType, bool]]:
    """Public methods and properties in the class; the last says whether they are its own or only forwarded."""
    for name, entry in vars(cls).items():
        function = getattr(entry, "__func__", getattr(entry, "fget", entry))
        if inspect.isfunction(function) and not name.startswith("_"):
            yield name, function, function.__qualname__ == f"{cls.__qualname__}.{name}"


def undocumented(package: ModuleType) -> list[str]:
    """Public names of the package, and methods of its public classes, that have no docstring."""
    found = []
    for name in package.__all__:
        value = getattr(package, name)
        if not documented(value):
            found.append(name)
        if inspect.isclass(value):
            found += [f"{name}.{method}" for method, f, own in methods(value) if own and not documented(f)]
    return found


def prepare(package: ModuleType) -> None:
    """Puts into the module's dict, where pdoc looks, what is imported when it is used first, and the settings' class.

    What a class forwards to torch is left out: it is documented there. So are the present values of the settings, which
    depend on who runs this.
    """
    for name in package.__all__:
        value = getattr(package, name)
        setattr(package, name, value)
        if inspect.isclass(value):
            for method in [method for method, _, own in methods(value) if not own]:
                delattr(value, method)
    package.Config = type(package.config)
    package.Config.__repr__ = lambda _: "..."
    package.__all__ = [*package.__all__, "Config"]


def write(folder: Path) -> list[str]:
    """Writes the pages; what is wrong with the docstrings."""
    import pdoc
    import pdoc.render

    import kintsugi

    problems = [f"{name} has no docstring" for name in undocumented(kintsugi)]
    prepare(kintsugi)
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
