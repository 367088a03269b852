"""The `kintsugi` command. Its exit codes: 0 done, 1 the script or a check failed, 2 wrong use."""

from .main import app, main

__all__ = ["app", "main"]
