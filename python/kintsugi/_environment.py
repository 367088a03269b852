"""The environment variables that anything of Kintsugi reads, and a word on those that nothing reads."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from . import _config, _logs
from ._text import printable

PREFIX = "KINTSUGI_"

OTHERS: dict[str, str] = {
    "KINTSUGI_LOGS": "channels that are printed from the start, as set_logs() takes them",
    "KINTSUGI_EXT_DIR": "a folder with an extension module of another build",
    "KINTSUGI_PYTHON": "the interpreter that `make` sets the environment up with",
    "KINTSUGI_INTERPRET_ALL": "1: every Python frame runs in Kintsugi's interpreter (a test of that)",
    "KINTSUGI_PERF_MAP": "names of native code for `perf`",
    "KINTSUGI_BLESS": "file tests write what they got into their expectations",
    "KINTSUGI_CONFORMANCE_EXTENSION": "the extension module that CPython's tests run with",
    "KINTSUGI_LEAK_ROUNDS": "rounds of the leak tests",
    "KINTSUGI_SUITE_DECLARES": "operators that scripts/library_suites.py declares for a suite",
    "KINTSUGI_SUITE_EVERY": "each how many-th test of a suite runs",
    "KINTSUGI_SUITE_OFFSET": "the first of each so many tests that scripts/library_suites.py runs",
    "KINTSUGI_SUITE_SELECTED": "where scripts/library_suites.py has the chosen tests written",
    "KINTSUGI_SUITE_OUTCOMES": "where scripts/library_suites.py has the outcomes of tests written",
    "KINTSUGI_TEST_DEVICE": "where the inputs of the Python tests' cases are, as cuda",
    "KINTSUGI_THREAD_CALLS": "calls of each thread in the thread tests",
    "KINTSUGI_WORLD": "1: the tests with signals, forks and interrupts in their full counts",
}
"""Variables that are no settings, with what they do. Settings have theirs from their names."""


def known() -> frozenset[str]:
    """All variables that mean something."""
    settings = (PREFIX + name.upper() for name in _config.Config._options())
    return frozenset({*OTHERS, *settings})


def complaint(environment: Mapping[str, str]) -> str | None:
    """One line that names the variables which nobody reads, each with the closest known name; None: all are known."""
    names = known()
    unknown = sorted(name for name in environment if name.startswith(PREFIX) and name not in names)
    if not unknown:
        return None
    parts = []
    for name in unknown:
        close = difflib.get_close_matches(name, names, 1)
        parts.append(printable(name) + (f" (did you mean {close[0]}?)" if close else ""))
    return f"set in the environment, and read by nothing: {', '.join(parts)}"


def check(environment: Mapping[str, str]) -> None:
    """Warns once of misspelt variables: a setting that has no effect must not look like one that has."""
    text = complaint(environment)
    if text is not None:
        _logs.warn(text)
