"""What the compiler's passes took, and what they made of what they got."""

from __future__ import annotations

import dataclasses

from . import _C


@dataclasses.dataclass(frozen=True, slots=True)
class PassStatistics:
    """One pass, over all of its runs in this process."""

    kind: str
    """What it works on: trace, segment, graph, groups (of nodes that become kernels) or program."""
    name: str
    runs: int
    seconds: float
    before: int
    """Instructions, nodes or steps of all runs together, as the pass got them."""
    after: int
    """As it left them."""


def pass_statistics(*, clear: bool = False) -> list[PassStatistics]:
    """Time and sizes of all passes that have run in this process, in the order in which they ran first. Native code is
    made in the background: `kintsugi.wait()` before, to see all of it.

    `clear` begins anew behind this call.

    >>> for row in kintsugi.pass_statistics():
    ...     print(f"{row.kind:8} {row.name:20} {row.runs:4} runs {1e3 * row.seconds:8.2f} ms")
    """
    return [
        PassStatistics(kind, name, runs, nanoseconds / 1e9, before, after)
        for kind, name, runs, nanoseconds, before, after in _C.pass_totals(clear)
    ]
