"""Programs as people write them: what the standard library offers around classes, contexts, iterators and text, with
tensors inside."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import enum
import functools
import heapq
import io
import itertools
import string
import typing

import torch
from harness import Case, Suite, check, check_captured

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


@dataclasses.dataclass
class Step:
    weight: float
    name: str = "step"
    history: list[float] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.label = f"{self.name}:{self.weight:.2f}"


@dataclasses.dataclass(frozen=True, order=True)
class Priority:
    level: int
    tag: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(slots=True, kw_only=True)
class Compact:
    value: torch.Tensor
    scale: float = 2.0


@case()
def dataclasses_all_over(x):
    steps = [Step(0.5), Step(1.5, name="last")]
    for step in steps:
        x = x * step.weight
        step.history.append(step.weight)
    changed = dataclasses.replace(steps[0], weight=3.0)
    low, high = sorted([Priority(2, "b"), Priority(1, "a")])
    compact = Compact(value=x)
    return (
        x + compact.scale,
        steps,
        changed.label,
        low.tag,
        low < high,
        Priority(1) == Priority(1, "z"),
        [field.name for field in dataclasses.fields(changed)],
        dataclasses.astuple(Priority(1, "t")),
        compact.value.shape,
    )


class Box(typing.NamedTuple):
    value: torch.Tensor
    count: int = 1

    def more(self, n):
        return self._replace(count=self.count + n)


@case()
def named_tuples_with_methods(x):
    box = Box(x).more(2)
    match box:
        case Box(value=v, count=3):
            x = v + 1
        case _:
            x = x - 1
    value, count = box
    return x, value, count, box.more(1), Box._fields, box == Box(x, 1) if count == 0 else None


@typing.runtime_checkable
class Runs(typing.Protocol):
    def run(self, x): ...


class Layer(abc.ABC):
    @abc.abstractmethod
    def run(self, x): ...

    @property
    @abc.abstractmethod
    def size(self): ...


class Double(Layer):
    def run(self, x):
        return x * 2

    @property
    def size(self):
        return 2


class Unrelated:
    def run(self, x):
        return x + 1


@case()
def protocols_and_abstract_classes(x):
    for part in (Double(), Unrelated(), 3):
        if isinstance(part, Layer):
            x = part.run(x) + part.size
        elif isinstance(part, Runs):
            x = part.run(x)
        else:
            x = x + part
    return x, issubclass(Double, Layer), Layer.__abstractmethods__ == frozenset({"run", "size"})


@functools.total_ordering
class Version:
    def __init__(self, text):
        self.parts = tuple(int(p) for p in text.split("."))

    def __eq__(self, other):
        return self.parts == other.parts

    def __lt__(self, other):
        return self.parts < other.parts

    def __repr__(self):
        return ".".join(map(str, self.parts))


@case()
def total_ordering(x):
    versions = [Version(t) for t in ("1.10", "1.2", "1.2.1")]
    newest = max(versions)
    ordered = sorted(versions, reverse=True)
    return (
        x * newest.parts[1],
        [str(v) for v in ordered],
        versions[1] <= versions[2],
        versions[0] >= versions[1],
    )


@case()
def contexts_of_the_library(x):
    out = io.StringIO()
    with contextlib.suppress(KeyError, IndexError):
        x = x + 1
        [][0]
        x = x * 100
    with contextlib.redirect_stdout(out):
        print("inside", x.shape)
    with contextlib.nullcontext(3) as n:
        x = x * n
    with contextlib.ExitStack() as stack:
        stack.callback(print, "left")
        stack.enter_context(contextlib.suppress(ValueError))
        x = x - 1
    return x, out.getvalue()


@contextlib.contextmanager
def scaled(log, by):
    log.append("in")
    try:
        yield by
    finally:
        log.append("out")


@case(inputs=lambda call: (torch.ones(3) * (1 if call % 3 else -1),), traces=None)
def contexts_of_ones_own(x):
    log = []
    with scaled(log, 2) as by, scaled(log, 3) as other:
        x = x * by
        if x.sum() > 0:
            x = x + other
        else:
            log.append("negative")
    return x, log


def batched(iterable, n):
    it = iter(iterable)
    while batch := tuple(itertools.islice(it, n)):
        yield batch


def sliding(iterable, n):
    it = iter(iterable)
    window = list(itertools.islice(it, n))
    if len(window) == n:
        yield tuple(window)
    for value in it:
        window = [*window[1:], value]
        yield tuple(window)


@case()
def iterator_recipes(x):
    rows = list(x)
    total = sum(a + b for a, b in itertools.pairwise(rows))
    grouped = {
        k: sum(v for _, v in group)
        for k, group in itertools.groupby([(1, 2), (1, 3), (2, 4)], key=lambda p: p[0])
    }
    flat = list(itertools.chain.from_iterable(batched(range(5), 2)))
    first = next((r for r in rows if r.shape[0] > 10), None)
    return (
        total,
        grouped,
        flat,
        [sum(w) for w in sliding([1, 2, 3, 4], 2)],
        first,
        list(zip(*[iter(range(6))] * 2)),
    )


@case()
def groups_with_tensors(x):
    made = []
    for key, group in itertools.groupby([x, x + 1, x.sum()], key=lambda t: t.dim()):
        made.append((key, torch.stack(list(group))))
    keys = [key for key, _ in itertools.groupby("aabbb")]
    lengths = [len(list(g)) for _, g in itertools.groupby([1, 1, 2])]
    return made, keys, lengths


class Task:
    def __init__(self, cost, make):
        self.cost, self.make = cost, make

    def __lt__(self, other):
        return self.cost < other.cost


@case()
def heap_of_objects(x):
    heap = []
    for cost in (3, 1, 2):
        heapq.heappush(heap, Task(cost, lambda v, cost=cost: v + cost))
    order = []
    while heap:
        task = heapq.heappop(heap)
        order.append(task.cost)
        x = task.make(x)
    return x, order, heapq.nsmallest(2, [5, 1, 4])


@case()
def sorted_by_comparison(x):
    def compare(a, b):
        return (a[1] > b[1]) - (a[1] < b[1])

    key = functools.cmp_to_key(compare)
    pairs = sorted([("a", 3), ("b", 1), ("c", 2)], key=key)
    return (
        x * pairs[0][1],
        pairs,
        min([(0, 2), (0, 1)], key=key),
        max([("x", 5), ("y", 7)], key=functools.cmp_to_key(compare)),
    )


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    RUN = enum.auto()
    ALL = READ | WRITE | RUN


class Mode(str, enum.Enum):
    FAST = "fast"
    EXACT = "exact"

    @property
    def factor(self):
        return 2 if self is Mode.FAST else 1


@case()
def flags_and_modes(x):
    access = Access.READ | Access.RUN
    if Access.RUN in access and not access & Access.WRITE:
        x = x * Mode("fast").factor
    match Mode.EXACT:
        case Mode.FAST:
            x = x + 100
        case Mode.EXACT:
            x = x + 1
    left = access ^ Access.READ
    return (
        x,
        left.name,
        (~left & Access.ALL).value,
        bool(access & Access.WRITE),
        [m.value for m in Mode],
        Mode.FAST == "fast",
    )


@case(traces=None)
def text_of_items(x):
    mean = x.sum().item()
    name = "mean"
    lines = [
        f"{name!r:>8}|{mean:+.3e}|{x.shape!s}|{3:#06x}|{1234567:,}",
        "{0:.2f} {name:<6}|".format(mean, name=name),
        "%s=%5.1f" % (name, mean),
        f"{name:{'>'}{10}}",
        " ".join(f"{v:.1f}" for v in x[0].tolist()),
    ]
    return x + 1, lines


@case(breaks=None, traces=None)
def template_of_an_item(x):
    return x + 1, string.Template("$name is $value").substitute(name="mean", value=round(x.sum().item(), 1))


@dataclasses.dataclass
class Point:
    x: torch.Tensor
    y: int = 0


class Circle:
    __match_args__ = ("center", "radius")

    def __init__(self, center, radius):
        self.center, self.radius = center, radius


@case()
def class_patterns(x):
    def area(shape):
        match shape:
            case Point(y=0):
                return shape.x
            case Point(t, y) if y > 1:
                return t * y
            case Circle(Point(t, _), radius) | Circle(t, radius):
                return t * radius
            case [Point(a), *rest]:
                return a + len(rest)
            case {"kind": "square", "side": side, **others}:
                return x * side + len(others)
            case int() | float() as number:
                return x + number
            case str(word):
                return x + len(word)
            case None:
                return x
            case _:
                return -x

    shapes = [
        Point(x),
        Point(x, 3),
        Circle(Point(x + 1), 2),
        Circle(x, 4),
        [Point(x), 1, 2],
        2.5,
        "four",
        None,
        {1},
    ]
    return [area(shape) for shape in [*shapes, {"kind": "square", "side": 2, "more": 1}]]


@case()
def closures_in_loops(x):
    count = 0
    made = []

    def counter(step):
        def add(v):
            nonlocal count
            count += step
            return v + count

        return add

    for step in range(3):
        made.append(counter(step))
    results = [f(x) for f in made]
    if (n := len(results)) > 2 and (last := results[-1]) is not None:
        x = last * n
    late = [lambda: step for _ in range(2)]
    return x, count, [f() for f in late], results


def averages_of(x, log):
    total, count, value = 0, 0, None
    while True:
        try:
            value = yield (total / count if count else None)
        except ValueError:
            total, count = 0, 0
            continue
        if value is None:
            return total
        total, count = total + value, count + 1


@case()
def generators_that_are_sent_to(x):
    log = []

    def outer():
        result = yield from averages_of(x, log)
        log.append(result)
        yield "end"

    running = outer()
    next(running)
    first = running.send(x)
    second = running.send(x + 2)
    alone = averages_of(x, log)
    next(alone)
    alone.send(x)
    cleared = alone.throw(ValueError("again"))
    return first, second, cleared, alone.send(x * 3), running.send(None), log


@case(breaks=None)
def generators_that_are_thrown_through(x):
    def averages():
        total, count, value = 0, 0, None
        while True:
            try:
                value = yield (total / count if count else None)
            except ValueError:
                total, count = 0, 0
                continue
            if value is None:
                return total
            total, count = total + value, count + 1

    def outer(log):
        result = yield from averages()
        log.append(result)
        yield "end"

    log = []
    running = outer(log)
    next(running)
    first = running.send(x)
    second = running.send(x + 2)
    cleared = running.throw(ValueError("again"))
    third = running.send(x * 3)
    return first, second, cleared, third, running.send(None), log


class Traced:
    """Wraps a tensor, and notes what is done with it."""

    def __init__(self, value, log=()):
        self.value, self.log = value, log

    def _with(self, name, other, operation):
        other_value = other.value if isinstance(other, Traced) else other
        other_log = other.log if isinstance(other, Traced) else ()
        return Traced(operation(self.value, other_value), (*self.log, *other_log, name))

    def __add__(self, other):
        return self._with("add", other, lambda a, b: a + b)

    def __radd__(self, other):
        return self._with("radd", other, lambda a, b: b + a)

    def __mul__(self, other):
        return self._with("mul", other, lambda a, b: a * b)

    def __matmul__(self, other):
        return self._with("matmul", other, torch.matmul)

    def __neg__(self):
        return Traced(-self.value, (*self.log, "neg"))

    def __getitem__(self, key):
        return Traced(self.value[key], (*self.log, "get"))

    def __getattr__(self, name):
        return getattr(self.value, name)

    def __len__(self):
        return len(self.value)

    def __bool__(self):
        return True

    def __iter__(self):
        return (Traced(v, self.log) for v in self.value)

    def __repr__(self):
        return f"Traced({tuple(self.value.shape)}, {', '.join(self.log)})"


@case()
def wrappers_around_tensors(x):
    a = Traced(x)
    b = (1 + a) * 2 + a
    c = -(b @ Traced(x.T))[0]
    d = sum(Traced(x), 0) if a else None
    return c.value, c.log, repr(c), len(a), a.shape, a.mean(), d.value, [t.value for t in a]


@case(breaks=None, traces=None)
def dataclass_made_inside(x):
    @dataclasses.dataclass
    class Local:
        t: torch.Tensor
        k: int = 2

    made = Local(x)
    return made.t * made.k, dataclasses.replace(made, k=3).k


@case(breaks=None, traces=None)
def named_tuple_made_inside(x):
    class Local(typing.NamedTuple):
        t: torch.Tensor
        k: int = 2

    made = Local(x)
    return made.t * made.k, made._replace(k=3).k


@case(breaks=None, traces=None)
def enum_made_inside(x):
    class Local(enum.Enum):
        A = 1
        B = 2

    return x * Local.B.value, Local(1).name, [m.name for m in Local]


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)
