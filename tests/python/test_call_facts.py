"""What rows of the models of C callables say beyond the model, each column attacked over all rows.

* The exact types of results, and the classes of exceptions.
* Which Python code of the program's may run in the call: none runs where a row says so, and where it runs, the trace
  sees what it has changed.
* State of the process: what is not named is not read.
* For whom the call waits: what another thread has done before is seen behind it.
* What stands in a container or an object that another thread changes: a result that eager mode may give.
"""

from __future__ import annotations

import contextlib
import io
import random
import threading
import warnings
from collections.abc import Callable
from typing import Any

import call_arguments
import call_models
import call_samples
import call_spies
import pytest
import torch
from call_spies import ASKED, SPIES, STATE
from children import in_fork
from other_threads import acting, let_others_act

import kintsugi

ROWS = call_samples.ROWS
IDS = [name for name, _, _ in ROWS]
EVERY = pytest.mark.parametrize("name, function, row", ROWS, ids=IDS)


# --- results and exceptions ---------------------------------------------------------------------------------------


def type_name(kind: type) -> str:
    if kind is type(None):
        return "None"
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def observed(name: str, function: Any, row: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The types that it gives and the classes that it raises beyond what the row says."""
    results, errors = row["results"].split(), row["errors"].split()
    types_, classes = set(), set()

    def note(args: tuple[Any, ...], result: Any, error: Exception | None) -> None:
        if error is not None:
            names = [type_name(kind) for kind in type(error).__mro__]
            if "TypeError" not in names and not any(kind in errors for kind in names):
                classes.add(type_name(type(error)))
        elif type_name(type(result)) not in results:
            if not ("argument" in results and any(result is arg for arg in args)):
                types_.add(type_name(type(result)))

    call_samples.every_call(name, function, note)
    return sorted(types_), sorted(classes)


@EVERY
def test_results_and_exceptions(name: str, function: Callable[..., Any], row: dict[str, Any]) -> None:
    def found() -> tuple[list[str], list[str]]:
        return observed(name, function, row)

    types_, classes = in_fork(found) if row["writes_process"] else found()
    if row["results"].startswith("any"):
        assert row["results"].startswith("any: ") and len(row["results"]) > 10, "why?"
    else:
        assert types_ == [], "the row does not name these types"
    if row["errors"].startswith("any"):
        assert row["errors"].startswith("any: ") and len(row["errors"]) > 10, "why?"
    else:
        assert classes == [], "the row does not name these exceptions"


# --- Python code --------------------------------------------------------------------------------------------------


def _placed(name: str, function: Any, thorough: bool) -> list[tuple[tuple[str, ...], int, str]]:
    """Calls that it takes, each with a place in which something of the program's is put."""
    chance = random.Random(name)
    taken = call_samples.arguments(name, function, call_samples.MOST)
    longest = {
        len(makers): makers for makers in taken if makers and not call_samples.error_of(function, makers)
    }
    others = [spy for spy in SPIES if spy != "spy"]
    return [
        (makers, at, spy)
        for makers in longest.values() or [("int",), ("int", "int")]
        for at in range(len(makers))
        for spy in (SPIES if thorough else ("spy", chance.choice(others)))
    ]


def _args(makers: tuple[str, ...], at: int, spy: str, k: int) -> list[Any]:
    args = list(call_samples.args_of(makers, k))
    args[at] = SPIES[spy]()
    return args


# A constant's model refuses what it can't pin: the next test has these.
NO_PYTHON = [row for row in ROWS if row[2]["python"] == "none" and row[2]["kind"] != "constant"]


@pytest.mark.parametrize("name, function, row", NO_PYTHON, ids=[name for name, _, _ in NO_PYTHON])
def test_no_python_runs(name: str, function: Callable[..., Any], row: dict[str, Any]) -> None:
    def found() -> list[Any]:
        ran = []
        for makers, at, spy in _placed(name, function, True):
            args = _args(makers, at, spy, 1)
            call_spies.begin()

            with warnings.catch_warnings(), contextlib.suppress(Exception):
                warnings.simplefilter("ignore")
                function(*args)
            if ASKED:
                ran.append((makers, at, spy, list(ASKED)))
        return ran

    assert (in_fork(found) if row["writes_process"] else found()) == []


def _order(maker: str, spy: str) -> tuple[int | None, ...]:
    """The calls of one program. None: with something of the program's; else without."""
    # Of what stands in a container that only C code looks into nothing is guarded: docs/internals/verification.md.
    inside = type(call_arguments.MAKERS[maker](1)) is type(SPIES[spy]())
    return (None, None, 0, None) if inside else (0, None, None, 1, None)


# Open: the polyfill asks a pair for its length, too.
ASKED_TWICE = {"collections.OrderedDict.update:update"}


@EVERY
def test_what_python_code_changes_is_seen(
    name: str, function: Any, row: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """Special methods of arguments run as often as in eager mode, and what they have changed is read again."""
    if name in ASKED_TWICE:
        pytest.xfail("see ASKED_TWICE")
    thorough = request.config.getoption("--all-ops")

    def outcomes(make: Callable[[Any], Any]) -> list[Any]:
        found = []

        def program(*args: Any) -> Any:
            before = STATE["asked"]
            result = function(*args)
            return before, STATE["asked"], result

        def outcome(called: Any, args: list[Any]) -> Any:
            call_spies.begin()
            try:
                before, after, result = called(*args)
            except Exception as error:
                return type(error).__name__, list(ASKED)
            seen = before, after, list(ASKED), type(result).__name__
            return seen

        for makers, at, spy in _placed(name, function, thorough):
            called = make(program)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                seen = []
                for k in _order(makers[at], spy):
                    args = list(call_samples.args_of(makers, k)) if k is not None else None
                    seen.append(outcome(called, _args(makers, at, spy, 1) if args is None else args))
            found.append((makers, at, spy, seen))
        return found

    def eager() -> list[Any]:
        return outcomes(lambda program: program)

    def compiled() -> list[Any]:
        return outcomes(lambda program: kintsugi.compile(program, backend="eager"))

    want, got = (in_fork(eager), in_fork(compiled)) if row["writes_process"] else (eager(), compiled())
    assert [pair for pair in zip(want, got, strict=True) if pair[0] != pair[1]] == []


class Writer:
    """A stream in Python."""

    def write(self, text: str) -> int:
        call_spies.asked("write")
        return len(text)

    def flush(self) -> None:
        call_spies.asked("flush")


class OwnText(io.TextIOWrapper):
    def write(self, text: str) -> int:
        call_spies.asked("write")
        return super().write(text)


class Raw(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        call_spies.asked("write")
        return len(data)


def _given_a_method() -> Any:
    stream = io.TextIOWrapper(io.BytesIO())
    stream.write = Writer().write  # type: ignore[method-assign]
    return stream


STREAMS: dict[str, Callable[[], Any]] = {
    "in Python": Writer,
    "a subclass": lambda: OwnText(io.BytesIO()),
    "a method of its own": _given_a_method,
    "over a file in Python": lambda: io.TextIOWrapper(io.BufferedWriter(Raw()), write_through=True),
    "over Python code": lambda: io.TextIOWrapper(Raw(), write_through=True),  # type: ignore[type-var]
}


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("first", ["in C", "in Python"])
@pytest.mark.parametrize("how", ["print", "file", "write"])
def test_output_through_python_code(kind: str, first: str, how: str) -> None:
    """What writes the output may be the program's, in any call, and what it changes is seen."""

    def program(x: torch.Tensor, stream: Any) -> Any:
        before = STATE["asked"]
        if how == "print":
            print("a line")
        elif how == "file":
            print("a line", file=stream, flush=True)
        else:
            stream.write("a line")
            stream.flush()
        return x * (STATE["asked"] - before), STATE["asked"]

    def run(called: Any, stream: Any) -> Any:
        call_spies.begin()
        with contextlib.redirect_stdout(stream):
            y, count = called(torch.ones(2), stream)
        return y.tolist(), count, list(ASKED)

    compiled = kintsugi.compile(program, backend="eager")
    makers: list[Callable[[], Any]] = [
        lambda: io.TextIOWrapper(io.BytesIO()),
        STREAMS[kind],
        io.StringIO,
        STREAMS[kind],
        lambda: io.TextIOWrapper(io.BufferedWriter(io.BytesIO())),  # type: ignore[type-var]
        STREAMS[kind],
    ]
    for make in makers if first == "in C" else reversed(makers):
        assert run(compiled, make()) == run(program, make())


def test_output_in_c_is_captured() -> None:
    """Writing to a file of the process is a known step: nothing is read again."""
    compiled = kintsugi.compile(lambda x: (print("a line"), x + 1)[1] * 2, backend="eager")
    for stream in (io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())):
        with contextlib.redirect_stdout(stream):
            for _ in range(3):
                compiled(torch.ones(2))
        stream.flush()
        assert stream.buffer.getvalue() == b"a line\n" * 3  # type: ignore[attr-defined]
    assert compiled.stats().misses == 1
    assert "call.known" in "".join(compiled.traces())


# --- state of the process -----------------------------------------------------------------------------------------

UNNAMED = [
    row
    for row in ROWS
    if row[2]["reads"] == "arguments" and not row[2]["state"] and not row[2]["writes_process"]
]


@pytest.mark.parametrize("name, function, row", UNNAMED, ids=[name for name, _, _ in UNNAMED])
def test_what_is_not_named_is_not_read(name: str, function: Any, row: dict[str, Any]) -> None:
    """A call without arguments gives the same whatever a program changes in the process."""

    def outcome() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call_arguments.outcome(function, ())

    if outcome()[0] == "raises" or row["kind"] == "torch":
        return
    before = outcome()
    for change, block in call_models.CHANGES.items():
        with block():
            assert outcome() == before, f"the row has to say that it reads {change}"


ASKING = [row for row in ROWS if row[2]["reads"] == "process"]


@pytest.mark.parametrize("name, function, row", ASKING, ids=[name for name, _, _ in ASKING])
def test_what_no_guard_has_is_asked_again(name: str, function: Any, row: dict[str, Any]) -> None:
    program: Callable[..., Any] = lambda x: (function(), x + 1)
    compiled = kintsugi.compile(program, backend="eager")
    x = torch.ones(2)
    for _ in range(3):
        assert call_arguments.outcome(compiled, (x,)) == call_arguments.outcome(program, (x,))
    for change, block in call_models.CHANGES.items():
        with block():
            got = call_arguments.outcome(compiled, (x,))
            assert got == call_arguments.outcome(program, (x,)), change


# --- other threads ------------------------------------------------------------------------------------------------

WAITING = [row for row in call_samples.every_row() if row[2]["waits"] == "threads"]


@pytest.mark.parametrize("name, function, row", WAITING, ids=[name for name, _, _ in WAITING])
def test_what_is_waited_for_is_seen(name: str, function: Any, row: dict[str, Any]) -> None:
    """Another thread changes something, and then does what the call waits for or asks."""
    box = {"value": 0.0}

    def program(x: torch.Tensor, *args: Any) -> Any:
        before = box["value"]
        y = let_others_act(x)
        function(*args)
        return y * box["value"], before

    waited = call_models.WAITED.get(row["callable"])
    assert waited is not None, "call_models.WAITED has to say how it is made to wait"
    compiled = kintsugi.compile(program, backend="eager")
    for call in range(5):
        with waited() as (args, release):

            def act(release: Callable[[], Any] = release, call: int = call) -> None:
                box["value"] = call + 1.0
                release()

            with acting(act):
                y, before = compiled(torch.ones(2), *args)
        assert (y.tolist(), before) == ([call + 1.0] * 2, float(call)), call


def test_what_waits_for_other_processes_is_seen_as_beside_an_operator() -> None:
    """The exception (docs/adr/0024): what a thread of this process did is seen by the next call at the latest."""
    box = {"value": 0.0}
    with call_models.two_groups() as (mine, others):

        def program(x: torch.Tensor, group: Any) -> Any:
            y = x + 1
            torch._C._distributed_c10d._broadcast_coalesced(group, [y], 1 << 20, 1)
            return y * box["value"]

        compiled = kintsugi.compile(program, backend="eager")
        for call in range(4):

            def act(value: float = call + 1.0) -> None:
                box["value"] = value
                torch._C._distributed_c10d._broadcast_coalesced(others, [torch.ones(2)], 1 << 20, 1)

            thread = threading.Thread(target=act)
            thread.start()
            got = compiled(torch.zeros(2), mine).tolist()
            thread.join()
            assert got in ([float(call)] * 2, [call + 1.0] * 2), call


def _append(items: Any) -> None:
    items.append(99)


def _store(table: Any) -> None:
    table["z"] = 99


def _remove(table: Any) -> None:
    table.pop("a", None)


def _set_a(thing: Any) -> None:
    thing.a = 99


ACTS: dict[str, list[Callable[[Any], None]]] = {
    "list": [_append, lambda items: items.clear(), lambda items: items.__setitem__(0, 99)],
    "empty list": [_append],
    "list of pairs": [lambda items: items.append(("c", 3)), lambda items: items.pop()],
    "dict": [_store, _remove, lambda table: table.__setitem__("a", 99), lambda table: table.clear()],
    "empty dict": [_store],
    "ordered": [_store, _remove],
    "defaultdict": [_store, _remove],
    "counter": [_store, _remove],
    "set": [lambda items: items.add(99), lambda items: items.discard(17)],
    "deque": [_append, lambda items: items.clear()],
    "object": [_set_a, lambda thing: vars(thing).clear()],
    "slots": [_set_a],
    "namespace": [_set_a],
}


def _interleavings(function: Any, makers: tuple[str, ...], k: int, act: Callable[[Any], None]) -> list[Any]:
    """What eager mode gives where the other thread acts before the call, and behind it."""

    def outcome(behind: bool) -> Any:
        args = call_samples.args_of(makers, k)

        def call(*args: Any) -> Any:
            if behind:
                try:
                    return function(*args)
                finally:
                    act(args[0])
            act(args[0])
            return function(*args)

        return call_arguments.outcome(call, args)

    return [outcome(False), outcome(True)]


# Open: what is recorded item by item, where another thread changes the container between the run's entry and the call.
ITEM_BY_ITEM = {
    *(
        f"_heapq.{n}:{n}"
        for n in ("heapify", "heappop", "heapreplace", "_heapify_max", "_heappop_max", "_heapreplace_max")
    ),
    *("_bisect.bisect_left:bisect_left", "builtins.list.sort:sort", "builtins.max:max"),
    *("builtins.dict.clear:clear", "builtins.dict.popitem:popitem", "collections.OrderedDict.clear:clear"),
}


READING = [row for row in ROWS if not row[2]["writes_process"] and row[2]["reads"] == "arguments"]


@pytest.mark.parametrize("name, function, row", READING, ids=[name for name, _, _ in READING])
def test_containers_that_others_change(name: str, function: Any, row: dict[str, Any]) -> None:
    """Another thread changes the first argument in front of the call: the result is one that eager mode may give."""
    if name in ITEM_BY_ITEM:
        pytest.xfail("see ITEM_BY_ITEM")
    taken = [m for m in call_samples.arguments(name, function, call_samples.MANY) if m and m[0] in ACTS]
    wrong = []
    for makers in {makers[0]: makers for makers in taken}.values():
        for at, act in enumerate(ACTS[makers[0]]):

            def program(x: torch.Tensor, *args: Any) -> Any:
                let_others_act(x)
                return function(*args)

            compiled = kintsugi.compile(program, backend="eager")
            x = torch.ones(1)
            for call in range(5):
                args = call_samples.args_of(makers, 1)
                acts = call in (0, 3, 4) if at % 2 else call in (2, 4)
                with acting((lambda act=act, args=args: act(args[0])) if acts else None):
                    got = call_arguments.outcome(compiled, (x, *args))
                allowed = _interleavings(function, makers, 1, act if acts else lambda thing: None)
                if _without_first(got) not in allowed:
                    wrong.append((makers, at, call, got, allowed))
    assert wrong == []


def _without_first(seen: Any) -> Any:
    """The outcome without what it says of the tensor."""
    *head, (kind, extra, parts) = seen
    if seen[0] == "gives":
        head[1] = [at - 1 for at in head[1]]
    return (*head, (kind, extra, parts[1:]))
