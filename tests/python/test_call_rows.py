"""Every callable that has a model, called with whatever it takes: compiled and in eager mode side by side.

Nobody chose the arguments: they are found by trying. Values differ from call to call, types don't; what is compared is
the result's very type and value, which argument it is, exceptions, what the arguments are afterwards, and the state of
the process where a row does not say that it changes it (csrc/capture/calls/facts.h).
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import call_arguments
import call_models
import call_samples
import pytest
from children import in_fork
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import kintsugi

CALLS = 4
ROWS = call_samples.ROWS


def _outcomes(program: Callable[..., Any], makers: tuple[str, ...], world: bool) -> list[Any]:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(CALLS):
            seen = call_arguments.outcome(program, call_samples.args_of(makers, k))
            found.append(call_arguments.types_of(seen) if world else seen)
    return found


@pytest.mark.parametrize("name, function, row", ROWS, ids=[name for name, _, _ in ROWS])
def test_as_in_eager_mode(
    name: str, function: Callable[..., Any], row: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    world = row["reads_world"]

    def some() -> list[tuple[str, ...]]:
        return call_samples.arguments(
            name, function, call_samples.MANY if request.config.getoption("--all-ops") else call_samples.MOST
        )

    def compare(outcomes: Callable[..., Any]) -> None:
        for makers in tried:
            for program in (lambda *args: function(*args), lambda *args: [function(*args), len(args)]):
                want = outcomes(lambda: program, makers)
                got = outcomes(lambda: kintsugi.compile(program, backend="eager"), makers)
                assert got == want, makers

    if row["writes_process"]:  # each side begins where the other began
        tried = in_fork(some)
        compare(lambda make, makers: in_fork(lambda: repr(_outcomes(make(), makers, world))))
        return
    before = call_models.process_state()
    tried = some()
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
            args = (
                (called, *call_samples.args_of(makers, k % 2))
                if given
                else call_samples.args_of(makers, k % 2)
            )
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

    tried = in_fork(lambda: call_samples.arguments(name, function, 1)) or [()]
    assert in_fork(seen) == [[("another", len(makers))] * 3 for makers in tried for _ in range(2)]


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
        for call, calls in call_samples.varied(name, function):
            program = make(eval(f"lambda *args: {call}", {"function": function}))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for k, makers in enumerate(calls):
                    seen = call_arguments.outcome(program, call_samples.args_of(makers, k % 3))
                    found.append(
                        (call, makers, call_arguments.types_of(seen) if row["reads_world"] else seen)
                    )
        return found

    assert _differing(outcomes, row) == []


def _called(program: Any, makers: tuple[str, ...]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [call_arguments.outcome(program, call_samples.args_of(makers, k)) for k in range(3)]


@pytest.mark.parametrize("name, function, row", ROWS, ids=[name for name, _, _ in ROWS])
def test_wrong_calls(name: str, function: Callable[..., Any], row: dict[str, Any]) -> None:
    """Too few arguments, too many, by names that there are and by ones that there are not: refused alike."""
    named = [
        (positional, (n,)) for n in call_samples.keywords_of(name, function) for positional in ((), ("list",))
    ]

    def outcomes(make: Callable[[Any], Any]) -> Any:
        found = []
        for positional, keywords in call_samples.WRONG + named:
            given = positional + ("int",) * len(keywords)
            call = call_samples.call_text(len(given), keywords)
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
        for makers in [
            ("int",),
            ("float",),
            ("tensor",),
            *call_samples.arguments(name, function, call_samples.MOST),
        ]:
            seen = _called(make(noted), makers)
            found.append(
                (makers, [call_arguments.types_of(one) for one in seen] if row["reads_world"] else seen)
            )
        return found

    assert _differing(outcomes, row) == []
