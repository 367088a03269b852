"""What the commands share: exit codes, messages, and where output goes."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Literal, NoReturn

import typer

from .._text import printable

OK = 0
FAILED = 1
"""The script, a check or a comparison failed."""
USAGE = 2
"""Wrong use: an unknown id, language or option; a file that can't be read."""
NOTHING = 3
"""kb match: nothing was found."""
INCOMPLETE = 4
"""Done, but some entries of the knowledge base could not be used; each is named on stderr."""


def say(text: str) -> None:
    """To stderr: stdout is for results."""
    print(printable(text), file=sys.stderr)


def stop(text: str, code: int = USAGE) -> NoReturn:
    """One sentence, and the end."""
    say(f"kintsugi: {text}")
    raise typer.Exit(code)


def language(text: str) -> Literal["en", "zh"]:
    """Ends the command if this is no language that we have."""
    if text == "en":
        return "en"
    if text == "zh":
        return "zh"
    stop(f"unknown language {text!r}. Known: en, zh.")


def print_json(value: Any) -> None:
    """For programs: as it is, in the escapes of JSON where a terminal would obey."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    print(re.sub("[\x7f-\x9f\ud800-\udfff]", lambda found: f"\\u{ord(found.group()):04x}", text))
