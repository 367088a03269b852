"""The programs of three guides to torch.compile, unedited but for the import, and what they promise that one finds out.

Each program is the guide's text; `import kintsugi.as_torch as torch` (or `kintsugi.torchdynamo as torchdynamo`) stands
where it imported torch. docs/howto/find-out.md has the table of the claims; a test here is named after each row.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAD = "import kintsugi.as_torch as torch\nimport torch.nn as nn\n"


def run(
    program: str, tmp_path: Path, head: str = HEAD, **environment: str
) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "program.py"
    path.write_text(head + textwrap.dedent(program))
    return subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def good(program: str, tmp_path: Path, head: str = HEAD, **environment: str) -> str:
    done = run(program, tmp_path, head, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + "\n--- stderr\n" + done.stderr


PRINT = """
class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(128, 128)
    def forward(self, x):
        x = self.linear(x)
        print(f"Shape: {x.shape}") # This causes a graph break!
        return x.relu()
model = MyModel()
compiled_model = torch.compile(model)
x = torch.randn(32, 128)
output = compiled_model(x)
"""

EXPLAIN = """
class ProblematicModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3)
        self.conv2 = nn.Conv2d(64, 128, 3)
    def forward(self, x):
        x = self.conv1(x)
        # Graph break here
        if x.max() > 0.5:
            x = x * 2
        x = self.conv2(x)
        return x
model = ProblematicModel()
# Explain compilation without actually compiling
explanation = torch._dynamo.explain(model)(torch.randn(1, 3, 32, 32))
print(explanation.graph_break_count) # Shows number of breaks
print(explanation.break_reasons) # Lists specific reasons
"""

VERBOSE = """
torch._dynamo.config.verbose = True
torch._dynamo.config.log_level = "INFO"
import zlib
def model(x):
    return x + zlib.crc32(b"a")
compiled_model = torch.compile(model, backend="eager")
compiled_model(torch.ones(2))
"""

PATTERNS = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = self.encoder = self.process = nn.Linear(4, 4)
        self.layer2 = self.path_a = self.path_b = nn.Linear(4, 4)
    def one(self, x):
        x = self.layer1(x)
        # Use torch._dynamo.is_compiling() to conditionally print
        if not torch._dynamo.is_compiling():
            print(f"After layer1: {x.shape}")
        x = self.layer2(x)
        return x
    def two(self, x):
        x = self.encoder(x)
        # Data-dependent branching
        if x.mean() > 0:
            x = self.path_a(x)
        else:
            x = self.path_b(x)
        return x
    def three(self, x, mask):
        x = self.process(x)
        # Converting tensor to scalar
        num_valid = mask.sum().item() # Graph break!
        scale = 1.0 / num_valid
        x = x * scale
        return x
m = M()
x, mask = torch.randn(2, 4), torch.ones(2, 4)
for fn, args in ((m.one, (x,)), (m.two, (x,)), (m.three, (x, mask))):
    explanation = torch._dynamo.explain(fn)(*args)
    assert explanation.graph_break_count == 0, explanation
    assert torch.allclose(torch.compile(fn)(*args), fn(*args))
"""

AOT = """
from torch._dynamo.backends.common import aot_autograd
class DebugModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(100, 100)
        self.linear2 = nn.Linear(100, 10)
    def forward(self, x):
        x = self.linear1(x)
        x = torch.relu(x)
        # Intentional graph break
        x = x.contiguous() # May cause issues
        x = self.linear2(x)
        return x
model = DebugModel()
# Compile with AOTAutograd inspection
compiled = torch.compile(
    model,
    backend="aot_eager", # Use eager backend for debugging
    fullgraph=True # Enforce single graph (will error on breaks)
)
x = torch.randn(32, 100)
try:
    output = compiled(x)
    print("no graph break")
except Exception as e:
    print(f"Graph break detected: {e}")
"""

# `.cuda()` and the CUDA activity are left out: the tests run without an accelerator.
PROFILE = """
from torch.profiler import profile, ProfilerActivity
class SlowModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(512, 512) for _ in range(10)])
    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            # Graph break in loop
            if i % 2 == 0:
                x = x.clone() # Potential break
        return x
model = SlowModel()
compiled_model = torch.compile(model)
x = torch.randn(128, 512)
# Warmup
for _ in range(3):
    _ = compiled_model(x)
# Profile
with profile(
    activities=[ProfilerActivity.CPU],
    record_shapes=True
) as prof:
    for _ in range(10):
        output = compiled_model(x)
# Analyze
print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=10))
"""

WORKFLOW = """
from contextlib import contextmanager
import time
@contextmanager
def compile_diagnostics():
    # Store original settings
    original_verbose = torch._dynamo.config.verbose
    original_suppress_errors = torch._dynamo.config.suppress_errors
    # Enable detailed logging
    torch._dynamo.config.verbose = True
    torch._dynamo.config.suppress_errors = False
    torch._dynamo.config.log_level = "DEBUG"
    try:
        yield
    finally:
        # Restore settings
        torch._dynamo.config.verbose = original_verbose
        torch._dynamo.config.suppress_errors = original_suppress_errors
class TestModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(256, 512),
            nn.ReLU(),
            nn.Linear(512, 256)
        )
    def forward(self, x):
        return self.net(x)
def benchmark_model(model, x, warmup=50, iterations=200):
    # Warmup
    for _ in range(warmup):
        _ = model(x)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(iterations):
        _ = model(x)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    return elapsed / iterations
# Test setup
device = "cuda" if torch.cuda.is_available() else "cpu"
model = TestModel().to(device)
x = torch.randn(128, 256).to(device)
# Baseline: eager mode
eager_time = benchmark_model(model, x)
print(f"Eager mode: {eager_time*1000:.3f} ms")
# Test compilation with diagnostics
with compile_diagnostics():
    compiled_model = torch.compile(model, mode="max-autotune")
    compiled_time = benchmark_model(compiled_model, x)
    print(f"Compiled mode: {compiled_time*1000:.3f} ms")
speedup = eager_time / compiled_time
print(f"Speedup: {speedup:.2f}x")
# Check for graph breaks
explanation = torch._dynamo.explain(model)(x)
if explanation.graph_break_count > 0:
    print(f"\\nWarning: {explanation.graph_break_count} graph breaks detected!")
    print("Reasons:")
    for reason in explanation.break_reasons:
        print(f" - {reason}")
"""

TIPS = """
model = nn.Linear(4, 4)
x = torch.randn(2, 4)
compiled = torch.compile(model, dynamic=True)
compiled(x)
torch._dynamo.config.assume_static_by_default = False
torch._dynamo.config.assume_static_by_default = True
from torch.library import custom_op
@custom_op("mylib::custom_kernel", mutates_args=())
def custom_kernel(x: torch.Tensor) -> torch.Tensor:
    # Your custom CUDA kernel
    return x * 2
# Register fake implementation for tracing
@custom_kernel.register_fake
def _(x):
    return torch.empty_like(x)
assert torch._dynamo.explain(lambda x: custom_kernel(x) + 1)(x).graph_break_count == 0
backends = ["inductor", "aot_eager", "cudagraphs"]
backends.remove("inductor")  # minutes of C++ compilation; tests/python/test_modes.py has it
for backend in backends:
    try:
        compiled = torch.compile(model, backend=backend)
        output = compiled(x)
        print(f"{backend}: Success")
    except Exception as e:
        print(f"{backend}: Failed - {e}")
# Clear compilation cache
torch._dynamo.reset()
# Check cache directory
import os
print(f"Cache dir: {torch._dynamo.config.cache_dir}")
from torch.export import export
# This will fail loudly on any graph breaks
try:
    exported = export(model, (x,))
    print("Model successfully exported - no graph breaks!")
except Exception as e:
    print(f"Export failed - graph breaks present: {e}")
"""

DYNAMO_HEAD = "import torch\nimport kintsugi.torchdynamo as torchdynamo\n"

PROFILER = """
import zlib
def my_model(n=[0]):
    n[0] += 1
    return forward(torch.ones(2), "x" * n[0])
def forward(x, name):
    return x + len(name) + zlib.crc32(b"a") % 2
prof = torchdynamo.utils.CompilationProfiler()
with torchdynamo.optimize(prof):
    for _ in range(3):
        forward(torch.ones(2), "x" * (_ + 1))
print(prof.report())
"""

NOPYTHON = """
import zlib
def some_fun(x):
    return inner(x) + 1
def inner(x):
    return x + zlib.crc32(b"a")
with torchdynamo.optimize("eager", nopython=True):
    some_fun(torch.ones(2))
"""


def test_print_is_no_break(tmp_path) -> None:
    assert "Shape: torch.Size([32, 128])" in good(PRINT, tmp_path)


def test_explain_counts_and_reasons(tmp_path) -> None:
    lines = good(EXPLAIN, tmp_path).splitlines()
    assert lines[:2] == ["0", "[]"], "the branch is mended; the guide's peer counts 1"


def test_verbose_logging_names_reason_and_line(tmp_path) -> None:
    text = good(VERBOSE, tmp_path)
    assert "KTG0101" in text and "program.py:8" in text


def test_environment_variable_lists_breaks(tmp_path) -> None:
    program = VERBOSE.replace("torch._dynamo.config", "# torch._dynamo.config")
    assert "KTG0101" in good(program, tmp_path, KINTSUGI_LOGS="graph_breaks")


def test_common_patterns_are_captured_as_they_are(tmp_path) -> None:
    good(PATTERNS, tmp_path)


def test_fullgraph_with_aot_eager(tmp_path) -> None:
    assert "no graph break" in good(AOT, tmp_path), "contiguous() breaks nothing"


def test_profiler_shows_the_cost(tmp_path) -> None:
    assert "kintsugi call" in good(PROFILE, tmp_path)


@pytest.mark.slow
def test_systematic_workflow(tmp_path) -> None:
    text = good(WORKFLOW, tmp_path)
    assert re.search(r"Eager mode: [\d.]+ ms\nCompiled mode: [\d.]+ ms\nSpeedup: [\d.]+x", text)
    assert "Warning" not in text


def test_tips(tmp_path) -> None:
    text = good(TIPS, tmp_path)
    assert "aot_eager: Success" in text and "cudagraphs: Failed" in text
    assert "Cache dir: " in text and "Model successfully exported" in text


def test_recompilation_profiler(tmp_path) -> None:
    text = good(PROFILER, tmp_path, DYNAMO_HEAD)
    assert "KTG0101" in text and "guard name failed" in text and "program.py" in text


def test_nopython_raises_with_the_users_stack(tmp_path) -> None:
    done = run(NOPYTHON, tmp_path, DYNAMO_HEAD)
    assert done.returncode == 1 and "GraphBreakError" in done.stderr
    assert re.search(r'File ".*program\.py", line 6, in some_fun', done.stderr)
    assert re.search(r'File ".*program\.py", line 8, in inner', done.stderr)


def test_limits_and_debug_settings(tmp_path) -> None:
    program = """
    torchdynamo.config.cache_size_limit = 4
    torchdynamo.config.debug = True
    torchdynamo.optimize("eager")(lambda x: x + 1)(torch.ones(2))
    """
    text = good(program, tmp_path, DYNAMO_HEAD)
    assert "[GUARDS" in text and "aten.add.Tensor" in text
    done = run("torchdynamo.config.cache_size_limt = 4", tmp_path, DYNAMO_HEAD)
    assert done.returncode == 1 and "cache_size_limt" in done.stderr


def test_optimize_in_a_function_says_what_to_do(tmp_path) -> None:
    program = "def f():\n    with torchdynamo.optimize('eager'):\n        pass\nf()"
    done = run(program, tmp_path, DYNAMO_HEAD)
    assert done.returncode == 1 and "as a decorator" in done.stderr


def test_every_row_of_the_table_has_its_test() -> None:
    text = (ROOT / "docs" / "howto" / "find-out.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    here = {name for name in globals() if name.startswith("test_")}
    assert here - {"test_every_row_of_the_table_has_its_test"} <= named
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert all(f"def {name}" in sources for name in named)
