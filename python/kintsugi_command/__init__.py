"""The console script. Outside the package `kintsugi`, whose import is torch's: what reads logs has no need of it."""

from __future__ import annotations

import importlib.util
import os
import sys

WITHOUT_TORCH = ("match", "show", "list", "graph")
"""Commands of `kintsugi kb` that run no program."""


def use_bare_package() -> None:
    """Makes `kintsugi`, for this process, a package whose own code has not run: modules are imported one by one."""
    spec = importlib.util.find_spec("kintsugi")
    if spec is None:
        raise ModuleNotFoundError("No module named 'kintsugi'", name="kintsugi")
    package = importlib.util.module_from_spec(spec)
    own = os.environ.get("KINTSUGI_EXT_DIR")
    if own:  # as in kintsugi/__init__.py
        package.__path__.insert(0, os.path.join(own, "kintsugi"))
    sys.modules["kintsugi"] = package


def main() -> None:
    """Runs the command."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["kb"] and arguments[1:2] and arguments[1] in WITHOUT_TORCH:
        use_bare_package()
    from kintsugi._command import main as run

    run()


if __name__ == "__main__":
    main()
