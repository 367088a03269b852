"""valgrind.py PYTHON PROGRAM...: runs a program under memcheck and fails on what is wrong.

Each access to memory that is not there counts, whoever does it. Uses of values that nobody has set count where our
extension is in the stack: CPython 3.11 looks at the first digit of an int that has none (`int.from_bytes(b"")`),
and memcheck follows the small ints that come of it through the whole interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

SUPPRESSIONS = Path(__file__).with_name("valgrind.supp")
UNSET = {"UninitCondition", "UninitValue", "SyscallParam"}


def frames(error: ElementTree.Element) -> list[str]:
    return [
        f"{frame.findtext('fn', '?')} in {frame.findtext('obj', '?')}"
        for frame in error.findall("stack/frame")
    ]


def wrong(report: ElementTree.Element) -> Iterator[str]:
    for error in report.findall("error"):
        kind, stack = error.findtext("kind", "?"), frames(error)
        ours = any("kintsugi" in Path(frame.rpartition(" in ")[2]).parts for frame in stack)
        if kind.startswith("Leak"):  # memcheck lists them in XML whatever it is told
            continue
        if kind not in UNSET or ours:
            yield "\n    ".join(
                [f"{kind}: {error.findtext('what') or error.findtext('xwhat/text', '')}", *stack]
            )


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.xml"
        options = [f"--suppressions={SUPPRESSIONS}", "--quiet", "--xml=yes", f"--xml-file={path}"]
        command = ["valgrind", *options, *sys.argv[1:]]
        done = subprocess.run(command, env={**os.environ, "PYTHONMALLOC": "malloc"}, check=False)
        report = ElementTree.parse(path).getroot()
    found = list(wrong(report))
    print("\n".join([*found, f"memcheck: {len(found)} errors; the program ended with {done.returncode}"]))
    return 1 if found or done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
