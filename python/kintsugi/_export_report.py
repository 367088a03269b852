"""The report of an export: what a program does that an exported program does not, by line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from . import _C
from ._export_trace import Frame, Step


@dataclasses.dataclass(frozen=True, slots=True)
class ExportFinding:
    """Something in a program that an exported program has not."""

    file: str
    line: int
    function: str
    what: str
    """What the program does there."""
    why: str
    """Why that is not exported."""
    cure: str
    left_out: bool
    """True: the exported program goes without it. False: there is no export."""

    def __str__(self) -> str:
        verdict = "left out" if self.left_out else "refused"
        return (
            f"{self.file}:{self.line} in {self.function}: {self.what} ({verdict})\n"
            f"    why:  {self.why}\n    cure: {self.cure}"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ExportReport:
    """What of a call is not exported, in the order of the program. `print(report)` shows it all."""

    findings: tuple[ExportFinding, ...]

    @property
    def refused(self) -> tuple[ExportFinding, ...]:
        """Those for which there is no export."""
        return tuple(f for f in self.findings if not f.left_out)

    @property
    def left_out(self) -> tuple[ExportFinding, ...]:
        """Those that an exported program goes without."""
        return tuple(f for f in self.findings if f.left_out)

    @property
    def exportable(self) -> bool:
        """Is there an export, with strict=False?"""
        return not self.refused

    def __str__(self) -> str:
        if not self.findings:
            return "Everything is exported."
        head = f"{len(self.refused)} refused, {len(self.left_out)} left out:"
        return "\n".join(
            [head, *(f"  {n}. " + str(f).replace("\n", "\n  ") for n, f in enumerate(self.findings, 1))]
        )


def place(frames: Sequence[Frame]) -> tuple[str, int, str]:
    """The innermost frame of the program itself."""
    for file, line, function, code in reversed(frames):
        if not _C.is_library(file):
            return file, line if line > 0 else code.co_firstlineno, function
    return frames[-1][:3] if frames else ("", 0, "")


def finding_of(step: Step, name: str, error: BaseException) -> ExportFinding:
    """A step that torch.export could not follow."""
    file, line, function = place(step.frames)
    text = str(error).strip()
    reason = text.splitlines()[0] if text else type(error).__name__
    guard = step.op.startswith("guard.")
    return ExportFinding(
        file,
        line,
        function,
        "which way the program goes depends on a size or a number that is not known before it runs"
        if guard
        else f"{name} can't be exported",
        f"torch.export: {type(error).__name__}: {reason}",
        "See the error of torch that this one was raised from.",
        False,
    )
