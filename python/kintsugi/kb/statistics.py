"""Rates and their confidence."""

from __future__ import annotations

import math

from .model import Measured


def wilson(failures: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """The Wilson score interval of a rate (95 % with this z)."""
    if n <= 0:
        return 0.0, 1.0
    p = failures / n
    scale = 1 + z * z / n
    middle = (p + z * z / (2 * n)) / scale
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def measured(failures: int, n: int) -> Measured:
    low, high = wilson(failures, n)
    return Measured(
        n=n, failures=failures, rate=round(failures / n, 4), interval=(round(low, 4), round(high, 4))
    )
