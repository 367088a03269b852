"""Packages: what was compiled in one process is used by another, where it fits, and nowhere else.

Each program is a file that runs in two new processes: `write` compiles, calls and packs; `read` loads, calls, compares
with eager mode, and says how many calls were recorded.
"""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import kintsugi

COMMON = """
import contextlib, io, json, os, sys, time
import torch, kintsugi

kintsugi.config.eager_when_faster = False
torch.manual_seed(0)


def same(a, b):
    assert type(a) is type(b), (a, b)
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        assert a.requires_grad == b.requires_grad
        torch.testing.assert_close(a, b, rtol=EXACT, atol=EXACT)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    else:
        assert a == b, (a, b)


def spoken(run):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        value = run()
    return value, out.getvalue()


def main():
    global EXACT
    mode, path, backend = sys.argv[1:4]
    EXACT = 1e-5 if backend == "native" else 0
    options = dict(backend=backend)
    if backend == "native":
        options["options"] = {"sync": True}
    model = make()
    if mode == "write":
        compiled = kintsugi.compile(model, **options)
        for _ in range(3):
            for args in calls():
                spoken(lambda: compiled(*args))
        kintsugi.wait()
        report = kintsugi.package(compiled, path)
        print(json.dumps({"traces": report.traces, "sides": report.side_traces, "left_out": report.left_out}))
        return
    compiled = kintsugi.load_package(model, path, **options)
    times = []
    for args, again in zip(calls(), calls()):
        eager = spoken(lambda: make()(*again))
        start = time.perf_counter()
        got = spoken(lambda: compiled(*args))
        times.append(time.perf_counter() - start)
        same(got, eager)
        for args2 in (args, again):
            torch.manual_seed(0)
        same(spoken(lambda: compiled(*again)), spoken(lambda: make()(*again)))
    stats = compiled.stats()
    report = kintsugi.package_report(compiled)
    print(json.dumps({"misses": stats.misses, "traces": stats.trace_count, "used": report.traces,
        "sides": stats.side_traces, "exits": stats.side_exits, "ready": stats.native_ready,
        "waiting": report.waiting, "left_out": report.left_out, "times": times}))
"""

MAIN = """
if __name__ == "__main__":
    main()
"""


class Program:
    """A file that can be run, and rewritten in between."""

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        self.package = folder / "program.package"
        self.write(source)

    def write(self, source: str) -> None:
        (self.folder / "program.py").write_text(COMMON + textwrap.dedent(source) + MAIN)

    def run(self, mode: str, backend: str, **environment: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "program.py", mode, str(self.package), backend],
            cwd=self.folder,
            env={**os.environ, "KINTSUGI_CACHE_DIR": str(self.folder / "cache"), **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        result["stderr"] = done.stderr
        return result


def both(folder: Path, source: str, backend: str, traces: int = 1) -> tuple[Program, dict[str, Any]]:
    """Written and read: nothing is recorded in the second process."""
    program = Program(folder, source)
    written = program.run("write", backend)
    assert written["traces"] == traces, written
    assert written["left_out"] == [], written
    read = program.run("read", backend)
    assert read["used"] == traces, read
    return program, read


backends = pytest.mark.parametrize("backend", ["eager", "native"])

FUNCTION = """
    SCALE = 3
    LIMITS = (0.5, 2.0)

    def helper(x, low=0.0):
        return x.clamp(low, LIMITS[1]) * SCALE

    def function(x, y):
        return helper(torch.sin(x)) + helper(y, low=-1.0) - LIMITS[0]

    def make():
        return function

    def calls():
        return [(torch.linspace(-1, 1, 12).reshape(3, 4), torch.ones(3, 4))]
"""


@backends
def test_function_with_globals_and_defaults(tmp_path: Path, backend: str) -> None:
    _, read = both(tmp_path, FUNCTION, backend)
    assert read["traces"] == 1 and read["left_out"] == []


@backends
def test_closure(tmp_path: Path, backend: str) -> None:
    source = """
        def make(k=5):
            bias = torch.full((4,), 0.25)
            def inner(x):
                return x * k + bias
            return inner

        def calls():
            return [(torch.linspace(-1, 1, 12).reshape(3, 4),)]
    """
    _, read = both(tmp_path, source, backend)
    assert read["traces"] == 1


MLP = """
    class MLP(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(8, 16)
            self.norm = torch.nn.LayerNorm(16)
            self.last = torch.nn.Linear(16, 4)
            self.scale = 0.5

        def forward(self, x):
            return self.last(torch.nn.functional.gelu(self.norm(self.first(x)))) * self.scale

    def make():
        torch.manual_seed(0)
        return MLP()

    def calls():
        return [(torch.linspace(-1, 1, 24).reshape(3, 8),)]
"""


@backends
def test_module(tmp_path: Path, backend: str) -> None:
    _, read = both(tmp_path, MLP, backend)
    assert read["traces"] == 1


@backends
def test_printing(tmp_path: Path, backend: str) -> None:
    source = """
        seen = []

        def function(x, name):
            print("called with", tuple(x.shape), name)
            return x + 1

        def make():
            return function

        def calls():
            return [(torch.ones(3), "a")]
    """
    both(tmp_path, source, backend)


@backends
def test_side_trace(tmp_path: Path, backend: str) -> None:
    source = """
        def function(x):
            y = x * 2
            if y.sum() > 0:
                return y + 1
            return y.abs() - 1

        def make():
            return function

        def calls():
            return [(torch.ones(3),), (-torch.ones(3),)]
    """
    _, read = both(tmp_path, source, backend)
    assert read["sides"] == 1 and read["exits"] == 0 and read["misses"] == 1


@backends
def test_training(tmp_path: Path, backend: str) -> None:
    source = """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = torch.nn.Linear(6, 6)
                self.b = torch.nn.Linear(6, 2)

            def forward(self, x):
                return self.b(torch.tanh(self.a(x)))

        def make():
            torch.manual_seed(0)
            return Net()

        def calls():
            return [(torch.linspace(-1, 1, 18).reshape(3, 6).requires_grad_(),)]
    """
    program, _ = both(tmp_path, source, backend)
    # Gradients, too.
    program.write(
        source
        + """
        def main():
            path, backend = sys.argv[2:4]
            model, twin = make(), make()
            options = {"sync": True} if backend == "native" else None
            compiled = kintsugi.load_package(model, path, backend=backend, options=options)
            for _ in range(3):
                x, z = torch.ones(3, 6, requires_grad=True), torch.ones(3, 6, requires_grad=True)
                compiled(x).square().sum().backward()
                twin(z).square().sum().backward()
                torch.testing.assert_close(x.grad, z.grad)
                for a, b in zip(model.parameters(), twin.parameters()):
                    torch.testing.assert_close(a.grad, b.grad)
            print(json.dumps({"misses": compiled.stats().misses, "used": kintsugi.package_report(compiled).traces}))
        """
    )
    read = program.run("read", backend)
    assert read["used"] == 1 and read["misses"] == 1


@backends
def test_bert(tmp_path: Path, backend: str) -> None:
    pytest.importorskip("transformers")
    source = """
        from transformers import BertConfig, BertModel

        def make():
            torch.manual_seed(0)
            config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                vocab_size=100, max_position_embeddings=32, attn_implementation="sdpa")
            model = BertModel(config).eval().requires_grad_(False)
            return lambda ids, model=model: model(ids).last_hidden_state

        def calls():
            return [(torch.arange(10).reshape(1, 10),)]
    """
    _, read = both(tmp_path, source, backend)
    assert read["traces"] == 1


# -- What does not fit is recorded anew


CHANGES = {
    "code": ("return x.clamp(low, LIMITS[1]) * SCALE", "return x.clamp(low, LIMITS[1]) * SCALE + 1"),
    "constant": ("SCALE = 3", "SCALE = 4"),
    "type of a constant": ("SCALE = 3", "SCALE = 3.0"),
    "tuple": ("LIMITS = (0.5, 2.0)", "LIMITS = (0.5, 1.0)"),
    "default": ("def helper(x, low=0.0)", "def helper(x, low=0.25)"),
    "entry": ("- LIMITS[0]", "+ LIMITS[0]"),
    "another function of that name": (
        "def function(x, y)",
        "def other(x, low=0.0):\n        return x - low\n    helper = other\n\n    def function(x, y)",
    ),
    "what is called": ("torch.sin(x)", "torch.cos(x)"),
    "patched torch": ("def make", "torch.sin = torch.cos\n\n    def make"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_programs_are_right(tmp_path: Path, change: str) -> None:
    program, _ = both(tmp_path, FUNCTION, "eager")
    old, new = CHANGES[change]
    assert old in FUNCTION
    program.write(FUNCTION.replace(old, new))
    read = program.run("read", "eager")
    # It compares with eager mode: no trace of the old program has served a call.
    assert read["traces"] >= 1


CLASSES = """
    class Base:
        factor = 2

        @property
        def bias(self):
            return 1.0

        def apply(self, x):
            return x * self.factor + self.bias

    class Derived(Base):
        pass

    THING = Derived()

    def function(x):
        return THING.apply(x)

    def make():
        return function

    def calls():
        return [(torch.ones(3),)]
"""
CLASS_CHANGES = {
    "attribute": ("factor = 2", "factor = 3"),
    "property": ("return 1.0", "return 2.0"),
    "method": ("self.factor +", "self.factor -"),
    "overridden": ("    pass", "    factor = 5"),
    "bases": (
        "class Derived(Base)",
        "class Between(Base):\n        factor = 7\n\n    class Derived(Between)",
    ),
    "instance": ("THING = Derived()", "THING = Derived()\n    THING.factor = 9"),
    "class": ("THING = Derived()", "THING = Base()\n    THING.factor = 8"),
    "getattribute": (
        "    pass",
        "    def __getattribute__(self, name):\n            value = object.__getattribute__(self, name)\n"
        "            return value + 1 if name == 'factor' else value",
    ),
}


@pytest.mark.parametrize("change", CLASS_CHANGES)
def test_changed_classes_are_right(tmp_path: Path, change: str) -> None:
    program, _ = both(tmp_path, CLASSES, "eager")
    old, new = CLASS_CHANGES[change]
    assert old in CLASSES
    program.write(CLASSES.replace(old, new))
    program.run("read", "eager")


def test_lines_and_comments_may_move(tmp_path: Path) -> None:
    program, _ = both(tmp_path, FUNCTION, "eager")
    program.write("\n    # a comment\n\n" + FUNCTION)
    assert program.run("read", "eager")["used"] == 1


def test_other_arguments_and_options_are_recorded(tmp_path: Path) -> None:
    program, _ = both(tmp_path, FUNCTION, "eager")
    program.write(FUNCTION.replace("torch.ones(3, 4)", "torch.ones(3, 4, dtype=torch.float64)"))
    read = program.run("read", "eager")
    assert read["traces"] == 2
    program.write(FUNCTION)
    read = program.run("read", "native")
    assert read["used"] == 0 and "other options" in read["left_out"][0][1]


ABSTRACT = """
    import abc

    class Shape(abc.ABC):
        pass

    class Square:
        pass

    SQUARE = Square()

    def function(x):
        return x + 1 if isinstance(SQUARE, Shape) else x - 1

    def make():
        return function

    def calls():
        return [(torch.ones(3),)]
"""


def test_registered_classes(tmp_path: Path) -> None:
    program, _ = both(tmp_path, ABSTRACT, "eager")
    program.write(ABSTRACT.replace("SQUARE = Square()", "SQUARE = Square()\n    Shape.register(Square)"))
    program.run("read", "eager")


SAME_CODE = """
    def make_method(k):
        def method(self, x):
            return x * k
        return method

    kept = make_method(1)

    class Thing:
        method = kept

    THING = Thing()

    def function(x):
        return THING.method(x)

    def make():
        return function

    def calls():
        return [(torch.ones(3),)]
"""


def test_functions_of_the_same_code_are_told_apart(tmp_path: Path) -> None:
    program, _ = both(tmp_path, SAME_CODE, "eager")
    program.write(SAME_CODE.replace("method = kept", "method = make_method(2)"))
    assert program.run("read", "eager")["used"] == 0


def test_what_c_code_keeps_is_left_out(tmp_path: Path) -> None:
    source = """
        import operator

        first = operator.itemgetter(0)

        def function(x):
            return x + first((1, 2))

        def make():
            return function

        def calls():
            return [(torch.ones(3),)]
    """
    written = Program(tmp_path, source).run("write", "eager")
    assert written["traces"] == 0 and "itemgetter" in written["left_out"][0][1]


def test_hashes_and_orders_of_sets_are_this_process_own(tmp_path: Path) -> None:
    source = """
        def function(x, names):
            out = []
            for name in {"alpha", "beta", "gamma", "delta"}:
                out.append(x + len(name))
            return out, hash("alpha") % 7

        def make():
            return function

        def calls():
            return [(torch.ones(3), ())]
    """
    program = Program(tmp_path, source)
    written = program.run("write", "eager", PYTHONHASHSEED="1")
    assert written["traces"] == 0 and len(written["left_out"]) == 1
    assert program.run("read", "eager", PYTHONHASHSEED="2")["used"] == 0


def test_hash_seed_does_not_matter_otherwise(tmp_path: Path) -> None:
    program = Program(tmp_path, MLP)
    program.run("write", "eager", PYTHONHASHSEED="1")
    assert program.run("read", "eager", PYTHONHASHSEED="2")["used"] == 1


def test_other_versions_are_refused(tmp_path: Path) -> None:
    program, _ = both(tmp_path, FUNCTION, "eager")
    from kintsugi import _package_file

    content = program.package.read_bytes()
    body = json.loads(content.split(b"\n", 2)[2])
    body["versions"]["torch"] = "1.0"
    text = json.dumps(body).encode()
    import hashlib

    program.package.write_bytes(
        _package_file.MAGIC + hashlib.sha256(text).hexdigest().encode() + b"\n" + text
    )
    read = program.run("read", "eager")
    assert read["used"] == 0 and "another version: torch" in read["left_out"][0][1]


# -- Files


def square(x: torch.Tensor) -> torch.Tensor:
    return x.square() + 1


@pytest.fixture
def written(tmp_path: Path) -> Path:
    compiled = kintsugi.compile(square, backend="eager")
    compiled(torch.ones(3))
    assert kintsugi.package(compiled, tmp_path / "square.package").traces == 1
    return tmp_path / "square.package"


def loads(path: Path) -> tuple[int, str]:
    """Misses of a call of a callable that has the package, and why it is not used."""
    compiled = kintsugi.load_package(square, path, backend="eager")
    torch.testing.assert_close(compiled(torch.full((3,), 2.0)), torch.full((3,), 5.0))
    report = kintsugi.package_report(compiled)
    return compiled.stats().trace_count - report.traces, "; ".join(reason for _, reason in report.left_out)


def test_a_file_is_the_users_alone(written: Path) -> None:
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert [file.name for file in written.parent.iterdir()] == [written.name]
    assert loads(written) == (0, "")


def test_files_that_others_may_write_are_refused(written: Path) -> None:
    written.chmod(0o666)
    assert loads(written) == (1, "others may write it")


def test_damaged_files_are_refused(written: Path) -> None:
    content = written.read_bytes()
    draw = random.Random(0)
    for _ in range(40):
        written.write_bytes(content[: draw.randrange(len(content))])
        assert loads(written)[0] == 1
        flipped = bytearray(content)
        flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
        written.write_bytes(bytes(flipped))
        assert loads(written)[0] == 1
    written.write_bytes(content)
    assert loads(written) == (0, "")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        kintsugi.load_package(square, tmp_path / "none", backend="eager")
    (tmp_path / "folder").mkdir()
    assert loads(tmp_path / "folder") == (1, "it is no file")


def mutations(row: Any, draw: random.Random) -> Any:
    """The same with one part changed at random, or left out."""
    if isinstance(row, dict) and row:
        key = draw.choice(sorted(row))
        if draw.random() < 0.1:
            return {k: v for k, v in row.items() if k != key}
        return {**row, key: mutations(row[key], draw)}
    if isinstance(row, list) and row:
        at = draw.randrange(len(row))
        if draw.random() < 0.2:
            return row[:at] + row[at + 1 :]
        return [*row[:at], mutations(row[at], draw), *row[at + 1 :]]
    if isinstance(row, str) and row and draw.random() < 0.7:
        at = draw.randrange(len(row))
        return row[:at] + draw.choice("0123456789%$#!@ab ") + row[at + 1 :]
    return draw.choice([None, 0, -1, 2**70, 7, "x", [], {}, True, 0.5])


def test_hostile_contents_crash_nothing(written: Path) -> None:
    """With a right checksum: whatever is in it, it is refused, or is a trace that can be run."""
    from kintsugi import _package_file

    rows = _package_file.decode(written.read_bytes())
    draw = random.Random(1)
    refused = 0
    for _ in range(400):
        changed = rows[0]
        for _ in range(draw.randrange(1, 4)):
            changed = {**changed, "traces": mutations(changed["traces"], draw)}
        if not isinstance(changed["traces"], list):
            continue
        written.write_bytes(_package_file.encode([changed]))
        compiled = kintsugi.load_package(square, written, backend="eager")
        core = compiled._kintsugi_compiled
        # What the trace computes is the file's word; that it is a trace is not.
        core(torch.full((3,), 2.0)) if not kintsugi.package_report(compiled).left_out else None
        refused += kintsugi.package_report(compiled).traces == 0
    assert refused > 200


# -- cache=, artifacts, ahead of time


def test_cache(tmp_path: Path) -> None:
    source = """
        def function(x):
            return x.exp() * 2

        def make():
            return function

        def main():
            compiled = kintsugi.compile(function, backend="eager", cache=sys.argv[2])
            torch.testing.assert_close(compiled(torch.ones(3)), function(torch.ones(3)))
            print(json.dumps({"used": kintsugi.package_report(compiled).traces}))
    """
    program = Program(tmp_path, source)
    assert program.run("run", "eager")["used"] == 0
    first = program.package.stat()
    assert program.run("run", "eager")["used"] == 1
    assert program.package.stat().st_mtime_ns == first.st_mtime_ns  # nothing new


def test_artifacts(tmp_path: Path) -> None:
    source = """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = torch.nn.Linear(4, 4)

            def forward(self, x):
                return self.a(x).relu()

        def function(x):
            return x.exp() * 2

        def main():
            mode, path = sys.argv[1:3]
            info = None
            if mode == "read":
                info = kintsugi.load_cache_artifacts(open(path, "rb").read())
            fns = [kintsugi.compile(f, backend="eager") for f in (function, Net())]
            for f in fns:
                f(torch.ones(2, 4))
            if mode == "write":
                content, info = kintsugi.save_cache_artifacts()
                open(path, "wb").write(content)
            print(json.dumps({"used": [kintsugi.package_report(f).traces for f in fns], "callables": info.callables,
                "traces": info.traces}))
    """
    program = Program(tmp_path, source)
    assert program.run("write", "eager") == {"used": [0, 0], "callables": 2, "traces": 2, "stderr": ""}
    assert program.run("read", "eager")["used"] == [1, 1]


def test_artifacts_that_are_none() -> None:
    assert kintsugi.load_cache_artifacts(b"something else") is None


def test_ahead_of_time(tmp_path: Path) -> None:
    source = """
        def function(x, *, scale):
            return x.exp() * scale

        def main():
            mode, path, backend = sys.argv[1:4]
            if mode == "write":
                compiled = kintsugi.compile(function, backend=backend, fullgraph=True)
                made = compiled.aot_compile(((torch.ones(3),), {"scale": 2}))
                assert made.save_compiled_function(path).traces == 1
                print("{}")
                return
            loaded = kintsugi.load_compiled_function(path)
            torch.testing.assert_close(loaded(torch.ones(3), scale=2), function(torch.ones(3), scale=2))
            print(json.dumps({"used": kintsugi.package_report(loaded).traces}))
    """
    program = Program(tmp_path, source)
    program.run("write", "eager")
    assert program.run("read", "eager")["used"] == 1
    program.write(
        source.replace("x.exp() * scale", "x.exp() + scale").replace("print(json", "0 and print(json")
    )
    with pytest.raises(AssertionError, match="is of another function"):
        program.run("read", "eager")


def test_wrong_use() -> None:
    with pytest.raises(TypeError, match="kintsugi.package needs what kintsugi.compile"):
        kintsugi.package(square, "x")
    with pytest.raises(TypeError, match="package_report needs"):
        kintsugi.package_report(square)
