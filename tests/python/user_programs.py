"""What the programs of users are collected in: functions that make a program and what gives a turn its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Make = Callable[[], tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]]
PROGRAMS: dict[str, Make] = {}


def prog(make: Make) -> Make:
    PROGRAMS[make.__name__] = make
    return make
