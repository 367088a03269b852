"""The builtins that compiled code uses are hidden, replaced or deleted between its calls, or are another dict's.

Every program runs in eager mode and compiled, with the same changes before its calls.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kintsugi

Change = Callable[[], None]
BACKENDS = ["eager", "native"]
ORIGINAL = dict(vars(builtins))
SOURCE = """
def length(x): return x + len([1, 2])
def loop(x): return [x + i for i in range(2)]
def maximum(x): return x + max(1, 2)
def largest(x): return abs(x - 3)
def kind(x): return x + 1 if isinstance(x, torch.Tensor) else x - 1
def method(x): return getattr(x, "sum")() if hasattr(x, "sum") else x
def pairs(x): return [x * i + j for i, j in zip([3, 4], [1, 2])]
def number(x): return x + round(1.6) + sum([1, 2])
def missing(x):
    try:
        return x + not_there
    except NameError as error:
        return str(error)
def caught(x):
    try:
        raise ValueError("a")
    except ValueError:
        return x + 1
    except Exception:
        return x + 2
def statement(x):
    class A:
        v = 3
    return x + A.v
def derived(x):
    class A:
        v = 3
    class B(A):
        def f(self): return super().f() if hasattr(super(), "f") else self.v
    return x + B().f()
def imported(x):
    import math
    return x + math.floor(2.5)
def imported_from(x):
    from math import floor
    return x + floor(2.5)
def inner(x):
    def count(y): return y + len([1, 2])
    return count(x)
def generated(x): return sum(x * i for i in range(3))
def inner_class(x):
    def make():
        class A:
            v = 3
        return A
    return x + make().v
"""


class FalseModule:
    @staticmethod
    def floor(number: float) -> int:
        return 50


def build(function: Any, name: str, *bases: Any, **keywords: Any) -> Any:
    made = ORIGINAL["__build_class__"](function, name, *bases, **keywords)
    made.v = 7
    return made


def load(name: str, *args: Any, **keywords: Any) -> Any:
    return FalseModule if name == "math" else ORIGINAL["__import__"](name, *args, **keywords)


# Program: the builtin that it uses, and another value of that.
USES: dict[str, tuple[str, Any]] = {
    "length": ("len", lambda a: 10),
    "loop": ("range", lambda n: [5]),
    "maximum": ("max", lambda *a: 10),
    "largest": ("abs", lambda a: 4),
    "kind": ("isinstance", lambda *a: False),
    "method": ("hasattr", lambda *a: False),
    "pairs": ("zip", lambda *a: [(5, 5)]),
    "number": ("round", lambda a: 11),
    "missing": ("not_there", 4),
    "caught": ("ValueError", KeyError),
    "statement": ("__build_class__", build),
    "derived": ("__build_class__", build),
    "inner_class": ("__build_class__", build),
    "imported": ("__import__", load),
    "imported_from": ("__import__", load),
    "inner": ("len", lambda a: 10),
    "generated": ("range", lambda n: [5]),
}
# Those whose replacement other code than the programs' would notice are left as they are for it.
SAFE = ("max", "abs", "round", "not_there", "__build_class__", "__import__")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    for name in set(vars(builtins)) - set(ORIGINAL):
        delattr(builtins, name)
    vars(builtins).update(ORIGINAL)


def space(own: Any = None) -> dict[str, Any]:
    made: dict[str, Any] = {"torch": torch, "__name__": "programs"}
    if own is not None:
        made["__builtins__"] = own
    exec(SOURCE, made)
    return made


def shown(value: Any) -> Any:
    if isinstance(value, list):
        return [shown(item) for item in value]
    return (type(value).__name__, value.tolist() if isinstance(value, torch.Tensor) else value)


def outcomes(program: Any, changes: list[Change]) -> list[Any]:
    seen = []
    for change in changes:
        change()
        try:
            seen.append(shown(program(torch.ones(3))))
        except Exception as error:
            seen.append((type(error).__name__, str(error)))
    return seen


def nothing() -> None: ...


def compare(name: str, spaces: Callable[[], tuple[dict[str, Any], list[Change]]], backend: str) -> None:
    names, changes = spaces()
    expected = outcomes(names[name], changes)
    names, changes = spaces()
    compiled = kintsugi.compile(names[name], backend=backend)
    assert outcomes(compiled, changes) == expected
    assert compiled.stats().hits > 0


def writes(target: dict[str, Any], name: str) -> tuple[Change, Change]:
    def put() -> None:
        target[name] = USES_BY_NAME[name]

    def back() -> None:
        target.pop(name, None)
        if target is not vars(builtins) and "torch" in target:
            return
        if name in ORIGINAL:
            target[name] = ORIGINAL[name]

    return put, back


USES_BY_NAME = dict(USES.values())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", USES)
def test_a_global_hides_it(program: str, backend: str) -> None:
    name = USES[program][0]

    def spaces() -> tuple[dict[str, Any], list[Change]]:
        names = space()
        put, back = writes(names, name)
        return names, [nothing, nothing, put, nothing, back, nothing, put, back, nothing]

    compare(program, spaces, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [program for program in USES if USES[program][0] in SAFE])
def test_it_is_replaced(program: str, backend: str) -> None:
    name = USES[program][0]
    put, back = writes(vars(builtins), name)

    def here() -> None:  # other code, torch's and ours, goes on with what there was
        put()
        other, original = vars(builtins)[name], ORIGINAL.get(name)
        if name.startswith("__") or original is None:
            return

        def chosen(*args: Any, **keywords: Any) -> Any:
            ours = sys._getframe(1).f_globals.get("__name__") == "programs"
            return (other if ours else original)(*args, **keywords)

        vars(builtins)[name] = chosen

    changes = [nothing, nothing, here, nothing, back, nothing, here, back, nothing]
    compare(program, lambda: (space(), changes), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", USES)
def test_a_dict_of_its_own(program: str, backend: str) -> None:
    name = USES[program][0]

    def spaces() -> tuple[dict[str, Any], list[Change]]:
        own = dict(ORIGINAL)
        names = space(own)
        put, back = writes(own, name)
        changes = [
            nothing,
            nothing,
            put,
            nothing,
            back,
            nothing,
            lambda: own.pop(name, None) and None,
            nothing,
            back,
        ]
        return names, [*changes, nothing]

    compare(program, spaces, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", USES)
def test_the_globals_name_another_dict(program: str, backend: str) -> None:
    """A function keeps the builtins that it was made with; one that is made in the call takes those of the globals."""

    def spaces() -> tuple[dict[str, Any], list[Change]]:
        own = dict(ORIGINAL)
        names = space(own)
        other = {**own, USES[program][0]: USES[program][1]}
        put = lambda: names.update(__builtins__=other)
        back = lambda: names.update(__builtins__=own)
        return names, [nothing, nothing, put, nothing, back, nothing]

    compare(program, spaces, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_replaces_it(backend: str) -> None:
    def program(x: Any) -> Any:
        class A:
            v = 3

        replace(build)

        class B:
            v = 3

        replace(ORIGINAL["__build_class__"])
        return x + A.v, B.v

    @torch.compiler.disable
    def replace(function: Any) -> None:
        vars(builtins)["__build_class__"] = function

    compiled = kintsugi.compile(program, backend=backend)
    for _call in range(3):
        assert shown(list(compiled(torch.ones(3)))) == shown(list(program(torch.ones(3))))
