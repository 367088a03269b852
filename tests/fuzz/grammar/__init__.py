"""The grammar of generated programs: see family.py."""

from __future__ import annotations

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

__all__ = ["BASE", "ERRORS", "FAMILIES", "SOURCES", "Family"]
