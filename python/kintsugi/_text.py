"""Texts from elsewhere - logs, file names, entries of somebody's - on their way to a terminal."""

from __future__ import annotations

import re
from typing import Any

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def printable(text: str) -> str:
    """Without characters that a terminal obeys, or that can't be encoded: they stand as `\\x1b`."""
    return _CONTROL.sub(_escape, text)


def printable_parts(value: Any) -> Any:
    """The same for all texts in what JSON describes."""
    # No recursion: what was read may be nested as deep as the reader goes.
    if isinstance(value, str):
        return printable(value)
    root = [value]
    waiting: list[Any] = [root]
    while waiting:
        parts = waiting.pop()
        keys = list(parts) if isinstance(parts, dict) else range(len(parts))
        for key in keys:
            part = parts[key]
            if isinstance(part, str):
                parts[key] = printable(part)
            elif isinstance(part, (dict, list)):
                waiting.append(part)
    return root[0]
