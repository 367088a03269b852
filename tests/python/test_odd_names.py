"""Names that are no identifiers: any string is the name of an attribute, a keyword, a function, a key or a module, also
with a zero byte in it or with lone surrogates, which can't be encoded as UTF-8."""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import CALLS, Case, check, compile_for_test, floats

import kintsugi

NAMES = {
    "zero byte": "a\0b",
    "zero byte at the end": "a\0",
    "surrogate": "\ud800",
    "surrogate within": "a\udce9b",
    "accent": "größe",
    "space": "two words",
    "empty": "",
    "quote": 'a"\\\n',
    "beyond the plane": "\U0001f600",
    "special": "__\udce9__",
}
Program = Callable[[str], Any]
PROGRAMS: dict[str, Program] = {}


def program(make: Program) -> Program:
    """A factory: of a name it makes a function of a tensor, and the state that is compared."""
    PROGRAMS[make.__name__] = make
    return make


class Holder:
    a = 1


@program
def attribute_of_an_argument(name: str) -> Any:
    o = Holder()

    def f(x: torch.Tensor) -> Any:
        setattr(o, name, x + 1)
        found = getattr(o, name), hasattr(o, name), getattr(o, name + "x", 5)
        o.n = getattr(o, "n", 0) + 1
        return found, sorted(o.__dict__)

    return f, o


@program
def attribute_that_is_deleted(name: str) -> Any:
    o = Holder()

    def f(x: torch.Tensor) -> Any:
        setattr(o, name, 3)
        before = dict(o.__dict__)
        delattr(o, name)
        return before, o.__dict__.copy(), x * 2

    return f, o


@program
def attribute_that_is_missing(name: str) -> Any:
    def f(x: torch.Tensor) -> Any:
        try:
            return getattr(Holder(), name)
        except AttributeError as error:
            return str(error), x * 2

    return f


@program
def attribute_of_what_is_made(name: str) -> Any:
    def f(x: torch.Tensor) -> Any:
        o = Holder()
        setattr(o, name, x.sum())
        if x.sum() > 0:
            return o, getattr(o, name)
        return vars(o)

    return f


@program
def attribute_of_a_module(name: str) -> Any:
    torch.manual_seed(0)
    m = torch.nn.Linear(4, 4)

    def f(x: torch.Tensor) -> Any:
        setattr(m, name, x.shape[0])
        return m(x) * getattr(m, name)

    return f, m


@program
def submodule_and_parameter(name: str) -> Any:
    torch.manual_seed(0)
    m = torch.nn.Module()
    fits = name and "." not in name
    if fits:
        m.add_module(name, torch.nn.Linear(4, 4))
        m.register_buffer(name + "b", torch.ones(4))

    def f(x: torch.Tensor) -> Any:
        named = [key for key, _ in m.named_parameters()], list(m.state_dict())
        return (getattr(m, name)(x) + getattr(m, name + "b") if fits else x), named

    return f


@program
def attribute_of_a_class(name: str) -> Any:
    class Own:
        pass

    def f(x: torch.Tensor) -> Any:
        setattr(Own, name, 1 + getattr(Own, name, 0))
        return getattr(Own, name), getattr(Own(), name), x * 2

    return f, Own()


@program
def attribute_of_a_class_that_is_made(name: str) -> Any:
    def f(x: torch.Tensor) -> Any:
        class Own:
            pass

        setattr(Own, name, 4)
        return x * getattr(Own(), name), [key for key in vars(Own) if not key.startswith("__")]

    return f


@program
def attribute_of_a_function(name: str) -> Any:
    def g() -> None: ...

    def f(x: torch.Tensor) -> Any:
        def h() -> None: ...

        setattr(h, name, 2)
        setattr(g, name, getattr(g, name, 0) + 1)
        return x * getattr(h, name), dict(vars(h)), dict(vars(g))

    return f, vars(g)


@program
def keyword(name: str) -> Any:
    def g(*args: Any, **kw: Any) -> Any:
        return args[0] * len(kw), kw

    def f(x: torch.Tensor) -> Any:
        return g(x, **{name: 2, "plain": x}), g(x, **{"b": 1}, **{name: 3})

    return f


@program
def keyword_of_a_class(name: str) -> Any:
    class Own:
        def __init__(self, **kw: Any) -> None:
            self.__dict__.update(kw)

    def f(x: torch.Tensor) -> Any:
        o = Own(**{name: x + 1, "y": 2})
        return vars(o), x * o.y

    return f


@program
def keyword_of_a_builtin(name: str) -> Any:
    def f(x: torch.Tensor) -> Any:
        made = dict(**{name: 1}), types.SimpleNamespace(**{name: x}), collections.OrderedDict(**{name: 2})
        return made, x * 2

    return f


@program
def keyword_that_is_refused(name: str) -> Any:
    def f(x: torch.Tensor) -> Any:
        said = []
        for g in (
            torch.relu,
            int,
            len,
            sorted,
            torch.nn.functional.softmax,
            Holder,
            lambda: 0,
            str.upper,
            print,
        ):
            try:
                g(*([[1]] if g is sorted else []), **{name: 1})
            except Exception as error:
                said.append((type(error), str(error)))
        return said, x * 2

    return f


@program
def keyword_of_a_step(name: str) -> Any:
    """What C code calls with it, as a step."""

    def g(**kw: Any) -> Any:
        return kw

    def f(x: torch.Tensor) -> Any:
        part = functools.partial(g, **{name: 1})
        return part(), part.keywords, "{a}".format(**{name: 1, "a": 2}), x * 2, list(map(part, []))

    return f


@program
def name_of_a_function(name: str) -> Any:
    def g(x: torch.Tensor) -> Any:
        return x + 1

    g.__name__ = g.__qualname__ = name

    def f(x: torch.Tensor) -> Any:
        def h() -> None: ...

        h.__name__ = name
        h.__qualname__ = name + "!"
        return g(x), g.__name__, repr(g).split(" at ")[0], h.__name__, h.__qualname__

    return f


@program
def name_of_code(name: str) -> Any:
    def g(x: torch.Tensor) -> Any:
        if x.sum() > 0:
            return x * 2
        yield_ = [v for v in range(3)]
        return x * len(yield_)

    def each(x: torch.Tensor) -> Any:
        yield x
        yield x + 1

    parts = {"co_name": name, "co_qualname": name, "co_filename": name}
    if sys.version_info < (3, 11):
        del parts["co_qualname"]
    g.__code__ = g.__code__.replace(**parts)
    each.__code__ = each.__code__.replace(**parts)

    def f(x: torch.Tensor) -> Any:
        print(name in ("", "x"), end="")
        return g(x), list(each(x))

    f.__code__ = f.__code__.replace(**parts)
    return f


@program
def error_out_of_code(name: str) -> Any:
    def g(x: torch.Tensor) -> Any:
        raise ValueError(name)

    g.__code__ = g.__code__.replace(co_name=name)

    def f(x: torch.Tensor) -> Any:
        try:
            g(x)
        except ValueError as error:
            where = error.__traceback__
            assert where is not None and where.tb_next is not None
            return str(error), where.tb_next.tb_frame.f_code.co_name, x * 2
        return None

    return f


@program
def key_of_globals(name: str) -> Any:
    space: dict[str, Any] = {"__builtins__": __builtins__, name: 5}
    exec(
        "def f(x):\n  globals()[name] = globals()[name] + 1\n  return x * globals()[name], len(globals())",
        space,
    )
    space["name"] = name
    return space["f"], {key: value for key, value in space.items() if key == name}


@program
def key_of_a_dict(name: str) -> Any:
    d = {name: 1, "b": 2}

    def f(x: torch.Tensor) -> Any:
        d[name] += 1
        return x * d[name], d.get(name + "x"), {name: x}, {name, "b"} == set(d)

    return f, d


@program
def module_in_sys_modules(name: str) -> Any:
    module = types.ModuleType("plain")
    module.__dict__[name] = 3

    def f(x: torch.Tensor) -> Any:
        sys.modules["a" + name] = module
        try:
            return x * getattr(sys.modules["a" + name], name), sorted(vars(module))
        finally:
            del sys.modules["a" + name]

    return f


@program
def expression(name: str) -> Any:
    def f(x: torch.Tensor) -> Any:
        try:
            return eval("1" + name), x
        except Exception as error:
            return type(error), str(error), x * 2

    return f


@program
def slots_and_properties(name: str) -> Any:
    own = type("Own", (), {name: property(lambda self: 7)})

    def f(x: torch.Tensor) -> Any:
        return x * getattr(own(), name), name in vars(own)

    return f


@program
def fallback_of_attributes(name: str) -> Any:
    class Own:
        def __getattr__(self, asked: str) -> Any:
            return [asked, len(asked)]

    o = Own()

    def f(x: torch.Tensor) -> Any:
        return getattr(o, name), getattr(Own(), name + "y"), x * len(getattr(o, name))

    return f


def _names_of_calls(name: str, call: int) -> dict[str, Any]:
    return {name: call, "k": 2} if call % 2 else {name + "y": torch.ones(2)}


def compile_natively(fn: Callable[..., Any]) -> Any:
    return kintsugi.compile(fn, backend="native", options={"sync": True})


WAYS = {"replay": (compile_for_test, False), "native": (compile_natively, True)}


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("name", list(NAMES))
@pytest.mark.parametrize("made", list(PROGRAMS))
def test_names(made: str, name: str, way: str) -> None:
    def make() -> Any:
        return PROGRAMS[made](NAMES[name])

    check(Case(make, floats((3, 4)), lambda call: {}, True, CALLS, None, None, False), *WAYS[way])


@pytest.mark.parametrize("name", list(NAMES))
def test_keywords_of_the_compiled_function(name: str) -> None:
    def make() -> Any:
        def f(x: torch.Tensor, **kw: Any) -> Any:
            return x * len(kw), kw

        return f

    check(
        Case(
            make, floats((3, 4)), lambda call: _names_of_calls(NAMES[name], call), True, 6, None, None, False
        )
    )
