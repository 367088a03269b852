"""Classes that a compiled function makes: class statements and type(name, bases, dict).

Such a class is no part of the heap as long as it does not leave the trace, and is built where it does. A class is
another one in each call, so the cases compare what it says, and what its instances do, never which one it is.
"""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
import torch
from harness import Case, Suite, check, check_captured, compile_for_test

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


class Plugin:
    made: list[str] = []

    def __init_subclass__(cls, tag="none", **keywords):
        super().__init_subclass__(**keywords)
        cls.tag = tag
        Plugin.made.append(tag)

    def run(self, x):
        return x + len(self.tag)


class Named:
    def __set_name__(self, owner, name):
        self.owner = owner.__name__
        self.name = name

    def __get__(self, obj, owner=None):
        return self if obj is None else f"{self.owner}.{self.name}"


class Base:
    scale = 2

    def __init__(self, k):
        self.k = k

    def apply(self, x):
        return x * self.k * self.scale

    @classmethod
    def make(cls, k):
        return cls(k)


def described(cls):
    """What a class says of itself."""
    return (
        cls.__name__,
        cls.__qualname__,
        cls.__module__,
        cls.__doc__,
        [base.__name__ for base in cls.__mro__],
        [name for name in vars(cls)],
        type(cls).__name__,
    )


@case()
def instance_is_returned(x):
    class Local(Base):
        """Of the function."""

        def apply(self, v):
            return super().apply(v) + 1

    made = Local(x)
    return made.apply(x), made


@case()
def class_is_described(x):
    class Local(Base):
        """Of the function."""

        a = 1
        b: int = 2

        def apply(self, v):
            return super().apply(v)

        @property
        def p(self):
            return 1

    Local.later = 3
    return x + Local.later, *described(Local)


@case()
def several_methods_share_the_cell(x):
    class Local(Base):
        def apply(self, v):
            return super().apply(v), __class__.__name__

        def other(self, v):
            return super().apply(v + 1)

    one = Local(2)
    return one.apply(x), one.other(x), one


@case()
def method_is_kept(x):
    class Local(Base):
        def apply(self, v):
            return super().apply(v) + 1

    apply = Local(3).apply
    return [apply(x), (lambda: apply(x + 1))()]


@case()
def accessors(x):
    class Local:
        count = 0

        def __init__(self, v):
            self._v = v

        @property
        def v(self):
            return self._v

        @v.setter
        def v(self, value):
            self._v = value + 1

        @staticmethod
        def twice(value):
            return value * 2

        @classmethod
        def of(cls, value):
            cls.count = cls.count + 1
            return cls(value)

    made = Local.of(x)
    made.v = x * 3
    return Local.twice(made.v), Local.count, made.count


@case()
def class_attributes(x):
    class Local:
        items = [1]
        tensor = x * 2
        size = x.shape[0]

        def add(self, value):
            self.items.append(value)
            return self.tensor + len(self.items) + self.size

    first, second = Local(), Local()
    return first.add(x), second.add(2), Local.items, first.items is second.items, Local.tensor


@case()
def number_of_the_run(x):
    class Local:
        n = x.sum().item()

        def get(self):
            return self.n * 2

    class Further(Local):
        def get(self):
            return super().n + super().get()

    return Local().get(), Further().get(), Local.n


@case()
def slots(x):
    class Local:
        __slots__ = ("a", "b")

        def __init__(self, a):
            self.a = a

    made = Local(x + 1)
    try:
        made.c = 1
    except AttributeError as e:
        message = str(e)
    return made.a, hasattr(made, "b"), message


@case()
def closures(x):
    total = 0

    class Local:
        def add(self, v):
            nonlocal total
            total = total + v
            return self

        def get(self):
            return total + y

    y = x * 3
    return Local().add(x).add(2).get(), total


@case()
def told_bases(x):
    before = len(Plugin.made)

    class First(Plugin, tag="first"):
        pass

    class Second(First):
        def run(self, v):
            return super().run(v) * 2

    del Plugin.made[before:]
    return First().run(x), Second().run(x), First.tag, Second.tag


@case()
def told_bases_and_returned(x):
    class First(Plugin, tag="first"):
        field = Named()

        def run(self, v):
            return super().run(v)

    made = First()
    Plugin.made.clear()
    return made.run(x), made.field, First.field.name, made


@case()
def registered(x):
    registry = {}

    def register(cls):
        registry[cls.__name__] = cls
        return cls

    @register
    class Add:
        def run(self, v):
            return v + 1

    @register
    class Mul:
        def run(self, v):
            return v * 2

    for cls in registry.values():
        x = cls().run(x)
    return x, [name for name in registry]


@case()
def in_a_loop(x):
    made = []
    for k in range(3):

        class Local:
            factor = k

            def run(self, v, k=k):
                return v * self.factor + k

        made.append(Local())
    return [one.run(x) for one in made], len({type(one) is type(made[0]) for one in made})


@case()
def questions(x):
    class Local(Base):
        pass

    class Other:
        pass

    made = Local(1)
    return (
        x + 1,
        isinstance(made, Local),
        isinstance(made, Base),
        isinstance(x, Local),
        isinstance(made, (Other, Local)),
        issubclass(Local, Base),
        issubclass(Local, Other),
        type(made) is Local,
        made.__class__ is Local,
        type(made) == Other,  # noqa: E721
        Local.__name__,
        type(made).__name__,
        callable(Local),
    )


@case()
def body_with_code(x):
    class Local:
        table = {}
        for i in range(3):
            table[i] = i * i
        squares = [v for v in table.values()]
        if len(squares) > 2:
            big = True
        else:
            big = False
        del i
        first: int
        second: int = 5

    made = Local()
    return x + made.squares[2], made.big, Local.__annotations__, hasattr(Local, "i"), Local.second


@case(inputs=lambda call: (torch.ones(3) * (1 if call % 2 else -1),), traces=None)
def exit_in_a_method(x):
    class Local(Base):
        def apply(self, v):
            if v.sum() > 0:
                return super().apply(v) + 1
            self.k = 5
            return super().apply(v) - 1

    made = Local(2)
    y = made.apply(x)
    return y, made.k, isinstance(made, Local), Local.__name__, made


@case(inputs=lambda call: (torch.ones(3) * (1 if call % 2 else -1),), traces=None)
def exit_while_others_hold_it(x):
    class Local(Base):
        pass

    made = Local(2)
    print(made.k, len(repr(made)) > 3)
    if x.sum() > 0:
        return made.apply(x), isinstance(made, Local)
    return made.apply(x) - 1, type(made) is Local


@case()
def body_raises(x):
    try:

        class Local:
            a = 1
            b = 1 // 0
    except ZeroDivisionError as e:
        return x + 1, str(e)


@case()
def bases_do_not_fit(x):
    class A:
        pass

    class B(A):
        pass

    try:

        class C(A, B):
            pass
    except TypeError as e:
        return x + 1, str(e).split("\n")[0]


@case()
def made_by_type(x):
    def run(self, v):
        return v * self.n

    made = type("Made", (Base,), {"n": 3, "run": run})
    one = made(2)
    return one.run(x), one.apply(x), made.__module__, made.__qualname__, one


@case()
def operators(x):
    class Wrapped:
        def __init__(self, t):
            self.t = t

        def __add__(self, other):
            return Wrapped(self.t + (other.t if isinstance(other, Wrapped) else other))

        __radd__ = __add__

        def __eq__(self, other):
            return self.t is other.t

        def __getitem__(self, i):
            return self.t[i]

        def __len__(self):
            return 3

        def __iter__(self):
            yield self.t
            yield self.t + 1

        def __call__(self, v):
            return self.t * v

        def __enter__(self):
            return self.t

        def __exit__(self, *exc):
            return True

    w = Wrapped(x)
    with w as t:
        raise ValueError
    return (1 + (w + w) + 2).t, w == w, w[0], len(w), [*w], w(2), t


@case(breaks=None, traces=None)
def metaclass(x):
    class Meta(type):
        pass

    class Local(Base):
        pass

    return Local(1).apply(x), Meta.__name__


@case(breaks=None, traces=None)
def instance_of_a_metaclass(x):
    class Meta(type):
        def __call__(cls, *args):
            return super().__call__(*args)

    class Local(metaclass=Meta):
        def run(self, v):
            return v + 1

    return Local().run(x)


@case()
def getattr_hooks(x):
    class Local:
        known = 1

        def __getattr__(self, name):
            return len(name)

        def __setattr__(self, name, value):
            object.__setattr__(self, name, value + 1)

    made = Local()
    made.a = 1
    return x + made.a, made.abc, made.known


@case(breaks=None, traces=None)
def own_exceptions(x):
    class Wrong(ValueError):
        pass

    try:
        raise Wrong("no")
    except ValueError as e:
        return x + 1, str(e), type(e).__name__


@case()
def new_in_python(x):
    class Local:
        def __new__(cls, k):
            made = super().__new__(cls)
            made.k = k
            return made

        def __init__(self, k):
            self.more = k + 1

    made = Local(1)
    return x + made.k + made.more, made


@case()
def subclass_of_a_module(x):
    class Scale(torch.nn.Module):
        def forward(self, v):
            return v * 2

    return Scale.__name__, Scale.forward(None, x)


@case()
def holds_itself(x):
    class Node:
        def __init__(self, value, following=None):
            self.value, self.following = value, following

        def total(self):
            rest = self.following.total() if self.following is not None else 0
            return self.value + rest

    Node.empty = Node(0)
    return Node(x, Node(x + 1, Node.empty)).total(), Node.empty.value


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)


def returned(x):
    class Local(Base):
        """Doc."""

        field = Named()
        extra = 1

        def apply(self, v):
            return super().apply(v)

        def name(self):
            return __class__.__name__

    Local.later = 2
    return Local, Local(x)


def test_a_class_that_is_returned_is_like_eagers() -> None:
    """Also: each call has one of its own, and nobody holds the one of the recording."""
    compiled = compile_for_test(returned)
    x = torch.ones(2)
    seen = set()
    for _ in range(3):
        (cls, made), (eager, _) = compiled(x), returned(x)
        assert described(cls) == described(eager)
        assert type(made) is cls and cls.__bases__ == (Base,) and cls in Base.__subclasses__()
        assert cls.apply.__closure__[0].cell_contents is cls and cls.name.__closure__ == cls.apply.__closure__
        assert made.name() == "Local" and made.later == 2 and made.field == "Local.field"
        assert torch.equal(made.apply(x), returned(x)[1].apply(x))
        assert id(cls) not in seen
        seen.add(id(cls))
        keep = weakref.ref(cls), sys.getrefcount(cls)
    assert keep[1] == sys.getrefcount(eager)
    assert compiled.stats().misses == 1
    cls = made = eager = _ = None
    gc.collect()
    assert keep[0]() is None


def test_subclasses_in_the_trace() -> None:
    """A class that only its base knows is found there."""

    def names(x):
        class Unseen(Base):
            pass

        found = [cls for cls in Base.__subclasses__() if cls.__name__ == "Unseen"]
        return x + 1, Unseen in found

    compiled = compile_for_test(names)
    for _ in range(3):
        assert compiled(torch.ones(2))[1]


@pytest.mark.parametrize("how", ["value", "property"])
def test_what_a_class_is_made_with_is_guarded(how: str) -> None:
    class Changing:
        n = 1

    def f(x):
        class Local(Changing):
            def run(self, v):
                return v + self.n

        return Local().run(x)

    compiled = compile_for_test(f)
    x = torch.zeros(2)
    assert compiled(x).tolist() == [1, 1]
    if how == "value":
        Changing.n = 5
    else:
        Changing.n = property(lambda self: 5)
    assert compiled(x).tolist() == [5, 5]
