"""Guards: change one thing that a trace depends on: the result is right, with at most one recording."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import describe
from torch import nn

import kintsugi

SCALE = 2.0
FLAGS = {"double": False}
OPTIONS = types.SimpleNamespace(mode="a", nested=types.SimpleNamespace(n=1))


def x34(call: int = 0) -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4) + call


@dataclasses.dataclass
class Change:
    """fn(*before()) is recorded and hit once; then change(); then fn(*after()) costs one recording and is hit again."""

    fn: Callable[..., Any]
    before: Callable[[], tuple[Any, ...]] = lambda: (x34(),)
    after: Callable[[], tuple[Any, ...]] | None = None
    change: Callable[[], Any] = lambda: None
    undo: Callable[[], Any] = lambda: None
    recordings: int = 1


CHANGES: list[Any] = []


def change(make: Callable[[], Change]) -> Callable[[], Change]:
    CHANGES.append(pytest.param(make, id=make.__name__))
    return make


def arguments(
    name: str, before: Callable[[], Any], after: Callable[[], Any], fn: Any = None, recordings: int = 1
) -> None:
    """A change of what is passed."""

    def default(x: torch.Tensor, v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return v * 2
        return x + 1, v

    made = Change(fn or default, lambda: (x34(), before()), lambda: (x34(1), after()), recordings=recordings)
    CHANGES.append(pytest.param(lambda: made, id=f"argument_{name}"))


arguments("dtype", lambda: torch.ones(3), lambda: torch.ones(3, dtype=torch.float64))
arguments("rank", lambda: torch.ones(3), lambda: torch.ones(3, 1))
arguments("size", lambda: torch.ones(3), lambda: torch.ones(5))
arguments("stride", lambda: torch.ones(3, 4), lambda: torch.ones(4, 3).t())
arguments("requires_grad", lambda: torch.ones(3), lambda: torch.ones(3, requires_grad=True))
arguments("parameter", lambda: torch.ones(3), lambda: nn.Parameter(torch.ones(3)))
arguments("int_value", lambda: 1, lambda: 2, lambda x, n: x.reshape(-1)[: n + 1] if n == 2 else x * n)
arguments("int_to_float", lambda: 1, lambda: 1.0, lambda x, n: x.long() * n)
arguments("int_to_bool", lambda: 1, lambda: True, lambda x, n: x if n is True else x + n)
arguments("string", lambda: "a", lambda: "b", lambda x, s: x + 1 if s == "a" else x - 1)
arguments("none", lambda: None, lambda: torch.ones(4), lambda x, b: x if b is None else x + b)
arguments("list_length", lambda: [1, 2], lambda: [1, 2, 3], lambda x, v: x * len(v))
arguments("list_item", lambda: [1, 2], lambda: [1, 5], lambda x, v: x * v[1])
arguments("list_to_tuple", lambda: [1], lambda: (1,), lambda x, v: x + v[0] if isinstance(v, list) else x)
arguments("dict_keys", lambda: {"a": 1}, lambda: {"a": 1, "b": 2}, lambda x, v: x * sum(v.values()))
arguments(
    "dict_order",
    lambda: {"a": 1, "b": 2},
    lambda: {"b": 2, "a": 1},
    lambda x, v: x + 1 if next(iter(v)) == "a" else x,
)
arguments("set", lambda: {1}, lambda: {1, 2}, lambda x, v: x * len(v))
arguments("dtype_object", lambda: torch.float64, lambda: torch.float16, lambda x, d: x.to(d))
arguments("function", lambda: torch.sin, lambda: torch.cos, lambda x, f: f(x))
arguments("lambda", lambda: lambda v: v + 1, lambda: lambda v: v - 1, lambda x, f: f(x))
arguments("type", lambda: int, lambda: float, lambda x, t: x * t("3"))
arguments(
    "object_attribute",
    lambda: types.SimpleNamespace(n=1),
    lambda: types.SimpleNamespace(n=2),
    lambda x, o: x * o.n,
)
arguments("range", lambda: range(3), lambda: range(4), lambda x, r: x * len(r))
arguments(
    "aliasing",
    lambda: [torch.ones(2)] * 2,
    lambda: [torch.ones(2), torch.ones(2)],
    lambda x, v: x + (v[0] is v[1]),
)
arguments("nested", lambda: {"a": [(1, 2)]}, lambda: {"a": [(1, 3)]}, lambda x, v: x * v["a"][0][1])
arguments("slice", lambda: slice(0, 2), lambda: slice(0, 1), lambda x, s: x[s])
arguments("complex", lambda: 1j, lambda: 2j, lambda x, c: x * c)
arguments("bytes", lambda: b"a", lambda: b"bc", lambda x, b: x * len(b))
arguments(
    "enum_of_torch",
    lambda: torch.channels_last,
    lambda: torch.contiguous_format,
    lambda x, m: x[None, None].to(memory_format=m),
)


@change
def number_of_arguments() -> Change:
    def f(x, *rest):
        return x + len(rest)

    return Change(f, lambda: (x34(),), lambda: (x34(), 1))


@change
def global_value() -> Change:
    def f(x):
        return x * SCALE

    def put(value):
        globals()["SCALE"] = value

    return Change(f, change=lambda: put(5.0), undo=lambda: put(2.0))


@change
def global_appears() -> Change:
    def f(x):
        return x * globals().get("LATER", 1)

    return Change(f, change=lambda: globals().__setitem__("LATER", 3), undo=lambda: globals().pop("LATER"))


@change
def global_dict_entry() -> Change:
    def f(x):
        return x * 2 if FLAGS["double"] else x

    return Change(f, change=lambda: FLAGS.update(double=True), undo=lambda: FLAGS.update(double=False))


def helper(x):
    return x + 1


@change
def global_function_is_replaced() -> Change:
    def f(x):
        return helper(x)

    original = helper
    return Change(
        f,
        change=lambda: globals().__setitem__("helper", lambda x: x - 1),
        undo=lambda: globals().__setitem__("helper", original),
    )


@change
def code_of_function_is_replaced() -> Change:
    def inner(x):
        return x + 1

    def other(x):
        return x * 7

    return Change(lambda x: inner(x), change=lambda: setattr(inner, "__code__", other.__code__))


@change
def defaults_of_function() -> Change:
    def inner(x, k=2):
        return x * k

    return Change(lambda x: inner(x), change=lambda: setattr(inner, "__defaults__", (3,)))


@change
def closure_cell() -> Change:
    k = 1

    def f(x):
        return x * k

    def put():
        nonlocal k
        k = 4

    return Change(f, change=put)


@change
def builtin_is_shadowed() -> Change:
    def f(x):
        return x * len((1, 2))

    return Change(
        f, change=lambda: globals().__setitem__("len", lambda v: 9), undo=lambda: globals().pop("len")
    )


@change
def attribute_of_global_object() -> Change:
    def f(x):
        return x + 1 if OPTIONS.mode == "a" else x - 1

    return Change(f, change=lambda: setattr(OPTIONS, "mode", "b"), undo=lambda: setattr(OPTIONS, "mode", "a"))


@change
def attribute_two_levels_deep() -> Change:
    def f(x):
        return x * OPTIONS.nested.n

    return Change(
        f, change=lambda: setattr(OPTIONS.nested, "n", 4), undo=lambda: setattr(OPTIONS.nested, "n", 1)
    )


class Holder:
    k = 2

    def method(self, x):
        return x * self.k


@change
def class_attribute() -> Change:
    obj = Holder()
    return Change(
        lambda x: x * obj.k, change=lambda: setattr(Holder, "k", 3), undo=lambda: setattr(Holder, "k", 2)
    )


@change
def instance_attribute_shadows_class() -> Change:
    obj = Holder()
    return Change(lambda x: obj.method(x), change=lambda: setattr(obj, "k", 3))


@change
def method_is_patched() -> Change:
    obj = Holder()
    original = Holder.method
    return Change(
        lambda x: obj.method(x),
        change=lambda: setattr(Holder, "method", lambda self, x: x - 1),
        undo=lambda: setattr(Holder, "method", original),
    )


@change
def class_of_instance() -> Change:
    class Other(Holder):
        k = 9

    obj = Holder()
    return Change(lambda x: obj.method(x), change=lambda: setattr(obj, "__class__", Other))


@change
def attribute_is_deleted() -> Change:
    obj = Holder()
    obj.k = 5
    return Change(lambda x: x * obj.k, change=lambda: delattr(obj, "k"))


@change
def list_in_closure_grows() -> Change:
    values = [1, 2]

    def f(x):
        for v in values:
            x = x + v
        return x

    return Change(f, change=lambda: values.append(3))


@change
def module_training_flag() -> Change:
    m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(1.0))
    return Change(lambda x: m(x), change=m.eval)


@change
def module_submodule_replaced() -> Change:
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    return Change(lambda x: m(x), change=lambda: m.__setitem__(1, nn.Tanh()))


@change
def module_gets_longer() -> Change:
    m = nn.Sequential(nn.ReLU())
    return Change(lambda x: m(x), change=lambda: m.append(nn.Tanh()))


@change
def module_hook_added() -> Change:
    m = nn.Sequential(nn.ReLU())
    return Change(lambda x: m(x), change=lambda: m[0].register_forward_hook(lambda mod, a, out: out + 1))


@change
def module_parameter_dtype() -> Change:
    m = nn.Linear(4, 2)
    return Change(lambda x: m(x.to(m.weight.dtype)), change=m.double)


@change
def module_parameter_frozen() -> Change:
    m = nn.Linear(4, 2)
    return Change(lambda x: m(x), change=lambda: m.requires_grad_(False))


@change
def module_parameter_replaced() -> Change:
    m = nn.Linear(4, 2, bias=False)
    return Change(
        lambda x: m(x), change=lambda: setattr(m, "weight", nn.Parameter(torch.ones(2, 4))), recordings=0
    )


@change
def parameter_updated_in_place() -> Change:
    m = nn.Linear(4, 2)

    def bump():
        with torch.no_grad():
            m.weight.add_(1)

    return Change(lambda x: m(x), change=bump, recordings=0)


@change
def state_dict_loaded() -> Change:
    m = nn.Linear(4, 2)
    other = nn.Linear(4, 2).state_dict()
    return Change(lambda x: m(x), change=lambda: m.load_state_dict(other), recordings=0)


@change
def module_to_none() -> Change:
    m = nn.Linear(4, 2)
    return Change(lambda x: m(x), change=lambda: setattr(m, "bias", None))


@change
def grad_mode() -> Change:
    w = torch.ones(4, requires_grad=True)
    return Change(
        lambda x: x * w,
        change=lambda: torch.set_grad_enabled(False),
        undo=lambda: torch.set_grad_enabled(True),
    )


@change
def default_dtype() -> Change:
    return Change(
        lambda x: torch.ones(4) + x,
        change=lambda: torch.set_default_dtype(torch.float64),
        undo=lambda: torch.set_default_dtype(torch.float32),
    )


@change
def autocast_state() -> Change:
    context = torch.autocast("cpu", dtype=torch.bfloat16)
    return Change(
        lambda x: x @ x.T, change=context.__enter__, undo=lambda: context.__exit__(None, None, None)
    )


@change
def deterministic_flag() -> Change:
    def f(x):
        return x + 1 if torch.are_deterministic_algorithms_enabled() else x - 1

    return Change(
        f,
        change=lambda: torch.use_deterministic_algorithms(True),
        undo=lambda: torch.use_deterministic_algorithms(False),
    )


@pytest.mark.parametrize("make", CHANGES)
def test_one_change_one_recording(make: Callable[[], Change]) -> None:
    case = make()
    compiled = kintsugi.compile(case.fn, backend="eager")

    def both(inputs: Callable[[], tuple[Any, ...]]) -> None:
        torch.manual_seed(0)
        found = compiled(*inputs())
        torch.manual_seed(0)
        assert describe(found) == describe(case.fn(*inputs()))

    both(case.before)
    both(case.before)
    first = compiled.stats()
    assert first.misses == 1, "the second call, with nothing changed, must hit"
    case.change()
    try:
        both(case.after or case.before)
        both(case.after or case.before)
    finally:
        case.undo()
    stats = compiled.stats()
    assert stats.misses - first.misses <= case.recordings, compiled.recompiles()
    if case.after is not None or case.recordings == 0:
        both(case.before)
        assert compiled.stats().misses == stats.misses, "the first trace is still there"


def test_recompile_reason_names_guard_and_values() -> None:
    compiled = kintsugi.compile(lambda x, n: x * n, backend="eager")
    compiled(x34(), "ab"[:0] or 2)
    compiled(x34().double(), 2)
    (reason,) = compiled.recompiles()
    assert "float32" in reason["expected"] or "f32" in reason["expected"]
    assert "float64" in reason["seen"] or "f64" in reason["seen"]


def test_recompile_limit_drops_the_oldest_and_never_gives_up() -> None:
    def f(x, name):
        return x + len(name)

    with kintsugi.config.patch(recompile_limit=3):
        compiled = kintsugi.compile(f, backend="eager")
        names = ["a", "bb", "ccc", "dddd", "eeeee"]
        for name in names:
            for call in range(2):
                assert torch.equal(compiled(x34(call), name), f(x34(call), name))
        stats = compiled.stats()
        assert stats.trace_count == 3
        assert stats.misses == 5
        compiled(x34(), "eeeee")
        assert compiled.stats().misses == 5
        assert torch.equal(compiled(x34(), "a"), f(x34(), "a"))
        assert compiled.stats().misses == 6


def test_an_argument_that_is_only_passed_along_is_not_guarded() -> None:
    compiled = kintsugi.compile(lambda x, extra: (x + 1, extra), backend="eager")
    for extra in ([1], [1, 2], [torch.ones(2)]):
        assert compiled(x34(), extra)[1] is extra
    assert compiled.stats().misses == 1


def test_new_object_of_the_same_shape_hits() -> None:
    def f(m, x):
        return m(x)

    compiled = kintsugi.compile(f, backend="eager")
    for seed in range(3):
        torch.manual_seed(seed)
        m = nn.Linear(4, 2)
        assert torch.equal(compiled(m, x34()), m(x34()))
    assert compiled.stats().trace_count <= 3


def test_keys_with_torch_names_are_found_in_other_dicts() -> None:
    def f(x: torch.Tensor, table: dict[tuple[torch.device, torch.dtype], int]) -> torch.Tensor:
        for (device, dtype), factor in table.items():
            if device == x.device and dtype == x.dtype:
                x = x * factor
        return x

    compiled = kintsugi.compile(f)
    x = torch.ones(2)
    for _ in range(3):
        assert compiled(x, {(torch.device("cpu"), torch.float32): 3}).tolist() == [3, 3]
    assert compiled.stats().misses == 1
    assert compiled(x, {(torch.device("cpu"), torch.float64): 3}).tolist() == [1, 1]
