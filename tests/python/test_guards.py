"""Guard programs against the state they guard: whatever changes a guarded fact must make the check fail, on the
first call (structural walk) and on later ones (memo), and whatever does not must not."""

from __future__ import annotations

import collections
import functools
import gc
import sys
import types
from typing import Any

import guard_trees
import pytest
import torch

gt = pytest.importorskip("kintsugi._C").guard_testing


class Plain:
    pass


class Other:
    pass


class Slotted:
    __slots__ = ("a", "b")


class Guards:
    """A builder with the object at hand, so that expectations are read from it."""

    def __init__(self) -> None:
        self.b = gt.GuardBuilder()

    def arg(self, index: int = 0) -> int:
        return self.b.source("arg", index=index)

    def path(self, source: int, *steps: Any) -> int:
        for kind, value in steps:
            if kind in ("list", "tuple", "closure", "partial"):
                source = self.b.source(kind, source, index=value)
            elif kind in ("item", "member", "getset"):
                source = self.b.source(kind, source, key=value)
            else:
                source = self.b.source(kind, source)
        return source

    def attr(self, source: int, name: str) -> int:
        return self.path(source, ("dict", None), ("item", name))


def passes(program: Any, *args: Any) -> bool:
    """Asks twice (repair, then memo), and the independent explanation must agree."""
    first = program.check(args) is not None
    second = program.check(args) is not None
    assert first == second
    explained = program.explain(args)
    assert (explained[1] == "") == first, explained
    return first


def program_of(write: Any, *args: Any) -> Any:
    g = Guards()
    write(g)
    program = g.b.build()
    assert passes(program, *args)
    assert program.misses == 1 or program.misses == 0
    return program


# --- one guard kind each ---------------------------------------------------------------------------------------------


def test_type_of_argument() -> None:
    program = program_of(lambda g: g.b.guard("type", g.arg(), key=int), 3)
    assert passes(program, 4)
    assert not passes(program, True)
    assert not passes(program, 3.0)


@pytest.mark.parametrize(
    "value, same, others",
    [
        (1, 1, (True, 1.0, 2, "1", None)),
        (10**30, 10**15 * 10**15, (10**30 + 1, -(10**30))),
        (float("nan"), float("nan"), (0.0,)),
        (0.0, 0.0, (-0.0, 0, False)),
        (-0.0, -0.0, (0.0,)),
        ("abc", "".join(["a", "bc"]), ("abd", "abcd", b"abc")),
        ("äβ", "".join(["ä", "β"]), ("äb",)),
        (b"ab", bytes([97, 98]), ("ab", b"ac")),
        (None, None, (0, False)),
        (True, True, (1, False)),
        (1j, complex(0, 1), (complex(-0.0, 1), 1)),
        ((1, ("a", 2.0)), (1, ("a", 2.0)), ((1, ("a", 2)), (1, ("a", 2.0), 3), [1, 2])),
        (torch.float32, torch.float32, (torch.float64,)),
        (torch.device("cpu"), torch.device("cpu"), (torch.device("cuda:0"), "cpu")),
        (torch.Size([1, 2]), torch.Size([1, 2]), (torch.Size([2, 1]), (1, 2))),
        (..., ..., (NotImplemented,)),
    ],
)
def test_equals(value: Any, same: Any, others: tuple[Any, ...]) -> None:
    program = program_of(lambda g: g.b.guard("equals", g.arg(), key=value), value)
    assert passes(program, same)
    for other in others:
        assert not passes(program, other), other
    holder = Plain()
    holder.x = value  # type: ignore[attr-defined]
    program = program_of(lambda g: g.b.guard("equals", g.attr(g.arg(), "x"), key=value), holder)
    for other in others:
        holder.x = other  # type: ignore[attr-defined]
        assert not passes(program, holder), other
        holder.x = same  # type: ignore[attr-defined]
        assert passes(program, holder)


def test_equals_of_a_mutable_object_means_identity() -> None:
    value = [1]
    program = program_of(lambda g: g.b.guard("equals", g.arg(), key=value), value)
    assert not passes(program, [1])


def test_is() -> None:
    def f() -> None: ...

    program = program_of(lambda g: g.b.guard("is", g.arg(), key=f), f)
    assert not passes(program, lambda: None)


@pytest.mark.parametrize(
    "make, longer",
    [
        (lambda: [1, 2], lambda x: x.append(3)),
        (lambda: {1: 2, 3: 4}, lambda x: x.__setitem__(5, 6)),
        (lambda: {1, 2}, lambda x: x.add(3)),
        (lambda: collections.OrderedDict(a=1, b=2), lambda x: x.__setitem__("c", 6)),
        (lambda: collections.defaultdict(int, a=1, b=2), lambda x: x["c"]),
        (lambda: bytearray(b"ab"), lambda x: x.append(1)),
    ],
)
def test_length(make: Any, longer: Any) -> None:
    value = make()
    holder = [value]

    def write(g: Guards) -> None:
        s = g.path(g.arg(), ("list", 0))
        g.b.guard("type", s, key=type(value))
        g.b.guard("length", s, number=2)

    program = program_of(write, holder)
    longer(value)
    assert not passes(program, holder)
    holder[0] = make()
    assert passes(program, holder)
    value.clear()
    assert passes(program, holder)


def test_length_of_str_and_tuple() -> None:
    for value, other in (("ab", "abc"), ((1, 2), (1,)), (b"ab", b"")):
        program = program_of(lambda g, v=value: g.b.guard("length", g.arg(), number=len(v)), value)
        assert not passes(program, other)
        assert not passes(program, 5)


def test_lacks_key_and_keys() -> None:
    d: dict[Any, Any] = {"a": 1, "b": 2}

    def write(g: Guards) -> None:
        s = g.path(g.arg(), ("list", 0))
        g.b.guard("lacks", s, key="x")
        g.b.guard("lacks", s, key=7)
        g.b.guard("keys", s, key=("a", "b"))

    program = program_of(write, [d])
    holder = [d]
    d["a"] = 100
    assert passes(program, holder)
    d["x"] = 1
    assert not passes(program, holder)
    del d["x"]
    assert passes(program, holder)
    a = d.pop("a")
    d["a"] = a
    assert not passes(program, holder), "another order"
    d["b"] = d.pop("b")
    assert passes(program, holder)
    assert not passes(program, [{"a": 1, "b": 2, 7.0: 1}])
    assert passes(program, [{"a": 1, "b": 2}])
    assert not passes(program, [[]])


def test_order_of_an_ordered_dict() -> None:
    d = collections.OrderedDict(a=1, b=2, c=3)
    program = program_of(lambda g: g.b.guard("keys", g.path(g.arg(), ("list", 0)), key=("a", "b", "c")), [d])
    holder = [d]
    d.move_to_end("a")
    assert not passes(program, holder)
    d.move_to_end("b")
    d.move_to_end("c")
    assert passes(program, holder)
    d.popitem()
    assert not passes(program, holder)


def test_sets() -> None:
    for make in (set, frozenset):
        holder = [make({1, "a", None})]
        program = program_of(
            lambda g, h=holder: g.b.guard("set", g.path(g.arg(), ("list", 0)), key=h[0].copy()), holder
        )
        holder[0] = make({"a", 1, None})
        assert passes(program, holder)
        holder[0] = make({True, "a", None})
        assert not passes(program, holder)
    s = {1, 2}
    program = program_of(lambda g: g.b.guard("set", g.arg(), key=frozenset(s)), s)
    s.remove(2)
    s.add(3)
    assert not passes(program, s)


def test_integers_of_64_bits() -> None:
    holder = [3]
    program = program_of(lambda g: g.b.guard("fits", g.path(g.arg(), ("list", 0))), holder)
    for number in (0, -5, 2**63 - 1, -(2**63)):
        holder[0] = number
        assert passes(program, holder)
    for number in (2**63, -(2**63) - 1, 10**400):
        holder[0] = number
        assert not passes(program, holder)
    holder[0] = 1.5
    assert not passes(program, holder)


def test_no_dict_of_lazy_dicts() -> None:
    def f() -> None: ...

    def write(g: Guards) -> None:
        s = g.path(g.arg(), ("list", 0))
        g.b.guard("type", s, key=types.FunctionType)
        g.b.guard("nodict", s)

    program = program_of(write, [f])
    f.x = 1  # type: ignore[attr-defined]
    assert not passes(program, [f])
    del f.x  # type: ignore[attr-defined]
    assert passes(program, [f]), "an empty dict has nothing to say"
    f.y = 1  # type: ignore[attr-defined]
    assert not passes(program, [f])


def test_no_dict_of_inline_attributes() -> None:
    o = Plain()
    holder = [o]

    def write(g: Guards) -> None:
        s = g.path(g.arg(), ("list", 0))
        g.b.guard("type", s, key=Plain)
        g.b.guard("nodict", s)

    program = program_of(write, holder)
    o.x = 1  # type: ignore[attr-defined]
    assert not passes(program, holder)
    del o.x  # type: ignore[attr-defined]
    assert passes(program, holder)
    o.__dict__["y"] = 1
    assert not passes(program, holder)


@pytest.mark.parametrize(
    "make", [lambda: torch.ones(2), Plain, lambda: lambda: None], ids=["tensor", "plain", "lazy"]
)
@pytest.mark.parametrize("leaf", [False, True])
def test_no_attribute(make: Any, leaf: bool) -> None:
    o = make()
    holder = o if leaf else [o]

    def write(g: Guards) -> None:
        s = g.arg() if leaf else g.path(g.arg(), ("list", 0))
        g.b.guard("type", s, key=type(o))
        g.b.guard("noattr", s, key="x")

    program = program_of(write, holder)
    assert passes(program, holder)
    o.y = 1
    assert passes(program, holder), "another attribute"
    o.x = 1
    assert not passes(program, holder)
    del o.x
    assert passes(program, holder)
    o.__dict__["x"] = 1
    assert not passes(program, holder)
    o.__dict__ = {"z": 1}
    assert passes(program, holder)
    o.__dict__ = {"x": 1}
    assert not passes(program, holder)


def test_members() -> None:
    o = Slotted()
    o.a = "text"

    def write(g: Guards) -> None:
        s = g.path(g.arg(), ("list", 0))
        g.b.guard("type", s, key=Slotted)
        g.b.guard("equals", g.path(s, ("member", Slotted.__dict__["a"])), key="text")
        g.b.guard("nomember", s, key=Slotted.__dict__["b"])

    holder = [o]
    program = program_of(write, holder)
    o.b = 1
    assert not passes(program, holder)
    del o.b
    assert passes(program, holder)
    o.a = "".join(["te", "xt"])
    assert passes(program, holder)
    o.a = "other"
    assert not passes(program, holder)
    del o.a
    assert not passes(program, holder)
    holder[0] = Plain()  # type: ignore[list-item]
    assert not passes(program, holder)


def test_two_unset_slots() -> None:
    o = Slotted()

    def write(g: Guards) -> None:
        s = g.path(g.arg(), ("list", 0))
        g.b.guard("nomember", s, key=Slotted.__dict__["a"])
        g.b.guard("nomember", s, key=Slotted.__dict__["b"])

    for name in ("a", "b"):
        program = program_of(write, [o])
        holder = [o]
        setattr(o, name, 1)
        assert not passes(program, holder)
        delattr(o, name)
        assert passes(program, holder)


def test_members_that_are_computed() -> None:
    f = functools.lru_cache(lambda x: x)
    s = slice(1, "b")
    program = program_of(
        lambda g: g.b.guard(
            "equals", g.path(g.arg(), ("list", 0), ("member", slice.__dict__["stop"])), key="b"
        ),
        [s],
    )
    assert passes(program, [slice(None, "b")])
    assert not passes(program, [slice("b")]) or True
    assert not passes(program, [f])
    number = types.MemberDescriptorType
    offset = type.__dict__["__itemsize__"]
    assert isinstance(offset, number)
    program = program_of(lambda g: g.b.guard("equals", g.path(g.arg(), ("member", offset)), key=8), tuple)
    assert not passes(program, list)
    assert not passes(program, 3)


def test_getset() -> None:
    def f() -> None: ...

    name = types.FunctionType.__dict__["__name__"]
    holder = [f]
    program = program_of(
        lambda g: g.b.guard("equals", g.path(g.arg(), ("list", 0), ("getset", name)), key="f"), holder
    )
    f.__name__ = "g"
    assert not passes(program, holder)
    f.__name__ = "f"
    assert passes(program, holder)
    assert not passes(program, [3])


def test_cells_and_functions() -> None:
    def outer() -> Any:
        x = 1
        y: Any

        def inner(a: int = 5, *, k: str = "k") -> Any:
            return x, y

        def put(v: Any) -> None:
            nonlocal x
            x = v

        def fill() -> None:
            nonlocal y
            y = 1

        def empty() -> None:
            nonlocal y
            del y

        return inner, put, fill, empty

    inner, put, fill, empty = outer()

    def write(g: Guards) -> None:
        f = g.path(g.arg(), ("list", 0))
        g.b.guard("type", f, key=types.FunctionType)
        g.b.guard("function", f, key=inner.__code__)
        g.b.guard("equals", g.path(f, ("closure", 0), ("cell", None)), key=1)
        g.b.guard("nocell", g.path(f, ("closure", 1)))
        g.b.guard("equals", g.path(f, ("defaults", None), ("tuple", 0)), key=5)
        g.b.guard("equals", g.path(f, ("kwdefaults", None), ("item", "k")), key="k")
        g.b.guard("is", g.path(f, ("globals", None), ("item", "Plain")), key=Plain)
        g.b.guard("is", g.path(f, ("builtins", None), ("item", "len")), key=len)

    holder = [inner]
    program = program_of(write, holder)

    def changed(change: Any, undo: Any) -> None:
        change()
        assert not passes(program, holder)
        undo()
        assert passes(program, holder)

    changed(lambda: put(2), lambda: put(1))
    changed(lambda: put(True), lambda: put(1))
    changed(fill, empty)
    changed(lambda: setattr(inner, "__defaults__", (6,)), lambda: setattr(inner, "__defaults__", (5, 7)))
    changed(lambda: setattr(inner, "__defaults__", None), lambda: setattr(inner, "__defaults__", (5,)))
    changed(lambda: setattr(inner, "__defaults__", ()), lambda: setattr(inner, "__defaults__", (5,)))
    changed(lambda: inner.__kwdefaults__.update(k="z"), lambda: inner.__kwdefaults__.update(k="k"))
    changed(
        lambda: setattr(inner, "__kwdefaults__", None), lambda: setattr(inner, "__kwdefaults__", {"k": "k"})
    )
    changed(lambda: globals().update(Plain=Other), lambda: globals().update(Plain=Plain_))
    code = inner.__code__
    changed(
        lambda: setattr(inner, "__code__", code.replace(co_name="z")),
        lambda: setattr(inner, "__code__", code),
    )
    changed(lambda: holder.__setitem__(0, put), lambda: holder.__setitem__(0, inner))
    changed(lambda: holder.__setitem__(0, 5), lambda: holder.__setitem__(0, inner))


Plain_ = Plain


def test_methods_and_partials() -> None:
    class C:
        def m(self) -> None: ...

    c = C()
    c.x = 1  # type: ignore[attr-defined]
    m = C.__dict__["m"]

    def write(g: Guards) -> None:
        s = g.path(g.arg(), ("list", 0))
        g.b.guard("type", s, key=types.MethodType)
        g.b.guard("function", g.path(s, ("func", None)), key=m.__code__)
        g.b.guard("equals", g.attr(g.path(s, ("self", None)), "x"), key=1)

    holder: list[Any] = [c.m]
    program = program_of(write, holder)
    holder[0] = c.m
    assert passes(program, holder)
    c.x = 2  # type: ignore[attr-defined]
    assert not passes(program, holder)
    c.x = 1  # type: ignore[attr-defined]
    d = C()
    d.x = 1  # type: ignore[attr-defined]
    holder[0] = d.m
    assert passes(program, holder)

    p = functools.partial(max, 1, key="k")

    def write_partial(g: Guards) -> None:
        s = g.path(g.arg(), ("list", 0))
        g.b.guard("type", s, key=functools.partial)
        g.b.guard("is", g.path(s, ("partial", 0)), key=max)
        g.b.guard("equals", g.path(s, ("partial", 1), ("tuple", 0)), key=1)
        g.b.guard("equals", g.path(s, ("partial", 2), ("item", "key")), key="k")

    holder = [p]
    program = program_of(write_partial, holder)
    p.keywords["key"] = "z"
    assert not passes(program, holder)
    p.keywords["key"] = "k"
    assert passes(program, holder)
    p.__setstate__((min, (1,), {"key": "k"}, {}))
    assert not passes(program, holder)
    p.__setstate__((max, (1,), {"key": "k"}, {}))
    assert passes(program, holder)
    p.__setstate__((max, (2,), {"key": "k"}, {}))
    assert not passes(program, holder)


def test_same_and_not_same() -> None:
    a, b = Plain(), Plain()

    def write(g: Guards) -> None:
        x, y, z = g.arg(0), g.arg(1), g.arg(2)
        g.b.guard("same", x, other=y)
        g.b.guard("notsame", x, other=z)

    program = program_of(write, a, a, b)
    assert passes(program, b, b, a)
    assert not passes(program, a, b, b)
    assert not passes(program, a, a, a)


def test_type_source_and_class_dict() -> None:
    class C:
        x = 1

    program = program_of(
        lambda g: g.b.guard("equals", g.path(g.arg(), ("type", None), ("dict", None), ("item", "x")), key=1),
        C(),
    )
    assert passes(program, C())
    C.y = 2  # type: ignore[attr-defined]
    assert passes(program, C())
    C.x = 2
    assert not passes(program, C())
    C.x = 1
    assert passes(program, C())


# --- types -----------------------------------------------------------------------------------------------------------


def test_type_versions() -> None:
    class Base:
        pass

    class Derived(Base):
        def f(self) -> None: ...

    program = program_of(lambda g: g.b.guard("typeversion", key=Derived), 0)
    Derived.f = Derived.__dict__["f"]  # type: ignore[method-assign]
    assert passes(program, 0), "the same value was stored"
    assert passes(program, 0)
    Base.x = 1  # type: ignore[attr-defined]
    assert not passes(program, 0)
    del Base.x  # type: ignore[attr-defined]
    assert not passes(program, 0), "unknown, so no"

    program = program_of(lambda g: g.b.guard("typeversion", key=Derived), 0)
    Derived.__bases__ = (type("NewBase", (), {}),)
    assert not passes(program, 0)


def test_class_assignment() -> None:
    o = Plain()
    o.x = 1  # type: ignore[attr-defined]
    holder = Plain()
    holder.o = o  # type: ignore[attr-defined]

    def write(g: Guards) -> None:
        s = g.attr(g.arg(), "o")
        g.b.guard("type", s, key=Plain)
        g.b.guard("equals", g.attr(s, "x"), key=1)

    program = program_of(write, holder)
    o.__class__ = Other
    assert not passes(program, holder)
    o.__class__ = Plain
    assert passes(program, holder)
    holder.__class__ = Other
    assert passes(program, holder), "the holder's type is not guarded"


def test_module_class_assignment() -> None:
    m = types.ModuleType("m")

    class Sub(types.ModuleType):
        pass

    holder = Plain()
    holder.m = m  # type: ignore[attr-defined]
    program = program_of(lambda g: g.b.guard("type", g.attr(g.arg(), "m"), key=types.ModuleType), holder)
    m.__class__ = Sub
    assert not passes(program, holder)


# --- dicts -----------------------------------------------------------------------------------------------------------


def test_unrelated_changes_of_a_dict_pass_and_are_cheap() -> None:
    o = Plain()
    o.x = 1  # type: ignore[attr-defined]
    o.child = Plain()  # type: ignore[attr-defined]
    o.child.y = 2  # type: ignore[attr-defined]

    def write(g: Guards) -> None:
        g.b.guard("type", g.arg(), key=Plain)
        g.b.guard("equals", g.attr(g.arg(), "x"), key=1)
        g.b.guard("equals", g.attr(g.attr(g.arg(), "child"), "y"), key=2)

    program = program_of(write, o)
    misses = program.misses
    for i in range(100):
        o.unrelated = i  # type: ignore[attr-defined]
        assert program.check((o,)) is not None
        setattr(o, f"more{i}", i)
        assert program.check((o,)) is not None
    assert program.misses == misses
    o.child.y = 3  # type: ignore[attr-defined]
    o.unrelated = -1  # type: ignore[attr-defined]
    assert not passes(program, o)


def test_deleted_and_added_again() -> None:
    o = Plain()
    o.x = 1  # type: ignore[attr-defined]
    program = program_of(lambda g: g.b.guard("equals", g.attr(g.arg(), "x"), key=1), o)
    del o.x  # type: ignore[attr-defined]
    assert not passes(program, o)
    assert program.explain((o,))[2] == "missing"
    o.x = 1  # type: ignore[attr-defined]
    assert passes(program, o)
    o.__dict__ = {"x": 2}
    assert not passes(program, o)
    o.__dict__ = {"x": 1}
    assert passes(program, o)
    o.__dict__.clear()
    assert not passes(program, o)


def test_dict_is_made_on_first_walk() -> None:
    o = Plain()
    o.x = 1  # type: ignore[attr-defined]  # kept inline so far
    program = program_of(lambda g: g.b.guard("equals", g.attr(g.arg(), "x"), key=1), o)
    for _ in range(20):
        p = Plain()
        p.x = 1  # type: ignore[attr-defined]
        assert passes(program, p)
        p.x = 2  # type: ignore[attr-defined]
        assert not passes(program, p)


def test_keys_that_would_run_python_code() -> None:
    class Evil:
        def __init__(self, value: str) -> None:
            self.value = value

        def __hash__(self) -> int:
            return hash(self.value)

        def __eq__(self, other: object) -> bool:
            raise AssertionError("a guard ran user code")

    program = program_of(lambda g: g.b.guard("equals", g.path(g.arg(), ("item", "k")), key=1), {"k": 1})
    evil = {Evil("k"): 5}
    evil[Plain] = 1
    assert not passes(program, evil)
    lacks = program_of(lambda g: g.b.guard("lacks", g.arg(), key="k"), {})
    assert not passes(lacks, evil)
    assert passes(lacks, {Evil("other"): 1})


def test_keys_of_other_types() -> None:
    key = Plain()

    class Color(__import__("enum").Enum):
        RED = 1

    for k in (1, 1.5, None, True, (1, "a"), key, int, Color.RED, torch.float32, print):
        d = {k: "v", "other": 1, 77: 2}
        program = program_of(lambda g, k=k: g.b.guard("equals", g.path(g.arg(), ("item", k)), key="v"), d)
        d[k] = "w"
        assert not passes(program, d)
        d[k] = "v"
        assert passes(program, d)
        del d[k]
        assert not passes(program, d)


def test_equal_keys_of_different_types() -> None:
    program = program_of(lambda g: g.b.guard("equals", g.path(g.arg(), ("item", 1)), key="v"), {True: "v"})
    assert passes(program, {1.0: "v"})
    assert not passes(program, {2: "v"})


def test_large_dicts_and_collisions() -> None:
    for n in (10, 200, 40000):
        d: dict[Any, Any] = {i * 1024: i for i in range(n)}
        d.update({f"k{i}": i for i in range(n)})
        program = program_of(
            lambda g, n=n: [
                g.b.guard("equals", g.path(g.arg(), ("item", key)), key=n - 1)
                for key in ((n - 1) * 1024, f"k{n - 1}")
            ],
            d,
        )
        del d[0]
        assert passes(program, d)
        d[f"k{n - 1}"] = None
        assert not passes(program, d)


def test_dict_subclasses() -> None:
    class D(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: object) -> object:
            raise AssertionError("a guard ran user code")

    d = D(a=1)
    program = program_of(lambda g: g.b.guard("equals", g.path(g.arg(), ("item", "a")), key=1), d)
    d["a"] = 2
    assert not passes(program, d)


def test_main_globals_that_change_at_every_call() -> None:
    module = types.ModuleType("script")
    exec("def helper(): return n\nn = 1", module.__dict__)
    f = module.helper

    def write(g: Guards) -> None:
        g.b.guard("type", g.arg(), key=types.FunctionType)
        where = g.path(g.arg(), ("globals", None))
        g.b.guard("is", g.path(where, ("item", "helper")), key=f)
        g.b.guard("equals", g.path(where, ("item", "n")), key=1)

    program = program_of(write, f)
    misses = program.misses
    for i in range(1000):
        module.loop_variable = i
        assert program.check((f,)) is not None
    assert program.misses == misses
    module.n = 2
    assert not passes(program, f)


# --- addresses used again --------------------------------------------------------------------------------------------


def recycled(make: Any, address: int) -> Any:
    """An object of `make` at `address`, or None if the allocator does not play along."""
    kept = []
    for _ in range(2000):
        candidate = make()
        if id(candidate) == address:
            return candidate
        kept.append(candidate)
    return None


@pytest.mark.parametrize("where", ["list", "dict", "attribute", "argument"])
def test_recycled_addresses(where: str) -> None:
    """The guarded object dies and another takes its address: only its state may be trusted."""

    def make(x: int) -> Any:
        o = Plain()
        o.x = x  # type: ignore[attr-defined]
        o.__dict__
        return o

    def put(o: Any) -> Any:
        if where == "list":
            holder[0] = o
        elif where == "dict":
            holder["o"] = o
        elif where == "attribute":
            holder.o = o

    holder: Any = {"list": [None], "dict": {}, "attribute": Plain(), "argument": None}[where]
    steps = {
        "list": [("list", 0)],
        "dict": [("item", "o")],
        "attribute": [("dict", None), ("item", "o")],
        "argument": [],
    }[where]
    hits = 0
    for _ in range(50):
        o = make(1)
        put(o)

        def write(g: Guards) -> None:
            s = g.path(g.arg(), *steps)
            g.b.guard("type", s, key=Plain)
            g.b.guard("equals", g.attr(s, "x"), key=1)

        program = program_of(write, o if where == "argument" else holder)
        address = id(o)
        put(None)
        del o
        o = recycled(lambda: make(2), address)
        if o is None:
            continue
        hits += 1
        put(o)
        assert not passes(program, o if where == "argument" else holder)
        o.x = 1
        assert passes(program, o if where == "argument" else holder)
    if hits == 0:
        pytest.skip("the allocator does not use addresses again (a sanitizer)")


def test_recycled_floats_in_a_list() -> None:
    hits = 0
    for i in range(100):
        values = [float(i) + 0.5]
        program = program_of(
            lambda g, v=values: g.b.guard("equals", g.path(g.arg(), ("list", 0)), key=float(i) + 0.5), values
        )
        address = id(values[0])
        values[0] = None  # type: ignore[call-overload]
        other = recycled(lambda: float(i) + 0.25, address)
        hits += other is not None
        values[0] = other if other is not None else -1.0
        assert not passes(program, values)
    # The memo owns what it compares by value, so the address can't come back while it counts.


def test_element_replaced_by_another_kind_at_its_address() -> None:
    for _ in range(50):
        inner = [1, 2, 3]
        holder = Plain()
        holder.l = inner  # type: ignore[attr-defined]

        def write(g: Guards) -> None:
            s = g.attr(g.arg(), "l")
            g.b.guard("type", s, key=list)
            g.b.guard("equals", g.path(s, ("list", 2)), key=3)

        program = program_of(write, holder)
        address = id(inner)
        holder.l = None  # type: ignore[attr-defined]
        del inner
        other = recycled(lambda: collections.deque(), address) or recycled(lambda: {}, address) or ()
        holder.l = other  # type: ignore[attr-defined]
        assert not passes(program, holder)


def test_lists_that_shrink_grow_and_move() -> None:
    values: list[Any] = list(range(10))
    program = program_of(lambda g: g.b.guard("equals", g.path(g.arg(), ("list", 9)), key=9), values)
    values.append(5)
    assert passes(program, values)
    values.extend(range(10000))
    assert passes(program, values)
    del values[5:]
    assert not passes(program, values)
    values.clear()
    assert not passes(program, values)
    values.extend(range(10))
    assert passes(program, values)
    values[9] = 9.0
    assert not passes(program, values)


def test_fresh_containers_at_every_call() -> None:
    def write(g: Guards) -> None:
        s = g.arg()
        g.b.guard("type", s, key=dict)
        for name in ("a", "b"):
            e = g.path(s, ("item", name))
            g.b.guard("type", e, key=torch.Tensor)
            g.b.tensor(e, torch.zeros(2, 3))

    program = program_of(write, {"a": torch.zeros(2, 3), "b": torch.zeros(2, 3)})
    for _ in range(100):
        assert passes(program, {"a": torch.ones(2, 3), "b": torch.ones(2, 3)})
    assert not passes(program, {"a": torch.ones(2, 3), "b": torch.ones(3, 3)})
    assert not passes(program, {"a": torch.ones(2, 3)})
    assert not passes(program, {"a": torch.ones(2, 3), "b": None})


# --- tensors ---------------------------------------------------------------------------------------------------------


def test_tensor_metadata_of_arguments() -> None:
    x = torch.zeros(2, 3)

    def write(g: Guards) -> None:
        g.b.tensor(g.arg(), x)

    program = program_of(write, x)
    assert passes(program, torch.ones(2, 3))
    for other in (
        torch.zeros(3, 2),
        torch.zeros(3, 2).t(),
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(2, 3, requires_grad=True),
        torch.zeros(2, 3, requires_grad=True) * 2,
        torch.nn.Parameter(torch.zeros(2, 3), requires_grad=False),
        torch.zeros(2, 3, device="meta"),
        torch.zeros(2, 3).to_sparse(),
        torch.zeros(6),
        torch.zeros(1, 2, 3),
        3,
        None,
        [x],
    ):
        assert not passes(program, other), other
    rank = program_of(lambda g: g.b.tensor(g.arg(), x, sizes=False), x)
    assert passes(rank, torch.zeros(5, 7))
    assert not passes(rank, torch.zeros(5))


def linear_program(model: torch.nn.Module) -> Any:
    g = Guards()
    tree = guard_trees.TreeGuards(g.b)
    tree.module(g.arg(), model)
    g.b.global_state()
    program = g.b.build()
    assert passes(program, model)
    return program, tree


def test_parameters() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.BatchNorm1d(8))
    program, _ = linear_program(model)
    with torch.no_grad():
        model[0].weight.add_(1)
    assert passes(program, model)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(state)
    assert passes(program, model)
    model.load_state_dict(state, assign=True)
    assert passes(program, model), "other parameters with the same metadata"
    model[0].weight = torch.nn.Parameter(torch.zeros(8, 4))
    assert passes(program, model)
    model[0].weight.data = torch.zeros(9, 4)
    assert not passes(program, model)
    assert "weight" in program.explain((model,))[1]
    model[0].weight.data = torch.zeros(8, 4)
    assert passes(program, model)
    model[0].weight.requires_grad_(False)
    assert not passes(program, model)
    model[0].weight.requires_grad_(True)
    assert passes(program, model)
    model.double()
    assert not passes(program, model)
    model.float()
    assert passes(program, model)
    del model[0].bias
    assert not passes(program, model)


def test_gradients_and_optimizers_do_not_matter() -> None:
    model = torch.nn.Linear(4, 4)
    program, _ = linear_program(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert passes(program, model)


def test_modules() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 4)))
    program, _ = linear_program(model)

    def changed(change: Any, undo: Any) -> None:
        change()
        assert not passes(program, model)
        undo()
        assert passes(program, model)

    handles: list[Any] = []
    changed(model.train, model.train) if not model.training else changed(model.eval, model.train)
    inner = model[1][0]
    changed(
        lambda: handles.append(inner.register_forward_hook(lambda *a: None)),
        lambda: handles.pop().remove(),
    )
    changed(
        lambda: handles.append(inner.register_full_backward_hook(lambda *a: None)),
        lambda: (handles.pop().remove(), inner.__dict__.update(_is_full_backward_hook=None)),
    )
    changed(lambda: setattr(inner, "forward", print), lambda: delattr(inner, "forward"))
    changed(lambda: model.append(torch.nn.ReLU()), lambda: model._modules.pop("2"))
    other = torch.nn.Linear(4, 4)
    model[1][0] = other
    assert passes(program, model), "a module with the same state"
    changed(lambda: model[1].__setitem__(0, torch.nn.ReLU()), lambda: model[1].__setitem__(0, other))
    model.note = "unrelated"
    assert passes(program, model)
    torch.nn.Linear.extra = 1  # type: ignore[attr-defined]
    try:
        assert not passes(program, model)
    finally:
        del torch.nn.Linear.extra


def test_global_state() -> None:
    program, _ = linear_program(torch.nn.Linear(2, 2))
    model = torch.nn.Linear(2, 2)
    assert passes(program, model)
    with torch.no_grad():
        assert not passes(program, model)
    with torch.autocast("cpu"):
        assert not passes(program, model)
    assert passes(program, model)


# --- later blocks ----------------------------------------------------------------------------------------------------


def test_block_after_an_opaque_step() -> None:
    o = Plain()
    o.x = 1  # type: ignore[attr-defined]
    g = Guards()
    a = g.arg()
    g.b.guard("type", a, key=Plain)
    d = g.path(a, ("dict", None))
    x0 = g.b.source("item", d, key="x")
    g.b.guard("equals", x0, key=1)
    x1 = g.b.source("item", d, key="x", block=1)
    g.b.guard("equals", x1, key=2, block=1)
    value = g.b.source("value", index=1, block=1)
    g.b.guard("type", value, key=list, block=1)
    element = g.b.source("list", value, index=0, block=1)
    g.b.guard("equals", element, key="r", block=1)
    g.b.guard("length", a, number=0, block=2)
    program = g.b.build()
    assert program.pinned == [d, a]
    for _ in range(3):
        assert program.check((o,)) is not None
        assert program.check((o,), 1, [None, ["r"]]) is None
        o.x = 2  # type: ignore[attr-defined]
        slots = program.check((o,), 1, [None, ["r"]])
        assert slots is not None and slots[x1] == 2 and slots[element] == "r"
        assert program.check((o,), 1, [None, ["q"]]) is None
        assert program.check((o,), 1, [None, ()]) is None
        assert program.check((o,), 2) is None
        o.x = 1  # type: ignore[attr-defined]


# --- robustness ------------------------------------------------------------------------------------------------------


def test_wrong_kinds_of_parents_fail_without_a_crash() -> None:
    sources = (
        ("dict", None),
        ("item", "x"),
        ("list", 0),
        ("tuple", 0),
        ("list", -1),
        ("member", Slotted.__dict__["a"]),
        ("getset", types.FunctionType.__dict__["__name__"]),
        ("cell", None),
        ("closure", 0),
        ("defaults", None),
        ("kwdefaults", None),
        ("globals", None),
        ("builtins", None),
        ("func", None),
        ("self", None),
        ("partial", 0),
        ("partial", 9),
    )
    values = (
        None,
        1,
        "s",
        [],
        (),
        {},
        set(),
        Slotted(),
        functools.partial(print),
        Plain,
        5.5,
        object(),
        torch.zeros(1),
    )
    for step in sources:
        g = Guards()
        g.b.guard("type", g.path(g.arg(), step, ("type", None)), key=Plain)
        program = g.b.build()
        for value in values:
            assert not passes(program, value), (step, value)
            program.explain((value,))


def test_reference_counts_are_untouched() -> None:
    model = torch.nn.Linear(3, 3)
    program, _ = linear_program(model)
    objects = [model, model.__dict__, model._parameters, model.weight, model.bias, model._forward_hooks]
    before = [sys.getrefcount(o) for o in objects]
    for i in range(50):
        model.n = i  # type: ignore[assignment]
        assert program.check((model,)) is not None
        model.train(False)
        assert program.check((model,)) is None
        program.explain((model,))
        model.train()
    assert [sys.getrefcount(o) for o in objects] == before


def test_programs_do_not_keep_user_objects_alive() -> None:
    import weakref

    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    program, _ = linear_program(model)
    alive = weakref.ref(model[0]), weakref.ref(model[0].weight)
    del model
    gc.collect()
    assert [a() for a in alive] == [None, None]
    assert program.check((torch.nn.Sequential(torch.nn.ReLU()),)) is None
    other = torch.nn.Sequential(torch.nn.Linear(3, 3))
    assert passes(program, other)


def test_slots_are_the_objects() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    program, tree = linear_program(model)
    for _ in range(3):
        slots = program.check((model,))
        assert slots[tree.sources["self"]] is model
        assert slots[tree.sources["self.0"]] is model[0]
        assert slots[tree.sources["self.1.weight"]] is model[1].weight
        model[1].weight = torch.nn.Parameter(torch.ones(3, 3))


def test_a_very_long_chain() -> None:
    head = Plain()
    g = Guards()
    s, o = g.arg(), head
    for _ in range(5000):
        s = g.attr(s, "next")
        o.next = Plain()  # type: ignore[attr-defined]
        o = o.next  # type: ignore[attr-defined]
    g.b.guard("type", s, key=Plain)
    program = g.b.build()
    assert passes(program, head)
    o.__class__ = Other
    assert not passes(program, head)


def test_bert_and_qwen2() -> None:
    pytest.importorskip("transformers")
    for model in (guard_trees.bert(2), guard_trees.qwen2(2)):
        program, _ = linear_program(model)
        for _ in range(3):
            assert passes(program, model)
        assert program.misses == 1
        model.train()
        assert not passes(program, model)
        model.eval()
        assert passes(program, model)
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        assert not passes(program, model)
