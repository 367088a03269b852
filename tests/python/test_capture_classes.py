"""Classes inside and around compiled functions: attributes, descriptors, inheritance, dataclasses, enums."""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import enum
import functools
import types
import typing

import torch
from harness import Case, Suite, check, check_captured

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


class Base:
    scale = 2
    created = 0

    def __init__(self, k):
        self.k = k

    def apply(self, x):
        return x * self.k * self.scale

    @property
    def doubled(self):
        return self.k * 2

    @doubled.setter
    def doubled(self, value):
        self.k = value / 2

    @staticmethod
    def shift(x, n):
        return x + n

    @classmethod
    def make(cls, k):
        return cls(k + 1)

    def __repr__(self):
        return f"{type(self).__name__}({self.k})"


class Derived(Base):
    scale = 3

    def __init__(self, k, extra=0):
        super().__init__(k)
        self.extra = extra

    def apply(self, x):
        return super().apply(x) + self.extra


class Multiplied(Derived):
    def __init_subclass__(cls, factor=1, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.factor = factor


@case()
def instances_made_inside(x):
    return Base(3).apply(x)


@factory()
def make_instance_from_outside():
    obj = Base(1.5)
    return lambda x: obj.apply(x), obj


@case()
def properties(x):
    obj = Base(2)
    obj.doubled = 10
    return x * obj.doubled, obj.k


@case()
def static_and_class_methods(x):
    obj = Derived.make(3)
    return Base.shift(x, 1) + obj.shift(x, 2), obj


@case()
def super_calls(x):
    return Derived(2, extra=1).apply(x)


@case()
def bound_methods_as_values(x):
    apply = Base(2).apply
    methods = [apply, Derived(1).apply]
    return [m(x) for m in methods]


@case()
def unbound_method_call(x):
    return Base.apply(Derived(4), x)


@case()
def class_made_inside(x):
    class Local(Base):
        bias = 5

        def apply(self, v):
            return super().apply(v) + self.bias

    return Local(1).apply(x)


@case()
def class_with_keyword_argument(x):
    class Third(Multiplied, factor=3):
        pass

    return Third(1).apply(x) * Third.factor


@case()
def class_attribute_through_instance(x):
    obj = Base(1)
    before = obj.scale
    obj.scale = 10
    return obj.apply(x), before, Base.scale


class Dynamic:
    def __init__(self):
        self.known = 2

    def __getattr__(self, name):
        if name.startswith("x_"):
            return len(name)
        raise AttributeError(name)


@case()
def getattr_fallback(x):
    obj = Dynamic()
    return x * obj.known + obj.x_abc, hasattr(obj, "nope"), getattr(obj, "nope", 7)


class Intercepting:
    def __init__(self):
        object.__setattr__(self, "log", [])

    def __getattribute__(self, name):
        if name == "magic":
            return 11
        return object.__getattribute__(self, name)

    def __setattr__(self, name, value):
        self.log.append(name)
        object.__setattr__(self, name, value)


@case()
def getattribute_and_setattr(x):
    obj = Intercepting()
    obj.a = 1
    obj.b = 2
    return x * obj.magic, obj.log, obj.a + obj.b


class Descriptor:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, 1)

    def __set__(self, obj, value):
        setattr(obj, self.name, value * 2)


class Described:
    field = Descriptor()


@case()
def descriptors(x):
    obj = Described()
    before = obj.field
    obj.field = 4
    return x * obj.field, before


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@case()
def slots(x):
    obj = Slotted(3)
    try:
        missing = obj.b
    except AttributeError:
        missing = None
    obj.b = 4
    return x * obj.a + obj.b, missing


class Vector:
    def __init__(self, *v):
        self.v = v

    def __add__(self, other):
        return Vector(*(a + b for a, b in zip(self.v, other.v)))

    def __radd__(self, other):
        return Vector(*(other + a for a in self.v))

    def __mul__(self, k):
        return Vector(*(a * k for a in self.v))

    __rmul__ = __mul__

    def __neg__(self):
        return self * -1

    def __eq__(self, other):
        return isinstance(other, Vector) and self.v == other.v

    def __hash__(self):
        return hash(self.v)

    def __lt__(self, other):
        return self.v < other.v

    def __getitem__(self, i):
        return self.v[i]

    def __len__(self):
        return len(self.v)

    def __contains__(self, item):
        return item in self.v

    def __bool__(self):
        return any(self.v)

    def __call__(self, x):
        return x * self.v[0]

    def __iter__(self):
        return iter(self.v)


@case()
def operator_overloading(x):
    v = Vector(1, 2) + Vector(3, 4) * 2
    w = -(5 + v)
    return (
        v(x),
        list(w),
        len(v),
        v[1],
        7 in v,
        bool(Vector(0)),
        v == Vector(7, 10),
        sorted([v, w])[0].v,
        {v: 1}[v],
    )


@case()
def vectors_of_tensors(x):
    v = Vector(x, x + 1) + Vector(x, x)
    return [t.sum() for t in v]


class Callable2:
    def __init__(self, inner):
        self.inner = inner

    def __call__(self, x, *args):
        return self.inner(x, *args) + 1


@case()
def callable_instances(x):
    return Callable2(Callable2(torch.add))(x, 2)


@dataclasses.dataclass
class Point:
    a: float
    b: float = 2.0
    items: list = dataclasses.field(default_factory=list)

    def total(self):
        return self.a + self.b


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: torch.Tensor = dataclasses.field(compare=False, default=None)


@case()
def dataclasses_inside(x):
    p = Point(1.0)
    p.items.append(3)
    q = dataclasses.replace(p, a=5.0)
    return x * p.total(), q, p == Point(1.0, 2.0, [3]), dataclasses.asdict(p)


@case()
def dataclass_returned_with_tensor(x):
    return Point(x + 1, x), Frozen(1, x * 2)


@case()
def frozen_dataclass_refuses(x):
    f = Frozen(1)
    try:
        f.a = 2
    except dataclasses.FrozenInstanceError:
        return x + f.a, f < Frozen(2)
    return x


Pair = collections.namedtuple("Pair", "left right", defaults=(9,))


class Typed(typing.NamedTuple):
    x: torch.Tensor
    n: int = 4

    def scaled(self):
        return self.x * self.n


@case()
def named_tuples(x):
    p = Pair(x)
    t = Typed(x + 1)
    left, right = p
    return p, t.scaled(), p._replace(left=right).left, t._asdict()["n"], left is x


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Flags(enum.IntFlag):
    A = 1
    B = 2


@case()
def enums(x):
    color = Color(2)
    if color is Color.BLUE and Color["RED"] != color:
        x = x * color.value
    both = Flags.A | Flags.B
    return x + int(both), color.name, Flags.A in both, [c.name for c in Color]


class Abstract(abc.ABC):
    @abc.abstractmethod
    def run(self, x): ...


class Concrete(Abstract):
    def run(self, x):
        return x + 1


@case()
def abstract_classes(x):
    try:
        Abstract()
    except TypeError:
        pass
    return Concrete().run(x), isinstance(Concrete(), Abstract), issubclass(int, Abstract)


@case()
def type_tests(x):
    return (
        isinstance(x, torch.Tensor),
        isinstance(3, (str, int)),
        isinstance(True, int),
        issubclass(Derived, Base),
        type(Derived(1)) is Base,
        type(x) is torch.Tensor,
        callable(x),
        x + 1,
    )


@case()
def mro_diamond(x):
    class A:
        def f(self, v):
            return [*self.tag(), "A"], v

        def tag(self):
            return []

    class B(A):
        def tag(self):
            return [*super().tag(), "b"]

    class C(A):
        def tag(self):
            return [*super().tag(), "c"]

    class D(B, C):
        pass

    return D().f(x + 1), [c.__name__ for c in D.__mro__]


class Meta(type):
    def __call__(cls, *args):
        obj = super().__call__(*args)
        obj.marked = True
        return obj

    @property
    def label(cls):
        return cls.__name__.lower()


class WithMeta(metaclass=Meta):
    def __init__(self, n):
        self.n = n


@case()
def metaclasses(x):
    obj = WithMeta(3)
    return x * obj.n, obj.marked, WithMeta.label


class Created:
    def __new__(cls, n):
        obj = super().__new__(cls)
        obj.n = n * 2
        return obj

    def __init__(self, n):
        self.n += 1


@case()
def new_and_init(x):
    return x * Created(3).n


@case()
def dynamic_attributes(x):
    obj = types.SimpleNamespace(a=1)
    setattr(obj, "b", 2)
    obj.__dict__["c"] = 3
    del obj.a
    return x * obj.b * obj.c, vars(obj), hasattr(obj, "a")


class CachedProperty:
    def __init__(self):
        self.calls = 0

    @functools.cached_property
    def value(self):
        self.calls += 1
        return 7


@case()
def cached_property_inside(x):
    obj = CachedProperty()
    return x * obj.value * obj.value, obj.calls


@factory(traces=2)
def make_cached_property_outside():
    obj = CachedProperty()
    return lambda x: x * obj.value, obj


@factory()
def make_method_of_outer_instance():
    obj = Derived(2, extra=0.5)
    return obj.apply, obj


@factory(traces=3)  # the class's attribute, the instance's, then any number
def make_counter_attribute():
    obj = Base(1)

    def f(x):
        obj.created += 1
        return obj.apply(x)

    return f, obj


class Singledispatched:
    @functools.singledispatchmethod
    def f(self, v):
        return "other"

    @f.register
    def _(self, v: int):
        return "int"


# The first patch releases of CPython 3.13 keep the methods of a singledispatchmethod in a dict, by weak references to
# the objects. Later ones, and other versions, do not.
KEEPS_METHODS = hasattr(functools.singledispatchmethod(print), "_method_cache")


@case(traces=None if KEEPS_METHODS else 1, breaks=None)
def singledispatch(x):
    return Singledispatched().f(1), Singledispatched().f("s"), x + 1


class UserList(list):
    def total(self):
        return sum(self)


class UserDict(dict):
    def __missing__(self, key):
        self[key] = len(self)
        return self[key]


@case()
def subclasses_of_builtins(x):
    values = UserList([1, 2])
    values.append(3)
    d = UserDict()
    return x * values.total(), d["a"], d["b"], d["a"], d, values


@case()
def copies_of_objects(x):
    p = Point(1.0, items=[[1]])
    shallow, deep = copy.copy(p), copy.deepcopy(p)
    p.items[0].append(2)
    return x + 1, shallow, deep


@case()
def identity_tests(x):
    a = [1]
    b = a
    y = x
    return a is b, a is list(a), y is x, (x + 0) is x, type(a) is list


@case()
def same_object_twice_in_result(x):
    shared = [x + 1]
    return shared, shared, (shared, x)


class Lazy:
    """A descriptor in Python that is asked through classes, too."""

    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner=None):
        if instance is None:
            return (owner.__name__, self.function.__name__)
        value = self.function(instance)
        setattr(instance, self.function.__name__, value)
        return value


class WithLazy:
    def __init__(self, x):
        self.x = x

    @Lazy
    def doubled(self):
        return self.x * 2


@case()
def descriptor_of_a_class(x):
    found = WithLazy(x)
    name = getattr(WithLazy, "doubled")[1]
    before = "doubled" in found.__dict__
    return found.doubled + found.doubled, name, WithLazy.doubled, before, "doubled" in found.__dict__


# torch looks for the formula of two classes once in a process, by comparing classes in Python.
_NORMAL = torch.distributions.Normal(0.0, 1.0)
torch.distributions.kl_divergence(_NORMAL, _NORMAL)


@case(breaks=None)
def distributions(x):
    normal = torch.distributions.Normal(x, torch.ones_like(x))
    other = torch.distributions.Normal(torch.zeros_like(x), torch.ones_like(x))
    choice = torch.distributions.Categorical(logits=x)
    kl = torch.distributions.kl_divergence(normal, other)
    return normal.log_prob(x + 1).sum(), kl.mean(), choice.entropy(), choice.log_prob(choice.sample())


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)
