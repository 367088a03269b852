"""Side effects: what a compiled function changes outside itself, and prints, is what eager changes and prints."""

from __future__ import annotations

import collections
import functools
import logging
import operator
import sys
import types
import warnings

import pytest
import torch
from harness import Case, Suite, check, check_captured, floats

import kintsugi

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


# --- output ---


@case()
def print_text(x):
    print("before")
    y = x + 1
    print("after", y.shape, sep=" | ", end="!\n")
    return y


@case()
def print_tensor(x):
    y = x.sum()
    print("sum", y)
    return y


@case()
def print_tensor_changed_later(x):
    y = x + 1
    print(y)
    y.add_(1)
    print(y)
    return y


@case()
def print_in_loop_try_with(x):
    for i in range(3):
        try:
            with torch.no_grad():
                print(i, float(i) / 2)
                x = x + i
        finally:
            print("done", i)
    return x


@case()
def print_f_string_of_tensor(x):
    print(f"mean={x.mean():.4f} shape={tuple(x.shape)}")
    return x * 2


@case()
def print_in_nested_call(x):
    def f(v, depth):
        print("  " * depth + "f")
        return v if depth == 2 else f(v + 1, depth + 1)

    return f(x, 0)


@case()
def stdout_and_stderr_write(x):
    sys.stdout.write("out\n")
    sys.stderr.write("err\n")
    print("to stderr", file=sys.stderr, flush=True)
    return x + 1


@case()
def print_of_custom_object(x):
    class Thing:
        def __repr__(self):
            return "<thing>"

        def __str__(self):
            return "thing!"

    print(Thing(), [Thing()], {"k": Thing()})
    return x + 1


@case(traces=None)
def print_then_raise(x):
    print("a")
    y = x + 1
    print("b", y[0, 0])
    raise RuntimeError("stop")


class ListHandler(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append((record.levelname, record.getMessage(), record.funcName))


@factory(breaks=None)
def make_logging():
    logger = logging.Logger("case")
    handler = ListHandler()
    logger.addHandler(handler)

    def f(x):
        logger.debug("shape %s", tuple(x.shape))
        logger.info("n=%d", x.numel())
        logger.setLevel(logging.INFO)
        logger.debug("not seen")
        logger.setLevel(logging.DEBUG)
        return x * 2

    return f, handler.lines


@case(breaks=None)
def warnings_are_given(x):
    warnings.warn("careful")
    warnings.warn("mine", DeprecationWarning, stacklevel=2)
    return x + 1


# --- attributes, containers, globals, closures ---


@factory(traces=None)
def make_append_to_outer_list():
    seen = []

    def f(x):
        seen.append(x.shape[0])
        seen.append(x.sum())
        return x + len(seen)

    return f, seen


@factory(traces=None)
def make_counter_of_a_class():
    class Counted:
        total = 0
        seen = set()

        def __init__(self, x):
            self.x = x

        @property
        def scaled(self):
            return self.x * Counted.total

        @scaled.setter
        def scaled(self, total):
            Counted.total = total

        @classmethod
        def bump(cls, n):
            cls.total += n
            cls.seen.add(cls.total)
            return cls

    def f(x):
        counted = Counted(x)
        Counted.bump(2)
        counted.scaled = Counted.total + 1
        state["total"] = Counted.total
        return counted.scaled, len(Counted.seen)

    state = {}
    return f, state


@factory(traces=None, breaks=None)
def make_class_that_a_step_changes():
    class Counted:
        total = 1

    @kintsugi.disable
    def bump():
        Counted.total += 1

    def f(x):
        y = x * Counted.total
        bump()
        state["total"] = Counted.total
        return y, x + Counted.total

    state = {}
    return f, state


@factory(traces=None)
def make_append_without_reading():
    seen = []

    def f(x):
        y = x * 2
        seen.append(y)
        return y

    return f, seen


@factory(traces=None)
def make_counter_closure():
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x + 1

    return f, lambda: count


@factory(traces=None)
def make_counter_used():
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x * count

    return f, lambda: count


COUNTER = 0
REGISTRY: dict[str, int] = {}


@factory(traces=None)
def make_global_counter():
    global COUNTER
    COUNTER = 0
    REGISTRY.clear()

    def f(x):
        global COUNTER
        COUNTER += 1
        REGISTRY["calls"] = REGISTRY.get("calls", 0) + 1
        return x + 1

    return f, REGISTRY


@factory(traces=None)
def make_attribute_counter():
    holder = types.SimpleNamespace(n=0, last=None)

    def f(x):
        holder.n += 1
        holder.last = x + holder.n
        return holder.last * 2

    return f, holder


@factory(traces=None)
def make_module_counter():
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            self.steps += 1
            return x * self.steps

    m = M()
    return m.forward, m


@factory()
def make_set_attribute_constant():
    holder = types.SimpleNamespace(flag=False)

    def f(x):
        holder.flag = True
        holder.shape = x.shape
        return x + 1

    return f, holder


@factory()
def make_delete_and_recreate():
    holder = types.SimpleNamespace(cache=1)
    table = {"k": 1, "z": 2}

    def f(x):
        del holder.cache
        holder.cache = 2
        del table["k"]
        table["k"] = 5
        return x + holder.cache + table["k"]

    return f, holder, table


@factory(traces=2)
def make_dict_order():
    table = {"a": 1, "b": 2}

    def f(x):
        table["c"] = table.pop("a", 0) + 1
        return x * table["c"]

    return f, table


@factory()
def make_dict_of_results():
    results = {}

    def f(x):
        results["mean"] = x.mean()
        results["x"] = x
        results["shape"] = tuple(x.shape)
        return results["mean"] + 1

    return f, results


@factory()
def make_list_operations():
    values = [0, 0, 0]

    def f(x):
        values[0] = x.shape[1]
        values[1:] = [1, 2]
        values.reverse()
        values.sort()
        return x + values[-1]

    return f, values


@factory(traces=None)
def make_set_of_shapes():
    shapes = set()

    def f(x):
        shapes.add(tuple(x.shape))
        shapes.add(len(shapes))
        return x + 1

    return f, shapes


@factory(traces=None)
def make_deque_and_counter():
    recent = collections.deque(maxlen=2)
    counter = collections.Counter()

    def f(x):
        recent.append(x.sum())
        counter["calls"] += 1
        counter.update("ab")
        return x - 1

    return f, recent, counter


@factory(traces=None, breaks=None)
def make_deques_made_and_kept():
    recent = collections.deque(maxlen=3)
    counter = collections.Counter()

    def f(x):
        kept = [1]
        recent.append(kept)
        kept.append(x.sum())
        recent.appendleft(2)
        made = collections.deque([1, 2, 3])
        made.append(x)
        first, last = made.popleft(), made.pop()
        made.rotate(1)
        counter.update("abca")
        counter.update([x.shape[0]])
        letters = collections.Counter("abcaa")
        return x * letters["a"] + first, list(recent), list(made), last is x, recent[-1], letters["zz"]

    return f, recent, counter


@factory()
def make_order_of_effects():
    log = []

    class Spy:
        def __setattr__(self, name, value):
            log.append(("set", name))
            object.__setattr__(self, name, value)

    spy = Spy()

    def f(x):
        del log[:]
        log.append("start")
        spy.a = 1
        print("printed")
        spy.b = x + 1
        log.append("end")
        return spy.b

    return f, log, spy


@factory(traces=None)
def make_exception_half_way():
    log = []
    state = types.SimpleNamespace(n=0)

    def f(x, fail):
        log.append("a")
        state.n += 1
        y = x + state.n
        print("n", state.n)
        if fail:
            raise ValueError("half way")
        log.append("b")
        return y

    return (lambda x: f(x, True)), log, state


@factory(traces=None)
def make_exception_caught_inside():
    log = []

    def f(x):
        try:
            log.append("try")
            x = x + 1
            raise KeyError("k")
        except KeyError:
            log.append("except")
        finally:
            log.append("finally")
        return x * 2

    return f, log


@factory()
def make_object_stored_outside():
    holder = types.SimpleNamespace()

    def f(x):
        made = {"t": x + 1, "inner": [1, 2]}
        holder.made = made
        holder.again = made["inner"]
        made["inner"].append(3)
        return made["t"]

    return f, holder


@factory(traces=2)
def make_attribute_cache():
    class Layer:
        cache = None

        def run(self, x):
            if self.cache is None:
                self.cache = torch.ones(4) * 2
            return x * self.cache

    layer = Layer()
    return layer.run, layer


@factory(traces=None)
def make_lru_cache_counts_calls():
    calls = []

    @functools.lru_cache
    def table(n):
        calls.append(n)
        return n * 2

    def f(x):
        return x * table(x.shape[0]) + table(7)

    return f, calls


@factory(traces=None)
def make_grow_key_value_cache():
    cache = []

    def f(x):
        cache.append(x)
        return torch.cat(cache)

    return f, cache


# --- the caller's tensors ---


@case()
def in_place_on_argument(x):
    x.add_(1)
    x[0] = 0
    return x.sum()


@case()
def in_place_through_view(x):
    row = x[1]
    row.mul_(2)
    x.t()[0].zero_()
    return row


@case()
def out_argument(x):
    torch.add(x, 1, out=x)
    return x * 2


@case()
def augmented_on_argument(x):
    x += 1
    x *= 2
    x[:, 0] -= 3
    return x


@case((3, 4), (3, 4))
def returns_argument_and_view(x, y):
    return x, x[0], x.view(-1), y, (x, y), x.detach()


@case(inputs=lambda call: (lambda t: (t, t[0], t))(floats((3, 4))(call)[0]))
def aliased_arguments(x, row, same):
    row.add_(1)
    same.mul_(2)
    return x + 1, row


@case(inputs=lambda call: ([*floats((2,), (2,))(call)], {"t": floats((2,))(call)[0]}))
def mutates_containers_of_caller(values, table):
    values.append(values[0] + values[1])
    values[0] = None
    table["new"] = table["t"] * 2
    table["t"].add_(1)
    return len(values)


@case()
def clone_and_contiguous_in_loop(x):
    out = []
    for i in range(3):
        y = x.clone()
        y.add_(i)
        out.append(y.t().contiguous())
    return out, x


@case()
def list_items_are_swapped(x):
    rows = list(x.unbind(0))
    rows[0], rows[1] = rows[1], rows[0]
    return torch.stack(rows), rows


@factory(calls=4, traces=2)
def make_setdefault_of_what_is_there_from_then_on():
    table = {"k": 2}

    def f(x):
        table.setdefault("m", float(x.sum()))
        return x + 1, table.setdefault("k", 3)

    return f, table


@factory(calls=4, traces=None)
def make_setdefault_after_a_deletion():
    table = {"m": 2}

    def f(x):
        table.pop("m", None)
        first = table.setdefault("m", x.shape[0])
        return x + table.setdefault("m", 7), first

    return f, table


@factory(traces=None)
def make_copies_of_a_dict_that_is_written():
    seen = {"first": 0}

    def f(x):
        seen["mean"] = x.mean().item()
        seen["sum"] = x.sum().item()
        return x + 1, dict(seen), list(seen), len(seen)

    return f, seen


@factory(traces=None)
def make_hooks_that_keep_activations():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    seen = {}
    for name, layer in net.named_children():
        layer.register_forward_hook(
            lambda _m, _i, out, name=name: seen.__setitem__(name, out.detach().mean().item())
        )

    def f(x):
        y = net(x)
        return y, sorted(seen.items()), dict(seen)

    return f, seen


@factory(calls=4, traces=None, breaks=None)
def make_keys_after_a_write_and_a_deletion():
    table = {"a": 1, "b": 2}

    def f(x):
        table["c"] = table.pop("a", 0)
        keys = list(table)
        table["a"] = 3
        return x + len(table), keys, list(table)

    return f, table


@factory(calls=5, traces=None)
def make_keys_that_differ_between_calls():
    table = {}

    def f(x):
        table[f"k{len(table) % 3}"] = x.shape[0]
        return x + len(table), list(table.items())

    return f, table


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)


NUMBERS: set[int] = set()


class Holder:
    def __init__(self) -> None:
        self.numbers = NUMBERS

    def toggle(self, i: int) -> None:
        self.numbers ^= {i}


HOLDER = Holder()
READS_OF_A_SET = {
    "difference": lambda i: NUMBERS ^ {5},
    "members": lambda i: (7 in NUMBERS, i in NUMBERS, 1 in NUMBERS),
    "sorted": lambda i: sorted(NUMBERS),
    "length": lambda i: (len(NUMBERS), bool(NUMBERS)),
    "comparison": lambda i: (NUMBERS | {9}, NUMBERS == {1, 2}, {1} <= NUMBERS),
    "copies": lambda i: (set(NUMBERS), frozenset(NUMBERS), NUMBERS.copy(), NUMBERS.union({0})),
    "iteration": lambda i: [v for v in NUMBERS if v > 1],
    "fold": lambda i: (max(NUMBERS), sum(NUMBERS)),
    "inside": lambda i: {1: NUMBERS}[1] - {1},
}
CHANGES_OF_A_SET = {
    "add": lambda i: NUMBERS.add(i),
    "discard": lambda i: NUMBERS.discard(i),
    "update": lambda i: NUMBERS.update([i]),
    "or": lambda i: operator.ior(NUMBERS, {i}),
    "xor by an attribute": lambda i: HOLDER.toggle(i),
}


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("change", CHANGES_OF_A_SET)
@pytest.mark.parametrize("read", READS_OF_A_SET)
def test_sets_that_were_changed_in_the_call(read: str, change: str, backend: str) -> None:
    """In the recorded call the change may change nothing: what the set holds then does not follow from before."""
    change_it, read_it = CHANGES_OF_A_SET[change], READS_OF_A_SET[read]

    def program(i: int) -> object:
        change_it(i)
        return read_it(i)

    compiled = kintsugi.compile(program, backend=backend)
    for i in (1, 2, 1, 3, 4, 5, 2, 6, 7):
        outcomes = []
        for function in (program, compiled):
            NUMBERS.clear()
            NUMBERS.update({1, 2})
            outcomes.append((function(i), set(NUMBERS)))
        assert outcomes[0] == outcomes[1], i


class Doubled(dict[str, int]):
    def __iter__(self):
        return iter(["q", "r"])


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("cls", [dict, Doubled])
def test_sets_of_steps_that_were_changed(cls: type, backend: str) -> None:
    def program(table: dict[object, int], i: int) -> object:
        names, keys = set(table), set(table.keys())
        keys.add(i)
        return names ^ keys, names == keys

    compiled = kintsugi.compile(program, backend=backend)
    table = cls({"a": 1, "b": 2, 1: 3})
    for i in (0, 1, 2, 3, 4):
        assert compiled(table, i) == program(table, i)


class Hashed:
    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        hashed.append(self.value)
        return self.value


hashed: list[int] = []


@pytest.mark.parametrize(
    "make", [set, frozenset, lambda d: set(d.keys()), lambda d: frozenset(d.keys()), list, tuple]
)
def test_keys_are_hashed_as_often_as_in_eager_mode(make) -> None:
    table = {Hashed(1): 1, Hashed(2): 2, "a": 3}

    def program(x):
        return x + len(make(table))

    compiled = kintsugi.compile(program, backend="eager")
    for _ in range(4):
        hashed.clear()
        program(torch.ones(1))
        expected = list(hashed)
        hashed.clear()
        compiled(torch.ones(1))
        assert hashed == expected
