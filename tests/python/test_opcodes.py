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


def kind_of(name: str, number: int) -> str:
    kinds = {
        "kConstant": opcode.hasconst,
        "kName": opcode.hasname,
        "kLocal": opcode.haslocal,
        "kFree": opcode.hasfree,
        "kJumpBack" if "BACKWARD" in name else "kJump": opcode.hasjrel,
        "kCompare": opcode.hascompare,
    }
    takes = getattr(opcode, "hasarg", None)  # before 3.12 the number said it
    has_argument = number in takes if takes is not None else number >= opcode.HAVE_ARGUMENT
    return next(
        (kind for kind, numbers in kinds.items() if number in numbers), "kNumber" if has_argument else "kNone"
    )


FORMS = {form: base for base, group in opcode._specializations.items() for form in group}


def opcodes() -> dict[str, int]:
    """Without what only the compiler uses, and without specialized forms, which dis names too from 3.14 on."""
    return {name: number for name, number in opcode.opmap.items() if number < 256} | {
        name: number
        for number, name in enumerate(dis.opname[:256])
        if not name.startswith("<") and name not in FORMS
    }


def test_every_opcode_has_a_row_and_every_row_an_opcode() -> None:
    assert {name: int(number) for name, number, *_ in rows("OPCODE")} == opcodes()


def caches_of(name: str, number: int) -> int:
    caches = opcode._inline_cache_entries  # up to 3.12 by the number
    return int(caches.get(name, 0)) if isinstance(caches, dict) else int(caches[number])


def test_rows_have_the_caches_and_arguments_of_this_python() -> None:
    found = {name: (int(count), kind) for name, _, count, kind in rows("OPCODE")}
    assert found == {
        name: (caches_of(name, int(number)), kind_of(name, int(number)))
        for name, number, *_ in rows("OPCODE")
    }


def test_no_jump_is_absolute() -> None:
    assert not opcode.hasjabs


def test_specialized_forms_are_those_of_this_python() -> None:
    assert {name: base for name, _, base in rows("SPECIALIZED")} == FORMS


def test_no_two_rows_have_one_number() -> None:
    numbers = [int(row[1]) for row in rows("OPCODE") + rows("SPECIALIZED")]
    assert len(numbers) == len(set(numbers))


def test_binary_operators_are_those_of_this_python() -> None:
    names = [name for name, _ in opcode._nb_ops]
    assert [(name, int(number)) for name, number in rows("BINARY_OPERATOR")] == [
        (name, number) for number, name in enumerate(names)
    ]


def instructions() -> set[str]:
    return {name for (name,) in rows("INSTRUCTION", (CSRC / "pyapi/instructions.def").read_text())}


def test_every_instruction_has_a_handler_and_every_handler_an_instruction() -> None:
    handled = {row[0] for row in rows("OPCODE", (CSRC / "capture/handlers/opcodes.def").read_text())}
    assert handled == instructions()


# What meaning.cc makes other instructions of, and what never stands in the code that PyCode_GetCode() gives.
BY_ARGUMENT = {"CALL_INTRINSIC_1", "CALL_INTRINSIC_2", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC"}
NEVER_DECODED = {"CACHE", "ENTER_EXECUTOR", "EXIT_INIT_CHECK", "EXTENDED_ARG", "INTERPRETER_EXIT", "RESERVED"}


def test_every_opcode_means_an_instruction() -> None:
    meant = {name: name for name, *_ in rows("OPCODE")} | dict(rows("MEANS"))
    meant = {name: what for name, what in meant.items() if not name.startswith("INSTRUMENTED_")}
    unknown = {name for name, what in meant.items() if what not in instructions()}
    assert unknown <= BY_ARGUMENT | NEVER_DECODED
