"""Code that watches the interpreter and is no part of the program: hooks for audit events, callbacks of the collector,
functions for tracing. Libraries install them for their own ends (`filelock`, on which torch depends, has an audit hook;
`jax` and `hypothesis` have callbacks of the collector), so a call is recorded with them as without them."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import kintsugi

# What it does raises audit events: `__code__`, `__defaults__`, `id`, setting the name of a class, new functions.
PROGRAM = """
import torch, kintsugi
from torch import nn

def helper(x, scale=2.0):
    return x * scale

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.seen = {}

    def forward(self, x, memo):
        if "scale" in helper.__code__.co_varnames:
            x = x + len(helper.__defaults__)
        self.seen[id(memo)] = x.shape[0]
        y = helper(self.layer(x), *helper.__defaults__)
        scaled = lambda t, by=3.0: t * by
        if scaled.__code__.co_argcount == 2:
            y = scaled(y)
        return y.relu(), [t.sum() for t in (x, y)], id(memo) in self.seen

torch.manual_seed(0)
net, memo = Net(), {}
inputs = [torch.randn(3, 4) for _ in range(5)]
expected = [net(x, memo) for x in inputs]
compiled = kintsugi.compile(net, backend=BACKEND, fullgraph=True)
for x, (y, sums, known) in zip(inputs, expected):
    y2, sums2, known2 = compiled(x, memo)
    torch.testing.assert_close(y2, y)
    torch.testing.assert_close(sums2, sums)
    assert known2 is known
print(kintsugi.explain(net)(inputs[0], memo).graph_break_count)
"""
HOOKS = {
    "function": "def hook(event, args):\n    seen.append(event)",
    "with helpers": "def note(event):\n    seen.append(event)\ndef hook(event, args):\n    note(str(event))",
    "object": (
        "class Hook:\n    def __call__(self, event, args):\n        self.last = event; seen.append(event)\n"
        "hook = Hook()"
    ),
}


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("hook", HOOKS)
def test_audit_hook(hook: str, backend: str) -> None:
    """In a process of its own: an audit hook stays for as long as the process."""
    install = f"import sys\nseen = []\n{HOOKS[hook]}\nsys.addaudithook(hook)\n"
    check = "assert 'object.__getattr__' in seen and 'builtins.id' in seen, set(seen)\n"
    assert run(install + PROGRAM.replace("BACKEND", repr(backend)) + check) == "0"


def test_audit_hook_of_filelock() -> None:
    """What `import transformers` does, on versions of Python where it installs the hook."""
    pytest.importorskip("filelock")
    assert run("import filelock\n" + PROGRAM.replace("BACKEND", "'eager'")) == "0"


def test_audit_hook_that_raises() -> None:
    code = """
import sys, torch, kintsugi
armed = []
def hook(event, args):
    if armed and event == "kintsugi.test":
        raise PermissionError(event)
sys.addaudithook(hook)
def f(x):
    try:
        sys.audit("kintsugi.test")
    except PermissionError as error:
        return x - 1, str(error)
    return x + 1, ""
c = kintsugi.compile(f, backend="eager")
for turn in range(8):
    armed[:] = [1] if turn % 3 == 2 else []
    a, b = f(torch.ones(2)), c(torch.ones(2))
    assert a[1] == b[1] and torch.equal(a[0], b[0]), (turn, a, b)
print("same")
"""
    assert run(code) == "same"


# The collector ---------------------------------------------------------------------------------------------------


def outer(phase: str, info: dict[str, int]) -> None:
    inner(phase)


def inner(phase: str) -> str:
    return phase.upper()


class Watcher:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        self.calls += 1
        inner(phase)

    def method(self, phase: str, info: dict[str, int]) -> None:
        self.calls += 1


CALLBACKS: dict[str, Callable[[], Any]] = {
    "function": lambda: outer,
    "lambda": lambda: lambda phase, info: None,
    "method": lambda: Watcher().method,
    "object": Watcher,
}


@pytest.fixture
def collected_often() -> Iterator[None]:
    before, callbacks = gc.get_threshold(), list(gc.callbacks)
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)
    gc.callbacks[:] = callbacks


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.log: list[Any] = []

    def forward(self, x: torch.Tensor) -> Any:
        parts = []
        for index, layer in enumerate(self.layers):
            parts.append({"index": [index], "value": layer(x)})
            x = x + parts[-1]["value"].relu()
        self.log.append([[i] for i in range(20)])
        return x, parts, [(k, {k: [k]}) for k in range(30)]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("kind", CALLBACKS)
def test_callback_of_the_collector(kind: str, backend: str, collected_often: None) -> None:
    torch.manual_seed(0)
    net = Net()
    inputs = [torch.randn(2, 4) for _ in range(5)]
    expected = [net(x) for x in inputs]
    gc.callbacks.append(CALLBACKS[kind]())
    compiled = kintsugi.compile(net, backend=backend, fullgraph=True)
    for x, (y, parts, pairs) in zip(inputs, expected, strict=True):
        y2, parts2, pairs2 = compiled(x)
        torch.testing.assert_close(y2, y)
        torch.testing.assert_close([p["value"] for p in parts2], [p["value"] for p in parts])
        assert pairs == pairs2
    assert kintsugi.explain(net)(inputs[0]).graph_break_count == 0


def test_the_program_may_call_a_callback_of_the_collector(collected_often: None) -> None:
    """It is a function like any other where nothing is collected."""
    seen: list[Any] = []

    def callback(phase: str, info: dict[str, int]) -> None:
        if not info:
            seen.append(phase)

    def program(x: torch.Tensor) -> Any:
        callback("mine", {})
        return x + len(seen)

    gc.callbacks.append(callback)
    compiled = kintsugi.compile(program, backend="eager")
    for turn in range(1, 6):
        assert compiled(torch.zeros(1)).item() == turn and seen == ["mine"] * turn


# Tracing ---------------------------------------------------------------------------------------------------------


def test_compiled_function_called_by_a_tracing_function() -> None:
    """It runs as a plain function there, and is compiled where it is called otherwise."""
    compiled = kintsugi.compile(lambda x: (x * 2).relu(), backend="eager")
    found: list[torch.Tensor] = []

    def trace(frame: Any, event: str, arg: Any) -> None:
        found.append(compiled(torch.ones(2)))

    def traced() -> int:
        return 3

    def work() -> None:
        sys.settrace(trace)
        try:
            traced()
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found and all(torch.equal(t, torch.full((2,), 2.0)) for t in found)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert compiled.stats().hits == 2


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring is new in 3.12")
def test_tools_of_monitoring() -> None:
    """A call under a tool runs in eager mode, so that the tool sees it; what was compiled goes on behind it."""
    monitoring = sys.monitoring
    net = nn.Linear(4, 4)
    compiled = kintsugi.compile(net, backend="eager")
    x = torch.randn(2, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), net(x))
    names: list[str] = []
    monitoring.use_tool_id(3, "test")
    try:
        monitoring.register_callback(
            3, monitoring.events.PY_START, lambda code, at: names.append(code.co_name)
        )
        monitoring.set_events(3, monitoring.events.PY_START)
        torch.testing.assert_close(compiled(x), net(x))
    finally:
        monitoring.set_events(3, 0)
        monitoring.free_tool_id(3)
    assert names.count("forward") == 2
    torch.testing.assert_close(compiled(x), net(x))
