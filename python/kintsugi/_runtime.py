"""What is set up once a process: configuration, logs, and the developer switches of the environment."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator

from . import _C, _config, _environment, _logs


def start() -> _config.Config:
    """Reads the environment and hands the settings to the core. Called once, by the package's import."""
    settings = _config.Config()
    settings.load_environment(os.environ)
    settings.push_all()
    _config.install(settings)
    _logs.load_environment(os.environ)
    _environment.check(os.environ)
    if os.environ.get("KINTSUGI_INTERPRET_ALL") == "1":
        _C._set_interpret_all(True)
    _C.find_callables()
    # Its thread must not outlive the interpreter.
    atexit.register(_C.stop_native)
    return settings


@contextlib.contextmanager
def interpret_everything() -> Iterator[None]:
    """Runs every Python frame that is started in the block in Kintsugi's bytecode interpreter.

    It is for testing the interpreter: nothing is recorded, and results are those of CPython.
    """
    _C._set_interpret_all(True)
    try:
        yield
    finally:
        _C._set_interpret_all(os.environ.get("KINTSUGI_INTERPRET_ALL") == "1")
