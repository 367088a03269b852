"""Side exits of the replay executor: traces written by hand, whose guards fail or whose operations raise.

Each test names a function, takes a trace for (part of) it, and compares leaving the trace with running the function.
"""

from __future__ import annotations

import dis
import gc
import re
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import pytest
import torch
from harness import guards_inside

from kintsugi import _C

replay = _C._replay_testing
POP_JUMP_IF_FALSE = next(
    name for name in ("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_IF_FALSE") if name in dis.opmap
)
SINCE_313 = sys.version_info >= (3, 13)


def branching(function: Callable[..., Any], compared: str, truth: str) -> tuple[int, list[str]]:
    """Where `if compared > 0` decides, and the stack there. From 3.13 on the comparison itself asks for the truth."""
    if SINCE_313:
        return unit(function, "COMPARE_OP"), [compared, "0"]
    return unit(function, POP_JUMP_IF_FALSE), [truth]


def callee(name: str) -> list[str]:
    """A callable and its null, as they lie on the stack."""
    return [name, "null"] if SINCE_313 else ["null", name]


def unit(function: Callable[..., Any], opname: str, occurrence: int = 0) -> int:
    """The code unit at which the occurrence-th instruction of this name begins, prefixes included."""
    found = -1
    prefix: int | None = None
    for ins in dis.get_instructions(function, show_caches=False):
        start = ins.offset if prefix is None else prefix
        # An EXTENDED_ARG or the PRECALL of a CALL is where the instruction is resumed.
        prefix = start if ins.opname in ("EXTENDED_ARG", "PRECALL", "KW_NAMES") else None
        if ins.opname == opname:
            found += 1
            if found == occurrence:
                return start // 2
    raise AssertionError(f"{function} has no {opname} number {occurrence}")


def after_call(function: Callable[..., Any], occurrence: int = 0) -> int:
    """The code unit after the occurrence-th CALL and its caches."""
    calls = [i for i, ins in enumerate(dis.get_instructions(function)) if ins.opname in ("CALL", "CALL_KW")]
    following = list(dis.get_instructions(function))[calls[occurrence] + 1]
    return following.offset // 2


class Builder:
    """Writes a trace's text."""

    def __init__(self, sources: int) -> None:
        self.consts: list[Any] = []
        self.lines: list[str] = []
        self.states: list[str] = []
        self.recipes: list[str] = []
        self.sources = sources

    def const(self, value: Any) -> str:
        for i, known in enumerate(self.consts):
            if known is value:
                return f"#{i}"
        self.consts.append(value)
        return f"#{len(self.consts) - 1}"

    def state(
        self, function: FunctionType, pc: int, locals_: list[str], stack: list[str], **more: Any
    ) -> str:
        code = self.const(function.__code__)
        callee = more.get("callee", self.const(function))
        names = function.__code__.co_varnames + function.__code__.co_cellvars + function.__code__.co_freevars
        count = len(dict.fromkeys(names))
        padded = locals_ + ["null"] * (count - len(locals_))
        parent, then = more.get("parent", "none"), more.get("then", "")
        self.states.append(
            f"snap !{len(self.states)} {{ parent={parent} code={code} func={callee} pc={pc}"
            f" locals=[{', '.join(padded)}] stack=[{', '.join(stack)}]{then} }}"
        )
        return f"!{len(self.states) - 1}"

    def recipe(self, text: str) -> str:
        self.recipes.append(f"recipe @{len(self.recipes)} {text}")
        return f"@{len(self.recipes) - 1}"

    def op(self, line: str) -> None:
        self.lines.append(line)

    def trace(self, metas: tuple[torch.Tensor, ...] = ()) -> Any:
        rows = ["sources {"] + ["  $%d = arg %d" % (i, i) for i in range(self.sources)] + ["}"]
        rows += ["trace @test.py:1 f {"]
        rows += [f"  meta {i} tensor<f32,[{', '.join(map(str, m.shape))}],cpu>" for i, m in enumerate(metas)]
        rows += [f"  const #{i}" for i in range(len(self.consts))]
        rows += ["  " + line for line in self.lines + self.recipes + self.states] + ["}"]
        return replay.parse("\n".join(rows), self.consts, list(metas))


def branch(x: torch.Tensor) -> Any:
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return ("negative", y)


def branch_trace(exit_of: Callable[..., Any] = branch) -> Any:
    b = Builder(1)
    add = b.state(exit_of, unit(exit_of, "BINARY_OP"), ["%0"], ["%0", "1"])
    b.op("%0 = input $0 : tensor")
    b.op(f"%1 = aten.add.Tensor %0, 1, 1 : tensor snap {add}")
    at, stack = branching(exit_of, "%2", "%3")
    jump = b.state(exit_of, at, ["%0", "%1"], stack)
    b.op(f"%2 = aten.sum.default %1, none : tensor snap {add}")
    b.op(f"%3 = aten.gt.Scalar %2, 0 : tensor snap {add}")
    b.op(f"%4 = aten.is_nonzero.default %3 : bool snap {jump}")
    b.op(f"guard.true %4 snap {jump}")
    b.op(f"%5 = aten.mul.Tensor %1, 2 : tensor snap {add}")
    b.op(f"ret %5 snap {add}")
    return b.trace()


def test_guard_holds() -> None:
    x = torch.ones(3)
    assert torch.equal(branch_trace().run(x), branch(x))


def test_guard_fails_and_the_frame_runs_on() -> None:
    trace = branch_trace()
    for _ in range(3):
        word, y = trace.run(-torch.ones(3) * 4)
        assert word == "negative" and torch.equal(y, torch.full((3,), -3.0))


def test_forced_exit_gives_the_same_result() -> None:
    trace = branch_trace()
    guard = next(i for i, line in enumerate(branch_ops(trace)) if "guard.true" in line)
    trace.force_exit(guard)
    x = torch.ones(3)
    assert torch.equal(trace.run(x), branch(x))


def branch_ops(trace: Any) -> list[str]:
    """The instructions of a trace's text."""
    rows = [line.strip() for line in trace.text().splitlines()]
    return [row for row in rows if re.match(r"(%|guard\.|ret|effect\.)", row) and not row.startswith("value")]


def test_exception_of_an_operator_is_raised_in_the_frame() -> None:
    def product(a: torch.Tensor, b: torch.Tensor) -> Any:
        try:
            return torch.matmul(a, b)
        except RuntimeError as error:
            return "caught", str(error), traceback.extract_tb(error.__traceback__)[0].name

    b = Builder(2)
    call = b.state(product, unit(product, "CALL"), ["%0", "%1"], [*callee(b.const(torch.matmul)), "%0", "%1"])
    b.op("%0 = input $0 : tensor")
    b.op("%1 = input $1 : tensor")
    b.op(f"%2 = aten.matmul.default %0, %1 : tensor snap {call}")
    b.op(f"ret %2 snap {call}")
    trace = b.trace()
    good, bad = torch.ones(2, 3), torch.ones(2, 5)
    assert torch.equal(trace.run(good, good.t()), good @ good.t())
    assert trace.run(good, bad) == product(good, bad)


def test_uncaught_exception_shows_the_frame() -> None:
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)

    b = Builder(2)
    call = b.state(product, unit(product, "CALL"), ["%0", "%1"], [*callee(b.const(torch.matmul)), "%0", "%1"])
    b.op("%0 = input $0 : tensor")
    b.op("%1 = input $1 : tensor")
    b.op(f"%2 = aten.matmul.default %0, %1 : tensor snap {call}")
    b.op(f"ret %2 snap {call}")
    trace = b.trace()
    seen = []
    for run in (product, trace.run):
        with pytest.raises(RuntimeError) as info:
            run(torch.ones(2, 3), torch.ones(2, 5))
        frame = traceback.extract_tb(info.tb)[-1]
        seen.append((str(info.value), frame.name, frame.lineno, frame.line, frame.filename))
    assert seen[0] == seen[1]


def outer(x: torch.Tensor, log: list[Any]) -> Any:
    log.append("before")
    for i in range(2):
        try:
            x = inner(x, i, scale=2.0)
        finally:
            log.append(i)
    return x


def inner(x: torch.Tensor, i: int, *rest: Any, scale: float, **more: Any) -> Any:
    total = x.sum()
    if total < 0:
        names = [sys._getframe(depth).f_code.co_name for depth in range(2)]
        raise ValueError(f"{names} {i} {rest} {more} {scale}")
    return x * scale


def nested_trace() -> tuple[Any, Builder]:
    """inner() of outer()'s first round is in the trace; the loop, the try block and the rest are left to the exit."""
    b = Builder(2)
    loop = b.recipe(f"call #none [{b.const(iter)}, @1]")
    b.recipe(f"call #none [{b.const(range)}, 1, 2]")
    calling = b.state(outer, after_call(outer, 2), ["%0", "$1", "0"], [loop])
    at, stack = branching(inner, "%1", "%2")
    inside = b.state(inner, at, ["%0", "0", "2.0", "@2", "@3", "%1"], stack, parent=calling)
    b.recipe("tuple #none []")
    b.recipe("dict #none []")
    start = b.state(outer, 2, ["%0", "$1"], [])
    b.op("%0 = input $0 : tensor")
    b.op(f"%1 = aten.sum.default %0, none : tensor snap {start}")
    b.op(f"%2 = aten.lt.Scalar %1, 0 : tensor snap {start}")
    b.op(f"%3 = aten.is_nonzero.default %2 : bool snap {inside}")
    b.op(f"guard.true %3 snap {inside}")
    b.op(f"ret none snap {inside}")
    return b.trace(), b


def test_nested_frames_in_a_loop_and_try() -> None:
    trace, _ = nested_trace()
    log: list[Any] = []
    expected: list[Any] = []
    x = torch.ones(2)
    assert torch.equal(trace.run(x, log), outer(x, expected))
    assert ["before", *log] == expected


def test_exception_through_rebuilt_frames() -> None:
    trace, _ = nested_trace()
    trace.force_exit(4)
    log: list[Any] = []
    seen = []
    for run, calls in ((trace.run, log), (outer, [])):
        with pytest.raises(ValueError) as info:
            run(-torch.ones(2), calls)
        frames = traceback.extract_tb(info.tb)
        seen.append((str(info.value), [(f.name, f.lineno) for f in frames if f.name in ("outer", "inner")]))
    assert seen[0] == seen[1]
    assert log == [0]


def test_cells_and_free_variables() -> None:
    def make(start: int) -> Callable[..., Any]:
        count = start

        def step(x: torch.Tensor) -> Any:
            nonlocal count
            total = x.sum()
            read = lambda: total + count
            if x.sum() > 0:
                count += 1
            return read(), count

        return step

    step, model = make(5), make(5)
    assert isinstance(step, FunctionType)
    code: CodeType = step.__code__
    names = list(dict.fromkeys(code.co_varnames + code.co_cellvars + code.co_freevars))
    b = Builder(2)
    cell = b.recipe("cell #none [%1]")
    assert step.__closure__ is not None
    closure = b.recipe(f"tuple #none [{cell}, $1]")
    code_of_read = next(c for c in code.co_consts if isinstance(c, CodeType))
    read = b.recipe(
        f"function #none [{b.const(code_of_read)}, {b.const(globals())}, {b.const('read')},"
        f" {b.const(code_of_read.co_qualname)}, none, none, {closure}, none]"
    )
    values = {"x": "%0", "total": cell, "read": read, "count": "$1"}
    if code_of_read.co_freevars != ("count", "total"):
        pytest.skip("the compiler orders free variables otherwise")
    b.recipes[1] = f"recipe @1 tuple #none [$1, {cell}]"
    unit_, stack = branching(step, "%1", "%2")
    at = b.state(step, unit_, [values[n] for n in names], stack)
    b.op("%0 = input $0 : tensor")
    b.op(f"%1 = aten.sum.default %0, none : tensor snap {at}".replace(at, "!1"))
    early = b.state(step, 2, ["%0"], [])
    assert early == "!1"
    b.op(f"%2 = aten.gt.Scalar %1, 0 : tensor snap {early}")
    b.op(f"%3 = aten.is_nonzero.default %2 : bool snap {early}")
    b.op(f"guard.false %3 snap {at}")
    b.op(f"ret none snap {at}")
    trace = b.trace()
    x = torch.ones(2)
    for _ in range(2):
        got, want = trace.run(x, step.__closure__[0]), model(x)
        assert torch.equal(got[0], want[0]) and got[1] == want[1]


class Thing:
    pass


def test_effects_calls_and_recipes_keep_identity() -> None:
    b = Builder(2)
    start = b.state(branch, unit(branch, "BINARY_OP"), ["%0"], ["%0", "1"])
    made = b.recipe(f"list #none [%1, {b.const('end')}]")
    pair = b.recipe(f"tuple #none [{made}, {made}]")
    b.op("%0 = input $0 : tensor")
    b.op(f"%1 = aten.mul.Tensor %0, 3 : tensor snap {start}")
    b.op(f"%2 = build {pair} : object snap {start}")
    b.op(f'effect.setattr $1, "pair", %2 snap {start}')
    b.op(f'effect.setattr $1, "n", 7 snap {start}')
    b.op(f'effect.delattr $1, "old" snap {start}')
    b.op(f"%3 = call.known {b.const(dict)}, %2 kw=[] : object snap {start}".replace(" kw=[]", ""))
    b.op(f"ret %2 snap {start}")
    trace = b.trace()
    thing: Any = Thing()
    thing.old = 1
    # dict() of a pair of two-element lists.
    result = trace.run(torch.ones(2), thing)
    assert result is thing.pair and result[0] is result[1]
    assert torch.equal(result[0][0], torch.full((2,), 3.0)) and result[0][1] == "end"
    assert thing.n == 7 and not hasattr(thing, "old")
    with pytest.raises(AttributeError, match="old"):
        trace.run(torch.ones(2), thing)


def test_scalar_overflow_leaves_the_trace() -> None:
    def grow(x: torch.Tensor) -> int:
        n = int(x.item())
        return n * 2**62

    b = Builder(1)
    start = b.state(grow, 2, ["%0"], [])
    multiply = b.state(grow, unit(grow, "BINARY_OP"), ["%0", "%1"], ["%1", b.const(2**62)])
    b.op("%0 = input $0 : tensor")
    b.op(f"%1 = aten.item.default %0 : int snap {start}")
    b.op(f"%2 = int.mul %1, {2**62} : int snap {multiply}")
    b.op(f"ret %2 snap {multiply}")
    trace = b.trace()
    for n in (1, -2, 2, 1000):
        assert trace.run(torch.tensor(n)) == n * 2**62


def test_nothing_leaks() -> None:
    trace, _ = nested_trace()
    x = torch.ones(2)
    refs = []
    for _ in range(20):
        log: list[Any] = []
        result = trace.run(x, log)
        refs.append(weakref.ref(result))
        del result
    gc.collect()
    assert all(ref() is None for ref in refs)
    before = sys.getrefcount(x)
    trace.run(x, [])
    assert sys.getrefcount(x) == before


def test_threads_share_a_trace() -> None:
    import threading

    trace = branch_trace()
    failures: list[Any] = []

    def work(sign: int) -> None:
        x = torch.full((3,), 2.0 * sign)
        for _ in range(200):
            got = trace.run(x)
            want = branch(x)
            same = torch.equal(got, want) if sign > 0 else torch.equal(got[1], want[1])
            if not same:
                failures.append(got)

    threads = [threading.Thread(target=work, args=(sign,)) for sign in (1, -2, 1, -2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_warnings_and_callees_see_the_frames() -> None:
    def deprecated(x: torch.Tensor) -> Any:
        frames = look(x)

        return frames, x.T

    def look(x: torch.Tensor) -> Any:
        frame = sys._getframe(1)
        return frame, [(f.f_code.co_name, f.f_lineno) for f in (frame, sys._getframe(0))]

    b = Builder(1)
    cell = b.const(look)
    call = b.state(deprecated, unit(deprecated, "CALL"), ["%0"], [*callee(cell), "%0"])
    turn = b.state(deprecated, unit(deprecated, "LOAD_ATTR"), ["%0", "%1"], ["%1", "%0"])
    b.op("%0 = input $0 : tensor")
    b.op(f"%1 = call.known {cell}, %0 : object snap {call}")
    b.op(f"%2 = aten.numpy_T.default %0 : tensor snap {turn}")
    pair = b.recipe("tuple #none [%1, %2]")
    b.op(f"ret {pair} snap {turn}")
    trace = b.trace()
    x = torch.ones(1, 2, 3)
    seen = []
    for run in (deprecated, trace.run):
        torch._C._set_warnAlways(True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (frame, names), _ = run(x)
        torch._C._set_warnAlways(False)
        seen.append((names, [(w.lineno, w.filename, str(w.message)) for w in caught]))
        gc.collect()
        assert frame.f_code is deprecated.__code__ and frame.f_back is not None
        assert frame.f_back.f_code is sys._getframe().f_code
        del frame
    assert seen[0] == seen[1] and seen[0][1]


# --- exit stress: every guard of a recording fails in turn, and nothing may change ---------------------------------


def accumulate(x: torch.Tensor) -> torch.Tensor:
    total = 0
    for i in range(3):
        if x.sum() > i:
            total += i
        else:
            x = x + 1
    return x * total


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = self.linear(x)
        if y.mean() > 0:
            y = y * 2
        count = int((y > 0).sum().item())
        with torch.no_grad():
            if y.max() > count:
                y = y + count
        return self.clip(y, scale=2.0)

    def clip(self, y: torch.Tensor, *, scale: float) -> torch.Tensor:
        try:
            if y.min() < 0:
                raise ValueError("negative")
            return y * scale
        except ValueError:
            return y - scale


def closures(x: torch.Tensor) -> Any:
    kept: list[torch.Tensor] = []

    def inner(v: torch.Tensor) -> int:
        if v.item() > 0:
            kept.append(v)
        return len(kept)

    return [inner(v) for v in x], kept


def aliases(x: torch.Tensor) -> Any:
    a = [x, x + 1]
    b = {"k": a}
    if (x > 0).any():
        a.append(x * 2)
    return a, b, (b, a)


def raising(x: torch.Tensor) -> Any:
    with torch.no_grad():
        if x.sum() > 0:
            raise KeyError("positive")
    return x


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b) and a.requires_grad == b.requires_grad
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


def outcome(run: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        return run(x)
    except Exception as error:
        return type(error), str(error), [f.name for f in traceback.extract_tb(error.__traceback__)][1:]


@pytest.mark.parametrize(
    "make", [lambda: accumulate, Model, lambda: closures, lambda: aliases, lambda: raising]
)
@pytest.mark.parametrize("seed", range(3))
def test_every_guard_may_fail(make: Callable[[], Any], seed: int) -> None:
    import kintsugi

    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 4, generator=generator)[0 if make is not Model else slice(None)]
    first = kintsugi.compile(make())
    warm = 3  # calls, until the traces fit what the program changes
    for _ in range(warm):
        outcome(first, x)
    exits = first._kintsugi_compiled._forced_exits()
    count = len(guards_inside(first._kintsugi_compiled))
    for number in range(count):
        model = make()
        compiled, plain = kintsugi.compile(model), make()
        core = compiled._kintsugi_compiled
        inputs = [x, torch.randn(x.shape, generator=generator), x]
        for _ in range(warm):
            assert same(outcome(compiled, x), outcome(plain, x))
        core._force_exit(*guards_inside(core)[number])
        for value in inputs:
            got, want = outcome(compiled, value), outcome(plain, value)
            assert same(got, want), (number, got, want)
        assert getattr(model, "calls", 0) == getattr(plain, "calls", 0)
    assert not count or first._kintsugi_compiled._forced_exits() > exits


def test_result_of_a_step_in_the_snapshot_of_its_failed_guards() -> None:
    import kintsugi

    def other_object(x: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        return x + torch.rand(2, generator=generator)

    compiled = kintsugi.compile(other_object)
    x = torch.ones(2)
    for _ in range(4):
        assert torch.equal(compiled(x), other_object(x))
