"""A class gets a special method, has it replaced, and loses it again, between calls.

What C code does with an object follows from its class. Where the class has no special method of its own, a recording
goes by what the built-in class does; each later call has to ask the class that there is by then.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import io
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

ASKED: list[str] = []
ARGUMENTS: dict[type, tuple[Any, ...]] = {
    object: (),
    int: (3,),
    float: (2.5,),
    str: ("ab",),
    list: ([1, 2],),
    tuple: ((1, 2),),
    dict: ({0: 1, 1: 2},),
    set: ({1, 2},),
}
CONTAINERS = (list, tuple, dict, set)
SEQUENCES = (str, list, tuple)
NUMBERS = (int, float)


def unpacked(a: Any) -> Any:
    first, second = a
    return [first, second]


def given(*values: Any) -> Any:
    return values


# What is asked: its method, what another method gives there, and the bases for which C code may do it itself.
OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], str, Any, tuple[type, ...]]] = {
    "len": (lambda a, b: len(a), "__len__", 7, (object, str, *CONTAINERS)),
    "bool": (lambda a, b: bool(a), "__bool__", False, tuple(ARGUMENTS)),
    "not": (lambda a, b: not a, "__bool__", False, tuple(ARGUMENTS)),
    "if": (lambda a, b: 1 if a else 2, "__bool__", False, tuple(ARGUMENTS)),
    "if_length": (lambda a, b: 1 if a else 2, "__len__", 0, (object, str, *CONTAINERS)),
    "and": (lambda a, b: a and 5, "__bool__", False, CONTAINERS),
    "any": (lambda a, b: any([0, a]), "__bool__", False, CONTAINERS),
    "all": (lambda a, b: all((1, a)), "__bool__", False, CONTAINERS),
    "for": (lambda a, b: [v for v in a], "__iter__", (5, 6), (object, str, *CONTAINERS)),
    "list": (lambda a, b: list(a), "__iter__", (5, 6), (object, str, *CONTAINERS)),
    "tuple": (lambda a, b: tuple(a), "__iter__", (5, 6), (object, str, *CONTAINERS)),
    "set": (lambda a, b: len(set(a)), "__iter__", (5, 6, 7), (object, str, *CONTAINERS)),
    "sorted": (lambda a, b: sorted(a), "__iter__", (6, 5), (object, str, *CONTAINERS)),
    "sum": (lambda a, b: sum(a), "__iter__", (5, 6), CONTAINERS),
    "max": (lambda a, b: max(a), "__iter__", (5, 6), CONTAINERS),
    "zip": (lambda a, b: list(zip(a, a)), "__iter__", (5, 6), (object, str, *CONTAINERS)),
    "enumerate": (lambda a, b: list(enumerate(a)), "__iter__", (5, 6), (object, str, *CONTAINERS)),
    "map": (lambda a, b: list(map(str, a)), "__iter__", (5, 6), (object, str, *CONTAINERS)),
    "unpack": (lambda a, b: unpacked(a), "__iter__", (5, 6), (object, str, *CONTAINERS)),
    "star_list": (lambda a, b: [0, *a], "__iter__", (5, 6), (object, str, *CONTAINERS)),
    "star_call": (lambda a, b: given(*a), "__iter__", (5, 6), (object, str, *CONTAINERS)),
    "extend": (lambda a, b: [0].__iadd__(a), "__iter__", (5, 6), (str, *CONTAINERS)),
    "join": (lambda a, b: "-".join(map(str, a)), "__iter__", (5, 6), (str, *CONTAINERS)),
    "prod": (lambda a, b: math.prod(a), "__iter__", (5, 6), CONTAINERS),
    "dict_of_pairs": (lambda a, b: dict([a]), "__iter__", (5, 6), (str, list, tuple, set)),
    "reversed": (lambda a, b: list(reversed(a)), "__reversed__", (5, 6), (str, list, tuple, dict)),
    "contains": (lambda a, b: 9 in a, "__contains__", True, (object, list, tuple, dict, set)),
    "item": (lambda a, b: a[1], "__getitem__", 8, (object, *SEQUENCES, dict)),
    "getter": (lambda a, b: operator.itemgetter(1)(a), "__getitem__", 8, (object, *SEQUENCES, dict)),
    "eq": (lambda a, b: a == b, "__eq__", "other", tuple(ARGUMENTS)),
    "ne": (lambda a, b: a != b, "__ne__", "other", tuple(ARGUMENTS)),
    "eq_in_list": (lambda a, b: [a] == [b], "__eq__", 0, tuple(ARGUMENTS)),
    "in_list": (lambda a, b: a in [b, 9], "__eq__", True, tuple(ARGUMENTS)),
    "index": (lambda a, b: [9, b, a].index(a), "__eq__", True, tuple(ARGUMENTS)),
    "count": (lambda a, b: (9, b, a).count(a), "__eq__", True, tuple(ARGUMENTS)),
    "lt": (lambda a, b: a < b, "__lt__", True, tuple(ARGUMENTS)),
    "hash": (lambda a, b: hash(a) == 11, "__hash__", 11, (object, int, float, str, tuple)),
    "add": (lambda a, b: a + b, "__add__", 12, (object, *NUMBERS, *SEQUENCES)),
    "radd": (lambda a, b: b.__class__.__base__() + a, "__radd__", 12, (*NUMBERS, *SEQUENCES)),
    "mul": (lambda a, b: a * 2, "__mul__", 12, (object, *NUMBERS, *SEQUENCES)),
    "or": (lambda a, b: a | b, "__or__", 12, (object, dict, set)),
    "str": (lambda a, b: len(str(a)), "__str__", "five!", (object, *NUMBERS, str, *CONTAINERS)),
    "repr": (lambda a, b: len(repr(a)) == 5, "__repr__", "five!", tuple(ARGUMENTS)),
    "format": (lambda a, b: len(f"{a}") == 5, "__format__", "five!", tuple(ARGUMENTS)),
    "percent": (lambda a, b: len("%s" % (a,)) == 5, "__str__", "five!", tuple(ARGUMENTS)),
    "int": (lambda a, b: int(a), "__int__", 13, (object, *NUMBERS)),
    "float": (lambda a, b: float(a), "__float__", 1.5, (object, *NUMBERS)),
    "index_of": (lambda a, b: [0, 1, 2, 3][a], "__index__", 1, (object, int)),
    "abs": (lambda a, b: abs(a), "__abs__", 14, (object, *NUMBERS)),
    "round": (lambda a, b: round(a), "__round__", 15, (object, *NUMBERS)),
    "divmod": (lambda a, b: divmod(a, 2), "__divmod__", 16, (object, *NUMBERS)),
    "neg": (lambda a, b: -a, "__neg__", 17, (object, *NUMBERS)),
    "call": (lambda a, b: a(), "__call__", 18, tuple(ARGUMENTS)),
    "callable": (lambda a, b: callable(a), "__call__", 18, tuple(ARGUMENTS)),
    "attribute": (lambda a, b: a.missing, "__getattr__", 19, tuple(ARGUMENTS)),
    "hasattr": (lambda a, b: hasattr(a, "missing"), "__getattr__", 19, tuple(ARGUMENTS)),
}
ITERATES = {"__iter__", "__reversed__"}


def method(name: str, gives: Any) -> Callable[..., Any]:
    def special(self: Any, *args: Any) -> Any:
        ASKED.append(name)
        return iter(gives) if name in ITERATES else gives

    return special


def observed(function: Callable[..., Any], *args: Any) -> Any:
    ASKED.clear()
    try:
        result = function(*args)
        plain = (
            result[1] if type(result[1]) in (int, float, bool, str, list, tuple, dict) else type(result[1])
        )
        seen: Any = (result[0].tolist(), type(result[1]).__name__, repr(plain), result[2])
    except (TypeError, AttributeError, IndexError, KeyError, ValueError) as error:
        seen = type(error), str(error)
    return seen, list(ASKED)


@pytest.mark.parametrize("inside", [False, True], ids=["given", "made inside"])
@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_class_gets_a_method(name: str, backend: str, inside: bool) -> None:
    ask, special, gives, bases = OPERATIONS[name]
    for base in bases:
        cls: Any = type("K", (base,), {})

        def program(x: Any, a: Any, b: Any, base: type = base, cls: Any = cls) -> Any:
            if inside:
                a, b = cls(*ARGUMENTS[base]), cls(*ARGUMENTS[base])
            before = len(ASKED)
            y = x * 2
            result = ask(a, b)
            return y + len(ASKED), result, len(ASKED) - before

        compiled = kintsugi.compile(program, backend=backend)
        args = torch.ones(2), cls(*ARGUMENTS[base]), cls(*ARGUMENTS[base])

        def compare(when: str, base: type = base, compiled: Any = compiled, program: Any = program) -> None:
            mine, theirs = observed(compiled, *args), observed(program, *args)
            assert mine == theirs, f"{name} of a subclass of {base.__name__} {when}: {mine}, eager {theirs}"

        for _ in range(3):
            compare("before")
        setattr(cls, special, method(special, gives))
        compare("with the method")
        compare("with the method, again")
        setattr(cls, special, method(special, (9,) if special in ITERATES else gives))
        compare("with another method")
        delattr(cls, special)
        compare("without the method")


class Counts:
    """What C code asks an object for, in Python code that changes what the program reads."""

    asked = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def _ask(self, result: Any) -> Any:
        Counts.asked += 1
        return result

    def __eq__(self, other: object) -> bool:
        return bool(self._ask(False))

    def __lt__(self, other: object) -> bool:
        return bool(self._ask(True))

    def __gt__(self, other: object) -> bool:
        return bool(self._ask(False))

    def __hash__(self) -> int:
        return 1

    def __index__(self) -> int:
        return int(self._ask(1))

    def __bool__(self) -> bool:
        return bool(self._ask(True))

    def __repr__(self) -> str:
        return str(self._ask("counts"))


INSIDE: dict[str, Callable[[Any], Any]] = {
    "nsmallest": lambda a: heapq.nsmallest(1, [a, 2]) == [7],
    "dicts": lambda a: {1: a} == {1: 3},
    "lists": lambda a: [a] == [3],
    "tuples": lambda a: ((a,), 2) == ((3,), 2),
    "less": lambda a: [a] < [3],
    "print": lambda a: print([a]),
    "str": lambda a: len(str([a])),
    "repr_of_dict": lambda a: len(repr({1: (a,)})),
    "format": lambda a: len(f"{[a]}"),
    "slice": lambda a: slice(a).indices(5),
    "any": lambda a: any([0, a]),
    "all": lambda a: all((a, a)),
    "in": lambda a: 5 in [a],
    "count": lambda a: [a, a].count(5),
    "sorted": lambda a: len(sorted([a, 2])),
    "tensor": lambda a: torch.tensor([a]).tolist(),
    "item": lambda a: [4, 5, 6][a:],
}


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", INSIDE)
def test_what_stands_in_a_container_runs_python_code_later(name: str, backend: str) -> None:
    """C code that ran none while it was recorded: what the code changes is read as it is behind the call."""
    ask = INSIDE[name]

    def program(x: Any, a: Any) -> Any:
        before = Counts.asked
        y = x * before
        result = ask(a)
        return y, x + Counts.asked, Counts.asked - before, result

    def outcome(function: Callable[..., Any], a: Any) -> Any:
        Counts.asked = 0
        with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            try:
                y, z, asked, result = function(torch.ones(3), a)
            except (TypeError, ValueError, RuntimeError) as error:
                return type(error), str(error), Counts.asked
        return y.tolist(), z.tolist(), asked, result

    compiled = kintsugi.compile(program, backend=backend)
    for call, a in enumerate([3, 3, 3, Counts(3), Counts(3), 3, Counts(1)]):
        if backend == "native":
            kintsugi.wait()
        mine, theirs = outcome(compiled, a), outcome(program, a)
        assert mine == theirs, f"{name}, call {call}: {mine}, eager {theirs}"


def as_function(answer: Callable[[], Any]) -> Any:
    return lambda self: answer()


class Callable0:
    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer

    def __call__(self) -> Any:
        return self.answer()


METHODS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "function": as_function,
    "static": staticmethod,
    "class method": lambda answer: classmethod(lambda cls: answer()),
    "partial": functools.partial,
    "partial method": lambda answer: functools.partialmethod(lambda self, n: answer(), 1),
    "property": lambda answer: property(lambda self: answer),
    "callable": Callable0,
    "bound method": lambda answer: Callable0(answer).__call__,
    "in C": lambda answer: iter(answer, None).__next__,
}
ASKS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "if": ("__bool__", lambda k: 1 if k else 2),
    "not": ("__bool__", lambda k: not k),
    "and": ("__bool__", lambda k: (k and 1) == 1),
    "bool": ("__bool__", lambda k: bool(k)),
    "filter": ("__bool__", lambda k: len(list(filter(None, [k, k])))),
    "while": ("__bool__", lambda k: next(n for n in range(9) if not k)),
    "any": ("__bool__", lambda k: any([0, k])),
    "length": ("__len__", lambda k: 1 if k else 2),
    "len": ("__len__", lambda k: len(k)),
    "key": ("__hash__", lambda k: len({k: 1})),
    "hash": ("__hash__", lambda k: hash(k)),
    "member": ("__hash__", lambda k: len({k, 1})),
    "in": ("__hash__", lambda k: k in {1: 2}),
}


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("name", ASKS)
def test_a_special_method_of_any_kind_is_asked_once(name: str, kind: str, backend: str) -> None:
    special, ask = ASKS[name]
    outcomes = []
    for compile_it in (True, False):
        answers = itertools.cycle([True, False, True] if special == "__bool__" else [3, 0, 5])
        cls: Any = type("K", (), {special: METHODS[kind](lambda answers=answers: next(answers))})

        def program(x: Any, k: Any) -> Any:
            return x * 2, ask(k)

        run = kintsugi.compile(program, backend=backend) if compile_it else program
        seen: list[Any] = []
        for _ in range(7):
            try:
                seen.append(run(torch.ones(2), cls())[1])
            except (TypeError, StopIteration) as error:
                seen.append((type(error), str(error)))
        outcomes.append((seen, next(answers)))
    assert outcomes[0] == outcomes[1]
