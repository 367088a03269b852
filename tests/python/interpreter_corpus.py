"""Small programs that together use every opcode of CPython 3.11.

Each `case_*` function takes nothing and returns something that can be compared; test_interpreter.py runs it once in
CPython's evaluator and once in ours.
"""

import asyncio
import contextlib
import sys

COUNTER = 0


def case_operators():
    numbers = [3, -7, 2.5, 10**20, True, 1 + 2j]
    out = []
    for a in numbers:
        for b in numbers:
            for op in (
                lambda a, b: a + b,
                lambda a, b: a - b,
                lambda a, b: a * b,
                lambda a, b: a / b,
                lambda a, b: a // b,
                lambda a, b: a % b,
                lambda a, b: a < b,
                lambda a, b: a >= b,
                lambda a, b: a == b,
                lambda a, b: a != b,
            ):
                try:
                    out.append(op(a, b))
                except Exception as error:
                    out.append((type(error), str(error)))
    return out


def case_bits_and_unary():
    x, y = 0b1100, 0b1010
    z = x & y, x | y, x ^ y, x << 2, x >> 1, ~x, -x, +x, not x, x**3
    x &= y
    y |= 5
    y ^= 1
    y <<= 3
    y >>= 1
    y **= 2
    y %= 1000
    y //= 3
    y *= 2
    y /= 4
    y -= 1
    y += 2
    return z, x, y


def case_small_and_large_ints():
    edge = 2**30
    values = [0, 1, -1, edge - 1, edge, -edge, edge + 1, 2**60, 5, -6, 256, 257]
    return [(a + b, a - b, a * b, a & b, a < b, a == b) for a in values for b in values] + [
        (a // b, a % b) for a in values for b in values if b
    ]


def case_matrix_multiply():
    class Matrix:
        def __matmul__(self, other):
            return "matmul", other

        def __imatmul__(self, other):
            return "imatmul", other

    m = Matrix()
    first = m @ 1
    m @= 2
    return first, m


def case_compare_and_contains():
    items = [1, "a", None]
    return (
        1 in items,
        2 not in items,
        None is items[2],
        items is not None,
        1 < 2 < 3,
        3 < 2 < 1,
        float("nan") == float("nan"),
    )


def case_subscripts():
    items = list(range(10))
    items[2:4] = ["x"]
    del items[0]
    table = {"a": 1, (1, 2): 3}
    table[1, 3] = 5
    del table["a"]
    out = [items, items[1], items[-1], items[1:5:2], items[::-1], table, (1, 2, 3)[1], "abc"[0]]
    for bad in (100, -100, "a"):
        try:
            items[bad]
        except Exception as error:
            out.append(str(error))
    return out


def case_strings():
    name, value = "x", 3.14159
    text = f"{name}={value:.2f} {name!r:>5} {value!s} {name!a} {{}}"
    text += "!"
    joined = ""
    for i in range(20):
        joined += str(i)
    shared = joined
    joined += "tail"
    return text, joined, shared


def case_containers():
    a, b = [1, 2], {"k": 1}
    star = [*a, 3, *range(2)]
    merged = {**b, "z": 2, **{"q": 3}}
    union = {1, *a}
    frozen = (*a, 4)
    literal = {"one": 1, "two": 2, "three": 3}
    return (
        star,
        merged,
        union,
        frozen,
        literal,
        {n: n * n for n in a},
        {n for n in a},
        [n for n in a],
        {"a": a, 1: b},
    )


def case_unpacking():
    a, b = 1, 2
    a, b = b, a
    c, d, e = [a, b, 3]
    f, *g, h = range(6)
    *i, j = "abc"
    k, (m, *n) = 1, (2, 3, 4)
    out = [a, b, c, d, e, f, g, h, i, j, k, m, n]
    for source, program in (
        ([1], "a, b = source"),
        ([1, 2, 3], "a, b = source"),
        (5, "a, b = source"),
        ([1], "a, b, *c = source"),
    ):
        try:
            exec(program, {"source": source})
        except Exception as error:
            out.append(str(error))
    return out


def case_jumps():
    out = []
    x = None
    n = 0
    while x is None:
        n += 1
        if n == 3:
            x = 1
    while x is not None:
        n += 1
        if n == 6:
            x = None
    while not n % 7 == 0:
        n += 1
    while n:
        n -= 1
        if n == 2:
            continue
        if n == 1:
            break
    for i in range(5):
        if i and i % 2:
            out.append(i or "zero")
        elif i is None:
            out.append("none")
        elif i is not None:
            out.append(i and "some")
    else:
        out.append("else")
    return out, n, (0 or "a"), (1 and "b"), [] or (), x if x else -1


def case_closures():
    total = 0

    def add(n):
        nonlocal total
        total += n
        return lambda: total + n

    first = add(3)
    second = add(4)
    del add

    def unset():
        if False:
            missing = 1
        return lambda: missing

    out = [first(), second(), total]
    try:
        unset()()
    except NameError as error:
        out.append(str(error))
    value = 1
    reader = lambda: value  # noqa: F821
    del value
    try:
        reader()
    except NameError as error:
        out.append(str(error))
    return out


def case_globals():
    global COUNTER, created_and_deleted
    COUNTER = 5
    COUNTER += 1
    created_and_deleted = 1
    del created_and_deleted
    out = [COUNTER, len("abc")]
    for program in ("del missing", "missing", "print = 1; del print; print.__name__"):
        namespace = {}
        try:
            exec(program, namespace)
        except NameError as error:
            out.append((str(error), error.name))
    try:
        undefined_global_name
    except NameError as error:
        out.append(str(error))
    return out


def case_locals():
    x = 1
    del x
    out = []
    try:
        x  # noqa: F821
    except UnboundLocalError as error:
        out.append(str(error))
    try:
        del x  # noqa: F821
    except UnboundLocalError as error:
        out.append(str(error))
    y = 3
    return out, sorted(locals())


def case_classes():
    def decorate(cls):
        cls.decorated = True
        return cls

    outer = "outer"

    @decorate
    class Base:
        annotated: int = 1
        copied = outer
        values = [n for n in range(3)]

        def method(self, x, *, scale=2):
            return x * scale + self.annotated

        @property
        def prop(self):
            return self.annotated

        def __init_subclass__(cls, tag=None):
            cls.tag = tag

    class Derived(Base, tag="t"):
        def method(self, x):
            return super().method(x, scale=3), __class__.__name__

    d = Derived()
    d.annotated = 7
    del d.annotated
    try:
        del d.annotated
    except AttributeError as error:
        message = str(error)
    return (
        d.method(2),
        d.prop,
        Base.copied,
        Base.values,
        Derived.tag,
        Base.__annotations__,
        message,
        Base.decorated,
    )


def case_slices():
    items, text = list(range(9)), "abcdefgh"
    low, high = 2, 5
    out = [items[low:high], items[:high], items[low:], text[low:high], items[low:high:2]]
    items[low:high] = "xyz"
    out.append(list(items))
    for read in (lambda: low[low:high], lambda: items["a":]):
        try:
            read()
        except TypeError as error:
            out.append(str(error))
    try:
        low[low:high] = items
    except TypeError as error:
        out.append(str(error))
    return out


def case_calls():
    def f(a, b=2, /, c=3, *args, d, e=5, **kwargs):
        return a, b, c, args, d, e, kwargs

    class Callable:
        def __call__(self, *args):
            return args

        def method(self, *args, **kwargs):
            return args, kwargs

    obj = Callable()
    bound = obj.method
    out = [
        f(1, d=4),
        f(1, 2, 3, 4, 5, d=6, z=7),
        f(*[1, 2], **{"d": 3, "q": 4}),
        f(*(1,), *[9], d=1, **{"e": 2}, **{"y": 3}),
        obj(1, 2),
        bound(1, k=2),
        obj.method(3, k=4),
        sorted([3, 1, 2], key=lambda n: -n),
        max(1, 2, key=abs),
        "a-b".split("-"),
        dict(a=1),
    ]
    for call in (
        lambda: f(),
        lambda: f(1, d=1, **{"d": 2}),
        lambda: f(*5),
        lambda: f(**5),
        lambda: f(1, b=2, d=3),
        lambda: (lambda: 0)(1),
        lambda: out[0](),
        lambda: [*5],
        lambda: {**5},
        lambda: f(**{1: 2}, d=1),
    ):
        try:
            out.append(call())
        except Exception as error:
            out.append((type(error).__name__, str(error)))
    return out


def case_function_objects():
    k = 1

    def f(a: int, b: "str" = "x", *, c: float = 2.0) -> None:
        """Doc."""
        return k

    return f.__annotations__, f.__defaults__, f.__kwdefaults__, f.__doc__, f.__qualname__, len(f.__closure__)


def case_exceptions():
    out = []

    def nested(kind):
        try:
            try:
                if kind == 1:
                    raise ValueError("one")
                if kind == 2:
                    raise KeyError("two") from ValueError("cause")
                if kind == 3:
                    raise TypeError
                if kind == 4:
                    raise 5
                if kind == 5:
                    raise ValueError from 5
                if kind == 6:
                    assert kind == 0, "message"
                if kind == 7:
                    raise OSError("x") from None
                return "returned"
            except (KeyError, OSError) as error:
                out.append((str(error), repr(error.__cause__), error.__suppress_context__))
                raise
            except ValueError:
                raise RuntimeError("chained")
            else:
                out.append("else")
            finally:
                out.append("finally")
        except Exception as error:
            out.append(
                (type(error).__name__, str(error), repr(error.__context__), sys.exc_info()[1] is error)
            )
        return kind

    results = [nested(kind) for kind in range(8)]
    try:
        raise
    except RuntimeError as error:
        out.append(str(error))
    try:
        try:
            raise ValueError
        except 5:
            pass
    except TypeError as error:
        out.append(str(error))
    return results, out, sys.exc_info()


def case_exception_groups():
    out = []

    def run(make):
        try:
            try:
                raise make()
            except* ValueError as group:
                out.append(("value", [str(e) for e in group.exceptions]))
            except* TypeError:
                out.append("type")
                raise KeyError("new")
        except BaseException as error:
            out.append(
                (type(error).__name__, str(error), [repr(e) for e in getattr(error, "exceptions", ())])
            )

    run(lambda: ValueError("plain"))
    run(lambda: ExceptionGroup("g", [ValueError(1), TypeError(2), OSError(3)]))
    run(lambda: ExceptionGroup("g", [ExceptionGroup("h", [ValueError(1), OSError(2)]), OSError(3)]))
    run(lambda: OSError(4))
    run(lambda: BaseExceptionGroup("b", [KeyboardInterrupt(), ValueError(2)]))
    try:
        try:
            raise ValueError
        except* ExceptionGroup:
            pass
    except TypeError as error:
        out.append(str(error))
    return out


def case_with():
    log = []

    class Manager:
        def __init__(self, name, swallow=False):
            self.name, self.swallow = name, swallow

        def __enter__(self):
            log.append(("enter", self.name))
            return self

        def __exit__(self, kind, value, traceback):
            log.append(("exit", self.name, kind, str(value), traceback is not None))
            return self.swallow

    with Manager("a") as a, Manager("b"):
        log.append(a.name)
    with Manager("c", swallow=True):
        raise ValueError("swallowed")
    try:
        with Manager("d"), Manager("e"):
            raise ValueError("passed on")
    except ValueError:
        pass

    def early():
        with Manager("f"):
            return 1

    early()
    for bad in (5, type("E", (), {"__enter__": lambda self: 1})()):
        try:
            with bad:
                pass
        except TypeError as error:
            log.append(str(error))
    with contextlib.suppress(KeyError):
        {}["x"]
    return log


def case_generators():
    log = []

    def counter(n):
        try:
            for i in range(n):
                sent = yield i
                if sent:
                    log.append(sent)
        except ValueError as error:
            log.append(str(error))
            yield "recovered"
        finally:
            log.append("closed")
        return "done"

    def delegating():
        result = yield from counter(3)
        log.append(result)
        yield from [10, 11]

    g = delegating()
    out = [next(g), g.send("hello"), g.throw(ValueError("thrown")), next(g), list(g)]
    h = counter(5)
    next(h)
    h.close()
    fresh = counter(2)
    try:
        fresh.throw(KeyError("early"))
    except KeyError as error:
        out.append(repr(error))
    out.append(sum(n * n for n in range(10)))
    unfinished = counter(3)
    next(unfinished)
    del unfinished
    try:
        next(iter(stopping()))
    except RuntimeError as error:
        out.append(str(error))
    return out, log


def stopping():
    yield next(iter(()))


def case_coroutines():
    log = []

    class Awaitable:
        def __await__(self):
            value = yield from asyncio.sleep(0, "slept").__await__()
            return value

    class Context:
        async def __aenter__(self):
            log.append("aenter")
            return self

        async def __aexit__(self, kind, value, traceback):
            log.append(("aexit", kind))
            return True

    async def numbers(n):
        for i in range(n):
            yield i
            await asyncio.sleep(0)

    class Iterator:
        def __init__(self):
            self.left = 2

        def __aiter__(self):
            return self

        async def __anext__(self):
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return self.left

    async def main():
        out = [await Awaitable()]
        async with Context():
            raise ValueError
        async for n in numbers(3):
            out.append(n)
        async for n in Iterator():
            out.append(n)
        out.append([n async for n in numbers(3) if n])
        out.append(await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2)))
        for bad in (5, Bad()):
            try:
                async for _ in bad:
                    pass
            except TypeError as error:
                out.append(str(error))
            try:
                async with bad:
                    pass
            except TypeError as error:
                out.append(str(error))
            try:
                await bad
            except TypeError as error:
                out.append(str(error))
        agen = numbers(3)
        out.append(await agen.__anext__())
        try:
            await agen.athrow(KeyError("k"))
        except KeyError as error:
            out.append(repr(error))
        await agen.aclose()
        return out

    return asyncio.run(main()), log


class Bad:
    def __aiter__(self):
        return 5

    async def __aenter__(self):
        return 1


def case_match():
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

    def kind(subject):
        match subject:
            case 0 | 1:
                return "small"
            case int(n) if n > 100:
                return "large", n
            case str() as s:
                return "text", s
            case [] | [_]:
                return "short"
            case [first, *middle, last]:
                return "list", first, middle, last
            case {"type": "a", "value": v, **rest}:
                return "mapping", v, rest
            case Point(x=0, y=y):
                return "on axis", y
            case Point(x, y):
                return "point", x, y
            case None:
                return "none"
        return "other"

    subjects = [0, 1, 500, 50, "s", [], [1], [1, 2, 3], (1, 2), {"type": "a", "value": 1, "z": 2}, {"type": "b"},
                Point(0, 1), Point(2, 3), None, 2.5]  # fmt: skip
    out = [kind(s) for s in subjects]
    try:
        match Point(1, 2):
            case Point(_, _, _):
                pass
    except TypeError as error:
        out.append(str(error))
    return out


def case_imports():
    import collections.abc
    import os.path as p
    from collections import OrderedDict, deque
    from math import pi as tau_half

    out = [p.join("a", "b"), OrderedDict.__name__, deque([1]), tau_half, collections.abc.Sized.__name__]
    for program in ("from math import nope", "import nope_nope", "from . import x"):
        try:
            exec(program, {"__name__": "m", "__package__": ""})
        except ImportError as error:
            out.append((type(error).__name__, error.name))
    return out


def case_module_code():
    shown = []
    namespace = {"__name__": "program"}
    exec(compile(MODULE_PROGRAM, "<program>", "exec"), namespace)
    hook, sys.displayhook = sys.displayhook, shown.append
    try:
        exec(compile("1 + 1", "<interactive>", "single"), {})
    finally:
        sys.displayhook = hook
    if sys.version_info >= (3, 12):
        exec(compile(GENERIC_PROGRAM, "<program>", "exec"), namespace)
    if sys.version_info >= (3, 14):
        exec(compile(TEMPLATE_PROGRAM, "<program>", "exec"), namespace)
        annotations = namespace["__annotate__"](1)
    else:
        annotations = namespace["__annotations__"]
    return sorted(k for k in namespace if not k.startswith("__")), annotations, shown, namespace.get("parts")


# What 3.14 brings: template strings; annotations that are made at once only where a module asks for texts.
TEMPLATE_PROGRAM = """
from __future__ import annotations
text: str = "b"
made = t"a{text}{1 + 1!r:>4}c"
parts = made.strings, made.values, [(p.conversion, p.format_spec, p.expression) for p in made.interpolations]
"""

# What 3.12 brings: type parameters and aliases, and names that are looked for in a class's namespace first.
GENERIC_PROGRAM = """
type Pair[T] = tuple[T, T]
def first[T: int, *Ts, **P](x: T) -> T:
    return x
class Box[T]:
    type Inner = list[T]
    kind = int
    type Of = kind
    def get[U: (int, str)](self, x: U) -> U:
        return x
generic = (
    Pair.__value__, first(3), Box.Inner.__value__, Box.Of.__value__, Box().get("a"),
    [str(p) for p in first.__type_params__], Box.get.__type_params__[0].__constraints__, Box.__module__,
)
"""

MODULE_PROGRAM = """
from math import *
x: int = 3
y = x
del y
class C:
    z = x
    for i in range(2):
        pass
    del i
"""


def case_many_constants():
    source = "def f():\n    total = 0\n"
    source += "".join(f"    total += {i}.5\n    v{i} = total\n" for i in range(400))
    source += "    for _ in range(2):\n" + "".join(f"        total -= v{i}\n" for i in range(400))
    source += "    return total\n"
    namespace = {}
    exec(source, namespace)
    return namespace["f"]()


def case_frames():
    def inner():
        frame = sys._getframe()
        return (
            frame.f_code.co_name,
            frame.f_lineno,
            frame.f_back.f_code.co_name,
            sorted(frame.f_back.f_locals),
        )

    local = 1
    return inner(), local
