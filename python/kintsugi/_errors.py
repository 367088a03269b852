"""Errors that Kintsugi raises on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._export_report import ExportReport


class GraphBreakError(RuntimeError):
    """A graph break where breaks are errors: with fullgraph=True, or under error_on_graph_break."""

    code: str
    """The stable code: KTGnnnn."""
    file: str
    line: int
    function: str
    cure: str
    user_stack: tuple[tuple[str, int, str], ...]
    """(file, line, function) of the compiled frames, outermost first."""


def graph_break_error(
    why: str,
    code: str,
    name: str,
    message: str,
    cure: str,
    file: str,
    line: int,
    function: str,
    stack: Sequence[tuple[str, int, str]],
) -> GraphBreakError:
    """What the core raises at a break; `why` is the setting that makes it an error."""
    lines = [f"{why}, but {code} {name}: {message}"]
    if file:
        lines.append(f'  at File "{file}", line {line}, in {function}')
    lines.append(f"  cure: {cure}")
    if stack:
        lines.append("  user stack (outermost first):")
        lines += [f'    File "{f}", line {n}, in {where}' for f, n, where in stack]
    error = GraphBreakError("\n".join(lines))
    error.code = code
    error.file = file
    error.line = line
    error.function = function
    error.cure = cure
    error.user_stack = tuple(stack)
    return error


class ExportError(RuntimeError):
    """kintsugi.export() found something in the program that can't be exported. Its text is the report."""

    report: ExportReport
    """What it is, by line of the program."""


def export_error(report: ExportReport, why: str) -> ExportError:
    """What export() raises; `why` is the first line."""
    error = ExportError(f"{why}\n{report}")
    error.report = report
    return error
