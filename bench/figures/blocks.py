"""Blocks of figures in Markdown files: between `<!-- BEGIN figures NAME -->` and `<!-- END figures -->`."""

from __future__ import annotations

import re
from collections.abc import Mapping

BLOCK = re.compile(
    r"(<!-- BEGIN figures (?P<name>[\w-]+) -->\n)(?P<body>.*?)(<!-- END figures -->)", re.DOTALL
)


class NoBlock(Exception):
    """A file has no block of a name, or a block that nobody writes; the text names it."""


def names(text: str) -> list[str]:
    return [match["name"] for match in BLOCK.finditer(text)]


def write(text: str, bodies: Mapping[str, str]) -> str:
    """The text with the blocks' bodies put in. Raises NoBlock where a block of the text has no body."""
    for name in names(text):
        if name not in bodies:
            raise NoBlock(f"nothing writes the block {name}")
    return BLOCK.sub(lambda match: match[1] + bodies[match["name"]].strip() + "\n" + match[4], text)
