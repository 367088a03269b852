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

import kintsugi
from kintsugi import _C

CALLS = 4
MOST, MANY = 6, 24  # kinds of arguments for a callable
REFUSED = 3  # kinds of exceptions

SKIPPED = {
    "_random.Random.seed:seed": "of an object, its hash: where it lies in memory",
    "kintsugi._C.set_error_on_graph_break:set_error_on_graph_break": "its result is a matter of ours",
    "torch._C._functorch._add_batch_dim:_add_batch_dim": "its result lives no longer than its level",
}


def _rows() -> list[tuple[str, Any, dict[str, Any]]]:
    found = {}
    for row in sorted(_C._call_models(), key=lambda row: not row["callable"].endswith(".*")):
        for function in row["objects"]:  # a row of its own goes over one of a whole module
            found[f"{row['callable'].removesuffix('.*')}:{getattr(function, '__name__', '?')}"] = (
                function,
                row,
            )
    return [(name, *pair) for name, pair in sorted(found.items()) if name not in SKIPPED]


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


def _keywords(function: Any) -> list[str]:
    """The names of the parameters, those of C's that can't be named among them."""
    try:
        return [p.name for p in inspect.signature(function).parameters.values() if p.name.isidentifier()][:3]
    except (TypeError, ValueError):
        return []


def _called(program: Any, makers: tuple[str, ...]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [call_arguments.outcome(program, _args(makers, k)) for k in range(3)]


@pytest.mark.parametrize("name, function, row", ROWS, ids=[name for name, _, _ in ROWS])
def test_wrong_calls(name: str, function: Callable[..., Any], row: dict[str, Any]) -> None:
    """Too few arguments, too many, by names that there are and by ones that there are not: refused alike."""
    named = [((), (n,)) for n in _keywords(function)] + [(("list",), (n,)) for n in _keywords(function)]

    def outcomes(make: Callable[[Any], Any]) -> Any:
        found = []
        for positional, keywords in WRONG + named:
            given = positional + ("int",) * len(keywords)
            names = [""] * len(positional) + [f"{keyword}=" for keyword in keywords]
            call = ", ".join(f"{name}args[{i}]" for i, name in enumerate(names))
            program = eval(f"lambda *args: function({call})", {"function": function})
            seen = _called(make(program), given)
            found.append((call, [call_arguments.types_of(one) for one in seen] if row["reads_world"] else seen))
        return repr(found)

    want = in_fork(lambda: outcomes(lambda program: program))
    got = in_fork(lambda: outcomes(lambda program: kintsugi.compile(program, backend="eager")))
    assert got == want
