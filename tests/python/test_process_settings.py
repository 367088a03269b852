"""What native code asks the process once, it asks in its own words: the program's settings are none of the question."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each runs before the first native code of a process is built.
SETTINGS = {
    "default_dtype_double": "torch.set_default_dtype(torch.float64)",
    "default_dtype_bfloat16": "torch.set_default_dtype(torch.bfloat16)",
    "default_device_meta": "torch.set_default_device('meta')",
    "default_tensor_type": "torch.set_default_tensor_type(torch.DoubleTensor)",
    "deterministic": "torch.use_deterministic_algorithms(True)",
    "inference_mode": "torch.autograd.grad_mode.inference_mode().__enter__()",
    "autocast": "torch.autocast('cpu', dtype=torch.bfloat16).__enter__()",
    "flush_denormal": "torch.set_flush_denormal(True)",
    "anomalies": "torch.autograd.set_detect_anomaly(True)",
    "threads": "torch.set_num_threads(1)",
}
PROGRAM = """
import warnings
warnings.simplefilter("ignore")
import torch, kintsugi
{setting}

def f(x):
    y = torch.nn.functional.gelu(x * 2) + torch.nn.functional.gelu(x, approximate="tanh")
    return torch.erf(y), torch.tanh(y).sum(-1), (x * 3).sigmoid().log()

compiled = kintsugi.compile(f, backend="native", options={{"sync": True}})
for k in range(3):
    x = torch.linspace(-31, 31, 96, dtype=torch.float32, device="cpu").reshape(4, 24) + k
    for a, b in zip(compiled(x), f(x), strict=True):
        assert a.dtype == b.dtype and a.stride() == b.stride(), (a.dtype, b.dtype)
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
print(compiled.stats().native_runs > 0)
"""


@pytest.mark.parametrize("name", SETTINGS)
def test_first_native_code_under(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(setting=SETTINGS[name])],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert name in ("autocast", "default_device_meta", "anomalies") or ran.stdout.strip() == "True"
