"""Calls of C functions that have a model, for the tests that go through all rows (csrc/capture/calls/facts.h).

Nobody chooses the arguments: they are found by trying the things of call_arguments.py.
"""

from __future__ import annotations

import faulthandler
import functools
import inspect
import itertools
import os
import random
import warnings
from collections.abc import Callable
from typing import Any

import call_arguments

from kintsugi import _C

MOST, MANY = 6, 24  # kinds of arguments for a callable
REFUSED = 3  # kinds of exceptions
# Told of each call: the arguments, the result, and the exception if it raised one.
Note = Callable[[tuple[Any, ...], Any, Exception | None], None]

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

# Calls that end a patch release of CPython itself (3.13.0), by the kind of one argument: its place, and such a call.
ENDING = {"builtins.pow:pow": ("decimal", 2, ("int", "int", "decimal"))}


def every_row() -> list[tuple[str, Any, dict[str, Any]]]:
    """Those among them that can't be called with whatever there is."""
    found = {}
    for row in sorted(_C._call_models(), key=lambda row: not row["callable"].endswith(".*")):
        for function in row["objects"]:  # a row of its own goes over one of a whole module
            name = f"{row['callable'].removesuffix('.*')}:{getattr(function, '__name__', '?')}"
            found[name] = (function, row)
    return [(name, *pair) for name, pair in sorted(found.items())]


ROWS = [row for row in every_row() if row[0] not in SKIPPED and not row[0].startswith(CRASHING)]


def args_of(makers: tuple[str, ...], k: int) -> tuple[Any, ...]:
    return tuple(call_arguments.MAKERS[name](k) for name in makers)


def error_of(function: Any, makers: tuple[str, ...], note: Note | None = None) -> str:
    """The exception that it raises."""
    args = args_of(makers, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = function(*args)
        except Exception as error:
            if note is not None:
                note(args, None, error)
            return type(error).__name__
    if note is not None:
        note(args, result, None)
    return ""


@functools.cache
def ends_cpython(function: Any, makers: tuple[str, ...]) -> bool:
    """True if the call, in eager mode, is one that the process does not survive."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        error_of(function, makers)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def may_be_called(name: str, function: Any, makers: tuple[str, ...]) -> bool:
    if name not in ENDING:
        return True
    kind, place, call = ENDING[name]
    return makers[place : place + 1] != (kind,) or not ends_cpython(function, call)


def arguments(name: str, function: Any, most: int, note: Note | None = None) -> list[tuple[str, ...]]:
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
        candidates = [makers for makers in candidates if may_be_called(name, function, makers)]
        chance.shuffle(candidates)
        found = 0
        for makers in candidates:
            error = error_of(function, makers, note)
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


def keywords_of(name: str, function: Any) -> tuple[str, ...]:
    """The names of the parameters, those of C's that can't be named among them."""
    if name in NAMED:
        return NAMED[name]
    try:
        return tuple(n for n in inspect.signature(function).parameters if n.isidentifier())
    except (TypeError, ValueError):
        return ()


def call_text(count: int, keywords: tuple[str, ...]) -> str:
    """As code: all of `args`, the last of them by name."""
    names = [""] * (count - len(keywords)) + [f"{keyword}=" for keyword in keywords]
    return f"function({', '.join(f'{name}args[{i}]' for i, name in enumerate(names))})"


def varied(name: str, function: Any) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Calls with as many arguments, of which one is of another kind each time, taken or refused."""
    chance = random.Random(name)
    names = [kind for kind in call_arguments.MAKERS if kind != "large" and kind not in UNSTABLE.get(name, ())]
    found = []

    def vary(call: str, makers: tuple[str, ...], at: int) -> None:
        others = [makers[:at] + (kind,) + makers[at + 1 :] for kind in chance.sample(names, VARIED)]
        others = [kinds for kinds in others if may_be_called(name, function, kinds)]
        found.append((call, [makers, *others, makers]))

    taken = arguments(name, function, MOST)
    for makers in {len(makers): makers for makers in taken}.values():
        for at in range(len(makers)):
            vary(call_text(len(makers), ()), makers, at)
    for makers in [makers for makers in taken if iterates(function, makers)][:2]:
        for at in range(0 if name in ENDLESS else len(makers)):
            vary(f"[*{call_text(len(makers), ())}]", makers, at)
    for keyword in keywords_of(name, function):
        for makers in [makers for makers in taken if not error_of(function, makers)][:1]:
            vary(call_text(len(makers) + 1, (keyword,)), (*makers, "int"), len(makers))
    return found


def iterates(function: Any, makers: tuple[str, ...]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return hasattr(function(*args_of(makers, 1)), "__next__")
        except Exception:
            return False


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


def every_call(name: str, function: Any, note: Note) -> None:
    """Makes all calls of the generic tests, in eager mode."""
    arguments(name, function, MANY, note)
    named = [(positional, (n,)) for n in keywords_of(name, function) for positional in ((), ("list",))]
    calls = varied(name, function)
    for positional, keywords in WRONG + named:
        given = positional + ("int",) * len(keywords)
        calls.append((call_text(len(given), keywords), [given] * 3))
    for text, several in calls:
        if text.startswith("["):
            continue  # what the iterator gives is not the callable's result
        program = eval(f"lambda *args: {text}", {"function": function})
        for k, makers in enumerate(several):
            args = args_of(makers, k % 3)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    result = program(*args)
                except Exception as error:
                    note(args, None, error)
                    continue
            note(args, result, None)
