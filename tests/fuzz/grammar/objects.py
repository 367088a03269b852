"""Objects of programs: descriptors, properties, slots, enums, dataclasses, weak references, special methods."""

from __future__ import annotations

from .family import Family, parts, rows

PRELUDE = '''
import abc, enum, weakref
from functools import cached_property, singledispatch, total_ordering

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3

class Color(enum.Enum):
    RED = "r"
    BLUE = enum.auto()
    @property
    def short(self):
        return self.name[0]
    @classmethod
    def _missing_(cls, value):
        return cls.RED

class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()

class Clamped:
    """A data descriptor."""
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return getattr(instance, self.name, 0)
    def __set__(self, instance, value):
        setattr(instance, self.name, min(value, 5))
    def __delete__(self, instance):
        delattr(instance, self.name)

class Named:
    """A descriptor that an instance's own attribute hides."""
    def __get__(self, instance, owner=None):
        return owner.__name__ if instance is None else len(vars(instance))

class Shape(abc.ABC):
    made = 0
    kinds = []
    level = Clamped()
    named = Named()
    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw)
        Shape.kinds.append(cls.__name__)
    def __init__(self, n):
        type(self).made += 1
        self.level = n
        self.n = n
    @abc.abstractmethod
    def area(self): ...
    @classmethod
    def of(cls, n):
        return cls(n)
    @staticmethod
    def unit():
        return 1
    @cached_property
    def cached(self):
        self.n += 1
        return self.n * 2
    def __getattribute__(self, name):
        if name == "secret":
            return 7
        return super().__getattribute__(name)

@total_ordering
class Square(Shape):
    def area(self):
        return self.n * self.n
    def __eq__(self, other):
        return isinstance(other, Shape) and self.n == other.n
    def __lt__(self, other):
        return self.n < other.n
    def __hash__(self):
        return hash(self.n)
    def __bool__(self):
        return self.n > 1
    def __index__(self):
        return self.n
    def __contains__(self, item):
        return item == self.n
    def __len__(self):
        return 2
    def __format__(self, spec):
        return f"<{self.n}{spec}>"
    def __radd__(self, other):
        return other + self.n
    def __matmul__(self, other):
        return NotImplemented
    def __rmul__(self, other):
        return other * self.n

class Cube(Square):
    def area(self):
        return super().area() * 6

class Slotted:
    __slots__ = ("a", "b", "__weakref__")
    def __init__(self, a):
        self.a = a

class Counting(type):
    calls = 0
    def __call__(cls, *args):
        Counting.calls += 1
        return super().__call__(*args)
    def __len__(cls):
        return 3
    @property
    def title(cls):
        return cls.__name__.lower()

class Made(metaclass=Counting):
    def __init__(self, n=0):
        self.n = n
    def __class_getitem__(cls, item):
        return item

@dataclasses.dataclass(frozen=True, order=True)
class Key:
    n: int
    name: str = "k"

@dataclasses.dataclass(slots=True)
class Settings:
    rate: float = 0.5
    names: list = dataclasses.field(default_factory=list)
    total: int = dataclasses.field(init=False, default=0)
    def __post_init__(self):
        self.total = len(self.names) + 1

class Missing(dict):
    def __missing__(self, key):
        self[key] = value = len(self)
        return value

class Stack(list):
    def push(self, item):
        self.append(item)
        return self
    def __getitem__(self, i):
        return super().__getitem__(i)

class Finalized:
    def __init__(self, log, n):
        self.log, self.n = log, n
    def __del__(self):
        self.log.append(("gone", self.n))

@singledispatch
def kind(value):
    return "object"
@kind.register
def _(value: int):
    return "int"
@kind.register(torch.Tensor)
def _(value):
    return "tensor"

SHAPE = Square(2)
REFERRED = Slotted(1)
TABLE_OF = Missing()

def restore_objects():
    Shape.made = Counting.calls = 0
    vars(Square).get("made") is not None and delattr(Square, "made")
    vars(Cube).get("made") is not None and delattr(Cube, "made")
    vars(SHAPE).clear()
    SHAPE.__class__ = Square
    SHAPE.n = SHAPE.level = 2
    REFERRED.a = 1
    TABLE_OF.clear()
    Square.area = lambda self: self.n * self.n
    Shape.unit = staticmethod(lambda: 1)
'''

TENSORS = rows("""
($v * SHAPE.level)
($v + SHAPE)
($v * SHAPE.area())
Slotted($v).a
Settings(names=[$v, $t]).names[-1]
dataclasses.replace(Pair($v), a=$t).a
Point($v)._replace(n=$i).t
Stack([$v]).push($t)[-1]
Missing({1: $v})[1]
vars(Pair($t))["a"]
getattr(Pair($v, $t), "b")
{Color.RED: $v, Color.BLUE: $t}[Color.RED if $c else Color.BLUE]
{Key(1): $v, Key(2): $v}[Key(1 if $c else 2)]
Made[$t]
copy.copy(Pair($v, $i)).a
weakref.ref(REFERRED)().a * $v
operator.attrgetter("a")(Pair($v))
(types.SimpleNamespace(a=$v, n=$i).a + 1)
""")

INTEGERS = rows("""
Level.HIGH
Level($d or 1).value
int(Level.LOW) + 1
SHAPE.level
SHAPE.n
SHAPE.named
SHAPE.secret
SHAPE.cached
SHAPE.area()
Cube.of($d).area()
Square.unit()
Shape.made
len(SHAPE)
operator.index(SHAPE)
[0, 1, 2, 3, 4, 5, 6][SHAPE.level]
len(Shape.kinds)
Counting.calls
len(Made)
len(Made.title)
Made($i).n
Key($i).n
hash(Key(2)) == hash(Key(2))
Settings().total
REFERRED.a
TABLE_OF[$i]
len(TABLE_OF)
Flags(3).value
len(Color)
sum(m.value for m in Level)
len(dataclasses.fields(Settings))
max(Square($d), Cube(2)).n
sum([Square(1), Square(2)], $d)
len(f"{SHAPE:x}")
len(weakref.getweakrefs(REFERRED))
len(type("Local", (Square,), {"n": 3}).mro())
""")

CONDITIONS = rows("""
SHAPE
not SHAPE
$i in SHAPE
SHAPE == Square($d)
SHAPE < Square($d)
Level.HIGH > $i
Color.RED is Color("r")
Color("unknown") is Color.RED
Flags.A in Flags(3)
Key($i) < Key(2)
isinstance(SHAPE, Cube)
issubclass(Square, Shape)
hasattr(SHAPE, "_level")
hasattr(REFERRED, "b")
weakref.ref(REFERRED)() is REFERRED
kind($i) == "int"
callable(SHAPE)
""")

SIMPLE = parts("""
SHAPE.level = $i
===
SHAPE.n = $i
===
SHAPE.named = $i
log.append(SHAPE.named)
===
SHAPE.__dict__["level"] = $i
===
del SHAPE.level
===
vars(SHAPE).update(n=$i)
===
SHAPE.cached = $i
===
vars(SHAPE).pop("cached", None)
===
object.__setattr__(SHAPE, "n", $i)
===
Shape.made = $i
===
Square.made += 1
===
log.append((Square.of($i), Cube.of(1)))
===
$1 = [Square($i), Cube($i), Square(1)]
log.append(sorted($1))
log.append(max($1).n)
===
log.append([Level.LOW + $i, Level.HIGH, type(Level.LOW + 1)])
===
log.append([c.short for c in Color])
===
log.append((Flags.A | Flags.B, ~Flags.A, Flags(0)))
===
log.append(Color["RED"])
===
$1 = Slotted($v)
$1.b = $i
log.append($1)
===
try:
    Slotted(1).c = $i
except AttributeError as e:
    log.append(e.args)
===
try:
    Key(1).n = $i
except dataclasses.FrozenInstanceError as e:
    log.append(e.args)
===
try:
    Shape(1)
except TypeError as e:
    log.append(e.args)
===
try:
    SHAPE.nothing
except AttributeError as e:
    log.append((e.name, e.obj is SHAPE))
===
try:
    SHAPE @ $v
except TypeError as e:
    log.append(e.args)
===
log.append(dataclasses.asdict(Pair($i, $s)))
===
log.append(dataclasses.astuple(Settings(names=[$i])))
===
$1 = Settings()
$1.names.append($v)
$1.rate *= 2
log.append($1)
===
log.append(Settings.__eq__(Settings(), Settings(names=[$i])))
===
log.append(Key($i) == Key($d))
===
REFERRED.a = $i
===
$1 = weakref.ref(REFERRED)
log.append($1() is None)
===
$1 = weakref.WeakValueDictionary(a=REFERRED)
log.append(len($1))
===
$1 = Finalized(log, $i)
del $1
log.append("after")
===
Finalized(log, $i)
log.append("after")
===
$1 = Finalized(log, 1)
$1 = Finalized(log, 2)
$1 = None
===
$1 = [Finalized(log, j) for j in range($d)]
$1.clear()
log.append($i)
===
$1 = weakref.finalize(Slotted($v), log.append, "finalized")
log.append($1.alive)
===
TABLE_OF[$i] += 1
===
log.append([TABLE_OF[j] for j in ($i, $i)])
===
log.append(TABLE_OF.setdefault($i, $i))
===
$1 = Stack()
$1.push($i).push($v)
log.append($1)
===
log.append(kind($s) + kind($v) + kind("a"))
===
log.append((Made.title, len(Made), Counting.calls))
===
setattr(box, "maker", Made)
$n = box.maker($i).n
===
log.append(f"{SHAPE}{SHAPE:>3}{Level.LOW}{Color.BLUE}")
===
log.append([*map(operator.attrgetter("n"), [SHAPE, Square($i)])])
===
log.append(list(vars(SHAPE)))
===
log.append(type(SHAPE).__mro__[1].__name__)
===
class $1(Square):
    def area(self):
        return super().area() + $d
log.append($1($i).area())
===
class $1:
    total = 0
    def __init__(self):
        type(self).total += $i
    n = property(lambda self: self.total * 2)
$1()
$n = $1().n
===
class $1(typing.NamedTuple):
    a: int
    b: int = 2
    def both(self):
        return self.a + self.b
$n = $1($i).both()
===
class $1(enum.Enum):
    A = 1
    B = $d
log.append(len($1))
===
$1 = object()
log.append($1 == $1)
===
$1 = iter(Pair($v, $i))
log.append(next($1))
===
log.append([j for j in reversed(Stack([$i, $v]))])
===
SHAPE.area = lambda: $i
log.append(SHAPE.area())
===
log.append(Square.area(SHAPE))
===
$1 = SHAPE.area
SHAPE.n += 1
$n = $1()
===
$1 = Square.__dict__["of"] if "of" in vars(Square) else Shape.__dict__["of"]
log.append($1.__get__(None, Cube)($i).n)
""")

NESTED = parts("""
match SHAPE:
    case Cube(n=2):
        $block
    case Square(n=$1) if $1 > 1:
        log.append($1)
        $block
    case _:
        $block
===
match Point($v, $i):
    case Point(t=$1, n=1 | 2):
        $block
    case (_, $n):
        $block
===
for $1 in Color:
    log.append($1.name)
    $block
===
for $n in (SHAPE, Square($d)):
    $block
===
if SHAPE:
    $block
===
class $1(Shape):
    def area(self):
        return self.level
    def run(self, v, n):
        $body
$r = $1($i).run($t, $i)
===
class $1:
    def __init__(self, log):
        self.log = log
    def __enter__(self):
        self.log.append("in")
        return len(self.log)
    def __exit__(self, *error):
        self.log.append(error[0] and error[0].__name__)
        return $c
with $1(log) as $n:
    $block
    if $c:
        $raise
""")

BETWEEN = parts("""
SHAPE.__class__ = Cube
===
SHAPE.n = $d
===
Square.area = lambda self: self.n + 100
===
Shape.unit = staticmethod(lambda: 9)
===
Shape.made = 10
===
Square.extra = $d
===
vars(SHAPE)["level"] = 9
===
REFERRED.a = 2.5
===
Cube.__bool__ = lambda self: False
===
TABLE_OF[1] = 50
===
SHAPE.area = lambda: -1
===
Clamped.__get__ = lambda self, instance, owner=None: 4
""")

OBJECTS = Family(
    "objects",
    prelude=PRELUDE,
    tensors=TENSORS,
    integers=INTEGERS,
    conditions=CONDITIONS,
    simple=SIMPLE,
    nested=NESTED,
    between=BETWEEN,
)
