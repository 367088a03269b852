"""Where the package is imported and run: homes, paths, variables, limits of memory; and numbers of any size."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from harness import SANITIZER

import kintsugi
from kintsugi import _environment

ROOT = Path(__file__).resolve().parents[2]
NO_PASSWD = """
import os, pwd
def nobody(uid):
    raise KeyError(uid)
pwd.getpwuid = nobody
os.environ.pop("HOME", None)
"""


def run(code: str, environment: dict[bytes, bytes] | None = None) -> subprocess.CompletedProcess[str]:
    env = dict(os.environb)
    env.update(environment or {})
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, errors="replace", env=env, timeout=300
    )


def test_without_a_home_or_a_passwd_entry() -> None:
    code = NO_PASSWD + "import kintsugi; print(kintsugi.config.cache_dir)"
    done = run(code, {b"TMPDIR": b"/tmp"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"/tmp/kintsugi-{os.getuid()}"


def test_a_tilde_without_a_home_is_one_sentence() -> None:
    done = run(NO_PASSWD + "import kintsugi", {b"KINTSUGI_CACHE_DIR": b"~/cache"})
    assert done.returncode != 0
    assert done.stderr.strip().splitlines()[-1] == (
        "ValueError: KINTSUGI_CACHE_DIR=~/cache in the environment: there is no home directory that ~ could stand for"
    )


COMPILES = """
import kintsugi, torch
compiled = kintsugi.compile(lambda x: (x.exp() + 1).sin(), backend="native", options={"sync": True})
with torch.no_grad():
    for _ in range(3):
        compiled(torch.ones(64))
info = kintsugi.cache_info()
print(info.disk_files, info.compiled, info.loaded)
"""


@pytest.mark.parametrize("variable", [b"HOME", b"KINTSUGI_CACHE_DIR", b"TMPDIR"])
def test_paths_that_are_not_utf8(variable: bytes, tmp_path: Path) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(folder)
    environment = {b"HOME": os.fsencode(tmp_path), variable: folder}
    first = run(COMPILES, environment)
    assert first.returncode == 0, first.stderr
    files, compiled, loaded = map(int, first.stdout.split())
    assert files >= compiled > 0 and loaded == 0
    assert run(COMPILES, environment).stdout.split()[1:] == ["0", str(compiled)]


@pytest.mark.parametrize("name", ["audit", "recompile_limit", "disk_cache_limit", "memory_pool_limit"])
@pytest.mark.parametrize("value", [2**63, 10**23, 10**6000], ids=["64 bits", "23 digits", "6000 digits"])
def test_numbers_beyond_64_bits_are_one_sentence(name: str, value: int) -> None:
    with pytest.raises(
        ValueError, match=f"kintsugi.config.{name}: expected a number of at most 9223372036854775807, got"
    ) as raised:
        setattr(kintsugi.config, name, value)
    assert len(str(raised.value)) < 200
    if name in ("audit", "recompile_limit"):
        with pytest.raises(ValueError, match=f"option '{name}' must be an int from 1 to 9223372036854775807"):
            kintsugi.compile(torch.sin, options={name: value})


@pytest.mark.parametrize("text", ["9" * 23, "9" * 5000], ids=["23 digits", "5000 digits"])
def test_numbers_of_the_environment_beyond_64_bits(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A program starts all the same, with the largest number that there is, and a line says so."""
    settings = type(kintsugi.config)()
    settings.load_environment({"KINTSUGI_AUDIT": text})
    assert settings.audit == 2**63 - 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[kintsugi] KINTSUGI_AUDIT=999") and "at most 9223372036854775807" in line
    assert len(line) < 250


@pytest.mark.parametrize("text", ["1e3", "0x10", "-1", "", " 3"])
def test_numbers_of_the_environment(text: str) -> None:
    settings = type(kintsugi.config)()
    if text in ("", " 3"):
        settings.load_environment({"KINTSUGI_AUDIT": text})
        assert settings.audit == (3 if text else 0)
        return
    with pytest.raises(
        ValueError, match="^KINTSUGI_AUDIT=.* in the environment: expected a number"
    ) as raised:
        settings.load_environment({"KINTSUGI_AUDIT": text})
    assert len(str(raised.value)) < 200


def test_the_largest_numbers_are_taken() -> None:
    with kintsugi.config.patch(
        recompile_limit=2**63 - 1, memory_pool_limit=2**63 - 1, disk_cache_limit=2**63 - 1
    ):
        compiled = kintsugi.compile(lambda x: x + 1, backend="eager")
        assert compiled(torch.ones(1)).item() == compiled(torch.ones(1)).item() == 2


def test_misspelt_variables_are_named_once() -> None:
    names = {b"KINTSUGI_AUDTI": b"1", b"KINTSUGI_RECOMPILE_LIMITS": b"3", b"KINTSUGI_\xff\x1b": b"x"}
    done = run("import kintsugi", {**names, b"KINTSUGI_LOGS": b""})
    assert done.returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if "KINTSUGI_" in line]
    assert "KINTSUGI_AUDTI (did you mean KINTSUGI_AUDIT?)" in line
    assert "KINTSUGI_RECOMPILE_LIMITS (did you mean KINTSUGI_RECOMPILE_LIMIT?)" in line
    assert "\x1b" not in line


def test_known_variables_are_not_complained_of() -> None:
    assert _environment.complaint(dict.fromkeys(_environment.known(), "1")) is None
    assert _environment.complaint({"KINTSUGIX": "1", "PATH": ""}) is None


def test_whatever_is_read_is_known() -> None:
    """Each name in a string of a program here, where it is no name of a macro or a package."""
    before = r"""(?:environ(?:\.get|\.pop|\.setdefault)?[(\[]|getenv\(|\|\s*\{|env=\{.*?)"""
    read = re.compile(before + r"""\s*["'](KINTSUGI_\w+)["']""")
    found = set()
    for folder in ("python", "csrc", "tests", "scripts", "bench"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".cc", ".h", ".sh"):
                found |= set(read.findall(path.read_text(encoding="utf-8")))
            if path.suffix == ".sh":
                found |= set(re.findall(r"\$\{?(KINTSUGI_\w+)", path.read_text(encoding="utf-8")))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found |= set(re.findall(r"^\s+(KINTSUGI_\w+)=", makefile, re.MULTILINE))
    assert {"KINTSUGI_LOGS", "KINTSUGI_EXT_DIR", "KINTSUGI_PERF_MAP", "KINTSUGI_BLESS"} <= found
    assert found <= _environment.known()
    # And nothing is known that nobody reads.
    assert set(_environment.OTHERS) <= found


def address_space(module: str) -> int:
    code = f"import {module}; print(int(open('/proc/self/statm').read().split()[0]) * 4096)"
    return int(run(code).stdout)


@pytest.mark.skipif(SANITIZER, reason="shadow memory")
def test_the_import_takes_little_address_space() -> None:
    assert address_space("kintsugi") - address_space("torch") < 64 << 20


@pytest.mark.skipif(SANITIZER, reason="shadow memory")
def test_life_under_ulimit_v(tmp_path: Path) -> None:
    """With a quarter of a gigabyte beyond torch, models run natively, and what can't be had is eager's error."""
    limit = address_space("torch") + (400 << 20)
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
import torch
torch.set_num_threads(1)
import kintsugi
def f(x):
    return torch.sort((x / 2 + 1).sin(), dim=0).values * 2
compiled = kintsugi.compile(f, backend="native", options={{"sync": True}})
with torch.no_grad():
    x = torch.randn(512, 512)
    for _ in range(30):
        kept = [compiled(x) for _ in range(4)]
    torch.testing.assert_close(kept[0], f(x))
    assert kintsugi.cache_info().pool_used > 0
    del kept
    # Idle memory of runs is given back before anything else fails.
    free = {limit} - int(open("/proc/self/statm").read().split()[0]) * 4096
    large = compiled(torch.randn(2, (free + (8 << 20)) // 48))
    try:
        compiled(torch.randn(1 << 28))
    except RuntimeError as error:
        assert "allocate" in str(error), error
    else:
        raise SystemExit("more than there is")
    torch.testing.assert_close(compiled(x), f(x))
print("lived")
"""
    done = run(code, {b"KINTSUGI_CACHE_DIR": os.fsencode(tmp_path)})
    assert done.stdout == "lived\n", done.stderr[-2000:]


SANDBOXED = """
import types, builtins
from unittest import mock
import torch, kintsugi

def body(x):
    return x + 1

def refuse(name, *args, **kwargs):
    raise ImportError(name)

restricted = types.FunctionType(body.__code__, {"__builtins__": {"len": len}})
if CASE == "no __import__":
    result = kintsugi.compile(restricted, backend=BACKEND)(torch.ones(1))
else:
    compiled = kintsugi.compile(body, backend=BACKEND)
    with mock.patch("builtins.__import__", refuse):
        result = compiled(torch.ones(1))
print(result)
"""


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("case", ["no __import__", "an __import__ that raises"])
def test_the_core_does_not_import_by_the_program_s_import(case: str, backend: str) -> None:
    """In the first call of a process: what the core needs is looked up then."""
    program = f"CASE, BACKEND = {case!r}, {backend!r}\n{SANDBOXED}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.strip() == "tensor([2.])"


MISSING = """
import enum, functools, math, operator, sys, types
import torch, kintsugi

class Kind(enum.Enum):
    A = 1
    B = 2

def f(x, kind, k):
    more = functools.partial(torch.add, x)
    numbers = [k, 2, 3]
    numbers[0] = numbers[k] + 1
    made = (more(1) if kind is Kind.A else more(2)) + numbers[0] + math.floor(2.5)
    return made + functools.reduce(operator.add, [1, 2]) + Kind(1).value

for name in ("functools", "_functools", "operator", "_operator", "enum", "copyreg", "logging", "math"):
    sys.modules[name] = OTHER
compiled = kintsugi.compile(f, backend=BACKEND)
for k in range(6):
    args = torch.ones(2), (Kind.A, Kind.B)[k % 2], k % 3
    assert torch.equal(compiled(*args), f(*args))
"""


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("other", ["None", "types.ModuleType('other')"])
def test_the_core_needs_no_entries_of_sys_modules(other: str, backend: str) -> None:
    """As tests do that pretend that a module is missing."""
    program = MISSING.replace("OTHER", other).replace("BACKEND", repr(backend))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]


REPLACED = """
import math, operator, torch, kintsugi

def f(x, n):
    return x * math.floor(n) + operator.index(3), torch.relu(x), max(2, 3)

x = torch.tensor([-1.0, 2.0])
math.floor = lambda n: 7
operator.index = lambda n: 11
torch.relu = lambda x: x - 1
compiled = kintsugi.compile(f, backend="eager")
for _ in range(3):
    (a, b, c), (d, e, g) = compiled(x, 2.5), f(x, 2.5)
    assert torch.equal(a, d) and torch.equal(b, e) and c == g, (a, b, c, d, e, g)
"""


def test_what_is_replaced_before_the_first_call_is_not_taken_for_the_original() -> None:
    done = run(REPLACED)
    assert done.returncode == 0, done.stderr


IMPORTS = """
import sys, torch, kintsugi
from torch.utils.checkpoint import checkpoint

class Finder:  # as packages have that hook into imports
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None

sys.meta_path.insert(0, Finder)
w = torch.nn.Parameter(torch.ones(3))

def f(x):
    return checkpoint(lambda a: (a * w).sin() * 2, x, use_reentrant=False)

before = set(sys.modules)
x = torch.rand(3, 3)
compiled = kintsugi.compile(f, fullgraph=True, backend="eager")
result = compiled(x)
assert len(set(sys.modules) - before) > 10, "nothing is imported in the first call any more"
assert torch.equal(result, f(x)) and torch.equal(compiled(x), result)
"""


def test_what_torch_imports_in_the_first_call_is_no_code_of_the_program() -> None:
    done = run(IMPORTS)
    assert done.returncode == 0, done.stderr


BESIDE = """
import sys, threading, torch, kintsugi
sys.setrecursionlimit(10**6)

def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)

started, ended = threading.Event(), threading.Event()

def records(x):
    started.set()
    while not ended.wait(0.01):
        x = x + 1
    return x

thread = threading.Thread(target=kintsugi.compile(records, backend="eager"), args=(torch.zeros(2),))
thread.start()
started.wait()
levels = 600 if sys.version_info[:2] == (3, 12) else 2000  # 3.12 allows 1,500 levels of C code; a call is two here
try:
    assert deep(levels) == levels
    try:
        assert deep(200_000) == 200_000
    except RecursionError:
        pass
finally:
    ended.set()
    thread.join()
"""


@pytest.mark.skipif(SANITIZER, reason="frames need more of the C stack")
def test_deep_recursion_while_another_thread_records() -> None:
    done = run(BESIDE)
    assert done.returncode == 0, done.stderr


DEEP = """
import os, resource, sys, threading
limit = {limit}
hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
import torch, kintsugi
resource.setrlimit(resource.RLIMIT_STACK, (limit, hard))
sys.setrecursionlimit(10**6)

def deep(x, n):
    return x + 1 if n == 0 else deep(x, n - 1) + 1

def check():
    x = torch.zeros(2)
    assert kintsugi.compile(deep, backend="eager")(x, 300)[0] == 301
    # Beyond the C stack of the interpreter of recordings; eager mode needs none.
    assert kintsugi.compile(deep, backend="eager")(x, 100000)[0] == 100001

def forked():
    child = os.fork()
    if child == 0:
        check()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def started(function):
    errors = []
    def caught():
        try:
            function()
        except BaseException as error:
            errors.append(error)
    thread = threading.Thread(target=caught)
    thread.start()
    thread.join()
    assert not errors, errors

{place}
"""


@pytest.mark.skipif(SANITIZER, reason="frames of another size")
@pytest.mark.parametrize("place", ["check()", "forked()", "started(check)", "started(forked)"])
@pytest.mark.parametrize("limit", ["4 << 20", "8 << 20", "100 << 20"])
def test_the_stack_of_each_thread_is_known(place: str, limit: str) -> None:
    done = run(DEEP.format(place=place, limit=limit))
    assert done.returncode == 0, done.stderr
