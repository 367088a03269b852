"""Gradients of elements that are equal to a limit of clamp() and its kin. Torch 2.13 passes them on, torch 2.15 gives
0. Native code does what this torch does, which is asked when the package is imported."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

import kintsugi

Program = Callable[[torch.Tensor], torch.Tensor]

PROGRAMS: dict[str, Program] = {
    "both limits": lambda x: x.clamp(-1, 2) * 3,
    "a lower limit": lambda x: torch.clamp(x, min=-1) * 3,
    "an upper limit": lambda x: torch.clamp(x, max=2) * 3,
    "clip": lambda x: torch.clip(x, 0.0, 1.0) * 3,
    "clamp_min": lambda x: x.clamp_min(1) * 3,
    "clamp_max": lambda x: x.clamp_max(-1) * 3,
    "in place": lambda x: (x * 1).clamp_(-1, 1) * 3,
    "limits that are one number": lambda x: x.clamp(1, 1) * 3,
    "limits that cross": lambda x: x.clamp(2, -1) * 3,
    "one behind another": lambda x: x.clamp(-1, 1).clamp_min(0) * 3,
}


def gradients(function: Program, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = [math.nan, -math.inf, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, math.inf]
    x = torch.tensor(numbers, dtype=dtype, requires_grad=True)
    out = function(x)
    (made,) = torch.autograd.grad(out, x, torch.full_like(out, 0.5))
    return out.detach(), made


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=["f32", "f64", "bf16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_limits(name: str, dtype: torch.dtype, backend: str) -> None:
    wanted = gradients(PROGRAMS[name], dtype)
    options = {"sync": True} if backend == "native" else {}
    compiled = kintsugi.compile(PROGRAMS[name], backend=backend, options=options)
    for _ in range(3):
        for mine, theirs in zip(gradients(compiled, dtype), wanted, strict=True):
            assert mine.dtype == theirs.dtype
            assert torch.equal(mine.nan_to_num(7.0), theirs.nan_to_num(7.0))


# What the package asks torch when it is imported is not seen by the program's modes, and does not depend on them.
IMPORTED = """
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

seen = []

class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))

class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))

def pack(tensor):
    seen.append("pack")
    return tensor

with MODE:
    import kintsugi

assert not [name for name in seen if "clamp" in name or name == "pack"], seen

def program(x):
    return x.clamp(-1, 1).clamp_min(0) * 2

def gradient(function):
    x = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0], requires_grad=True)
    return torch.autograd.grad(function(x).sum(), x)[0].tolist()

compiled = kintsugi.compile(program, backend="native", options={"sync": True})
assert [gradient(compiled) for _ in range(3)] == [gradient(program)] * 3
print("the same")
"""

MODES = [
    "torch.no_grad()",
    "torch.inference_mode()",
    "torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)",
    "torch.autograd.detect_anomaly(check_nan=True)",
    "torch.autograd.set_multithreading_enabled(False)",
    "torch.autocast('cpu')",
    "Functions()",
    "Dispatched()",
    "torch.autograd.profiler.profile()",
]


@pytest.mark.parametrize("mode", MODES)
def test_imported_within_a_mode(mode: str) -> None:
    script = IMPORTED.replace("MODE", mode)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == "the same\n", done.stderr
