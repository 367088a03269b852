"""Every callable that has a model, called with whatever it takes: compiled and in eager mode side by side.

Nobody chose the arguments: they are found by trying. Values differ from call to call, types don't; what is compared is
the result's very type and value, which argument it is, exceptions, what the arguments are afterwards, and the state of
the process where a row does not say that it changes it (csrc/capture/calls/facts.h).
"""

from __future__ import annotations

import inspect
import itertools
import random
import warnings
from collections.abc import Callable
from typing import Any

import call_arguments
import call_models
import pytest
from children import in_fork
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import kintsugi
from kintsugi import _C

CALLS = 4
MOST, MANY = 6, 24  # kinds of arguments for a callable
REFUSED = 3  # kinds of exceptions

SKIPPED = {
    "_random.Random.seed:seed": "of an object, its hash: where it lies in memory",
    "kintsugi._C.set_error_on_graph_break:set_error_on_graph_break": "its result is a matter of ours",
    "torch._C._functorch._add_batch_dim:_add_batch_dim": "its result lives no longer than its level",
    "torch._C._push_on_torch_function_stack:_push_on_torch_function_stack": (
        "what is pushed is asked in all calls that follow, the test's own too; test_function_modes.py has modes"
    ),
}
# Their methods take None for an object, and crash in eager mode; test_distributed.py calls them with processes.
CRASHING = tuple(
    f"torch._C._distributed_c10d.{name}." for name in ("Logger", "ProcessGroup", "Reducer", "Work")
)


def _rows() -> list[tuple[str, Any, dict[str, Any]]]:
    found = {}
    for row in sorted(_C._call_models(), key=lambda row: not row["callable"].endswith(".*")):
        for function in row["objects"]:  # a row of its own goes over one of a whole module
            found[f"{row['callable'].removesuffix('.*')}:{getattr(function, '__name__', '?')}"] = (
                function,
                row,
            )
    return [
        (name, *pair)
        for name, pair in sorted(found.items())
        if name not in SKIPPED and not name.startswith(CRASHING)
    ]


ROWS = _rows()


def _args(makers: tuple[str, ...], k: int) -> tuple[Any, ...]:
    return tuple(call_arguments.MAKERS[name](k) for name in makers)


def _tried(function: Any, makers: tuple[str, ...]) -> str:
    """The exception that it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(*_args(makers, 1))
        except Exception as error:
            return type(error).__name__
    return ""


def _arguments(name: str, function: Any, most: int) -> list[tuple[str, ...]]:
    """Some that it takes, of as many kinds as there are, and some that it refuses."""
    chance = random.Random(name)
    names = list(call_arguments.MAKERS)
    taken: list[tuple[str, ...]] = []
    refused: dict[str, tuple[str, ...]] = {}
    firsts: set[str] = set()
    for count in range(4):
        candidates: list[tuple[str, ...]]
        if count < 2:
            candidates = list(itertools.product(names, repeat=count))
        else:
            heads = sorted(firsts) or names
            candidates = [(chance.choice(heads), *chance.choices(names, k=count - 1)) for _ in range(400)]
            candidates = [makers for makers in candidates if "large" not in makers]  # powers take for ever
        chance.shuffle(candidates)
        found = 0
        for makers in candidates:
            error = _tried(function, makers)
            if not error:
                found += 1
                if found <= most // 2:
                    taken.append(makers)
            elif error != "TypeError":
                refused.setdefault(error, makers)
            if count == 1 and error != "TypeError":  # it may stand first, whatever is missing
                firsts.add(makers[0])
    chance.shuffle(taken)
    return taken[:most] + list(refused.values())[:REFUSED]


def _outcomes(program: Callable[..., Any], makers: tuple[str, ...], world: bool) -> list[Any]:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(CALLS):
            seen = call_arguments.outcome(program, _args(makers, k))
            found.append(call_arguments.types_of(seen) if world else seen)
    return found


@pytest.mark.parametrize("name, function, row", ROWS, ids=[name for name, _, _ in ROWS])
def test_as_in_eager_mode(
    name: str, function: Callable[..., Any], row: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    world = row["reads_world"]

    def arguments() -> list[tuple[str, ...]]:
        return _arguments(name, function, MANY if request.config.getoption("--all-ops") else MOST)

    def compare(outcomes: Callable[..., Any]) -> None:
        for makers in tried:
            for program in (lambda *args: function(*args), lambda *args: [function(*args), len(args)]):
                want = outcomes(lambda: program, makers)
                got = outcomes(lambda: kintsugi.compile(program, backend="eager"), makers)
                assert got == want, makers

    if row["writes_process"]:  # each side begins where the other began
        tried = in_fork(arguments)
        compare(lambda make, makers: in_fork(lambda: repr(_outcomes(make(), makers, world))))
        return
    before = call_models.process_state()
    tried = arguments()
    compare(lambda make, makers: _outcomes(make(), makers, world))
    assert call_models.process_state() == before, "the row has to say that it changes the process"


CALLED: Any = None
IN_PYTHON = [(name, function, row) for name, function, row in ROWS if inspect.isfunction(function)]


def another(*args: Any, **keywords: Any) -> Any:
    return "another", len(args)


@pytest.mark.parametrize("name, function, row", IN_PYTHON, ids=[name for name, _, _ in IN_PYTHON])
def test_another_function_in_its_place(name: str, function: Callable[..., Any], row: dict[str, Any]) -> None:
    """What is known of a function of Python code holds for that function, not for another one of its name."""

    def outcomes(program: Callable[..., Any], makers: tuple[str, ...], given: bool) -> list[Any]:
        global CALLED
        found = []
        for k, called in enumerate([function, function, another, function, another, another]):
            CALLED = called
            args = (called, *_args(makers, k % 2)) if given else _args(makers, k % 2)
            if called is another:
                found.append(program(*args))
            else:
                call_arguments.outcome(program, args)
        return found

    def seen() -> list[list[Any]]:
        found = []
        for makers in tried:
            by_name = kintsugi.compile(lambda *args: CALLED(*args), backend="eager")
            as_argument = kintsugi.compile(lambda f, *args: f(*args), backend="eager")
            found += [outcomes(by_name, makers, False), outcomes(as_argument, makers, True)]
        return found

    tried = in_fork(lambda: _arguments(name, function, 1)) or [()]
    assert in_fork(seen) == [[("another", len(makers))] * 3 for makers in tried for _ in range(2)]


UNSTABLE = {
    "builtins.hash:hash": {"method", "object", "bare object"},  # where they lie in memory
    # The first one's __setstate__ reads what it is given unseen; the memo of the other holds addresses.
    "copy.deepcopy:deepcopy": {"torch generator", "random"},
}
ENDLESS = {"itertools.count:count", "itertools.cycle:cycle", "itertools.repeat:repeat"}
VARIED = 10  # calls of one compiled function
# Of C functions that don't tell the names of their arguments.
NAMED = {
    "builtins.dict:dict": ("a",),
    "builtins.max:max": ("key", "default"),
    "builtins.min:min": ("key", "default"),
    "builtins.zip:zip": ("strict",),
    "collections.deque:deque": ("iterable", "maxlen"),
    "itertools.accumulate:accumulate": ("func", "initial"),
    "itertools.product:product": ("repeat",),
    "itertools.zip_longest:zip_longest": ("fillvalue",),
}


def _keywords(name: str, function: Any) -> tuple[str, ...]:
    """The names of the parameters, those of C's that can't be named among them."""
    if name in NAMED:
        return NAMED[name]
    try:
        return tuple(n for n in inspect.signature(function).parameters if n.isidentifier())
    except (TypeError, ValueError):
        return ()


def _call(count: int, keywords: tuple[str, ...]) -> str:
    """As code: all of `args`, the last of them by name."""
    names = [""] * (count - len(keywords)) + [f"{keyword}=" for keyword in keywords]
    return f"function({', '.join(f'{name}args[{i}]' for i, name in enumerate(names))})"


def _varied(name: str, function: Any) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Calls with as many arguments, of which one is of another kind each time, taken or refused."""
    chance = random.Random(name)
    names = [kind for kind in call_arguments.MAKERS if kind != "large" and kind not in UNSTABLE.get(name, ())]
    found = []

    def vary(call: str, makers: tuple[str, ...], at: int) -> None:
        others = [makers[:at] + (kind,) + makers[at + 1 :] for kind in chance.sample(names, VARIED)]
        found.append((call, [makers, *others, makers]))

    taken = _arguments(name, function, MOST)
    for makers in {len(makers): makers for makers in taken}.values():
        for at in range(len(makers)):
            vary(_call(len(makers), ()), makers, at)
    for makers in [makers for makers in taken if _iterates(function, makers)][:2]:
        for at in range(0 if name in ENDLESS else len(makers)):
            vary(f"[*{_call(len(makers), ())}]", makers, at)
    for keyword in _keywords(name, function):
        for makers in [makers for makers in taken if not _tried(function, makers)][:1]:
            vary(_call(len(makers) + 1, (keyword,)), (*makers, "int"), len(makers))
    return found


def _iterates(function: Any, makers: tuple[str, ...]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return hasattr(function(*_args(makers, 1)), "__next__")
        except Exception:
            return False


def _differing(outcomes: Callable[[Any], list[Any]], row: dict[str, Any]) -> list[Any]:
    """What eager mode and compiled programs give, where they differ."""

    def eager() -> list[str]:
        return [repr(one) for one in outcomes(lambda program: program)]

    def compiled() -> list[str]:
        return [repr(one) for one in outcomes(lambda program: kintsugi.compile(program, backend="eager"))]

    def both() -> tuple[list[str], list[str]]:
        return eager(), compiled()

    # Where the process is changed, each side begins where the other began.
    want, got = (in_fork(eager), in_fork(compiled)) if row["writes_process"] else in_fork(both)
    return [pair for pair in zip(want, got, strict=True) if pair[0] != pair[1]]


@pytest.mark.parametrize("name, function, row", ROWS, ids=[name for name, _, _ in ROWS])
def test_arguments_that_vary(name: str, function: Callable[..., Any], row: dict[str, Any]) -> None:
    def outcomes(make: Callable[[Any], Any]) -> Any:
        found = []
        for call, calls in _varied(name, function):
            program = make(eval(f"lambda *args: {call}", {"function": function}))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for k, makers in enumerate(calls):
                    seen = call_arguments.outcome(program, _args(makers, k % 3))
                    found.append(
                        (call, makers, call_arguments.types_of(seen) if row["reads_world"] else seen)
                    )
        return found

    assert _differing(outcomes, row) == []


# The kinds of positional arguments, and names for numbers.
WRONG: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    ((), ()),
    (("none",), ()),
    (("none",) * 2, ()),
    (("int",) * 3, ()),
    (("tensor",) * 7, ()),
    (("list",), ("bogus",)),
    ((), ("bogus",)),
    (("list", "int"), ("bogus", "other")),
]


def _called(program: Any, makers: tuple[str, ...]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [call_arguments.outcome(program, _args(makers, k)) for k in range(3)]


@pytest.mark.parametrize("name, function, row", ROWS, ids=[name for name, _, _ in ROWS])
def test_wrong_calls(name: str, function: Callable[..., Any], row: dict[str, Any]) -> None:
    """Too few arguments, too many, by names that there are and by ones that there are not: refused alike."""
    named = [(positional, (n,)) for n in _keywords(name, function) for positional in ((), ("list",))]

    def outcomes(make: Callable[[Any], Any]) -> Any:
        found = []
        for positional, keywords in WRONG + named:
            given = positional + ("int",) * len(keywords)
            call = _call(len(given), keywords)
            seen = _called(make(eval(f"lambda *args: {call}", {"function": function})), given)
            found.append(
                (call, [call_arguments.types_of(one) for one in seen] if row["reads_world"] else seen)
            )
        return found

    assert _differing(outcomes, row) == []


class Functions(TorchFunctionMode):
    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((getattr(function, "__name__", "?"), len(args), sorted(kwargs or {})))
        return function(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


TORCH_FAILS = {
    "torch._C._InferenceMode:_InferenceMode": "a check of torch's own fails below it, in eager mode too"
}
TORCH_ROWS = [row for row in ROWS if row[0].startswith("torch.") and row[0] not in TORCH_FAILS]


@pytest.mark.parametrize("mode", [Functions, Operators])
@pytest.mark.parametrize("name, function, row", TORCH_ROWS, ids=[name for name, _, _ in TORCH_ROWS])
def test_modes_are_asked(name: str, function: Callable[..., Any], row: dict[str, Any], mode: Any) -> None:
    """What torch asks a mode before it does something is asked in each call of a trace, too."""

    def noted(*args: Any) -> Any:
        seen: list[Any] = []
        try:
            with mode(seen):
                result = function(*args)
        except Exception as error:
            return type(error), seen
        return result, seen

    def outcomes(make: Callable[[Any], Any]) -> Any:
        found = []
        for makers in [("int",), ("float",), ("tensor",), *_arguments(name, function, MOST)]:
            seen = _called(make(noted), makers)
            found.append(
                (makers, [call_arguments.types_of(one) for one in seen] if row["reads_world"] else seen)
            )
        return found

    assert _differing(outcomes, row) == []
