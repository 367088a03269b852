"""The grammar of generated programs: see family.py."""

from __future__ import annotations

from collections.abc import Iterator

from .base import BASE, ERRORS, SOURCES
from .calls import CALLS
from .concurrency import CONCURRENCY
from .family import Family
from .flow import FLOW
from .modes import MODES
from .numbers import NUMBERS
from .objects import OBJECTS
from .process import FILES, FLAGS
from .replaced import REPLACED

FAMILIES = (NUMBERS, CALLS, FLOW, OBJECTS, MODES, FLAGS, FILES, CONCURRENCY, REPLACED)

TABLES = ("simple", "nested", "between", "scalars", "integers", "conditions", "tensors", "raises")

__all__ = ["BASE", "ERRORS", "FAMILIES", "SOURCES", "Family", "templates"]


def templates() -> Iterator[tuple[Family, str, str]]:
    """Every template there is, with its family and the table that it stands in."""
    for family in (*FAMILIES, BASE):
        for table in TABLES:
            for text in getattr(family, table):
                yield family, table, text
