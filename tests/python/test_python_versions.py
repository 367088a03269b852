"""What versions of CPython compile into other instructions: the same programs, whichever they are."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kintsugi

NEW = ""
if sys.version_info >= (3, 14):
    NEW = """
def annotated(x, n):
    def inner(a: int, b: Later = n) -> int: return a + b
    return inner(x), inner

def wrapped(x, n):
    def inner(a: int) -> Later: return a + n
    @functools.wraps(inner)
    def outer(*args): return inner(*args) * 2
    return outer(x), outer

def wraps_an_old_one(x, n):
    @functools.wraps(annotated)
    def outer(a): return a * n
    return outer(x), outer

def looked_at(x, n):
    def inner(a: n) -> int: return a
    before = inner.__annotate__ is None
    return x, before, inner.__annotations__, inner

def given(x, n):
    def inner(a: int): return a
    def other(a): return a
    other.__annotate__ = inner.__annotate__
    none = other.__annotations__ == inner.__annotations__
    inner.__annotations__ = {"k": n}
    later = inner.__annotate__
    inner.__annotate__ = other.__annotate__
    return x + 1, none, later, inner, other

def taken_away(x, n):
    def inner(a: int): return a
    inner.__annotate__ = None
    return x + 1, inner

def behind_a_branch(x, n):
    def inner(a: int, b: n = n): return a + b
    if x.sum() > 0:
        return inner(x), inner
    return inner(x) - 1, inner

def of_a_class(x, n):
    class Made:
        k: int = n
        m: "text"
        def f(self, v: int) -> int: return v * self.k
    return Made().f(x), Made.__annotations__, Made.f

def template(x, n):
    text = t"a{n}b{x.shape[0]!r:>5}"
    return x + len(text.strings), text.values, text.interpolations[1].format_spec
"""


class Seen:
    """What `[...]` asks for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __getitem__(self, key: Any) -> Any:
        self.asked.append(key)
        if isinstance(key, slice) and key.stop == 3:
            raise KeyError("three")
        return key

    def __setitem__(self, key: Any, value: Any) -> None:
        self.asked.append((key, value))


class Base(torch.nn.Module):
    scale = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale

    @property
    def twice(self) -> int:
        return self.scale * 2


class Derived(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + super().twice + super(Derived, self).scale


def slices(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    y = x + 1
    part = items[low:high]
    return y[low:] * len(part), part


def slices_of_an_object(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    seen = Seen()
    try:
        got = seen[low:high]
    except KeyError as error:
        got = str(error)
    seen[low:high] = low
    return x + low, got, seen.asked


def stored_slices(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    copy = list(items)
    copy[low:high] = ["new"]
    z = x.clone()
    z[low:high] = 0
    return z, copy


def comprehensions(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    i = 7
    ys = [x * i for i in range(low, 3)]
    try:
        [10 // (i - low) for i in range(3)]
    except ZeroDivisionError as error:
        ys.append(torch.tensor(len(str(error))))
    return sum(ys), i, {i: -i for i in range(2)}, {ord(str(i)) % 7 for i in items if i != high}


def unset_variables(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    if low > 1:
        k = 3
    ys = [k + 1 for k in range(2)]
    try:
        return x + k, ys
    except UnboundLocalError as error:
        return x - 1, ys, str(error)


def generators(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    def inner() -> Iterator[Any]:
        got = yield x
        yield got
        if low == 1:
            raise StopIteration(3)
        return "end"

    def outer() -> Iterator[Any]:
        result = yield from inner()
        yield result

    steps = outer()
    out = [next(steps), steps.send(low)]
    try:
        out.append(next(steps))
    except RuntimeError as error:
        out += [str(error), type(error.__cause__)]
    thrown = outer()
    next(thrown)
    try:
        thrown.throw(KeyError("thrown"))
    except KeyError as error:
        out.append(str(error))
    return out


def class_bodies(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    value = low

    class Local:
        held = value
        for value in range(2):
            pass
        kept = value

        def add(self, y: torch.Tensor) -> torch.Tensor:
            return y + self.held + self.kept

    return Local().add(x)


class Odd:
    """Whose comparisons give what is no bool, and whose truth somebody has to ask for."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __lt__(self, other: Any) -> Any:
        return [self.x] if self.x.sum() > other else []

    def __eq__(self, other: object) -> Any:
        return self.x == other

    __hash__ = None  # type: ignore[assignment]


def comparisons(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    out = []
    for value in (low, x.numel(), float(low), str(low), (low, 2), [low], {low: 1}, {low}, x, None):
        out.append("same" if value == low else "other")
        try:
            out.append("less" if value < 3 else "more")
        except TypeError as error:
            out.append(str(error))
        except RuntimeError:
            out.append("a tensor")
    odd = Odd(x)
    if odd < low:
        out.append("odd")
    if not odd < 100:
        out.append("not odd")
    while x.sum() < 20 and not (x > 6).any():
        x = x + 2
    if x.max() != x.max():
        out.append("nan")
    return x, out, low < x.numel() < 5, 0 < low < 2, [i for i in range(5) if i > low if i != 3]


def truths(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    out: list[Any] = [bool(value) for value in (low, high, items, "", [], x.sum(), None, {})]
    out += [not low, not items, not x.any(), low and high, high or low, x if low else items]
    if x.sum():
        out.append("sum")
    if not (x - x).any():
        out.append("none")
    return out, [y for y in items if y], None if not high else x * low


def keyword_calls(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    def inner(a: Any, b: Any = 2, *rest: Any, c: Any = 3, **more: Any) -> Any:
        return a, b, rest, c, more

    class Callable_:
        def __init__(self, a: Any, *, b: Any = 0) -> None:
            self.made = (a, b)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.made, args, kwargs

        def method(self, *, key: Any) -> Any:
            return inner(self.made, c=key)

    made = Callable_(low, b=high)
    out: list[Any] = [inner(1, c=low), inner(a=x, b=low), inner(1, 2, 3, 4, c=x, d=low)]
    out += [made(1, k=x), made.method(key=x)]
    out += [sorted(items, key=lambda item: -ord(str(item))), max(low, 2, key=lambda v: -v), dict(a=low, b=x)]
    out += [torch.sum(x, dim=0, keepdim=True), x.sum(dim=0), torch.nn.functional.pad(x, (low, 0), value=low)]
    try:
        inner(1, a=2)
    except TypeError as error:
        out.append(str(error))
    try:
        inner(b=2)
    except TypeError as error:
        out.append(str(error))
    return out


def formats(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    name = f"{low}"
    return (
        x + low,
        f"{low!r:>4}|{high!s}|{items!a:<20}|{name}|{name:>{low + 2}}|{x.sum()}|{x.sum().item():.2f}|{x!r}",
    )


def new_functions(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    def inner(a: torch.Tensor, b: int = low, *, c: Any = high) -> "torch.Tensor":
        """A text
        of two lines."""
        return a * b + (low if c is None else c)

    pairs = [lambda y, i=i: y * i + low for i in range(2)]
    return (
        inner(x), inner(x, 3, c=1), inner.__annotations__, inner.__doc__, inner.__defaults__, inner.__kwdefaults__,
        [pair(x) for pair in pairs], (lambda: low)(), inner.__closure__ is not None,
    )  # fmt: skip


def pairs_of_variables(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    a, b = low, x
    a, b = b, a
    c = d = a + b
    first, *rest = items
    for e, f in enumerate(items):
        a, b = a + e, f
    with torch.no_grad() as g, torch.no_grad():
        h, i = x, low
    del e
    try:
        return e, a  # noqa: F821
    except UnboundLocalError as error:
        return a, b, c is d, d, first, rest, f, g, h * i, str(error)


class Held:
    def __init__(self, x: torch.Tensor, low: int) -> None:
        self.x, self.low = x, low

    @property
    def add(self) -> Callable[..., torch.Tensor]:
        if self.x.sum() > 4 * self.low:
            return lambda y, k=1: y + k
        return lambda y, k=2: y - k

    @staticmethod
    def fixed(y: torch.Tensor, k: int = 1) -> torch.Tensor:
        return y * k

    @classmethod
    def named(cls, y: torch.Tensor) -> Any:
        return y, cls.__name__


class HeldTwice(Held):
    def both(self, y: torch.Tensor) -> torch.Tensor:
        return super().add(y) + super().fixed(y, k=3) + super().named(y)[0]


def called_attributes(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    held = HeldTwice(x, low)
    held.own = lambda y: y * 5  # type: ignore[attr-defined]
    return (
        held.add(x), held.add(x, k=low), held.fixed(x), held.named(x), held.both(x), held.own(x),  # type: ignore[attr-defined]
        "-".join(map(str, items)), [len(str(item)).bit_length() for item in items],
        torch.nn.functional.relu(x - 1), x.add(1).mul(low), getattr(held, "fixed")(x, 2),
    )  # fmt: skip


def locals_of_it(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    before = locals()
    y = x + low
    after = locals()
    after["low"] = 99
    return y, sorted(after), low, before is after, "y" in before


def written_through(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    y = x + low
    try:
        raise KeyError(low)
    except KeyError as error:
        assert error.__traceback__ is not None
        error.__traceback__.tb_frame.f_locals["low"] = 7
    return y + low


def generator_written_through(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    def steps() -> Iterator[Any]:
        step = low
        yield x + step
        yield x * step

    made = steps()
    first = next(made)
    made.gi_frame.f_locals["step"] = 9  # type: ignore[attr-defined]
    return first, next(made)


def evaluated(x: torch.Tensor, items: Any, low: int, high: Any) -> Any:
    space = {"low": low}
    exec("made = low + 1", space)
    exec("low = 50")
    return x + low + space["made"] + eval("low + 1", {"low": low}), eval("low")


PROGRAMS = [
    slices, slices_of_an_object, stored_slices, comprehensions, unset_variables, generators, class_bodies, comparisons,
    truths, keyword_calls, formats, new_functions, pairs_of_variables, called_attributes, locals_of_it, written_through,
    generator_written_through, evaluated,
]  # fmt: skip
ARGUMENTS = [
    ([1, 2, 3, 4], 1, 3),
    ([1, 2, 3, 4], 1, 3),
    ([1, 2, 3, 4], 0, None),
    ("abc", 2, 3),
    ((1, 2), 1, 2),
]


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return repr(function(*args))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs(program: Callable[..., Any], backend: str) -> None:
    compiled = kintsugi.compile(program, backend=backend)
    x = torch.arange(4.0)
    for _ in range(2):
        for arguments in ARGUMENTS:
            assert outcome(compiled, x, *arguments) == outcome(program, x, *arguments)


def described(function: Callable[..., Any]) -> tuple[Any, ...]:
    return (
        function.__doc__, function.__module__, function.__name__, function.__qualname__,
        getattr(function, "__doc__", None), getattr(function, "__module__", None),
    )  # fmt: skip


class Documented:
    """As contextlib does it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        doc = getattr(function, "__doc__", None)
        self.__doc__ = type(self).__doc__ if doc is None else doc


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_fields_of_functions(backend: str) -> None:
    """Members of the type up to CPython 3.13, getters from 3.14 on: in both they are read, guarded and written."""

    def older(x: torch.Tensor) -> torch.Tensor:
        """Words."""
        return x * 2

    def read(x: torch.Tensor) -> Any:
        return older(x), described(older), Documented(older).__doc__

    def written(x: torch.Tensor) -> Any:
        before = described(older)
        older.__doc__, older.__module__ = "New words.", "another"
        return x + 1, before, described(older)

    def wrapping(x: torch.Tensor) -> Any:
        @functools.wraps(older)
        def inner(y: torch.Tensor) -> torch.Tensor:
            return older(y) + 1

        inner.__doc__ = "Others."
        return inner(x), described(inner), Documented(inner).__doc__

    def mapped(x: torch.Tensor) -> Any:
        def inner(row: torch.Tensor) -> torch.Tensor:
            return row + len(Documented(older).__doc__ or "")

        return torch.vmap(inner)(x)

    for program in (read, written, wrapping, mapped):
        compiled = kintsugi.compile(program, backend=backend)
        outcomes = []
        for function in (program, compiled):
            older.__doc__, older.__module__ = "Words.", "m"
            found = []
            for k in range(7):
                if k == 3:
                    older.__doc__ = "Other words."
                if k == 4:
                    older.__module__ = older.__doc__ = None  # type: ignore[assignment]
                if k == 5:
                    del older.__doc__
                found.append((outcome(function, torch.ones(3)), described(older)))
            outcomes.append(found)
        assert outcomes[0] == outcomes[1]
        assert not compiled.breaks()


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_super_is_looked_up_again(backend: str) -> None:
    model = Derived()
    compiled = kintsugi.compile(model, backend=backend)
    x = torch.arange(3.0)
    forward = Base.forward
    try:
        for scale in (2, 2, 3):
            Base.scale = scale
            assert torch.equal(compiled(x), model(x))
        Base.forward = lambda self, x: x - self.scale
        assert torch.equal(compiled(x), model(x))
        assert torch.equal(compiled(x), x - 3 + 6 + 3)
    finally:
        Base.forward, Base.scale = forward, 2


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_tools_of_sys_monitoring_see_what_they_see_in_eager_mode() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def program(x: torch.Tensor) -> torch.Tensor:
        return inner(x) * 2

    compiled = kintsugi.compile(program, backend="eager")
    x = torch.arange(3.0)
    for _ in range(3):
        compiled(x)
    monitoring, tool = sys.monitoring, sys.monitoring.COVERAGE_ID
    seen: list[Any] = []
    monitoring.use_tool_id(tool, "test")
    try:
        monitoring.register_callback(
            tool, monitoring.events.PY_START, lambda code, _: seen.append(code.co_name)
        )
        monitoring.set_events(tool, monitoring.events.PY_START)
        compiled(x)
        monitoring.set_events(tool, 0)
        assert seen[-2:] == ["program", "inner"]
        seen.clear()
        monitoring.set_local_events(tool, inner.__code__, monitoring.events.PY_START)
        compiled(x)
        assert seen == ["inner"]
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    hits = compiled.stats().hits if hasattr(compiled, "stats") else None
    compiled(x)
    if hits is not None:
        assert compiled.stats().hits == hits + 1


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_copies_ask_hooks_that_call_what_they_close_over(backend: str) -> None:
    import copy

    asked: list[str] = []

    def note(name: str) -> None:
        asked.append(name)

    class Watched:
        def __init__(self) -> None:
            self.held = 3

        def __getattribute__(self, name: str) -> Any:
            note(name)
            return super().__getattribute__(name)

    watched = Watched()

    def program(x: torch.Tensor) -> torch.Tensor:
        return x + copy.copy(watched).held

    x = torch.arange(3.0)
    counts = []
    compiled = kintsugi.compile(program, backend=backend)
    for function in (program, compiled, compiled, compiled):
        asked.clear()
        assert torch.equal(function(x), x + 3)
        counts.append(list(asked))
    assert counts == [counts[0]] * 4


class Caller:
    """Calls a compiled function while CPython waits for `__init__` to end."""

    def __init__(self, compiled: Callable[..., Any], x: Any) -> None:
        self.result = compiled(x)


def test_frames_of_the_evaluator_are_nobodys(capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(100):  # until the call of the class is specialized, if it ever is
        Caller(id, None)

    compiled = kintsugi.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with kintsugi.config.patch(verbose=True):
        kintsugi.set_logs(recompiles=True)
        try:
            for size in (2, 3):
                assert Caller(compiled, torch.zeros(size)).result.tolist() == [1] * size
        finally:
            kintsugi.set_logs(recompiles=False)
    log = capfd.readouterr().err
    assert log.count("[RECOMPILE") == 1
    assert log.count(", in __init__\n") == 1
    assert log.count(f'File "{__file__}", line') == 2


Later = int
WHOLE = ("annotated", "wrapped", "wraps_an_old_one", "taken_away", "behind_a_branch", "of_a_class")
PROGRAMS: dict[str, Any] = {"functools": functools, "Later": Later}
exec(NEW, PROGRAMS)


def said(part: Any) -> Any:
    if inspect.isfunction(part):
        return part.__name__, part.__defaults__, part.__annotations__, str(inspect.signature(part))
    if isinstance(part, torch.Tensor):
        return part.tolist()
    return list(map(said, part)) if isinstance(part, tuple) else part


@pytest.mark.parametrize("name", [name for name, value in PROGRAMS.items() if inspect.isfunction(value)])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_what_is_new(name: str, backend: str) -> None:
    """Deferred annotations and templates of CPython 3.14."""
    program = PROGRAMS[name]
    options = {"sync": True} if backend == "native" else None
    compiled = kintsugi.compile(program, backend=backend, options=options)
    for call in range(6):
        x = torch.ones(2) * (-1 if call == 3 else 1)
        assert said(compiled(x, 2)) == said(program(x, 2)), call
    stats = compiled.stats()
    assert name not in WHOLE or (stats.misses == 1 and stats.graph_break_count == 0), stats
