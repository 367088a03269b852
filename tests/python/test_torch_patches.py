"""Functions of torch's that somebody replaces: between calls, before Kintsugi is there, and back again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

import kintsugi
from kintsugi import _C

Patched = Callable[[torch.Tensor], Any]


def _calls() -> dict[str, Patched]:
    layers = torch.nn.ModuleDict(
        {"relu": torch.nn.ReLU(), "norm": torch.nn.LayerNorm(4), "linear": torch.nn.Linear(4, 4)}
    )
    return {
        "F.relu": lambda x: F.relu(x),
        "F.relu_": lambda x: F.relu(x.clone(), inplace=True),
        "F.pad": lambda x: F.pad(x, (1, 1)),
        "F.layer_norm": lambda x: F.layer_norm(x, (4,)),
        "F.softmax": lambda x: F.softmax(x, -1),
        "F.normalize": lambda x: F.normalize(x, dim=0),
        "nn.ReLU": lambda x: layers["relu"](x),
        "nn.LayerNorm": lambda x: layers["norm"](x),
        "nn.Linear": lambda x: layers["linear"](x),
        "torch.norm": lambda x: torch.norm(x),
        "torch.split": lambda x: torch.split(x, 2),
        "x.relu": lambda x: x.relu() + 1,
        "x.cos": lambda x: x.cos().sum(),
        "x.sum": lambda x: x.sum(),
        "x.norm": lambda x: x.norm(),
        "x.to": lambda x: x.to(torch.float64),
        "x.item": lambda x: x.sum().item(),
        "x.T": lambda x: x.T,
        "x.shape": lambda x: x.shape,
        "x + 1": lambda x: x + 1,
        "1 - x": lambda x: 1 - x,
        "x @ x": lambda x: x @ x,
        "x[0]": lambda x: x[0],
        "bool(x)": lambda x: bool(x[0, 0]),
        "len(x)": lambda x: len(x),
        "parameter.relu": lambda x: layers["linear"].weight.relu() * x,
    }


# What is replaced, and by what: functions, and objects that are called.
PATCHES: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "torch.relu": lambda: mock.patch.object(torch, "relu", lambda *a, **k: "replaced"),
    "torch.layer_norm": lambda: mock.patch.object(torch, "layer_norm", return_value="mock"),
    "torch._C._nn.pad": lambda: mock.patch.object(torch._C._nn, "pad", lambda *a, **k: "replaced"),
    "F.relu": lambda: mock.patch.object(F, "relu", lambda *a, **k: "replaced"),
    "F.linear": lambda: mock.patch.object(F, "linear", lambda *a, **k: "replaced"),
    "F.len": lambda: mock.patch.object(F, "len", lambda x: 1, create=True),
    "Tensor.relu": lambda: mock.patch.object(torch.Tensor, "relu", lambda s: s * 100),
    "Tensor.cos": lambda: mock.patch.object(torch.Tensor, "cos", return_value=torch.ones(2)),
    "Tensor.sum": lambda: mock.patch.object(torch.Tensor, "sum", lambda s: s.mean()),
    "Tensor.norm": lambda: mock.patch.object(torch.Tensor, "norm", lambda s: s.mean()),
    "Tensor.to": lambda: mock.patch.object(torch.Tensor, "to", lambda s, d: s * 3),
    "Tensor.item": lambda: mock.patch.object(torch.Tensor, "item", lambda s: 5),
    "Tensor.T": lambda: mock.patch.object(torch.Tensor, "T", property(lambda s: s * 7)),
    "Tensor.shape": lambda: mock.patch.object(torch.Tensor, "shape", property(lambda s: "shape")),
    "Tensor.__add__": lambda: mock.patch.object(torch.Tensor, "__add__", lambda a, b: a * 1000),
    "Tensor.__rsub__": lambda: mock.patch.object(torch.Tensor, "__rsub__", lambda a, b: a * 1000),
    "Tensor.__matmul__": lambda: mock.patch.object(torch.Tensor, "__matmul__", lambda a, b: a * 1000),
    "Tensor.__getitem__": lambda: mock.patch.object(torch.Tensor, "__getitem__", lambda a, k: a * 2),
    "Tensor.__bool__": lambda: mock.patch.object(torch.Tensor, "__bool__", lambda a: False),
    "Tensor.__len__": lambda: mock.patch.object(torch.Tensor, "__len__", lambda a: 77),
    "Parameter.relu": lambda: mock.patch.object(torch.nn.Parameter, "relu", lambda s: s * 100, create=True),
}


def _outcome(fn: Patched, x: torch.Tensor) -> Any:
    try:
        result = fn(x)
    except Exception as error:
        return type(error), str(error)
    return _plain(result)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return tuple(map(_plain, value))
    return (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    yield


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_replaced_between_calls(patch: str, backend: str) -> None:
    calls = _calls()
    options = {"sync": True} if backend == "native" else {}
    compiled = {name: kintsugi.compile(fn, backend=backend, options=options) for name, fn in calls.items()}
    x = torch.arange(16.0).reshape(4, 4) - 7.5
    for change in (_nothing, _nothing, PATCHES[patch], _nothing, PATCHES[patch], _nothing):
        with change():
            wanted = {name: _outcome(fn, x) for name, fn in calls.items()}
            found = {name: _outcome(fn, x) for name, fn in compiled.items()}
        for name, outcome in wanted.items():
            assert _close(found[name], outcome), (name, found[name], outcome)


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(map(_close, a, b))
    return a == b or (isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-5 * (1 + abs(b)))


def test_back_again_is_the_first_trace() -> None:
    compiled = kintsugi.compile(lambda x: F.relu(x), backend="eager")
    for _ in range(2):
        compiled(torch.ones(2))
    with mock.patch.object(torch, "relu", lambda *a, **k: "replaced"):
        assert compiled(torch.ones(2)) == "replaced"
    before = compiled.stats().trace_count
    compiled(torch.ones(2))
    assert compiled.stats().trace_count == before and compiled.stats().hits >= 2


def test_methods_that_are_added() -> None:
    fn = lambda x: x.made_by_a_test() + 1
    compiled = kintsugi.compile(fn, backend="eager")
    try:
        for factor in (2, 2, 3, 3):
            torch.Tensor.made_by_a_test = lambda s, factor=factor: s * factor  # type: ignore[attr-defined]
            assert compiled(torch.ones(1)).item() == factor + 1
            assert _C._torch_patches() == 0
    finally:
        del torch.Tensor.made_by_a_test  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="made_by_a_test"):
        compiled(torch.ones(1))


def test_what_was_replaced_before() -> None:
    program = """
import torch, torch.nn.functional as F
calls = []
F.linear = lambda x, w, b=None: calls.append(1) or x @ w.T
import kintsugi
layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
compiled = kintsugi.compile(lambda x: (F.multi_head_attention_forward and layer(x)), backend="eager")
x = torch.ones(1, 3, 4)
layer(x)
each = len(calls)
for _ in range(3):
    compiled(x)
print(each > 0, len(calls) == 4 * each)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ran.stdout.split() == ["True", "True"], ran.stderr[-2000:]


def test_nobody_is_there_by_default() -> None:
    program = "import kintsugi; print(kintsugi._C._torch_patches()); import torch._dynamo, torch.export; "
    program += "print(kintsugi._C._torch_patches())"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ran.stdout.split() == ["0", "0"], ran.stderr[-2000:]
