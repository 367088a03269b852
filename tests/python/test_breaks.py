"""Programs of `breaks/`: each has one cause, gives eager's results, and is reported with one code, in its own file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from harness import describe

import kintsugi
from kintsugi.kb.verify import load_program

PROGRAMS = sorted(Path(__file__).with_name("breaks").glob("*.py"))
CALLS = 5


@pytest.mark.parametrize("path", PROGRAMS, ids=[p.stem for p in PROGRAMS])
def test_code_and_results(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = load_program(path)
    around = getattr(module, "around", lambda run: run())
    with kintsugi.config.patch(getattr(module, "CONFIG", {})):
        kintsugi.set_logs("all")
        try:
            compiled = kintsugi.compile(module.program, backend="eager")
            for call in range(CALLS):
                torch.manual_seed(call)
                expected = module.program(*module.inputs(call))
                torch.manual_seed(call)
                assert describe(around(lambda: compiled(*module.inputs(call)))) == describe(expected)
        finally:
            kintsugi.set_logs()
    logged = capsys.readouterr().err
    found = [b for b in compiled.breaks() if b["code"] == module.CODE]
    assert found or module.CODE in logged, f"{module.CODE} is neither in {compiled.breaks()} nor in the logs"
    for reason in found:
        assert reason["file"] == str(path), reason
        assert reason["line"] > 0 and reason["message"] and reason["cure"]
        assert getattr(module, "TEXT", "") in reason["message"]
