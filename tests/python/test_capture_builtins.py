"""Built-in functions and types, and the modules that programs use most: operator, itertools, functools, math."""

from __future__ import annotations

import base64
import binascii
import bisect
import cmath
import collections
import dataclasses
import datetime
import enum
import fractions
import functools
import heapq
import inspect
import itertools
import json
import math
import operator
import random
import re
import string
import threading
import typing
import unicodedata

import torch
from harness import Case, Suite, check, check_captured

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


@case()
def zip_enumerate_map_filter(x):
    for i, (a, b) in enumerate(zip(x, x * 2, strict=True), start=1):
        x = x + i * a * b
    evens = filter(lambda n: n % 2 == 0, range(6))
    return x, list(map(lambda n, m: n + m, evens, (10, 20, 30)))


@case()
def map_over_tensors(x):
    return list(map(torch.sin, x)), tuple(map(lambda r: r * 2, x))


@case()
def sorted_with_key(x):
    words = ["pear", "fig", "banana"]
    return x + 1, sorted(words, key=len), sorted(words, key=lambda w: w[-1], reverse=True), sorted({3, 1, 2})


@case()
def list_sort_with_key(x):
    pairs = [(2, "b"), (1, "z"), (2, "a")]
    pairs.sort(key=lambda p: (-p[0], p[1]))
    return x * pairs[0][0], pairs


@case()
def min_max_sum(x):
    values = [3, 1, 2]
    return (
        x * max(values),
        min(values),
        max(values, key=lambda v: -v),
        min([], default=9),
        sum(values, 10),
        max(1, 5, 2),
        sum([x, x]),
    )


@case()
def any_all_len_abs_round(x):
    return (
        any(v > 2 for v in (1, 2, 3)),
        all([]),
        len(x),
        abs(-3),
        round(2.567, 2),
        divmod(17, 5),
        pow(2, 5),
        x + abs(x),
    )


@case()
def reversed_and_range(x):
    for i in reversed(range(1, 8, 3)):
        x = x + i
    return x, list(reversed([1, 2])), range(10)[2:5], len(range(0, 10, 4)), 4 in range(0, 10, 4)


@case()
def conversions(x):
    return (
        int("12"),
        float("1.5"),
        str(3),
        bool([]),
        bytes([1, 2]),
        list("ab"),
        tuple([1]),
        set([1, 1]),
        dict(a=1),
        complex(1, 2),
        ord("a"),
        chr(98),
        hex(255),
        bin(5),
        x + 1,
    )


@case()
def getattr_setattr_hasattr(x):
    class Box:
        pass

    box = Box()
    setattr(box, "n", 3)
    name = "n"
    return x * getattr(box, name), hasattr(box, "m"), getattr(box, "m", None), getattr(x, "shape"), vars(box)


@case()
def iter_next_with_default(x):
    it = iter([1, 2])
    a, b, c = next(it), next(it), next(it, "end")
    values = iter(lambda values=[1, 2, 0]: values.pop(0), 0)
    return x + a + b, c, list(values)


@case()
def type_calls(x):
    made = type("Made", (), {"n": 4})
    return x * made.n, type(x).__name__, type(3) is int


@case()
def id_and_hash_comparisons(x):
    a = object()
    return x + 1, id(a) == id(a), hash("k") == hash("k"), hash((1, 2)) == hash((1, 2))


@case()
def slices_and_ellipsis(x):
    s = slice(1, None, 2)
    return x[s], [0, 1, 2, 3][s], s.indices(4), x[..., 0], x[..., None].shape


@case()
def isinstance_typing(x):
    return (
        x + 1,
        isinstance([], typing.Sequence),
        isinstance({}, collections.abc.Mapping),
        typing.get_origin(list[int]),
    )


@case()
def eval_and_exec_of_constants(x):
    return x + len(repr([1, "a", None])), ascii("é"), format(3.14159, ".2f")


@case(breaks=None)
def eval_exec(x):
    space = {}
    exec("a = 3", space)
    return x * space["a"] + eval("1 + 1")


@case()
def locals_and_dir(x):
    y = 1
    return x + y, sorted(locals()), "append" in dir([])


# --- strings ---


@case()
def formatting(x):
    n, name = 3, "k"
    return (
        x + n,
        f"{n:>4}|{name!r}|{n / 7:.3f}|{name=}",
        "%s-%d-%5.1f" % (name, n, 2.5),
        "{0} {a} {0!r:>5}".format(name, a=n),
        f"{x.shape} {tuple(x.shape)} {x.dtype}",
    )


@case()
def string_methods(x):
    s = "  The quick Fox  "
    return (
        x + len(s),
        s.strip().lower().split(),
        "-".join(["a", "b"]),
        s.replace("quick", "slow"),
        s.find("F"),
        "a,b".partition(","),
        s.strip().startswith(("The", "A")),
        "abc".upper().center(9, "*"),
        "x1".isdigit(),
        "abc"[::-1],
        "a" * 3 + "b",
        "q" in s,
        "tEST".title(),
        "7".zfill(3),
        string.ascii_letters[:3],
        "a\tb".expandtabs(),
        "é".encode(),
        b"ab".decode(),
    )


@case()
def regular_expressions(x):
    m = re.match(r"(\w+)\.(\d+)", "layer.12.weight")
    return x * int(m[2]), m.group(1), re.sub(r"\d", "#", "a1b2"), re.findall(r"[a-z]", "a1b")


# --- containers ---


@case()
def list_methods(x):
    v = [3, 1]
    v.append(2)
    v.extend([5, 4])
    v.insert(0, 9)
    v.remove(1)
    last = v.pop()
    first = v.pop(0)
    v.reverse()
    copy = v.copy()
    v += [7]
    v[0] = 8
    return x * len(v), v, copy, last, first, v.index(7), v.count(8), v * 2, [1] + v, v == copy, v > copy


@case()
def dict_methods(x):
    d = {"a": 1, "b": 2}
    d["c"] = 3
    d.update({"d": 4}, e=5)
    d.setdefault("f", []).append(6)
    popped = d.pop("a")
    missing = d.pop("zz", None)
    got = d.get("zz", -1)
    del d["b"]
    merged = d | {"c": 30}
    for k, v in d.items():
        if isinstance(v, int):
            x = x + v
    return (
        x,
        d,
        popped,
        missing,
        got,
        list(d),
        list(d.values()),
        merged,
        "c" in d,
        dict.fromkeys("ab", 0),
        d.popitem(),
    )


class Version(str):
    """A text that compares by numbers, and says nothing of some."""

    def __lt__(self, other):
        return NotImplemented if other == "text" else len(self) < len(other)

    def __eq__(self, other):
        return NotImplemented if other == "text" else len(self) == len(other)

    __hash__ = str.__hash__


VERSION = Version("2.13")


@case()
def texts_of_classes_compared(x):
    if torch.__version__ < "1.5":
        x = x + 100
    return x + (VERSION < "12345") + 2 * ("12345" > VERSION) + 4 * (VERSION == "abcd"), "1234" == VERSION


@case()
def maps_unpacked(x):
    a, b = map(lambda row: row * 2, torch.stack((x, x + 1)))
    c, *rest = map(str, (1, 2, 3))
    d, e = map(torch.add, (a, b), (b, a))
    return a + b, c, rest, d - e


@case()
def maps_unpacked_to_few(x):
    try:
        a, b = map(lambda n: x + n, [1, 2, 3])
    except ValueError as error:
        return x, str(error)
    return a, b


@case(breaks=None)
def texts_of_classes_that_say_nothing(x):
    return x + (VERSION < "text") + 2 * ("text" > VERSION) + 4 * (VERSION == "text") + 8 * ("text" == VERSION)


@case()
def dict_of_tensors(x):
    d = {"x": x}
    d["y"] = d["x"] * 2
    return {k: v + 1 for k, v in d.items()}, d


@case()
def set_methods(x):
    a, b = {1, 2, 3}, {2, 3, 4}
    a.add(9)
    a.discard(1)
    b.update([7])
    return x + len(a), a | b, a & b, a - b, a ^ b, a <= b, 9 in a, frozenset(b), a.isdisjoint({100})


@case()
def tuple_operations(x):
    t = (1, 2) + (3,)
    return x * t[-1], t * 2, t.index(2), t.count(1), t[1:], (1, 2) < (1, 3), hash(t) == hash((1, 2, 3))


@case()
def nested_containers(x):
    data = {"layers": [{"w": x, "n": 1}, {"w": x + 1, "n": 2}]}
    for layer in data["layers"]:
        layer["out"] = layer["w"] * layer["n"]
    return data


@case()
def ordered_and_default_dicts(x):
    counts = collections.defaultdict(int)
    for c in "hello":
        counts[c] += 1
    groups = collections.defaultdict(list)
    groups["a"].append(x)
    od = collections.OrderedDict([("b", 1), ("a", 2)])
    od.move_to_end("b")
    return x + counts["l"], dict(counts), dict(groups), list(od)


@case()
def counter_deque_chainmap(x):
    c = collections.Counter("abca")
    d = collections.deque([1, 2, 3], maxlen=3)
    d.append(4)
    d.appendleft(0)
    d.rotate(1)
    chain = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    return x * c["a"], c.most_common(1), list(d), chain["a"] + chain["b"]


@case()
def heap_and_bisect(x):
    h = [5, 1, 4]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return x + heapq.heappop(h), h, bisect.bisect([1, 3, 5], 3), heapq.nlargest(2, [1, 7, 3])


# --- modules ---


@case()
def operator_module(x):
    get = operator.itemgetter(1, 0)
    attr = operator.attrgetter("shape")
    call = operator.methodcaller("sum", 0)
    return (
        operator.add(x, 1),
        operator.mul(2, 3),
        get([1, 2]),
        attr(x),
        call(x),
        operator.contains([1], 1),
        operator.not_(0),
        operator.index(3),
        operator.is_(x, x),
        operator.truediv(1, 2),
    )


@case()
def itertools_module(x):
    return (
        x + 1,
        list(itertools.chain([1], (2,), range(2))),
        list(itertools.chain.from_iterable([[1], [2]])),
        list(itertools.product("ab", repeat=2)),
        list(itertools.combinations(range(3), 2)),
        list(itertools.permutations(range(2))),
        list(itertools.islice(itertools.count(5, 2), 3)),
        list(itertools.zip_longest([1], [2, 3])),
        list(itertools.accumulate([1, 2, 3])),
        list(itertools.repeat("z", 2)),
        list(itertools.takewhile(lambda v: v < 2, range(5))),
        [(k, list(g)) for k, g in itertools.groupby("aab")],
        list(itertools.starmap(pow, [(2, 3)])),
        list(itertools.pairwise([1, 2, 3])),
    )


@case(traces=None, breaks=None)
def bounds_of_islice(x):
    found = []
    for bounds in ((2,), (-1,), (2**70,), (-(2**70),), (1, 4), (1, -(2**70)), (0, 5, 2)):
        try:
            found.append(list(itertools.islice(range(5), *bounds)))
        except ValueError as error:
            found.append(str(error))
    return x + 1, found


@case()
def itertools_with_tensors(x):
    total = 0
    for a, b in itertools.product(x, [1.0, 2.0]):
        total = total + (a * b).sum()
    return total, list(itertools.chain(x, x))


@case()
def functools_module(x):
    total = functools.reduce(lambda a, b: a + b, [x, x, x])
    compare = functools.cmp_to_key(lambda a, b: b - a)
    return total, sorted([1, 3, 2], key=compare)


@functools.lru_cache(maxsize=None)
def cached_square(n):
    return n * n


@case(traces=None)
def lru_cache_function(x):
    return x * cached_square(4), cached_square(4)


@case()
def checksums_and_bytes_as_text(x):
    data = b"broken pottery " * (1 + int(x.shape[0]))
    return (
        x * (binascii.crc32(data) % 7) + binascii.crc_hqx(data[3:], 5) % 3,
        binascii.crc32(data[:4], 12),
        binascii.hexlify(data, b":", 2),
        base64.b64decode(base64.b64encode(data)) == data,
        binascii.crc_hqx(data, 0),
    )


@case()
def bytes_that_are_no_text(x):
    try:
        return x, binascii.unhexlify(b"0g")
    except binascii.Error as error:
        return x + 1, str(error)


@case()
def complex_numbers(x):
    z = cmath.sqrt(-2 * x.shape[0])
    return (
        x * abs(z),
        cmath.polar(z),
        cmath.phase(1j),
        cmath.isclose(z, z.conjugate()),
        cmath.exp(cmath.pi * 1j),
    )


@case()
def text_in_normal_forms(x):
    accents = unicodedata.normalize("NFD", "h\u00e9ron")
    plain = "".join(c for c in accents if not unicodedata.combining(c))
    return (
        x * len(accents),
        plain,
        unicodedata.category("A"),
        unicodedata.name("\u00e9"),
        unicodedata.numeric("\u00bd"),
    )


@case()
def math_module(x):
    return (
        x * math.sqrt(x.shape[1]),
        math.pi,
        math.floor(2.7),
        math.ceil(2.1),
        math.log(8, 2),
        math.prod([1, 2, 3]),
        math.gcd(12, 18),
        math.isclose(0.1 + 0.2, 0.3),
        math.inf > 1,
        math.hypot(3, 4),
        math.isnan(math.nan),
        math.exp(1.0),
        math.factorial(5),
    )


@case()
def numbers_and_arithmetic(x):
    return (
        7 // 2,
        -7 // 2,
        7 % -3,
        2**10,
        2**-1,
        1 / 3,
        10**30,
        5 & 3,
        5 | 3,
        5 ^ 3,
        ~5,
        1 << 70,
        0.1 + 0.2,
        (1 + 2j) * 3,
        True + True,
        x * 7 // 2,
        (5).bit_length(),
        (2.5).is_integer(),
        fractions.Fraction(1, 3) + 1,
    )


@case(breaks=None)
def json_module(x):
    return x + json.loads(json.dumps({"n": 3}))["n"]


@case(breaks=None)
def inspect_signature(x):
    def f(a, b=1, *, c=2): ...

    return x + len(inspect.signature(f).parameters), inspect.isfunction(f)


class Action(str, enum.Enum):
    NONE = "none"
    NOTIFY = "notify"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@case()
def members_of_enumerations_that_are_words_or_numbers(x, action=Action.NONE):
    if action == Action.NOTIFY or action in (Action.NOTIFY, "notify"):
        return x
    return x + 1 if Level.LOW < Level.HIGH and Level.LOW != Level.HIGH else x, Level.HIGH == 2


LOCK = threading.Lock()


@case(breaks=None)
def locks(x):
    with LOCK:
        return x + 1


@case(breaks=None, traces=None)
def python_random(x):
    return x * random.random(), random.randint(1, 6), random.choice([1, 2, 3])


@case(breaks=None)
def dates(x):
    return x + datetime.timedelta(days=2).days, datetime.date(2024, 1, 31).isoformat()


@SUITE.case(kwargs=lambda call: {"a": 1, "b": call})
def sets_of_keys(x: torch.Tensor, **more: int) -> typing.Any:
    made = {"u": x, 3: 1, (1, "t"): 2}
    ordered = collections.OrderedDict(p=1, q=x)
    names = set(more.keys())
    names.add("z")
    return (
        x + len(names),
        names,
        set(made),
        frozenset(made.keys()),
        set(ordered.keys()) | set(ordered),
        set(KEYS),
    )


KEYS = {"k": 1, "l": 2}


@SUITE.factory()
def make_sets_of_keys_that_change() -> typing.Any:
    table = {"a": 1}

    def sets_of_keys_that_change(x: torch.Tensor) -> typing.Any:
        table[len(table)] = 2
        return x + len(set(table)), "a" in set(table.keys())

    return sets_of_keys_that_change, table


SUITE.cases[-1] = dataclasses.replace(SUITE.cases[-1], traces=None)


class Fields(collections.OrderedDict[str, typing.Any]):
    """Items are looked up in Python, membership is a dict's: as outputs of models are."""

    def __getitem__(self, key: typing.Any) -> typing.Any:
        return dict(self.items())[key] if isinstance(key, str) else tuple(self.values())[key]


class Telling(dict[str, typing.Any]):
    def __contains__(self, key: object) -> bool:
        return key == "told"


FIELDS = Fields(u=1.0, v=2.0)


@SUITE.case()
def in_of_subclasses_of_dict(x: torch.Tensor) -> typing.Any:
    made = Fields()
    made["u"] = x + 1
    telling = Telling()
    telling["a"] = x
    inside = "u" in made, "v" in made, "v" in FIELDS, "w" not in FIELDS, "told" in telling, "a" in telling
    return made["u"] * 2, made[0], inside, list(made.keys()), FIELDS["v"] + x


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)
