"""Programs as users write them: classes of many kinds. See test_user_programs.py."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import types
import typing

import torch
import torch.nn.functional as F
from torch import nn
from user_programs import prog


@prog
def single_dispatch_types():
    @functools.singledispatch
    def enc(x):
        raise TypeError(f"no {type(x).__name__}")

    @enc.register
    def _(x: int):
        return torch.tensor([float(x)])

    @enc.register
    def _(x: str):
        return torch.tensor([float(len(x))])

    @enc.register(list)
    def _(x):
        return torch.cat([enc(v) for v in x])

    @enc.register(torch.Tensor)
    def _(x):
        return x.flatten()

    def step(vals):
        try:
            return torch.cat([enc(v) for v in vals])
        except TypeError as e:
            return str(e)

    vs = [[1, "abc", torch.ones(2)], [[1, 2, ["x"]], 3], [1, 2.5], ["hello", 7]]
    return step, lambda i: (vs[i % 4],)


@prog
def proxy_getattr():
    class Proxy:
        def __init__(self, m):
            object.__setattr__(self, "_m", m)
            object.__setattr__(self, "_n", 0)

        def __getattr__(self, k):
            object.__setattr__(self, "_n", self._n + 1)
            return getattr(self._m, k)

        def __setattr__(self, k, v):
            setattr(self._m, k, v)

        def __call__(self, *a, **k):
            return self._m(*a, **k)

    m = nn.Linear(3, 2)
    p = Proxy(m)

    def step(x):
        p.tag = f"t{x.shape[0]}"
        y = p(x) + p.bias
        return y, p.tag, p._n, p.weight.shape

    return step, lambda i: (torch.randn(2 + i % 2, 3),)


@prog
def tensor_function_subclass():
    class Logged:
        log = []

        def __init__(self, t):
            self.t = t

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.log.append(func.__name__)
            un = lambda a: a.t if isinstance(a, cls) else a
            r = func(*[un(a) for a in args], **{k: un(v) for k, v in (kwargs or {}).items()})
            return cls(r) if isinstance(r, torch.Tensor) else r

    def step(x):
        a = Logged(x)
        b = torch.add(a, 1)
        c = torch.mul(b, x)
        return c.t, list(Logged.log)[-4:]

    return step, lambda i: (torch.randn(3),)


@prog
def tensor_subclass():
    class Named(torch.Tensor):
        pass

    def step(x):
        t = x.as_subclass(Named)
        t.label = "in"
        u = (t * 2 + 1).relu()
        return type(u).__name__, u.as_subclass(torch.Tensor), t.label, hasattr(u, "label")

    return step, lambda i: (torch.randn(3),)


@prog
def named_outputs():
    class Out(typing.NamedTuple):
        loss: torch.Tensor
        logits: torch.Tensor | None = None
        extra: dict = {}

    lin = nn.Linear(4, 3)

    def step(x, y):
        lo = lin(x)
        o = Out(F.cross_entropy(lo, y), lo)
        if o.loss > 1.1:
            o = o._replace(extra={"hard": True})
        l, g, e = o
        return o._asdict(), l, e, Out._fields, o[1:2]

    return step, lambda i: (torch.randn(4, 4), torch.randint(0, 3, (4,)))


@prog
def ordered_output_dataclass():
    @dataclasses.dataclass
    class MO(collections.OrderedDict):
        a: torch.Tensor = None
        b: torch.Tensor = None

        def __post_init__(self):
            for f in dataclasses.fields(self):
                v = getattr(self, f.name)
                if v is not None:
                    self[f.name] = v

        def to_tuple(self):
            return tuple(self[k] for k in self.keys())

    def step(x, both):
        o = MO(a=x + 1, b=x * 2 if both else None)
        return o.to_tuple(), list(o), len(o), "b" in o

    return step, lambda i: (torch.randn(3), i % 2 == 0)


@prog
def abc_plugins():
    class Base(abc.ABC):
        reg = []

        def __init_subclass__(cls, **kw):
            super().__init_subclass__()
            Base.reg.append(cls)
            cls.scale = kw.get("scale", 1)

        @abc.abstractmethod
        def run(self, x): ...
        @property
        def name(self):
            return type(self).__name__.lower()

    class A(Base, scale=2):
        def run(self, x):
            return x * self.scale

    class B(Base):
        def run(self, x):
            return super().run(x) or x + self.scale

    def step(x):
        out = {}
        for c in Base.reg:
            o = c()
            x = o.run(x)
            out[o.name] = x
        try:
            Base()
        except TypeError as e:
            out["err"] = str(e)[:20]
        return out

    return step, lambda i: (torch.randn(3),)


@prog
def metaclass_meta():
    class Meta(type):
        count = 0

        def __call__(cls, *a, **k):
            Meta.count += 1
            o = super().__call__(*a, **k)
            o.serial = Meta.count
            return o

        def __len__(cls):
            return Meta.count

    class P(metaclass=Meta):
        def __init__(self, t):
            self.t = t

        def __matmul__(self, o):
            return P(self.t @ o.t)

    def step(a, b):
        p = P(a) @ P(b)
        return p.t, p.serial, len(P)

    return step, lambda i: (torch.randn(2, 3), torch.randn(3, 2))


@prog
def method_swap():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(3, 3)

        def forward(self, x):
            return self.l(x)

    m = Net()
    orig = m.forward

    def noisy(self, x):
        return orig(x) + 0.1 * torch.randn(3)

    def step(x, noise):
        if noise:
            m.forward = types.MethodType(noisy, m)
        elif "forward" in m.__dict__:
            del m.forward
        return m(x)

    return step, lambda i: (torch.randn(2, 3), (i // 2) % 2 == 1)


@prog
def property_setter_state():
    class T:
        def __init__(self):
            self._lr = 0.1
            self.changes = 0

        @property
        def lr(self):
            return self._lr

        @lr.setter
        def lr(self, v):
            if v <= 0:
                raise ValueError(v)
            self._lr = v
            self.changes += 1

        @lr.deleter
        def lr(self):
            self._lr = 0.1

    t = T()

    def step(x, v):
        try:
            t.lr = v
        except ValueError as e:
            return str(e), t.changes
        y = x * t.lr
        if t.changes % 4 == 3:
            del t.lr
        return y, t.lr, t.changes

    return step, lambda i: (torch.randn(2), [0.5, -1, 0.25, 2.0, 0.125][i % 5])


@prog
def descriptor_validate():
    class Pos:
        def __set_name__(self, o, n):
            self.n = "_" + n

        def __get__(self, i, o=None):
            return self if i is None else getattr(i, self.n)

        def __set__(self, i, v):
            if (torch.as_tensor(v) < 0).any():
                raise ValueError(self.n)
            i.__dict__[self.n] = v

    class M:
        w = Pos()
        b = Pos()

        def __init__(self):
            self.w = torch.ones(2)
            self.b = 0

    m = M()

    def step(x):
        try:
            m.w = x
        except ValueError as e:
            m.b = m.b + 1
            return str(e), m.b
        return m.w * 2, m.b

    return step, lambda i: (torch.randn(2) + 1,)


@prog
def class_counters():
    class Layer(nn.Module):
        calls = 0
        instances = []

        def __init__(self, n):
            super().__init__()
            self.l = nn.Linear(n, n)
            Layer.instances.append(self)
            self.idx = len(Layer.instances)

        def forward(self, x):
            Layer.calls += 1
            type(self).last = self.idx
            return self.l(x) * (1 + 0.1 * self.idx)

    net = nn.Sequential(Layer(3), Layer(3))

    def step(x):
        return net(x), Layer.calls, Layer.last, len(Layer.instances)

    return step, lambda i: (torch.randn(2, 3),)


@prog
def enum_state_flag():
    class Mode(enum.Flag):
        NONE = 0
        A = enum.auto()
        B = enum.auto()
        C = A | B

    class S(str, enum.Enum):
        X = "x"
        Y = "y"

        @classmethod
        def parse(cls, s):
            return cls(s.lower())

    def step(x, m, s):
        m = Mode(m)
        if Mode.A in m:
            x = x + 1
        if m & Mode.B:
            x = x * 2
        st = S.parse(s)
        return x, m.name, st.value, st is S.X, f"{st}", [q.name for q in Mode]

    return step, lambda i: (torch.randn(2), i % 4, "XY"[i % 2])


@prog
def dataclass_replace():
    @dataclasses.dataclass(frozen=True, order=True)
    class C:
        k: int
        w: float = dataclasses.field(default=1.0, compare=False)
        t: tuple = ()

        def with_(self, **kw):
            return dataclasses.replace(self, **kw)

    best = [C(0)]

    def step(x, k):
        c = C(k).with_(w=float(x.max()), t=(k, k + 1))
        best[0] = max(best[0], c)
        try:
            c.k = 3
        except dataclasses.FrozenInstanceError as e:
            msg = str(e)
        return (
            x * c.w,
            dataclasses.astuple(best[0]),
            c == C(k),
            hash(C(k)) == hash(C(k)),
            msg,
            sorted([C(2), c, C(1)])[0].k,
        )

    return step, lambda i: (torch.randn(2), (i * 7) % 5)


@prog
def custom_container():
    class Ring:
        def __init__(self, n):
            self.d = [None] * n
            self.i = 0
            self.full = False

        def push(self, v):
            self.d[self.i] = v
            self.i = (self.i + 1) % len(self.d)
            self.full |= self.i == 0

        def __len__(self):
            return len(self.d) if self.full else self.i

        def __iter__(self):
            return iter(self.d if self.full else self.d[: self.i])

        def __getitem__(self, k):
            return self.d[(self.i - 1 - k) % len(self.d)]

        def __contains__(self, v):
            return any(v is q for q in self)

        def __bool__(self):
            return len(self) > 2

    r = Ring(4)

    def step(x):
        r.push(x)
        return torch.stack(list(r)).mean(0), len(r), r[1] if r else None, x in r, bool(r)

    return step, lambda i: (torch.randn(2),)
