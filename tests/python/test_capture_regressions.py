"""Programs that were wrong once, and exits from the trace in places that are hard to rebuild."""

from __future__ import annotations

import array
import collections
import fractions
import functools
import sys
import threading
import types
import weakref

import torch
from harness import Case, Suite, check, floats, scaled

import kintsugi

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


def signs(call: int) -> tuple[torch.Tensor, ...]:
    """A tensor whose sum is positive in some calls only."""
    x = floats((3, 4))(call)[0].abs()
    return (-x if call % 3 == 1 else x,)


# --- wrong once ---


@case()
def fraction_next_to_tensors(x):
    return x + 1, fractions.Fraction(1, 3) + 1, fractions.Fraction(2, 4) * 3


@factory(traces=None)
def make_length_after_append_and_step():
    log = []

    def f(x):
        log.append(x.clamp(-2, 2))
        torch.manual_seed(1)
        fractions.Fraction(1, 3)
        with threading.Lock():
            pass
        return len(log), x + len(log)

    return f, log


@factory(traces=None)
def make_length_read_in_callee():
    log = []

    def g(v):
        return v + len(log)

    def f(x):
        log.append(x)
        with torch.no_grad():
            x = x * 2
        return g(x), len(log)

    return f, log


@case()
def identity_of_new_object(x):
    a = object()
    return id(a) == id(a), id(object()) != 0, x + 1


@case()
def nested_partial_with_keywords(x):
    f = functools.partial(torch.add, alpha=2)
    g = functools.partial(f, x, torch.ones(4))
    h = functools.partial(g, alpha=3)
    return g(), h(), f(x, x, alpha=1)


@case()
def dict_methods_keep_identity(x):
    inner = [1]
    d = {"k": inner}
    copy = d.copy()
    other = dict(d)
    merged = {}
    merged.update(d, z=inner)
    popped = d.pop("k")
    made = copy.setdefault("new", [])
    made.append(x)
    inner.append(2)
    return copy, other, merged, popped, inner, made, copy["k"] is other["k"], popped is merged["z"]


@factory(traces=None)
def make_setattr_hook_logs_once():
    log = []

    class Spy:
        def __setattr__(self, name, value):
            log.append(name)
            object.__setattr__(self, name, value)

    spy = Spy()

    def f(x):
        spy.a = x.shape[0]
        spy.b = x + 1
        return spy.b * spy.a

    return f, log, spy


class Key:
    pass


@factory(traces=None, breaks=None)
def make_weak_key_dictionary():
    keys = [Key(), Key()]
    table = weakref.WeakKeyDictionary({keys[0]: 2.0, keys[1]: 3.0})

    def f(x):
        return x * table[keys[0]], x * table[keys[1]]

    return f, keys


# --- exits with a generator under way ---


@case(inputs=signs, calls=6)
def exit_inside_context_manager(x):
    log = []
    with scaled(log) as s:
        if x.sum() > 0:
            x = x * s
        else:
            x = x - s
        log.append("end")
    return x, log


def rows(x, log):
    scale = 1.0

    def scaled_row(row):
        return row * scale

    for row in x:
        log.append(scale)
        got = yield scaled_row(row)
        scale = got if got is not None else scale + 1.0
    log.append("done")


@case(inputs=signs, calls=6)
def exit_with_waiting_generator(x):
    log = []
    it = rows(x, log)
    first = next(it)
    second = it.send(5.0)
    if x.sum() > 0:
        return first, second, list(it), log
    return [first - r for r in it], second, log


@case(inputs=signs, calls=6)
def exit_with_generator_not_started(x):
    log = []
    k = 3.0
    it = rows(x, log)
    other = (v * k for v in [x, x + 1])
    if x.sum() > 0:
        return list(it), list(other), log
    return next(other), next(it), log


@factory(inputs=signs, calls=6, traces=None, breaks=None)
def make_generator_stored_outside():
    holder = types.SimpleNamespace()

    def f(x):
        holder.it = (v * 2 for v in [x, x + 1, x + 2])
        first = next(holder.it)
        return first if x.sum() > 0 else first - 1

    return f, lambda: list(holder.it)


@case(inputs=signs, calls=6, traces=None, breaks=None)
def iterator_given_to_c_code(x):
    it = iter([1, 2, 3, 4])
    next(it)
    text = "".join(map(str, it))
    rest = iter([5, 6, 7])
    next(rest)
    total = sum(rest)
    return x + total, text, list(it), list(rest)


# --- exits after changes of lists ---


@factory(inputs=signs, calls=6, traces=None)
def make_exit_after_list_changes():
    values = [3, 1, 2]

    def f(x):
        values[1:2] = [7, 8]
        values.append(x.shape[0])
        values.sort()
        del values[0]
        if x.sum() > 0:
            values.insert(0, 9)
            last = values.pop()
        else:
            last = values.pop(0)
        values.remove(8)
        values[:] = values[:3]
        return x + last, len(values), list(values)

    return f, values


@factory(traces=None)
def make_list_seen_through_two_names():
    values = [1]
    box = {"same": values, "other": [1]}

    def f(x):
        values.append(x)
        box["same"].append(2)
        box["other"].append(3)
        return len(values), box["same"][-1], box["other"][-1], values[-2] is x

    return f, values, box


@factory(traces=None)
def make_iteration_while_appending():
    values = [1, 2]

    def f(x):
        for v in values:
            if len(values) < 5:
                values.append(v + 10)
        return x * len(values), values[-1]

    return f, values


@case(traces=None, breaks=None)
def exception_from_pop_of_empty_list(x):
    values = [1]
    values.pop()
    try:
        values.pop()
    except IndexError as e:
        return x + 1, str(e), f"{e}", e.args
    return x


LOCK = threading.RLock()


@case(inputs=signs, calls=6, traces=None, breaks=None)
def exit_inside_lock(x):
    with LOCK:
        if x.sum() > 0:
            x = x * 2
    with LOCK:
        return x + 1, LOCK._is_owned()


@case(traces=None, breaks=None)
def exception_inside_lock(x):
    try:
        with LOCK:
            raise ValueError("inside")
    except ValueError as e:
        return x + 1, str(e), LOCK._is_owned()


@case(traces=None, breaks=None)
def locals_of_function(x):
    y = 1
    seen = locals()
    z = 2
    return x + y + z, sorted(seen), seen["x"] is x


# --- objects with slots, their dicts, and functions given as arguments ---


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@factory(traces=None)
def make_slot_written_and_read():
    old = Slotted(torch.zeros(4))

    def f(x):
        before = old.a
        old.a = x + 1
        old.b = before
        return old.a * 2, old.b

    return f, old


@case(inputs=signs, calls=6, traces=None)
def exit_with_slotted_object(x):
    made = Slotted(x)
    try:
        made.b
    except AttributeError:
        made.a = x + 1
    if x.sum() > 0:
        made.b = 2
    return made, made.a


@factory(traces=None)
def make_dict_of_escaped_instance():
    holder = types.SimpleNamespace()

    def f(x):
        made = types.SimpleNamespace(n=1)
        inside = made.__dict__
        holder.made = made
        inside["t"] = x + 1
        del made.n
        return made.t, vars(made), inside

    return f, holder


@case(inputs=signs, calls=6)
def exit_with_dict_of_instance(x):
    made = types.SimpleNamespace(n=1)
    inside = vars(made)
    if x.sum() > 0:
        inside["t"] = x + 1
    else:
        made.t = x
    made.n += 1
    return made, inside, made.t * 2


@case(
    inputs=lambda call: (*floats((3, 4))(call), lambda v, n=2.0: v * n + call, slice(call % 2, 3)),
    calls=6,
    traces=None,
    breaks=None,
)
def function_and_slice_arguments(x, g, rows):
    return g(x), g(x, 3.0), x[rows], [1, 2, 3, 4][rows]


@case(traces=None, breaks=None)
def sums_of_generators(x):
    log = []

    def parts():
        buffer = torch.zeros(4)
        for row in x:
            buffer.add_(row)
            log.append("row")
            yield buffer

    return sum(parts()), sum((r.sum() for r in x), x[0, 0]), sum(i * 2 for i in range(4)), log


class Countdown:
    def __init__(self, n, log):
        self.n, self.log = n, log

    def __len__(self):
        self.log.append("len")
        return self.n

    def __iter__(self):
        return self

    def __next__(self):
        self.log.append(self.n)
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


@case(traces=None, breaks=None)
def iterators_given_to_list_and_tuple(x):
    log = []
    made = list(Countdown(2, log)), tuple(Countdown(3, log)), list(Countdown(0, log))
    try:
        list(v / 0 for v in Countdown(2, log))
    except ZeroDivisionError as e:
        log.append(str(e))
    return x + len(log), made, log


class Registered(type):
    made: list[str] = []

    def __call__(cls, *args, **kwargs):
        obj = super().__call__(*args, **kwargs)
        Registered.made.append(cls.__name__)
        return obj


class First(metaclass=Registered):
    def __init__(self, n, k=1):
        self.n, self.k = n, k


class Second(metaclass=Registered):
    pass


@factory(traces=None)
def make_metaclass_call():
    Registered.made.clear()

    def f(x):
        a, b = First(x, k=2), Second()
        return a.n * a.k, b

    return f, Registered.made


@case(inputs=signs, calls=6, traces=None, breaks=None)
def unpacking_of_tensor_with_star(x):
    first, *rest = x
    *most, last = x
    a, *middle, b = x
    if x.sum() > 0:
        rest.append(first)
    return first, rest, most, last, middle, a + b


@factory(calls=6, traces=None, breaks=None)
def make_kept_by_a_step_that_raises():
    kept = []

    @torch.compiler.disable
    def keep(value):
        kept.append(value)
        if len(kept) > 2:
            raise ValueError("full")

    def program(x):
        pair = [x, [x]]
        try:
            keep(pair)
        except ValueError:
            pair.append(1)
            pair[1].append(2)
        return x + len(pair), pair

    return program, kept


class Ordered(collections.OrderedDict):
    def __delitem__(self, key):
        raise TypeError("fixed")

    def without(self, key):
        super().__delitem__(key)
        return self


@case(breaks=0)
def deletion_past_an_override(x):
    return Ordered(a=x, b=x + 1).without("a")


class Noting(dict):
    """Notes what is written to it."""

    def __init__(self):
        self.noted = []

    def __setitem__(self, key, value):
        self.noted.append(key)
        super().__setitem__(key, value)


@factory(traces=None)
def make_items_written_past_an_override():
    kept = Noting()

    def program(x):
        kept["a"] = x
        kept.update(b=x + 1)
        dict.__setitem__(kept, "c", x + 2)
        return x + len(kept.noted)

    return program, kept, kept.noted


@case(breaks=0)
def joined_map(x):
    return x + len(".".join(map(str, (1, 20, 3))))


class Lazy(types.ModuleType):
    def __getattr__(self, name):
        if name == "answer":
            return 42
        raise AttributeError(name)


@factory(breaks=0)
def make_import_from_a_module_with_getattr():
    sys.modules["lazy_for_tests"] = Lazy("lazy_for_tests")

    def program(x):
        from lazy_for_tests import answer

        return x + answer

    return program


@case(breaks=0)
def a_profiled_range(x):
    with torch.autograd.profiler.record_function("name"):
        y = x + 1
    return y * 2


@case()
def result_that_is_resized(x):
    out = torch.empty(0)
    torch.add(x, 1, out=out)
    values, places = torch.empty(0), torch.empty(0, dtype=torch.int64)
    torch.max(x, 0, out=(values, places))
    return out, out * 2, values, places


@factory(traces=None, breaks=None)
def make_function_given_to_a_class():
    """A closure of its own in each call: an earlier call's was used behind a side exit."""

    class Base:
        pass

    class Derived(Base):
        pass

    grown = Derived()

    def f(x):
        def method(self, v):
            return x

        Base.method = method
        return grown.method(map(torch, x)) + 1

    return f


@factory(traces=None, breaks=None)
def make_counted_keys():
    log = []

    class Key:
        def __hash__(self):
            log.append("hash")
            return 1

        def __eq__(self, other):
            log.append("equal")
            return True

    def f(x):
        return list(collections.Counter([Key(), Key()]).values()), x + 1

    return f, log


@factory(breaks=None)
def make_list_that_is_sorted():
    def f(x):
        seen = []
        items = [3, 1, 2]
        items.sort(key=lambda v: (seen.append(len(items)), v)[1])
        try:
            items.sort(key=lambda v: (items.append(1), -v)[1])
        except ValueError as error:
            return x + 1, items, seen, str(error)

    return f


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


def test_a_failing_import_is_the_first_break_of_the_process() -> None:
    """What a break looks up the first time must not touch the exception that is on its way."""
    code = (
        "import torch, kintsugi\n"
        "def f(x):\n"
        "    try:\n"
        "        import no_such_module_anywhere\n"
        "    except ImportError as error:\n"
        "        return x + len(error.name)\n"
        "compiled = kintsugi.compile(f, backend='eager')\n"
        "for _ in range(3):\n"
        "    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 24.0))\n"
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr


def test_what_the_first_call_alone_could_not_track_is_no_step_of_later_ones() -> None:
    state: list[int] = []

    def prepare() -> None:
        if not state:
            numbers = array.array("f", [1.0, 2.0])
            del numbers[0]
            state.append(len(numbers))

    def program(x: torch.Tensor) -> torch.Tensor:
        prepare()
        return x * 2 + len(state)

    compiled = kintsugi.compile(program, backend="eager")
    x = torch.ones(2)
    for _ in range(4):
        assert torch.equal(compiled(x), torch.full((2,), 3.0))
    stats = compiled.stats()
    assert (stats.misses, stats.hits, stats.graph_count) == (2, 2, 1)
