"""One cause each: eager's results, reported with one code, in its own file.

The programs are those of `breaks/`, and the reproducers of our codes in the knowledge base.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import SANITIZER, describe

import kintsugi
from kintsugi.kb import load, store
from kintsugi.kb.verify import backend_of, inputs_of, load_program

CALLS = 5
# Not here: its program breaks a promise to the compiler, so that results differ until an audit finds it.
EXCEPT = {"KTG0401"}


@dataclasses.dataclass(frozen=True)
class Program:
    path: Path
    code: str
    """As in the reasons or the logs."""
    run: Callable[..., Any]
    inputs: Callable[[int], tuple[Any, ...]]
    module: Any


def _programs() -> list[Any]:
    found = []
    for path in sorted(Path(__file__).with_name("breaks").glob("*.py")):
        module = load_program(path)
        found.append(Program(path, module.CODE, module.program, module.inputs, module))
    for entry in load():
        if entry.domain != "kintsugi" or entry.reproducer is None or entry.error_code in EXCEPT:
            continue
        path = store.REPRODUCERS / entry.reproducer.file
        module = load_program(path)
        code = entry.reproducer.expect.kintsugi
        assert code is not None
        found.append(
            Program(path, code, module.problem, lambda call, m=module: inputs_of(m, call % 3), module)
        )
    return [pytest.param(program, id=program.path.stem) for program in found]


def _outcome(run: Callable[[], Any]) -> Any:
    try:
        return describe(run())
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("program", _programs())
def test_code_and_results(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    if program.code == "KTG0000" and SANITIZER:
        pytest.skip("a failed check aborts in this build")
    module = program.module
    around = getattr(module, "around", lambda run: run())
    with kintsugi.config.patch(getattr(module, "CONFIG", {})):
        kintsugi.set_logs("all")
        try:
            compiled = kintsugi.compile(program.run, backend=backend_of(module))
            for call in range(CALLS):
                torch.manual_seed(call)
                expected = _outcome(lambda: program.run(*program.inputs(call)))
                torch.manual_seed(call)
                assert _outcome(lambda: around(lambda: compiled(*program.inputs(call)))) == expected
        finally:
            kintsugi.set_logs()
    logged = capsys.readouterr().err
    found = [b for b in compiled.breaks() if b["code"] == program.code]
    assert found or program.code in logged or program.code in expected[1], (
        f"{program.code} is neither in {compiled.breaks()} nor in the logs"
    )
    for reason in found:
        assert reason["file"] == str(program.path), reason
        assert reason["line"] > 0 and reason["message"] and reason["cure"]
        assert getattr(module, "TEXT", "") in reason["message"]
