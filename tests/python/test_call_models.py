"""Every row of the models of C callables against what it promises (csrc/capture/calls/facts.h).

* Its callable is there, in this version of Python and torch.
* What it gives as a constant changes with nothing that no guard covers: each thing of the process that can be changed
  is changed between calls.
* What it folds or computes has the very type and value that eager mode gives, for arguments that vary from call to
  call, numbers known only at run time among them.
* Where it waits, what was read before is read again.
"""

from __future__ import annotations

import importlib
import itertools
import operator
import queue
import threading
import warnings
from collections.abc import Callable
from typing import Any

import call_models
import pytest
import torch

import kintsugi
from bench import compare
from kintsugi import _C

# Rows of what may be missing: of other builds of torch.
LATE = {
    "torch._C._cuda_getDeviceCount",  # of builds with CUDA
    "torch._C._cuda_isCurrentStreamCapturing",  # the same
}

ROWS = _C._call_models()
CONSTANT = [row for row in ROWS if row["kind"] == "constant" and row["objects"]]
NAMED = {id(function) for row in ROWS if not row["callable"].endswith(".*") for function in row["objects"]}
FOLDED = [
    (f"{row['callable'].removesuffix('.*')}:{getattr(function, '__name__', '?')}", function)
    for row in ROWS
    if row["kind"] in ("fold", "arithmetic")
    for function in row["objects"]
    if not (row["callable"].endswith(".*") and id(function) in NAMED)  # a row of its own goes first
]


def test_each_callable_is_there() -> None:
    for row in ROWS:
        if not row["objects"] and row["callable"].startswith(("torch.", "kintsugi.")):
            importlib.import_module(row["callable"].rpartition(".")[0])  # what `import torch` leaves out
    missing = {row["callable"] for row in _C._call_models() if not row["objects"]} - LATE
    assert not missing, f"rows whose callable this version lacks: {sorted(missing)}"


def test_a_wrapper_of_torchs_has_the_row_of_what_it_wraps() -> None:
    importlib.import_module("torch._dynamo")  # wraps torch.manual_seed
    assert torch.manual_seed is not torch.random.manual_seed
    for function in (torch.manual_seed, torch.random.manual_seed):
        row = _C._call_model(function)
        assert row is not None and row["writes_process"] and row["kind"] == "known"


def test_each_constant_names_its_state() -> None:
    assert CONSTANT and all(row["state"] for row in CONSTANT)


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, torch.Tensor):
        return a.stride() == b.stride() and compare.same_values(a, b)
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)
    if isinstance(a, (torch.finfo, torch.iinfo)):
        return repr(a) == repr(b)
    return bool(a == b) or (a != a and b != b)


def _outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "gives", call()
    except Exception as error:
        return "raises", type(error)


@pytest.mark.parametrize("row", CONSTANT, ids=lambda row: row["callable"])
def test_constants_change_with_the_state(row: dict[str, Any]) -> None:
    """Nothing of the process that a program can change may change what the row says without a guard."""
    function = row["objects"][0]
    x = torch.ones(2)
    for args in call_models.ARGUMENTS.get(row["callable"], [()]):

        def program(x: torch.Tensor, args: tuple[Any, ...] = args) -> Any:
            return x + 1, function(*args)

        if _outcome(lambda: program(x))[0] == "raises":
            continue
        compiled = kintsugi.compile(program, backend="eager")
        for _ in range(3):
            assert _same(compiled(x), program(x))
        for name, change in call_models.CHANGES.items():
            with change():
                assert _same(_outcome(lambda: compiled(x)), _outcome(lambda: program(x))), name
            assert _same(compiled(x), program(x)), f"after {name}"


@pytest.mark.parametrize("name", [n for n, a in call_models.ARGUMENTS.items() if len(a) > 1])
def test_constants_change_with_their_arguments(name: str) -> None:
    function = next(row["objects"][0] for row in CONSTANT if row["callable"] == name)
    compiled = kintsugi.compile(lambda x, *args: (x + 1, function(*args)), backend="eager")
    x = torch.ones(2)
    for args in call_models.ARGUMENTS[name] * 3:
        assert _same(compiled(x, *args), (x + 1, function(*args))), args


# --- values and types ---------------------------------------------------------------------------------------------

POOL: list[Any] = [3, True, 2.5, -1, 0, "ab", b"ab", (1, 2), None, "a{}b", 0.0, 1 << 70]
CALLS = 6  # of one callable with so many arguments that it takes
# Not asked for: they leave a mark that eager mode would see, or take for ever with some arguments.
SKIPPED = {"_operator:length_hint", "math:factorial", "math:perm", "math:comb"}


def _accepted(function: Any, count: int) -> list[tuple[Any, ...]]:
    """Arguments of this number that it takes, of as many types as there are."""
    found: dict[tuple[type, ...], list[tuple[Any, ...]]] = {}
    for args in itertools.product(POOL, repeat=count):
        types = tuple(map(type, args))
        if len(found.get(types, ())) > 1 or 1 << 70 in args[1:]:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if _outcome(lambda: function(*args))[0] == "gives":
                found.setdefault(types, []).append(args)
    lists = list(found.values())[:CALLS]
    return [args for several in lists for args in several]


def _number(x: torch.Tensor) -> int | float | bool:
    return x.item()


@pytest.mark.parametrize("name, function", FOLDED, ids=[name for name, _ in FOLDED])
def test_values_and_types(name: str, function: Any) -> None:
    """Arguments that vary in value and type from call to call, plain and as numbers of the run."""
    if name in SKIPPED:
        pytest.skip("see SKIPPED")
    tested = False
    for count in (1, 2, 3):
        accepted = _accepted(function, count)
        if not accepted:
            continue
        tested = True
        plain = kintsugi.compile(lambda *args: function(*args), backend="eager")
        for args in accepted:
            assert _same(plain(*args), function(*args)), args
        # The first argument is a number that only the run knows.
        first = kintsugi.compile(lambda x, *rest: (function(_number(x), *rest), x + 1), backend="eager")
        for args in accepted:
            if type(args[0]) in (int, float, bool) and abs(args[0]) < 1 << 40:
                x = torch.tensor(args[0])
                want = function(x.item(), *args[1:])
                assert _same(first(x, *args[1:]), (want, x + 1)), args
    assert tested or count == 3


@pytest.mark.parametrize(
    "function", [min, max, sum, any, all, sorted, divmod, pow, round, abs], ids=lambda f: f.__name__
)
def test_builtins_over_mixed_values(function: Any) -> None:
    """Numbers, truths, tensors and numbers of the run in one list: the very types of eager mode."""
    several = function in (min, max, sum, any, all, sorted)
    makers: list[Callable[[torch.Tensor, Any], Any]] = (
        [
            lambda x, t: function([x.sum(), t]),
            lambda x, t: function((t, x.sum(), 2)),
            lambda x, t: function([t, x.mean().item(), 1.5]),
            lambda x, t: function([x.max() > 1, t, True]),
            lambda x, t: function([t, t + 1, -t]),
            lambda x, t: function(v * t for v in (1, 2.0, x.sum().item())),
        ]
        if several
        else [
            lambda x, t: function(x.sum(), t),
            lambda x, t: function(t, x.sum()),
            lambda x, t: function(x.sum().item(), t),
            lambda x, t: function(t),
            lambda x, t: function(x),
        ]
    )
    if function in (min, max):
        makers += [lambda x, t: function(x.sum(), t), lambda x, t: function(t, 2, x.sum().item(), key=abs)]
    for make in makers:
        compiled = kintsugi.compile(make, backend="eager")
        for t in (1, 2, 3, 2.5, True, -4, False, 0.25, 0, 7, -0.5):
            for x in (torch.tensor([1.0, 2.0]), torch.tensor([-5.0, 1.0])):
                want, got = _outcome(lambda: make(x, t)), _outcome(lambda: compiled(x, t))
                assert _same(want, got), (t, want, got)


def test_what_is_folded_is_made_anew() -> None:
    """The program may change, or use up, what a C function of known arguments gives."""
    x = torch.ones(2)
    for program in (
        lambda x, s: s.split(),
        lambda x, s: s.rsplit("b"),
        lambda x, s: s.splitlines(),
        lambda x, s: s.encode().split(),
        lambda x, s: s.__iter__(),
        lambda x, s: operator.concat([1], [2]),
        lambda x, s: operator.mul([1], 2),
    ):
        compiled = kintsugi.compile(program, backend="eager")
        for _ in range(4):
            got, want = compiled(x, "a b\nc"), program(x, "a b\nc")
            assert type(got) is type(want) and list(got) == list(want)
            if isinstance(got, list):
                got.append("more")


def test_operators_as_functions_change_what_they_are_given() -> None:
    x = torch.ones(2)

    def program(x: torch.Tensor, items: list[Any], table: dict[str, Any]) -> Any:
        operator.iadd(items, [len(items)])
        operator.iconcat(items, (7,))
        operator.setitem(table, "last", items[-2])
        operator.delitem(table, "gone")
        operator.setitem(items, 0, operator.call(next, counter))
        y = operator.iadd(x.clone(), table["last"])
        return y, operator.imul(3, 4), operator.ior({1}, {2}), list(items), dict(table)

    for backend in ("eager", "native"):
        compiled = kintsugi.compile(program, backend=backend)
        counter = itertools.count()
        mine: list[Any] = [1]
        for call in range(6):
            theirs = list(mine)
            tables: list[dict[str, Any]] = [{"gone": 1, "call": call} for _ in range(2)]
            counter = itertools.count(call)
            want = program(x, theirs, tables[0])
            counter = itertools.count(call)
            assert _same(compiled(x, mine, tables[1])[:2], want[:2])
            assert mine == theirs and tables[0] == tables[1]


# --- waiting ------------------------------------------------------------------------------------------------------


def _locks() -> dict[str, Callable[[], Any]]:
    return {
        "Lock": threading.Lock,
        "RLock": threading.RLock,
        "Condition": threading.Condition,
        "Semaphore": threading.Semaphore,
        "BoundedSemaphore": lambda: threading.BoundedSemaphore(1),
    }


@pytest.mark.parametrize("kind", _locks())
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_no_update_under_a_lock_is_lost(kind: str, backend: str) -> None:
    lock, state = _locks()[kind](), {"n": 0}
    x = torch.ones(3)

    def program(x: torch.Tensor) -> torch.Tensor:
        with lock:
            n = state["n"]
            y = x * n
            state["n"] = n + 1
        return y

    compiled = kintsugi.compile(program, backend=backend)
    for _ in range(3):
        compiled(x)
    state["n"] = 0
    threads = [threading.Thread(target=lambda: [compiled(x) for _ in range(200)]) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state["n"] == 1200


def _hand_over(
    program: Callable[[torch.Tensor], Any], signal: Callable[[], Any], box: dict[str, Any]
) -> None:
    compiled = kintsugi.compile(program, backend="eager")
    x = torch.ones(2)
    for value in (1.0, 2.0, 3.0, 4.0, 5.0):
        box["value"] = -1.0

        def change(value: float = value) -> None:
            box["value"] = value
            signal()

        timer = threading.Timer(0.02, change)
        timer.start()
        assert compiled(x).tolist() == [value, value]
        timer.join()


def test_what_an_event_announces_is_seen() -> None:
    box: dict[str, Any] = {}
    event = threading.Event()

    def program(x: torch.Tensor) -> torch.Tensor:
        before = box["value"]
        event.wait()
        event.clear()
        return x * box["value"] + (before + 1.0) * 0

    _hand_over(program, event.set, box)


def test_what_a_queue_brings_is_seen() -> None:
    box: dict[str, Any] = {}
    waiting: queue.Queue[int] = queue.Queue()

    def program(x: torch.Tensor) -> torch.Tensor:
        before = box["value"]
        waiting.get()
        return x * box["value"] + (before + 1.0) * 0

    _hand_over(program, lambda: waiting.put(1), box)


def test_what_a_simple_queue_brings_is_seen() -> None:
    box: dict[str, Any] = {}
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()

    def program(x: torch.Tensor) -> torch.Tensor:
        before = box["value"]
        waiting.get()
        return x * box["value"] + (before + 1.0) * 0

    _hand_over(program, lambda: waiting.put(1), box)


def test_what_a_thread_did_that_was_joined_is_seen() -> None:
    box = {"value": 0.0}

    def program(x: torch.Tensor, value: float) -> torch.Tensor:
        before = box["value"]
        thread = threading.Thread(target=lambda: box.__setitem__("value", value))
        thread.start()
        thread.join()
        return x * box["value"] + before * 0

    compiled = kintsugi.compile(program, backend="eager")
    for value in (1.0, 2.0, 3.0, 4.0):
        assert compiled(torch.ones(1), value).tolist() == [value]


# --- code of the program's in C functions -------------------------------------------------------------------------


def test_comparisons_in_python_are_seen() -> None:
    """What C code calls back may change what the trace has read."""
    state = {"asked": 0}

    class Level:
        def __init__(self, value: int) -> None:
            self.value = value

        def __gt__(self, other: Level) -> bool:
            state["asked"] += 1
            return self.value > other.value

        def __bool__(self) -> bool:
            state["asked"] += 1
            return self.value > 2

    def program(x: torch.Tensor, a: Level, b: Level) -> Any:
        before = state["asked"]
        best = max(a, b)
        truth = any([a, b])
        return x * best.value + state["asked"] - before, truth, state["asked"]

    compiled = kintsugi.compile(program, backend="eager")
    for k in range(8):
        state["asked"] = 0
        want = program(torch.ones(2), Level(k % 4), Level(2))
        state["asked"] = 0
        assert _same(compiled(torch.ones(2), Level(k % 4), Level(2)), want)
