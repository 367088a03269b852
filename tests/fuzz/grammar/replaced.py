"""Code that is replaced while the program runs: functions' code and defaults, methods, classes of objects, globals,
names of builtins, closures' cells, modules' attributes."""

from __future__ import annotations

from .family import Family, parts, rows

PRELUDE = """
class Base:
    factor = 2
    def grow(self, v):
        return v * self.factor
    @property
    def size(self):
        return self.factor + 1
    @staticmethod
    def constant():
        return 3
    @classmethod
    def named(cls):
        return len(cls.__name__)
    def __call__(self, v):
        return v + self.factor
    def __len__(self):
        return self.factor

class Derived(Base):
    pass

class Another(Base):
    factor = 5
    def grow(self, v):
        return v - self.factor

def plain(v, n=2):
    return v * n

def other(v, n=3):
    return v + n

def counted():
    count = 1
    def inner(v):
        return v + count
    return inner

GROWN = Derived()
INNER_COUNT = counted()
AMOUNT = 1.5
CODE = {name: globals()[name].__code__ for name in ("plain", "other")}
CLASSES = {c: dict(vars(c)) for c in (Base, Derived, Another)}
HANDLERS = {"a": plain, "b": other}
settings = types.ModuleType("settings")
settings.rate = 2

def restore_replaced():
    global AMOUNT
    AMOUNT = 1.5
    for name in ("len", "max", "abs"):
        globals().pop(name, None)
    for name, code in CODE.items():
        globals()[name].__code__ = code
    plain.__defaults__, other.__defaults__ = (2,), (3,)
    for made, names in CLASSES.items():
        for name in [name for name in vars(made) if name not in names]:
            delattr(made, name)
        for name, value in names.items():
            if not name.startswith("__") or name in ("__call__", "__len__"):
                setattr(made, name, value)
    vars(GROWN).clear()
    GROWN.__class__ = Derived
    Derived.__bases__ = (Base,)
    INNER_COUNT.__closure__[0].cell_contents = 1
    HANDLERS.update(a=plain, b=other)
    vars(settings).pop("scale", None)
    settings.rate = 2
"""

TENSORS = rows("""
GROWN.grow($v)
GROWN($v)
plain($v)
plain($v, n=$i)
other($v)
INNER_COUNT($v)
($v * AMOUNT)
($v * settings.rate)
HANDLERS["a" if $c else "b"]($v)
Base.grow(GROWN, $v)
($v * GROWN.factor)
super(Derived, GROWN).grow($v)
""")

INTEGERS = rows("""
GROWN.factor
GROWN.size
GROWN.constant()
GROWN.named()
len(GROWN)
len([1, 2, 3])
max(1, $i)
abs($i)
settings.rate
getattr(settings, "scale", 4)
len(vars(GROWN))
len(type(GROWN).__mro__)
plain.__defaults__[0]
plain.__code__.co_argcount
INNER_COUNT.__closure__[0].cell_contents
vars(Base).get("extra", 1)
getattr(GROWN, "extra", 0)
""")

CONDITIONS = rows("""
type(GROWN) is Derived
isinstance(GROWN, Another)
hasattr(GROWN, "extra")
hasattr(settings, "scale")
AMOUNT > 2
GROWN.factor > 2
"factor" in vars(GROWN)
plain is HANDLERS["a"]
""")

SIMPLE = parts("""
plain.__code__ = other.__code__
===
plain.__code__ = (lambda v, n=1: v * 10).__code__
===
plain.__defaults__ = ($i,)
===
GROWN.__class__ = Another
===
GROWN.__class__ = Derived
===
Base.factor = $i
===
Derived.factor = $i
===
GROWN.factor = $i
===
del GROWN.factor
===
Base.grow = lambda self, v: v - 1
===
Derived.grow = Another.grow
===
Base.__call__ = lambda self, v: v * 3
===
Base.__len__ = lambda self: 7
===
Base.size = property(lambda self: $d)
===
Base.extra = $i
===
Base.extra = property(lambda self: self.factor)
===
Derived.constant = staticmethod(lambda: $d)
===
GROWN.grow = lambda v: v + 100
===
GROWN.grow = types.MethodType(plain, 3)
log.append(GROWN.grow($d))
===
setattr(Derived, "extra", $d)
===
vars(GROWN)["extra"] = $i
===
Derived.__bases__ = (Another,)
===
globals()["AMOUNT"] = $i
===
globals()["len"] = lambda v: 11
===
globals().pop("len", None)
===
globals()["max"] = min
===
settings.rate = $i
===
settings.scale = $i
===
vars(settings).pop("scale", None)
===
INNER_COUNT.__closure__[0].cell_contents = $i
===
HANDLERS["a"] = other
===
HANDLERS["b"] = lambda v: v * $d
===
HANDLERS["a"], HANDLERS["b"] = HANDLERS["b"], HANDLERS["a"]
===
log.append((GROWN.factor, GROWN.size, type(GROWN), len(GROWN)))
===
def $1(v):
    return v + 1
$r = $1($v)
$1.__code__ = (lambda v: v * 2).__code__
$w = $1($v)
===
class $1:
    n = 1
$2 = $1()
$1.n = $i
log.append($2.n)
===
$1 = type("Late", (Base,), {"factor": $i})()
$r = $1.grow($v)
===
$1 = functools.partial(plain, n=$i)
plain.__code__ = other.__code__
$r = $1($v)
""")

NESTED = parts("""
def $1(v, n=$i):
    $body
plain.__code__ = plain.__code__ if $c else other.__code__
$r = $1(plain($t))
===
def $1(self, v, n=$i):
    $body
Base.run = $1
$r = GROWN.run($t)
===
if $c:
    GROWN.__class__ = Another
    $block
===
for $n in range($d):
    Base.factor = $n
    $block
""")

BETWEEN = parts("""
plain.__code__ = other.__code__
===
plain.__code__ = (lambda v, n=1: v * 10).__code__
===
plain.__defaults__ = ($d,)
===
GROWN.__class__ = Another
===
Base.factor = $d
===
Derived.factor = 2.5
===
Base.grow = lambda self, v: v - 1
===
Base.__call__ = lambda self, v: v * 3
===
Base.__len__ = lambda self: 7
===
Derived.__bases__ = (Another,)
===
globals()["AMOUNT"] = $d
===
globals()["len"] = lambda v: 11
===
globals()["abs"] = lambda v: 12
===
settings.rate = $d
===
settings.scale = $d
===
INNER_COUNT.__closure__[0].cell_contents = $d
===
HANDLERS["a"] = other
===
Base.constant = staticmethod(lambda: 8)
===
program.__code__ = program.__code__.replace(co_name="renamed")
===
Box.apply = lambda self, v: v - self.n
===
Box.scale = $d
===
box.__class__ = type("Louder", (Box,), {"scale": 7})
===
doubled.__wrapped__.__code__ = (lambda t, *, by=2: t - by).__code__
===
numbers.__code__ = (lambda n: (yield n)).__code__
""")

REPLACED = Family(
    "replaced",
    prelude=PRELUDE,
    tensors=TENSORS,
    integers=INTEGERS,
    conditions=CONDITIONS,
    simple=SIMPLE,
    nested=NESTED,
    between=BETWEEN,
)
