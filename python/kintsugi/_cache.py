"""The cache of compiled kernels: what is in it, and emptying it."""

from __future__ import annotations

import dataclasses
import stat
from pathlib import Path

from . import _C, _config


@dataclasses.dataclass(frozen=True, slots=True)
class CacheInfo:
    """What the native backend has compiled, in this process unless it says otherwise."""

    kernels: int
    """Kernels in memory. Equal ones, of 24 equal blocks say, are one."""
    compiled: int
    """Kernels that were compiled."""
    reused: int
    """Times a kernel was found in memory."""
    loaded: int
    """Kernels that were found on disk."""
    rejected: int
    """Files that were damaged or not ours; they were ignored and written again."""
    bytes: int
    """Machine code in memory."""
    seconds: float
    """Time spent in making kernels."""
    pool_used: int
    """Bytes of large tensors that compiled calls have made and that are still there."""
    pool_idle: int
    """Bytes of such tensors that are gone, kept for the next ones: up to config.memory_pool_limit."""
    disk_files: int
    """Kernels on disk, of all processes."""
    disk_bytes: int
    """What they take."""
    directory: Path
    """Where they are: a folder of config.cache_dir."""


def _directory() -> Path:
    config = _config.current()
    assert config is not None
    return config.cache_dir / "kernels"


def cache_info() -> CacheInfo:
    """Counters of the cache of compiled kernels."""
    directory = _directory()
    sizes = []
    for file in directory.glob("*.kernel"):
        try:
            found = file.lstat()
        except OSError:  # another process may remove it meanwhile
            continue
        if stat.S_ISREG(found.st_mode):
            sizes.append(found.st_size)
    return CacheInfo(
        **_C.cache_info(),
        **_C.run_memory(),
        disk_files=len(sizes),
        disk_bytes=sum(sizes),
        directory=directory,
    )


def clear_cache(*, disk: bool = True) -> None:
    """Forgets compiled kernels, also those on disk, and gives idle memory back. What is running keeps its own."""
    _C.clear_cache(disk)
    _C.trim_run_memory()
