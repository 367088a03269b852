"""The Python language inside a compiled function: functions, control flow, exceptions, comprehensions, generators."""

from __future__ import annotations

import contextlib
import functools

import torch
from harness import Case, Suite, check, check_captured, floats, scaled

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory

SCALE = 3
TABLE = {"a": 1.5, "b": -2.0}


# --- functions and calls ---


@case()
def add_constant(x):
    return x + 1


@factory()
def make_closure():
    k = 2.5

    def f(x):
        return x * k

    return f


@case()
def inner_function(x):
    def double(v):
        return v * 2

    return double(double(x))


@case()
def inner_closure_over_local(x):
    y = x + 1

    def f(v):
        return v * y

    return f(x)


@case()
def nonlocal_counter(x):
    count = 0

    def step(v):
        nonlocal count
        count += 1
        return v + count

    x = step(x)
    x = step(x)
    return x, count


def with_defaults(x, scale=2.0, *, bias=None, shift: float = 0.5):
    y = x * scale + shift
    return y if bias is None else y + bias


@case()
def default_arguments(x):
    return with_defaults(x), with_defaults(x, 3.0), with_defaults(x, bias=x, shift=1.0)


@case(kwargs=lambda call: {"flag": True, "scale": 4.0})
def keyword_arguments(x, *, scale, flag=False):
    return x * scale if flag else x


def variadic(*args, **kwargs):
    total = args[0]
    for a in args[1:]:
        total = total + a
    for name in sorted(kwargs):
        total = total * kwargs[name]
    return total


@case((3, 4), (3, 4))
def star_arguments(x, y):
    rest = (y, x)
    named = {"a": 2, "b": 3}
    return variadic(x, *rest, **named)


@case(inputs=lambda call: (*floats((2,), (2,), (2,))(call),))
def star_parameters_of_entry(x, *rest):
    for r in rest:
        x = x + r
    return x


@case(kwargs=lambda call: {"a": torch.ones(4) * call, "b": torch.zeros(4)})
def star_kwargs_of_entry(x, **named):
    return {name: x + value for name, value in named.items()}


def positional_only(a, b=2, /, c=3, *, d=4):
    return a * b + c - d


@case()
def positional_only_parameters(x):
    return positional_only(x), positional_only(x, 1, c=2, d=5)


@case()
def lambdas(x):
    f = lambda v, n=2: v * n
    return (lambda v: f(v) + 1)(x)


@case()
def recursion(x):
    def power(v, n):
        return v if n == 1 else v * power(v, n - 1)

    return power(x, 5)


@case()
def higher_order(x):
    def twice(f):
        return lambda v: f(f(v))

    return twice(twice(torch.sin))(x)


def logged(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) + 1

    return wrapper


@logged
def decorated_square(x):
    return x * x


@case()
def decorated_functions(x):
    return decorated_square(x)


@case()
def partial_call(x):
    f = functools.partial(torch.add, x, alpha=2)
    g = functools.partial(f, torch.ones(4))
    return g()


@case()
def reads_globals(x):
    return x * SCALE + TABLE["a"]


@case()
def mutable_default_is_shared(x):
    def collect(v, seen=[]):
        seen.append(v)
        return len(seen)

    return collect(x), collect(x), x * 2


@case()
def function_attributes(x):
    def f(v):
        return v * f.scale

    f.scale = 3
    return f(x)


# --- statements ---


@case()
def chained_comparison_of_sizes(x):
    if 2 < x.shape[0] <= 3 < x.size(1):
        return x * 2
    return x


@case()
def for_range(x):
    for i in range(5):
        x = x + i
    return x


@case()
def for_else_break(x):
    for i in range(10):
        if i == 3:
            break
        x = x * 2
    else:
        x = x - 100
    for _ in range(2):
        x = x + 1
    else:
        x = x + 10
    return x


@case()
def while_continue(x):
    i = 0
    while i < 6:
        i += 1
        if i % 2:
            continue
        x = x + i
    return x, i


@case()
def nested_loops(x):
    for i in range(3):
        for j in range(i):
            x = x + i * j
    return x


@case()
def for_over_tensor_rows(x):
    total = torch.zeros(4)
    for row in x:
        total = total + row
    return total


@case()
def augmented_assignment(x):
    n = 1
    n += 2
    n *= 3
    n -= 1
    n //= 2
    n **= 2
    n %= 7
    n |= 8
    n ^= 1
    n <<= 2
    n >>= 1
    y = x + n
    y += 1
    y *= 2
    return y, n


@case()
def unpacking(x):
    a, (b, *c), d = 1, (2, 3, 4), 5
    first, *rest = x
    *head, last = rest
    return a + b + sum(c) + d, first, head, last


@case()
def swap_and_multiple_assignment(x):
    y = z = x + 1
    x, y = y, x
    return x, y, z


@case()
def walrus(x):
    if (n := x.shape[0]) > 2 and (y := x * n) is not None:
        return y, [m := k + 1 for k in range(3)], m
    return x


@case()
def conditional_expression(x):
    return x + 1 if x.dim() == 2 else x - 1


@case()
def boolean_operators(x):
    empty = []
    return (empty or x) + (x.dim() and 3), not empty, None or 0 or "z"


@case()
def delete_names(x):
    y = x + 1
    del x
    z = [y, 1, 2]
    del z[1]
    return z


@case()
def assert_statement(x):
    assert x.shape == (3, 4), "wrong shape"
    return x * 2


@case()
def imports_inside(x):
    import math
    from collections import OrderedDict

    return x * math.pi, OrderedDict(a=1)


@case()
def global_statement(x):
    global SCALE
    before = SCALE
    SCALE = 3
    return x * before


@case()
def annotations_inside(x):
    y: torch.Tensor = x + 1
    n: int
    n = 2
    return y * n


@case()
def slices_of_lists(x):
    values = list(range(10))
    values[2:4] = [9, 9, 9]
    del values[::3]
    return values[1:-1], values[::-1], x[1:, ::2]


@case()
def shadowed_builtin(x):
    len = lambda v: 7
    return x * len(x)


# --- match ---


def classify(value):
    match value:
        case 0 | 1:
            return "small"
        case int(n) if n > 100:
            return f"big {n}"
        case [a, *rest]:
            return ("list", a, len(rest))
        case {"kind": kind, **others}:
            return (kind, sorted(others))
        case str() as s:
            return s.upper()
        case complex(real=re):
            return re
        case _:
            return None


@case()
def match_statement(x):
    values = (0, 200, [1, 2, 3], {"kind": "k", "z": 1}, "abc", 3 + 4j, 2.5)
    return x + 1, [classify(v) for v in values]


# --- exceptions and with ---


@case()
def try_except(x):
    try:
        {}["missing"]
    except KeyError as e:
        return x + 1, e.args
    return x


@case()
def try_else_finally(x):
    order = []
    try:
        order.append("try")
    except ValueError:
        order.append("except")
    else:
        order.append("else")
    finally:
        order.append("finally")
        x = x + 1
    return x, order


@case()
def finally_overrides_return(x):
    def f(v):
        try:
            return v
        finally:
            v = v * 2
            return v

    return f(x)


@case()
def nested_exceptions(x):
    trail = []
    try:
        try:
            raise ValueError("one")
        except ValueError as e:
            trail.append(type(e).__name__)
            raise TypeError("two") from e
        finally:
            trail.append("finally")
    except TypeError as e:
        trail.append((str(e), type(e.__cause__).__name__))
    return x * len(trail), trail


@case()
def exception_in_callee(x):
    def check_size(v, n):
        if v.shape[0] != n:
            raise ValueError(f"want {n}, got {v.shape[0]}")
        return v * n

    try:
        return check_size(x, 99)
    except ValueError as e:
        return check_size(x, 3), str(e)


@case()
def torch_error_caught(x):
    try:
        return x @ x
    except RuntimeError:
        return x @ x.T


@case(traces=None)
def exception_leaves(x):
    y = x + 1
    raise ValueError(f"bad shape {tuple(y.shape)}")


@case(traces=None)
def torch_error_leaves(x):
    return (x + 1) @ x


@case(traces=None)
def exception_from_depth(x):
    def a(v):
        return b(v + 1)

    def b(v):
        return v[7]

    return a(x)


@case()
def reraise(x):
    try:
        try:
            raise RuntimeError("inner")
        except RuntimeError:
            raise
    except RuntimeError as e:
        return x + 1, str(e)


@case()
def exception_groups(x):
    seen = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as e:
        seen.append(("value", len(e.exceptions)))
    except* TypeError as e:
        seen.append(("type", len(e.exceptions)))
    return x + 1, seen


@case()
def exception_variable_is_cleared(x):
    try:
        raise ValueError
    except ValueError as e:
        del e
    try:
        return e  # noqa: F821
    except UnboundLocalError:
        return x + 2


class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(("exit", kind.__name__ if kind else None))
        return self.swallow


@case()
def with_statement(x):
    log = []
    with Manager(log) as m, Manager(log):
        x = x + len(m.log)
    return x, log


@case()
def with_swallows_exception(x):
    log = []
    with Manager(log, swallow=True):
        x = x + 1
        raise ValueError
    return x, log


@case()
def contextmanager_decorator(x):
    log = []
    with scaled(log) as s:
        x = x * s
    return x, log


@case()
def suppress_and_exit_stack(x):
    log = []
    with contextlib.suppress(ZeroDivisionError):
        log.append(1 / 0)
    with contextlib.ExitStack() as stack:
        stack.enter_context(Manager(log))
        stack.callback(log.append, "callback")
        x = x + 1
    return x, log


@case()
def return_inside_with_and_loop(x):
    def f(v):
        log = []
        for i in range(3):
            with Manager(log):
                if i == 1:
                    return v + i, log
        return v, log

    return f(x)


# --- comprehensions, generators ---


@case()
def comprehensions(x):
    k = 2
    rows = [row * k for row in x if row.dim() == 1]
    named = {f"r{i}": row for i, row in enumerate(rows)}
    nested = [[i * j for j in range(3)] for i in range(2)]
    return rows, named, {i % 3 for i in range(9)}, nested


@case()
def generator_expression(x):
    return sum(row.sum() for row in x), list(i * i for i in range(4))


def counting(n, scale):
    for i in range(n):
        yield i * scale


@case()
def generator_function(x):
    total = x
    for value in counting(4, 2.0):
        total = total + value
    return total


@case()
def generator_of_tensors(x):
    def halves(v):
        yield v[:1]
        yield v[1:]

    a, b = halves(x)
    return a.sum() + b.sum()


@case()
def generator_yield_from(x):
    def inner():
        got = yield 1
        return got

    def outer():
        result = yield from inner()
        yield result

    g = outer()
    return x + next(g), g.send(5)


@case()
def generator_send_throw_close(x):
    log = []

    def g():
        try:
            while True:
                try:
                    log.append((yield len(log)))
                except ValueError:
                    log.append("caught")
        finally:
            log.append("closed")

    it = g()
    next(it)
    it.send("a")
    it.throw(ValueError())
    it.close()
    return x * len(log), log


@case()
def partly_consumed_generator(x):
    it = (i * 10 for i in range(5))
    first = next(it)
    second = next(it)
    return x + first + second, sum(it)


@case(breaks=None, traces=None)
def generator_is_returned(x):
    return list(zip(counting(2, 3), x))


@case()
def iterator_protocol(x):
    class Countdown:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n == 0:
                raise StopIteration
            self.n -= 1
            return self.n

    for i in Countdown(3):
        x = x + i
    return x, list(Countdown(4))


@case()
def old_iteration_by_getitem(x):
    class Items:
        def __getitem__(self, i):
            if i >= 3:
                raise IndexError
            return i * 2

    for i in Items():
        x = x + i
    return x, 4 in Items()


@case()
def star_expressions_in_displays(x):
    a, b = [1, 2], {"k": 1}
    return [*a, *range(2)], (*a, 3), {*a, 9}, {**b, "z": x}


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)
