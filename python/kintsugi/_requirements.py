"""What this build of Kintsugi runs on. Checked at import, before the extension module is loaded."""

from __future__ import annotations

import platform
import sys

VERSION = "0.1.0"
PYTHONS = ((3, 11), (3, 12))
TORCH = "2.13.0"


def check() -> None:
    """Raises ImportError with one sentence when Python or torch is not what the extension was built for."""
    name = platform.python_implementation()
    if name != "CPython" or sys.version_info[:2] not in PYTHONS:
        wanted = " or ".join(".".join(map(str, version)) for version in PYTHONS)
        found = ".".join(map(str, sys.version_info[:2]))
        raise ImportError(f"kintsugi {VERSION} needs CPython {wanted}, and this is {name} {found}.")
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"kintsugi {VERSION} needs torch {TORCH}, which is not installed: pip install torch=={TORCH}."
        ) from None
    if torch.__version__.split("+")[0] != TORCH:
        raise ImportError(
            f"kintsugi {VERSION} needs torch {TORCH}, and torch {torch.__version__} is installed: "
            f"pip install torch=={TORCH}."
        )
