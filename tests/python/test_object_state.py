"""Copies, attributes set by name, functions and partial objects made in the trace: eager's results, in one trace."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi
from bench import compare


class Settings:
    def __init__(self) -> None:
        self.sizes = [1, [2]]
        self.table = {"k": (1, 2)}
        self.n = 3


class Hooked(Settings):
    aliases = {"count": "n"}

    def __getattribute__(self, key: str) -> Any:
        if key != "aliases" and key in super().__getattribute__("aliases"):
            key = super().__getattribute__("aliases")[key]
        return super().__getattribute__(key)


class Counted(Settings):
    reads = 0

    def __getattribute__(self, key: str) -> Any:
        Counted.reads += 1
        return super().__getattribute__(key)


settings = Settings()
hooked = Hooked()
counted = Counted()
shared = [1]
table = {"x": shared, "y": shared, "z": [1]}
kept: list[Any] = []
with_hook = torch.nn.Sequential(torch.nn.ReLU())
with_hook.register_forward_hook(lambda module, args, out: out + 1)


def deepcopy_of_old_object(x: torch.Tensor) -> Any:
    own = copy.deepcopy(settings)
    own.n += 1
    own.sizes[1].append(x)
    return x + own.n, own.sizes, copy.deepcopy(own.__dict__["table"]), settings.sizes


def deepcopy_with_attribute_hook(x: torch.Tensor) -> Any:
    own = copy.deepcopy(hooked)
    own.n = 7
    return x * own.count, hooked.count


def deepcopy_keeps_sharing(x: torch.Tensor) -> Any:
    own = copy.deepcopy(table)
    own["x"].append(1)
    return x * len(own["y"]), own, copy.copy(table)["x"] is shared, own["z"] is own["x"]


def copies_of_new_objects(x: torch.Tensor) -> Any:
    made = Settings()
    made.sizes.append(x)
    flat = copy.copy(made)
    flat.n = 9
    return made.n, flat.n, flat.sizes is made.sizes, copy.copy([x, 1]), copy.deepcopy({"a": [1, (2,)]})


def set_and_delete_by_name(x: torch.Tensor) -> Any:
    made = Settings()
    setattr(made, "q", x)
    delattr(made, "n")
    setattr(settings, "last", x)
    settings.gone = 1
    delattr(settings, "gone")
    return made.q + 1, hasattr(made, "n"), hasattr(settings, "gone"), settings.last


def wrapped_function(x: torch.Tensor) -> Any:
    def base(y: torch.Tensor) -> torch.Tensor:
        """Adds one."""
        return y + 1

    @functools.wraps(base)
    def outer(*args: Any) -> Any:
        return base(*args) * 2

    outer.extra = x
    return outer(x), outer.__name__, outer.__doc__, outer.extra, outer.__wrapped__(x)


def returned_wrapper(x: torch.Tensor) -> Any:
    def base(y):
        """Adds one."""
        return y + 1

    @functools.wraps(base)
    def outer(*args):
        return base(*args) * 2

    outer.extra = x
    return outer


def partial_objects(x: torch.Tensor) -> Any:
    plus = functools.partial(torch.add, x, alpha=2)
    line = functools.partial(lambda a, b, c=1: a * b + c, x, c=5)
    return plus(x), line(3), line(2, c=7), line


def module_with_hook(x: torch.Tensor) -> Any:
    return with_hook(x)


def requires_grad_inside(x: torch.Tensor) -> Any:
    w = x.clone()
    w.requires_grad_()
    y = (w * w).sum()
    return y, w.requires_grad, y.requires_grad, w.requires_grad_(False).requires_grad


def pairs_of_a_dict(x: torch.Tensor) -> Any:
    d = {"a": x, "b": x + 1}
    first, *rest = d.items()
    unpacked = [*d.items()]
    added: list[Any] = []
    added += d.items()
    extended: list[Any] = []
    extended.extend(d.items())
    return first, rest, unpacked, added, extended


def generator_left_early(x: torch.Tensor) -> Any:
    return x + any(t.device.type == "cpu" for t in [x, x, x])


def operator_objects(x: torch.Tensor) -> Any:
    return torch.ops.aten.add(x, x), torch.ops.aten.mul.Tensor(x, x)


def plain_helper(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    factor = scale
    return x * factor


def code_of_functions(x: torch.Tensor) -> Any:
    code = plain_helper.__code__
    return x + code.co_argcount, code.co_varnames, code.co_name, plain_helper.__code__.co_flags & 4


def attributes_that_tensors_lack(x: torch.Tensor) -> Any:
    y = x + 1
    before = hasattr(y, "jax"), getattr(y, "tag", None)
    try:
        y.nothing_like_it
    except AttributeError as error:
        caught = str(error)
    return y, before, caught


def escaping_closure(x: torch.Tensor) -> Any:
    n = 0

    def count() -> int:
        nonlocal n
        n += 1
        return n

    kept.append(count)
    n = 5
    return x + 1


def observe(value: Any, x: torch.Tensor) -> Any:
    """What can be compared of a result: functions by what they do."""
    if isinstance(value, tuple):
        return tuple(observe(item, x) for item in value)
    if isinstance(value, functools.partial):
        return value(4)
    if callable(value) and hasattr(value, "__wrapped__"):
        return value(x), value.__name__, value.__doc__, value.extra, value.__module__, value.__wrapped__(x)
    return value


@pytest.mark.parametrize(
    "program",
    [
        deepcopy_of_old_object,
        deepcopy_with_attribute_hook,
        deepcopy_keeps_sharing,
        copies_of_new_objects,
        set_and_delete_by_name,
        wrapped_function,
        returned_wrapper,
        partial_objects,
        module_with_hook,
        requires_grad_inside,
        pairs_of_a_dict,
        generator_left_early,
        operator_objects,
        code_of_functions,
        attributes_that_tensors_lack,
        escaping_closure,
    ],
    ids=lambda program: program.__name__,
)
def test_one_trace(program: Callable[..., Any]) -> None:
    compiled = kintsugi.compile(program, backend="eager")
    for seed in range(3):
        x = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed))
        kept.clear()
        expected = observe(program(x), x), [f() for f in kept]
        kept.clear()
        actual = observe(compiled(x), x), [f() for f in kept]
        assert not compare.differences(expected, actual)
    stats = compiled.stats()
    assert (stats.graph_count, stats.graph_break_count, stats.hits) == (1, 0, 2)


def test_another_code_of_a_function_that_was_looked_at() -> None:
    def helper(x: torch.Tensor) -> torch.Tensor:
        return x

    def other(x: torch.Tensor, more: int = 1, last: int = 2) -> torch.Tensor:
        return x

    def program(x: torch.Tensor) -> Any:
        return x + len(helper.__code__.co_varnames), helper.__code__.co_varnames

    compiled = kintsugi.compile(program, backend="eager")
    x = torch.ones(2)
    for _ in range(2):
        assert not compare.differences(program(x), compiled(x))
    helper.__code__ = other.__code__
    for _ in range(2):
        assert not compare.differences(program(x), compiled(x))


def test_locals_of_callers() -> None:
    """What looks at its callers' frames runs as a step: it finds their locals there."""

    def look() -> tuple[Any, list[str]]:
        caller = sys._getframe(1)
        return caller.f_locals["x"].sum().item(), sorted(caller.f_locals)

    def program(x: torch.Tensor, k: int = 3) -> Any:
        scale = 2
        y = x * scale
        parts = [y, {"k": k}]

        def inner() -> torch.Tensor:
            return y + scale

        seen = look()
        return inner() + len(parts), seen

    compiled = kintsugi.compile(program, backend="eager")
    for number in range(6):
        x = torch.full((2,), float(number))
        assert not compare.differences(program(x), compiled(x))


def test_frames_that_outlive_a_step() -> None:
    frames: list[Any] = []

    def keep(*, back: int) -> int:
        frame = sys._getframe(back)
        frames.append(frame)
        return len(frame.f_locals)

    def program(x: torch.Tensor, names: list[str]) -> torch.Tensor:
        y = x + len(names)
        names = [*names, "more"]

        def inner() -> int:
            return len(names)

        return y * keep(back=1) + inner()

    compiled = kintsugi.compile(program, backend="eager")
    for _ in range(5):
        compiled(torch.ones(2), ["a"])
    program(torch.ones(2), ["a"])
    seen = [(f.f_code, f.f_lineno, sorted(f.f_locals), f.f_locals["names"]) for f in frames]
    assert seen == [seen[-1]] * 6
    counts = [sys.getrefcount(f.f_locals["x"]) for f in frames]
    frames.clear()
    assert max(counts) <= counts[-1] + 1


def test_attributes_that_tensors_are_given() -> None:
    def tell(tensor: torch.Tensor, when: list[bool]) -> None:
        if when[0]:
            tensor.tag = "given"

    kintsugi.disable(tell)

    def program(x: torch.Tensor, when: list[bool]) -> Any:
        y = x * 2
        lacking = hasattr(y, "tag")
        kintsugi.disable(tell)(y, when)
        given = getattr(y, "tag", "none")
        y.tag = 3
        return y, lacking, given, hasattr(y, "tag"), y.tag, getattr(x, "tag", "x has none")

    compiled = kintsugi.compile(program, backend="eager")
    x = torch.ones(2)
    for when in (False, False, True, False, True):
        assert not compare.differences(program(x, [when]), compiled(x, [when]))
    x.tag = "by the caller"
    assert not compare.differences(program(x, [False]), compiled(x, [False]))
    del x.tag
    assert not compare.differences(program(x, [True]), compiled(x, [True]))


def test_copying_runs_a_hook_that_counts() -> None:
    def program(x: torch.Tensor) -> Any:
        return x + copy.deepcopy(counted).n

    compiled = kintsugi.compile(program, backend="eager")
    x = torch.ones(2)
    counts = []
    for function in (program, compiled, compiled, compiled):
        before = Counted.reads
        assert torch.equal(function(x), x + 3)
        counts.append(Counted.reads - before)
    assert len(set(counts)) == 1


def test_copies_are_apart_when_the_originals_are_one() -> None:
    """Two lists that are different objects while recording may be one object later."""

    def program(a: list[int], b: list[int], x: torch.Tensor) -> Any:
        both = copy.deepcopy([a, b])
        both[0].append(9)
        return x + len(both[1]), both

    compiled = kintsugi.compile(program, backend="eager")
    one = [1]
    x = torch.ones(2)
    for a, b in (([1], [1]), ([1], [1]), (one, one), ([1], [1])):
        assert not compare.differences(program(a, b, x), compiled(a, b, x))
