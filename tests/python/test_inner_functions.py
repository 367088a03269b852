"""What a function that is made inside of a compiled one says of itself, there and outside."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from call_arguments import without_places

import kintsugi

LIMIT = 3


class Kind:
    pass


def said(function: Callable[..., Any]) -> Any:
    """All that a function says of itself, but where it lies."""
    closure = function.__closure__ or ()
    return (
        function.__name__,
        function.__qualname__,
        function.__module__,
        function.__doc__,
        function.__defaults__,
        function.__kwdefaults__,
        function.__annotations__,
        dict(vars(function)),
        function.__code__.co_name,
        [cell.cell_contents for cell in closure if not callable(cell.cell_contents)],
        str(inspect.signature(function)),
    )


# Built by exec: with `from __future__ import annotations` annotations would be texts.
SOURCE = '''
def annotated(x, n):
    def inner(a: int, *b: Kind, c: list[int] = None, **d: "text") -> typing.Optional[Kind]:
        """What it does."""
        return a
    return x + 1, inner

def local_annotation(x, n):
    kind = type(n)
    def inner(a: kind, b: n = n, *, c: (n, kind) = LIMIT) -> x: return a
    return x + 1, inner

def annotated_lambda(x, n):
    inner = lambda a, b=n, *, c=LIMIT: (a, b, c, x)
    inner.__annotations__["a"] = int
    return x, inner

def read_inside(x, n):
    def inner(a: int) -> Kind: return a
    return x + len(inner.__annotations__), inner.__annotations__["a"], list(inner.__annotations__), inner

def signature_inside(x, n):
    def inner(a: int, b: Kind = n): return a
    return x, str(inspect.signature(inner)), typing.get_type_hints(inner), inner

def wrapped(x, n):
    def inner(a: int) -> Kind:
        "inner's"
        return a
    inner.extra = n
    @functools.wraps(inner)
    def outer(*args): return inner(*args)
    return x, outer

def changed(x, n):
    def inner(a: int): return a
    inner.__annotations__["b"] = n
    inner.__name__ = "renamed"
    inner.__doc__ = str(n)
    inner.__defaults__ = (n,)
    del inner.__annotations__["a"]
    return x, inner

def replaced(x, n):
    def inner(a: int): return a
    inner.__annotations__ = {"z": n}
    return x, inner

def other_code(x, n):
    def inner(a, b=n, *, c=LIMIT):
        "inner's"
        return a
    code = inner.__code__.replace(co_name="given", co_consts=("code's", *inner.__code__.co_consts[1:]))
    inner.__code__ = code
    return x + len(inner.__code__.co_name), inner

def behind_a_branch(x, n):
    def inner(a: int, b: Kind = n): return a
    if x.sum() > 0:
        return x - 1, inner
    return x * 2, inner

def in_a_list(x, n):
    made = []
    for k in range(3):
        def inner(a: int, k: Kind = k): return a + k + n
        made.append(inner)
    return x, made[n % 3]

def method_of_a_class(x, n):
    class Local:
        level: int = n
        def method(self, a: Kind = n) -> "Local": return self
    return x, Local.method, Local.__annotations__
'''
GIVEN = {"Kind": Kind, "LIMIT": LIMIT, "typing": typing, "inspect": inspect, "functools": functools}
PROGRAMS: dict[str, Any] = dict(GIVEN)
exec(SOURCE, PROGRAMS)
NAMES = [name for name in PROGRAMS if name not in GIVEN and not name.startswith("__")]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", NAMES)
def test_says_the_same(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    options = {"sync": True} if backend == "native" else None
    compiled = kintsugi.compile(program, backend=backend, options=options)

    def outcome(function: Callable[..., Any], call: int) -> Any:
        x = torch.ones(2) * (1 if call % 3 else -1)
        parts = function(x, call % 4)
        return [
            part.tolist()
            if isinstance(part, torch.Tensor)
            else said(part)
            if inspect.isfunction(part)
            else part
            for part in parts
        ]

    for call in range(7):
        assert without_places(repr(outcome(compiled, call))) == without_places(
            repr(outcome(program, call))
        ), call


class Holder:
    run: Any = None


HOLDER = Holder()


def turns(n: int) -> typing.Iterator[int]:
    yield from range(n)


# What lies in a class while steps run that are unknown is looked up there, and its parts are read anew.
PARTS = {
    "default": ("v, n=n", "n"),
    "list": ("v, n=[n]", "n.append(len(v)) or len(n)"),
    "keyword": ("v, *, n=n", "n"),
    "cell": ("v", "(n, v.shape[0])"),
}
PROGRAM = """
def program(y):
    out = []
    for _ in turns(3):
        def rows(v): return y.split(1)[0].expand(4, 4)
        torch.stack([rows(row.expand(4, 4)) for row in y]).sum(0)
        n = len(torch.unique(y > 0))
        def run(self, {parameters}): return {result}
        Holder.run = run
        out.append(HOLDER.run(y))
    return out
"""


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_parts_are_read_again(part: str, backend: str) -> None:
    parameters, result = PARTS[part]
    space: dict[str, Any] = {"torch": torch, "turns": turns, "Holder": Holder, "HOLDER": HOLDER}
    exec(PROGRAM.format(parameters=parameters, result=result), space)
    program = space["program"]
    compiled = kintsugi.compile(program, backend=backend)
    for call in range(5):
        y = torch.arange(16.0).reshape(4, 4) - (0, 100)[call % 2]
        assert compiled(y) == program(y)
    Holder.run = None


def module_function(a: int) -> int:
    """What decorators copy from."""
    return a


CODES = """
def renamed(x, n):
    def inner(v): return v * n
    inner.__code__ = inner.__code__.replace(co_name="given")
    return inner(x), inner.__name__, inner.__code__.co_name

def of_another(x, n):
    def inner(v): return v * 2
    def other(v, w=3): return v - 1
    inner.__code__ = other.__code__
    try:
        inner(x)
    except TypeError as error:
        said = str(error)
    inner.__defaults__ = (4,)
    return inner(x), said

def other_variables(x, n):
    def inner(v): return v * n
    def other(v): return v - 1
    try:
        inner.__code__ = other.__code__
    except ValueError as error:
        return inner(x), str(error)

def no_code(x, n):
    def inner(v): return v * 2
    try:
        inner.__code__ = n
    except TypeError as error:
        return inner(x), str(error)

def while_it_runs(x, n):
    def other(v): return v - n
    def inner(v):
        n
        inner.__code__ = third.__code__
        if v.sum() > 4:
            return v + 1
        return v + 2
    def third(v):
        inner
        n
        third
        return v * n
    return inner(x), inner(x)

def while_it_waits(x, n):
    def numbers():
        yield 1
        yield 2
    def letters():
        yield "a"
        yield "b"
    given = numbers()
    first = next(given)
    numbers.__code__ = letters.__code__
    return x + first, list(given), list(numbers())

def left_inside(x, n):
    def inner(v):
        if v.sum() > 4:
            return v + 1
        return v * n
    inner.__code__ = inner.__code__.replace(co_name="given")
    return inner(x), inner(x * 2)

def seen_before(x, n):
    def inner(v): return v * 2
    def other(v): return v - 1
    looked_at(inner)
    inner.__code__ = other.__code__
    return inner(x), inner.__code__.co_name

def seen_behind(x, n):
    def inner(v): return v * 2
    def other(v): return v - 1
    inner.__code__ = other.__code__
    looked_at(inner)
    return inner(x), inner.__code__.co_name

def kept(x, n):
    def inner(v): return v * n
    code = inner.__code__.replace(co_firstlineno=n + 1)
    inner.__code__ = code
    return x + 1, inner, code.co_firstlineno, inner.__code__ == code

def of_the_run(x, n):
    def inner(v): return v * n
    inner.__code__ = inner.__code__.replace(co_firstlineno=int(x.sum()) + 50)
    return inner(x), inner.__code__.co_firstlineno

def generator(x, n):
    def inner(v):
        yield v
        yield v * n
    inner.__code__ = inner.__code__.replace(co_name="given")
    return list(inner(x)), inner(x).__name__, inner(x).gi_code.co_name

def no_gradients(x, n):
    @torch.no_grad()
    def inner(v): return v * n
    return inner(x), inner.__name__, x + 1

def no_gradients_between(x, n):
    @torch.no_grad()
    def inner(v):
        yield v * n, torch.is_grad_enabled()
        yield v + n, torch.is_grad_enabled()
    return list(inner(x)), torch.is_grad_enabled()
"""


@kintsugi.disable
def looked_at(function: Any) -> str:
    return str(function.__code__.co_name)


WITH_CODES: dict[str, Any] = {"torch": torch, "looked_at": looked_at}
exec(CODES, WITH_CODES)
WHOLE_CODES = ["renamed", "kept", "generator", "no_gradients", "no_gradients_between"]


def plain(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return result.tolist(), result.requires_grad
    if inspect.isfunction(result):
        return result.__name__, result.__code__.co_name, result.__code__.co_firstlineno, result(2)
    return type(result)(map(plain, result)) if isinstance(result, (list, tuple)) else result


@pytest.mark.parametrize(
    "name", [name for name in WITH_CODES if inspect.isfunction(WITH_CODES[name]) and name != "looked_at"]
)
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_code_that_is_given(name: str, backend: str) -> None:
    program = WITH_CODES[name]
    options = {"sync": True} if backend == "native" else None
    compiled = kintsugi.compile(program, backend=backend, options=options)
    for call in range(6):
        x = torch.full((2,), 1.0 + 2 * (call % 3), requires_grad=True)
        assert plain(compiled(x, 3)) == plain(program(x, 3)), call
    stats = compiled.stats()
    assert name not in WHOLE_CODES or (stats.graph_break_count == 0 and stats.misses == 1), stats


class Bound:
    def __init__(self, k: int) -> None:
        self.k = k

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.k

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__


class Inheriting(Bound):
    def method(self, x: torch.Tensor) -> torch.Tensor:
        return super().method.__self__.k + super().method(x)


@kintsugi.disable
def counted(bound: Bound) -> int:
    bound.k += 1
    return bound.k


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_parts_of_bound_methods(backend: str) -> None:
    old = Bound(5)

    def program(x: torch.Tensor) -> Any:
        made = Bound(2)
        method = made.method
        owner = getattr(method, "__self__", None)
        owner.k += 1
        seen = [owner is made, method.__func__ is Bound.method, method(x), Bound(7).method.__self__.k]
        of_class = made.of_class
        seen += [of_class.__self__ is Bound, of_class.__func__.__name__, Inheriting(3).method(x)]
        seen += [old.method.__self__ is old, hasattr(method, "__enter__"), method.__name__]
        seen += [method.__self__.method.__self__.k, method]
        if x.sum() > 3:
            method.__self__.k += 1
            seen.append(method.__self__.k)
        seen += [counted(method.__self__), method.__self__.k, made.k, method.__self__ is made]
        return seen

    def outcome(seen: list[Any]) -> Any:
        return [
            plain(part) if not inspect.ismethod(part) else (part.__self__.k, part.__func__) for part in seen
        ]

    compiled = kintsugi.compile(program, backend=backend)
    for call in range(6):
        x = torch.full((2,), float(call % 4))
        assert outcome(compiled(x)) == outcome(program(x)), call


def test_owners_of_bound_methods_are_no_breaks() -> None:
    def program(x: torch.Tensor) -> Any:
        method = Bound(2).method
        method.__self__.k += 1
        return method(x), method.__func__ is Bound.method

    compiled = kintsugi.compile(program, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2))[0].tolist() == [3, 3]
    stats = compiled.stats()
    assert stats.misses == 1 and stats.graph_break_count == 0, stats


GENERIC: dict[str, Any] = {}
if sys.version_info >= (3, 12):
    exec("def generic[T](a: T) -> T:\n    return a", GENERIC)


@pytest.mark.parametrize("kind", ["module's", "inner", "generic"])
def test_decorators_that_wrap(kind: str) -> None:
    """functools.wraps() copies what CPython's version has it copy: `__type_params__` too, from 3.12 on."""
    if kind == "generic" and not GENERIC:
        pytest.skip("type parameters are new in 3.12")

    def program(x: torch.Tensor) -> Any:
        def inner(a: int) -> int:
            return a

        target = {"module's": module_function, "inner": inner, "generic": GENERIC.get("generic")}[kind]

        @functools.wraps(target)
        def outer(a: Any) -> Any:
            return target(a) * 2

        parameters = getattr(outer, "__type_params__", None)
        said = (
            outer.__name__,
            outer.__doc__,
            sorted(outer.__annotations__),
            str(parameters),
            outer.__wrapped__ is target,
        )
        return outer(x), said

    compiled = kintsugi.compile(program, backend="eager")
    for call in range(4):
        x = torch.full((2,), float(call))
        expected, found = program(x), compiled(x)
        assert torch.equal(expected[0], found[0]) and expected[1] == found[1]
    stats = compiled.stats()
    # From 3.14 on, annotations are made when they are asked for: a step, behind which the function is no longer ours.
    whole = kind != "generic" and sys.version_info < (3, 14)
    assert not whole or (stats.hits == 3 and stats.graph_break_count == 0), stats


def test_annotations_that_are_replaced() -> None:
    def read(x: torch.Tensor) -> Any:
        return x + 1, dict(module_function.__annotations__), module_function.__annotations__.get("k")

    compiled = kintsugi.compile(read, backend="eager")
    before = module_function.__annotations__
    try:
        for call in range(8):
            if call == 3:
                module_function.__annotations__ = {"k": call}
            if call == 5:
                module_function.__annotations__["k"] = call
            expected, found = read(torch.ones(2)), compiled(torch.ones(2))
            assert expected[1:] == found[1:]
    finally:
        module_function.__annotations__ = before
    assert compiled.stats().graph_break_count == 0


@kintsugi.disable
def set_all(function: Any, k: int) -> None:
    function.__annotations__ = {"z": k}
    function.__name__ = f"n{k}"
    function.__qualname__ = f"q{k}"
    function.__doc__ = f"d{k}"
    function.__defaults__ = (k,)
    function.__kwdefaults__ = {"q": k}
    function.extra = k


def test_functions_that_unknown_code_has_changed() -> None:
    def program(x: torch.Tensor, k: int) -> Any:
        def inner(a: int = 5, *, q: int = 7) -> Any:
            "inner's"
            return a, q

        before = len(inner.__annotations__), inner.__name__, inner()
        set_all(inner, k)
        read = (
            dict(inner.__annotations__),
            inner.__name__,
            inner.__doc__,
            inner.__defaults__,
            inner.__kwdefaults__,
        )
        return x + 1, before, read, inner.__qualname__, inner.extra, sorted(inner.__annotations__), inner()

    compiled = kintsugi.compile(program, backend="eager")
    for k in range(6):
        expected, found = program(torch.ones(1), k), compiled(torch.ones(1), k)
        assert torch.equal(expected[0], found[0]) and expected[1:] == found[1:]
