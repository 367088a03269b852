"""Global variables, keys and attributes that a compiled function deletes, and that another thread deletes first."""

from __future__ import annotations

import collections
import sys
import traceback
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import Case, Suite, check, check_captured, in_threads
from other_threads import acting, let_others_act

import kintsugi

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


def module(source: str, **names: Any) -> types.ModuleType:
    made = types.ModuleType("made")
    made.__dict__.update(names, torch=torch)
    exec(compile(source, made.__name__, "exec"), made.__dict__)
    return made


# --- del of a global ---


@factory()
def make_deleted_and_made_again():
    made = module(
        """
def f(x):
    global later
    later = x + 1
    y = later * 2
    del later
    later = x.shape[0]
    y = y * later
    del later
    try:
        return y + later, "later" in globals()
    except NameError as error:
        return y, str(error), error.name, "later" in globals()
"""
    )
    return made.f


@factory()
def make_not_there():
    made = module(
        """
def f(x):
    global gone
    y = x * 2
    try:
        del gone
    except NameError as error:
        return y + len(str(error)), error.args, error.name
    return y
"""
    )
    return made.f


@factory(traces=None, breaks=None)
def make_not_there_and_not_caught():
    made = module(
        """
def f(x):
    global gone
    y = x * 2
    del gone
    return y
"""
    )
    return made.f


@factory()
def make_a_builtin_shows():
    made = module(
        """
def f(x):
    global len
    len = lambda text: 100
    first = len("abc")
    del len
    return x * first, len("abc")
"""
    )
    return made.f


@factory()
def make_of_another_module():
    inner = module("def forget():\n    global k\n    del k\n", k=0)
    outer = module(
        "k = 5\ndef f(x):\n    m.k = 3\n    forget()\n    return x * k, hasattr(m, 'k')\n", m=inner
    )
    outer.forget = inner.forget
    return outer.f


@factory()
def make_in_a_generator():
    made = module(
        """
def values(x):
    global state
    state = x
    yield state + 1
    del state
    yield "state" in globals()
def f(x):
    return list(values(x))
"""
    )
    return made.f


@factory()
def make_under_a_handler():
    made = module(
        """
def f(x):
    global k, missing
    k = 1
    log = []
    try:
        try:
            del k
            del missing
        finally:
            log.append("k" in globals())
    except NameError as error:
        return x * 2, error.name, log
"""
    )
    return made.f


@factory((3, 4), traces=None, calls=6)
def make_on_one_side_of_a_decision():
    made = module(
        """
calls = 0
def f(x):
    global calls, k
    calls += 1
    k = calls
    y = x * 2
    if y.sum() > 0:
        del k
        return y, "k" in globals()
    return y - 1, k
"""
    )
    return made.f


@factory()
def make_in_a_comprehension_and_a_key():
    made = module(
        """
def key(i):
    global k
    k = i
    del k
    return -i
def f(x):
    return x * 2, sorted([1, 2, 3], key=key), [key(i) for i in (1, 2)]
"""
    )
    return made.f


@factory(traces=None, breaks=None)
def make_whose_value_has_a_finalizer():
    log: list[str] = []
    made = module(
        """
class Noisy:
    def __del__(self):
        log.append("gone")
def f(x):
    global held
    held = Noisy()
    log.append("made")
    y = x + 1
    del held
    log.append("deleted")
    return y
""",
        log=log,
    )
    return made.f, log


@factory(traces=None, breaks=None)
def make_whose_value_is_watched_by_a_weak_reference():
    log: list[str] = []
    made = module(
        """
class Plain: pass
def f(x):
    global held
    held = Plain()
    ref = weakref.ref(held, lambda _: log.append("gone"))
    y = x + 1
    del held
    return y, ref() is None
""",
        log=log,
        weakref=weakref,
    )
    return made.f, log


@factory(traces=None, breaks=None)
def make_in_a_dict_of_a_class_of_its_own():
    class Space(dict):
        def __delitem__(self, key: str) -> None:
            raise AssertionError("del of a global does not ask the class")

    space = Space(torch=torch)
    exec("def f(x):\n    global k\n    k = 1\n    del k\n    return x + 1, 'k' in globals()\n", space)
    return space["f"]


# --- deletions with hooks of the class ---


@factory()
def make_delattr_in_python():
    log: list[str] = []

    class Logged:
        def __delattr__(self, name: str) -> None:
            log.append(name)
            super().__delattr__(name)

    one = Logged()

    def f(x):
        one.k = 1
        y = x * 2
        del one.k
        return y, hasattr(one, "k")

    return f, one, log


@factory(traces=2)
def make_delattr_of_a_base():
    log: list[str] = []

    class Base:
        def __delattr__(self, name: str) -> None:
            log.append(name)
            object.__delattr__(self, name)

    class Slotted(Base):
        def __delattr__(self, name: str) -> None:
            log.append("slotted")
            super().__delattr__(name)

    one = Slotted()
    one.k = 1

    def f(x):
        if hasattr(one, "k"):
            del one.k
        else:
            one.k = 2
        return x + 1, hasattr(one, "k")

    return f, one, log


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)


# --- another thread is faster ---


class Box:
    k: int


K = 1
KEYS: dict[str, int] = {}
ORDERED: collections.OrderedDict[str, int] = collections.OrderedDict()
BOX = Box()


def reset() -> None:
    global K
    K = BOX.k = 1
    for keys in (KEYS, ORDERED):
        keys.clear()
        keys.update(a=0, k=5)


def delete_all() -> None:
    globals().pop("K", None)
    vars(BOX).pop("k", None)
    for keys in (KEYS, ORDERED):
        keys.pop("k", None)


def state() -> Any:
    return "K" in globals(), hasattr(BOX, "k"), list(KEYS.items()), list(ORDERED.items())


def del_global(x):
    global K
    y = let_others_act(x) * 2
    del K
    return y


def del_global_under_a_handler(x):
    global K
    y = let_others_act(x) * 2
    try:
        del K
    except NameError as error:
        return y - 1, str(error), error.name
    return y


def del_global_of_a_caller(x):
    def forget():
        global K
        del K

    y = let_others_act(x) * 2
    forget()
    return y


def del_global_in_a_generator(x):
    def steps(y):
        global K
        yield y + 1
        del K
        yield y + 2

    return [*steps(let_others_act(x) * 2)]


def del_global_after_more(x):
    global K
    y = let_others_act(x) * 2
    KEYS["more"] = 1
    z = (y + 1).relu()
    del K
    KEYS["most"] = 2
    return z * y


def pop(x):
    return let_others_act(x) * 2, KEYS.pop("k")


def pop_or(x):
    return let_others_act(x) * 2, KEYS.pop("k", None)


def pop_or_of_an_ordered_dict(x):
    return let_others_act(x) * 2, ORDERED.pop("k", "nothing")


def popitem(x):
    return let_others_act(x) * 2, KEYS.popitem()


def del_key(x):
    y = let_others_act(x) * 2
    del KEYS["k"]
    return y


def del_key_or(x):
    y = let_others_act(x) * 2
    try:
        del KEYS["k"]
    except KeyError as error:
        return y, error.args
    return y


def pop_in_a_key(x):
    return let_others_act(x) * 2, sorted([1, 2], key=lambda i: KEYS.pop("k", i))


def del_attribute(x):
    y = let_others_act(x) * 2
    del BOX.k
    return y


def outcome(function: Callable[..., Any], act: Callable[[], None] | None) -> Any:
    reset()
    try:
        with acting(act):
            result = function(torch.ones(2))
        told: Any = [value.tolist() if isinstance(value, torch.Tensor) else value for value in result]
    except Exception as error:
        lines = [
            (f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__
        ]
        told = type(error), error.args, getattr(error, "name", None), lines[1:]
    return told, state()


RACES = [
    del_global,
    del_global_under_a_handler,
    del_global_of_a_caller,
    del_global_in_a_generator,
    del_global_after_more,
    pop,
    pop_or,
    pop_or_of_an_ordered_dict,
    popitem,
    del_key,
    del_key_or,
    pop_in_a_key,
    del_attribute,
]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("function", RACES, ids=lambda f: f.__name__)
def test_another_thread_deletes_first(function: Callable[..., Any], backend: str) -> None:
    """What a guard has seen is gone when the run gets to the deletion: the instruction says what follows."""
    options = {"sync": True} if backend == "native" else None
    compiled = kintsugi.compile(function, backend=backend, options=options)
    for act in (None, None, delete_all, None, delete_all, delete_all, None):
        assert outcome(compiled, act) == outcome(function, act)
    stats = compiled.stats()
    assert stats.hits == 6, stats


def test_threads_delete_what_others_make() -> None:
    """Each thread makes and deletes one name: it is deleted, or somebody else has; never anything but NameError."""
    made = module(
        """
def f(x):
    global shared
    shared = 1
    y = torch.relu(x) * 2
    try:
        del shared
    except NameError as error:
        return y, str(error), error.name
    return y, None, None
"""
    )
    compiled = kintsugi.compile(made.f, backend="eager")
    x = torch.randn(64, 64)
    expected = torch.relu(x) * 2
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    seen = set()

    def work(number: int) -> None:
        for _ in range(200):
            y, text, name = compiled(x)
            assert torch.equal(y, expected)
            seen.add((text, name))

    try:
        in_threads(8, work)
    finally:
        sys.setswitchinterval(before)
    assert seen <= {(None, None), ("name 'shared' is not defined", "shared")}, seen
    assert "shared" not in made.__dict__
    assert compiled.stats().hits > 0
