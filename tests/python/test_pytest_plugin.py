"""pytest --kintsugi-compile: other people's tests with every outermost module call compiled."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import copy, pickle, threading, weakref
import pytest, torch

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def forward(self, x, scale=None):
        y = self.b(self.a(x).relu())
        return y if scale is None else y * scale

class OwnCall(torch.nn.Module):
    def __call__(self, x):
        return self.forward(x) * 2

    def forward(self, x):
        return x + 1

class Leaves(torch.nn.Module):
    def forward(self, x):
        raise KeyError("from the module")

x = torch.ones(2, 3)

def expected(m):
    return m.b.forward(m.a.forward(x).relu())

def test_results():
    m = Two()
    for turn in range(6):
        assert torch.allclose(m(x), expected(m))
        assert torch.allclose(m(x, scale=3.0), 3 * expected(m))

def test_modules_stay_as_they_are():
    m = Two()
    before, names = dict(vars(m)), list(m.state_dict())
    for turn in range(3):
        m(x)
    assert type(m) is Two and vars(m) == before and list(m.state_dict()) == names
    for twin in (copy.deepcopy(m), pickle.loads(pickle.dumps(m.a))):
        assert type(twin) in (Two, torch.nn.Linear) and twin(x).shape == (2, 3)
    seen = []
    m.register_forward_hook(lambda module, given, out: seen.append(module is m))
    m(x)
    assert seen == [True]

def test_modules_go():
    m = Two()
    for turn in range(4):
        m(x)
    gone = [weakref.ref(m), weakref.ref(m.a), weakref.ref(m.a.weight)]
    del m
    assert [ref() for ref in gone] == [None] * 3

def test_a_call_of_its_own():
    m = OwnCall()
    for turn in range(3):
        assert m(torch.zeros(2)).tolist() == [2, 2]

def test_exceptions_leave_nothing_behind():
    for turn in range(3):
        with pytest.raises(KeyError, match="from the module"):
            Leaves()(x)
    assert OwnCall()(torch.zeros(1)) == 2

def test_threads():
    m, wrong = Two(), []
    want = expected(m)
    def work():
        for turn in range(10):
            if not torch.allclose(m(x), want):
                wrong.append(turn)
    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong

def test_functions():
    @torch.no_grad()
    def doubled(t):
        return t * 2
    assert not doubled(torch.ones(2, requires_grad=True)).requires_grad
"""


def _run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_modules.py").write_text(TESTS)
    installed = any(
        e.value == "kintsugi.pytest_plugin" for e in importlib.metadata.entry_points(group="pytest11")
    )
    plugin = () if installed else ("-p", "kintsugi.pytest_plugin")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("mode", ["native", "eager", "fn"])
def test_compiled(tmp_path: Path, mode: str) -> None:
    done = _run(tmp_path, f"--kintsugi-compile={mode}", "--kintsugi-captured=captured.json")
    assert "7 passed" in done.stdout, done.stdout + done.stderr
    assert "kintsugi: outermost calls" in done.stdout
    captured = json.loads((tmp_path / "captured.json").read_text())
    # Two: four tests of it, and a copy; a Linear by itself; OwnCall: twice; Leaves: three times.
    assert captured["modules"] == 5 + 1 + 2 + 3, captured
    assert captured["functions"] == (1 if mode == "fn" else 0)
    assert captured["hits"] > 0 and captured["calls"] > captured["hits"]
    assert (captured["native_runs"] > 0) == (mode != "eager"), captured


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "test_call.py").write_text(
        "import torch\n"
        "def test_call():\n"
        "    assert torch.nn.Module.__call__ is torch.nn.Module._wrapped_call_impl\n"
    )
    done = _run(tmp_path, "-k", "test_call")
    assert "1 passed" in done.stdout and "outermost" not in done.stdout, done.stdout
