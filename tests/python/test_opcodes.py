"""The opcodes of the running CPython, as data (csrc/pyapi/v311/opcodes.def and its like), against its own modules."""

from __future__ import annotations

import dis
import opcode
import re
import sys
from pathlib import Path

CSRC = Path(__file__).resolve().parents[2] / "csrc"
VERSION = f"v{sys.version_info.major}{sys.version_info.minor}"
ROWS = (CSRC / "pyapi" / VERSION / "opcodes.def").read_text()


def rows(kind: str, path: str = ROWS) -> list[list[str]]:
    found = re.findall(rf"^KINTSUGI_{kind}\(([^)]*)\)", path, re.MULTILINE)
    return [[part.strip() for part in row.split(",")] for row in found]


def kind_of(number: int) -> str:
    kinds = {
        "kConstant": opcode.hasconst,
        "kName": opcode.hasname,
        "kLocal": opcode.haslocal,
        "kFree": opcode.hasfree,
        "kJump": opcode.hasjrel,
        "kJumpAbsolute": opcode.hasjabs,
        "kCompare": opcode.hascompare,
    }
    plain = "kNumber" if number >= opcode.HAVE_ARGUMENT else "kNone"
    return next((kind for kind, numbers in kinds.items() if number in numbers), plain)


def test_every_opcode_has_a_row_and_every_row_an_opcode() -> None:
    names = {name: number for number, name in enumerate(dis.opname) if not name.startswith("<")}
    assert {name: int(number) for name, number, *_ in rows("OPCODE")} == names


def test_rows_have_the_caches_and_arguments_of_this_python() -> None:
    caches = opcode._inline_cache_entries
    found = {name: (int(count), kind) for name, _, count, kind in rows("OPCODE")}
    assert found == {name: (caches[int(number)], kind_of(int(number))) for name, number, *_ in rows("OPCODE")}


def test_specialized_forms_are_those_of_this_python() -> None:
    forms = {form: base for base, group in opcode._specializations.items() for form in group}
    assert {name: base for name, _, base in rows("SPECIALIZED")} == forms


def test_no_two_rows_have_one_number() -> None:
    numbers = [int(row[1]) for row in rows("OPCODE") + rows("SPECIALIZED")]
    assert len(numbers) == len(set(numbers))


def test_binary_operators_are_those_of_this_python() -> None:
    names = [name for name, _ in opcode._nb_ops]
    assert [(name, int(number)) for name, number in rows("BINARY_OPERATOR")] == [
        (name, number) for number, name in enumerate(names)
    ]


def test_handlers_are_of_opcodes_that_there_are() -> None:
    handled = {row[0] for row in rows("OPCODE", (CSRC / "capture/handlers/opcodes.def").read_text())}
    known = {name for name, *_ in rows("OPCODE")}
    assert handled <= known
    # The decoder folds these into their instruction.
    assert known - handled <= {"CACHE", "EXTENDED_ARG"}
