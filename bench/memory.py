"""Memory of the whole process as the system counts it: pools, packed weights and kept frames included."""

from __future__ import annotations

import pathlib

_STATUS = pathlib.Path("/proc/self/status")
_CLEAR = pathlib.Path("/proc/self/clear_refs")


def _field(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no {name}")


def resident() -> int:
    """Bytes of this process that are in memory now (VmRSS)."""
    return _field("VmRSS")


def peak() -> int:
    """The most bytes that were in memory since the process began or reset_peak() (VmHWM)."""
    return _field("VmHWM")


def reset_peak() -> None:
    """Lets peak() begin anew, with what is in memory now. Raises OSError where the system doesn't allow it."""
    _CLEAR.write_text("5")


def last_level_cache() -> int:
    """Bytes of the processor's largest cache. Raises OSError where the system doesn't say."""
    sizes = []
    for index in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        text = (index / "size").read_text().strip()
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KMG")) * factor)
    if not sizes:
        raise OSError("the system doesn't say how large the processor's caches are")
    return max(sizes)
