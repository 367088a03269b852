"""Objects with a `__del__` that a call makes and drops: when it runs, what it finds, how often. Progress bars, too."""

from __future__ import annotations

import functools
import io
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from harness import describe
from torch import nn
from tqdm import tqdm

import kintsugi

LOG: list[Any] = []
KEPT: list[Any] = []
PROGRAMS: list[Callable[[torch.Tensor], Any]] = []
FOLLOWED: set[str] = set()
VALUES = (0, 1, 2, 5, 0, 3, 1, 7, 2, 0, 9, 1)


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS.append(function)
    return function


def followed(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    """Has to be recorded, and replayed."""
    FOLLOWED.add(function.__name__)
    return program(function)


class Noted:
    def __init__(self, name: Any) -> None:
        self.name = name

    def __del__(self) -> None:
        LOG.append(("gone", self.name))

    def one(self) -> int:
        return 1


class Timer:
    running = 0

    def __init__(self, name: Any) -> None:
        self.name = name
        Timer.running += 1

    def __enter__(self) -> Timer:
        LOG.append("enter")
        return self

    def __exit__(self, *raised: object) -> None:
        LOG.append(("exit", raised[0] is not None))

    def __del__(self) -> None:
        Timer.running -= 1
        LOG.append(("stopped", self.name, Timer.running))


class Holder:
    def __init__(self) -> None:
        self.counts = {"n": 0}
        self.kept: Any = None

    def __del__(self) -> None:
        LOG.append(("holder", self.counts["n"], self.kept is None))


# --- one object


@followed
def at_the_end(x):
    made = Noted("a")
    y = x * 2
    return y + made.one()


@followed
def deleted(x):
    made = Noted("a")
    y = x * 2
    made.one()
    del made
    LOG.append("after")
    return y, list(LOG)


@followed
def never_kept(x):
    Noted("a")
    LOG.append("between")
    Noted("b").one()
    LOG.append("after")
    return x * 3


@followed
def replaced_in_a_loop(x):
    for i in range(4):
        timer = Timer(i)
        x = x + 1
        if x.sum() > 12:
            x = x * 0.5
        LOG.append(("turn", i, timer.name))
    return x


@followed
def in_a_with(x):
    with Timer("w"):
        y = x + 1
        LOG.append(Timer.running)
    LOG.append("after")
    return y * (Timer.running + 1)


@followed
def with_a_side_exit(x):
    with Timer("w"):
        y = x + 1
        if y.sum() > 8:
            y = y * 2
        LOG.append(Timer.running)
    return y


@followed
def by_another_function(x):
    def run(timer, y):
        LOG.append(timer.name)
        return y + 1

    y = run(Timer("t"), x)
    LOG.append("after")
    return y


@program
def what_it_has_changed(x):
    before = Timer.running
    timer = Timer("t")
    during = Timer.running
    del timer
    return x * (Timer.running - before + 2), during - before


@followed
def parts_of_it(x):
    holder = Holder()
    holder.kept = x + 1
    holder.counts["n"] += 2
    return holder.kept * 2


@program
def a_part_outlives_it(x):
    holder = Holder()
    counts = holder.counts
    counts["n"] += 1
    del holder
    LOG.append("after")
    counts["n"] += 1
    return x, counts["n"]


@program
def returned(x):
    return x, Noted("returned")


@program
def revived(x):
    class Stubborn:
        def __del__(self) -> None:
            KEPT.append(self)

    made = Stubborn()
    del made
    LOG.append(len(KEPT))
    KEPT.clear()
    return x


@program
def held_by_others(x):
    made = Noted("r")
    KEPT.append(made)
    del made
    LOG.append("deleted")
    KEPT.clear()
    LOG.append("cleared")
    return x + 1


class Keeper(nn.Module):
    def forward(self, x):
        self.noted = Noted("m")
        LOG.append("set")
        y = x * 2
        self.noted = None
        LOG.append("unset")
        return y


@program
def held_by_a_module(x, keeper=Keeper()):
    return keeper(x)


@program
def held_by_a_list(x):
    items = [Noted("l")]
    LOG.append("made")
    y = x + 1
    items.clear()
    LOG.append("cleared")
    return y


@program
def held_by_a_partial(x):
    run = functools.partial(Noted.one, Noted("p"))
    y = x + run()
    del run
    LOG.append("after")
    return y


@program
def held_by_an_enumeration(x):
    for i, n in enumerate(Countdown(3)):
        x = x + i * n
    LOG.append("after")
    return x


@program
def held_by_a_closure(x):
    made = Noted("c")

    def inner(y):
        return y + made.one()  # noqa: F821

    y = inner(x)
    del made
    LOG.append("after")
    return y


@program
def temporary_files(x):
    with tempfile.NamedTemporaryFile("w+") as file:
        file.write("abc")
        file.flush()
        with open(file.name) as again:
            text = again.read()
    with tempfile.TemporaryDirectory() as folder:
        LOG.append(len(folder) > 0)
    return x, text


@program
def raises_in_it(x):
    class Bad:
        def __del__(self) -> None:
            LOG.append("bad")
            raise RuntimeError("unraisable")

    made = Bad()
    y = x + 1
    del made
    LOG.append("after")
    return y


class Countdown:
    def __init__(self, start: int) -> None:
        self.left = start

    def __iter__(self) -> Countdown:
        return self

    def __next__(self) -> int:
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left

    def __del__(self) -> None:
        LOG.append(("countdown", self.left))


@program
def an_iterator(x):
    for i in Countdown(3):
        x = x + i
        if x.sum() > 9:
            LOG.append("break")
            break
    LOG.append("after")
    return x


class Watcher:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __del__(self) -> None:
        LOG.append(self.tensor.tolist())
        self.tensor.mul_(2)


@followed
def tensors_that_it_writes_to(x):
    y = x + 1
    watcher = Watcher(y)
    y.add_(3)
    z = y * 2
    del watcher
    return y + z, y


@program
def given_to_a_disabled_function(x):
    timer = Timer("d")
    disabled(timer)
    LOG.append("between")
    disabled(Timer("e"))
    del timer
    LOG.append("after")
    return x + 1


@kintsugi.disable
def disabled(timer):
    LOG.append(("disabled", timer.name))


@program
def kept_by_a_disabled_function(x):
    timer = Timer("d")
    keep(timer)
    LOG.append("kept")
    del timer
    LOG.append("deleted")
    keep(None)
    LOG.append("after")
    return x + 1


@kintsugi.disable
def keep(timer):
    KEPT[:] = [] if timer is None else [timer]


@program
def returned_in_a_tuple(x):
    first, second = Noted("t"), Noted("u")
    if x.sum() > 3:
        return x, (first, 1)
    LOG.append("not")
    return x, {"second": second}


@program
def returned_by_a_closure(x):
    made = Noted("f")

    def inner():
        return made.name

    return x + 1, inner()


@followed
def exits_while_it_lives(x):
    made = Noted("s")

    def inner(y):
        if y.sum() > 4:
            y = y - 1
            if y.sum() > 8:
                y = y - 2
        return y

    y = inner(x)
    LOG.append("before")
    made = None
    LOG.append(made)
    if y.sum() > 2:
        y = y * 2
    return y


@program
def recursive(x):
    def down(n, y):
        made = Noted(n)
        if n == 0 or y.sum() > 10:
            return y
        y = down(n - 1, y + 1)
        LOG.append(("up", n))
        return y + made.one()

    return down(3, x)


@program
def in_a_comprehension(x):
    values = [Noted(i).one() for i in range(3)]
    LOG.append("after")
    return x + sum(values)


@program
def in_a_generator(x):
    def numbers():
        made = Noted("g")
        for i in range(3):
            LOG.append(("give", i))
            yield made.one() + i

    for n in numbers():
        x = x + n
        if x.sum() > 9:
            break
    LOG.append("after")
    return x


@program
def two_in_a_generator(x):
    def numbers():
        first = Noted("g")
        second = Noted("h")
        for i in range(3):
            yield first.one() + second.one() + i

    for n in numbers():
        x = x + n
        if x.sum() > 9:
            break
    LOG.append("after")
    return x


# --- several


@program
def two_variables(x):
    first = Noted("a")
    second = Noted("b")
    return x + first.one() + second.one()


@program
def the_other_way_round(x):
    second = None
    first, second = Noted("a"), second or Noted("b")
    LOG.append("made")
    del second
    LOG.append("after")
    return x + first.one()


@program
def arguments_go_first(x):
    def run(given, y):
        own = Noted("own")
        return given.one() + y + own.one()

    y = run(Noted("given"), x)
    LOG.append("after")
    return y


@program
def a_list_of_them(x):
    items = [Noted(i) for i in range(3)]
    items.pop()
    LOG.append("popped")
    items.clear()
    LOG.append("cleared")
    return x


@program
def arguments_of_c_code(x):
    print(Noted("a"), Noted("b"), file=io.StringIO())
    LOG.append("after")
    return x * 3


@program
def one_holds_the_other(x):
    inner = Noted("inner")
    outer = Holder()
    outer.kept = inner
    del inner
    LOG.append("deleted")
    del outer
    LOG.append("after")
    return x


# --- exceptions


@program
def caught(x):
    try:
        timer = Timer("r")
        if x.sum() > 4:
            raise ValueError("x")
        y = x + timer.running
    except ValueError:
        LOG.append("caught")
        y = x * 2
    LOG.append("end")
    return y


@program
def caught_outside(x):
    def inner():
        first = Noted("1")
        second = Noted("0")
        if x.sum() > 4:
            raise ValueError("x")
        return x + first.one() + second.one()

    try:
        y = inner()
    except ValueError:
        LOG.append("caught")
        y = x * 5
    LOG.append("after")
    return y


@program
def not_caught(x):
    first = Noted("1")
    if x.sum() > 4:
        raise ValueError("x")
    return x + first.one()


@program
def loops_left_by_an_exception(x):
    def count(name: str) -> Iterator[int]:
        try:
            yield from range(3)
        finally:
            LOG.append(("closed", name))

    try:
        for i in count("outer"):
            for j in count("inner"):
                x = x + i + j
                if x.sum() > 6:
                    raise KeyError(i)
    except KeyError:
        LOG.append("caught")
    return x


# --- progress bars


@followed
def bar_switched_off(x):
    for y in tqdm([x, x + 1, x + 2], disable=True):
        x = x + y.mean()
    return x


@program
def bar(x):
    out = io.StringIO()
    for y in tqdm([x, x + 1, x + 2], file=out):
        x = x + y.mean()
    return x, out.getvalue().count("3/3")


@program
def bar_over_a_range(x):
    out = io.StringIO()
    for i in tqdm(range(3), file=out):
        x = x + i
        if x.sum() > 14:
            x = x - 2
    LOG.append(len(tqdm._instances))
    return x


@program
def bar_left_early(x):
    out = io.StringIO()
    for i in tqdm(range(4), file=out):
        x = x + i
        if x.sum() > 14:
            break
    LOG.append(len(tqdm._instances))
    return x, "4/4" in out.getvalue()


@program
def bar_in_a_bar(x):
    out = io.StringIO()
    for i in tqdm(range(2), file=out):
        for j in tqdm(range(2), file=out, leave=False):
            x = x + i * j
    LOG.append(len(tqdm._instances))
    return x


@program
def bar_left_by_an_exception(x):
    out = io.StringIO()
    try:
        for i in tqdm(range(4), file=out):
            x = x + i
            if x.sum() > 14:
                raise KeyError(i)
    except KeyError as error:
        LOG.append(("caught", str(error), len(tqdm._instances)))
    LOG.append(len(tqdm._instances))
    return x


@program
def bar_by_hand(x):
    out = io.StringIO()
    progress = tqdm(total=3, file=out)
    for _ in range(3):
        x = x * 1.5
        progress.set_postfix(loss=1.0)
        progress.update(1)
    progress.close()
    return x, progress.n


@program
def bar_in_a_with(x):
    with tqdm([x, x], disable=True) as progress:
        for y in progress:
            x = x + y
            progress.set_description("d")
    return x


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_like_eager(function: Callable[[torch.Tensor], Any]) -> None:
    compiled = kintsugi.compile(function)
    for turn, value in enumerate(VALUES):
        seen = []
        for call in (compiled, function):
            LOG.clear()
            try:
                result = describe(call(torch.full((2,), float(value))))
            except ValueError as error:
                result = ("raised", str(error))
            seen.append((result, list(LOG)))
        assert seen[0] == seen[1], f"call {turn}"
    if function.__name__ in FOLLOWED:
        assert compiled.stats().hits > len(VALUES) / 2


def test_a_recording_grows_linearly_while_an_object_is_followed() -> None:
    """Before each instruction the recorder asks whether the object has ended; what was made before does not count."""

    def sums(x: torch.Tensor, turns: int) -> torch.Tensor:
        followed = Noted("one")
        for _ in range(turns):
            a, b = [x, x + 1], (x * 2, {"c": x})
            x = a[0] + a[1] + b[0] + b[1]["c"]
        return x + followed.one()

    def seconds(turns: int) -> float:
        compiled = kintsugi.compile(sums, backend="eager")
        begin = time.thread_time()
        compiled(torch.zeros(2), turns)
        passed = time.thread_time() - begin
        assert compiled.stats().op_count > 5 * turns
        return passed

    seconds(4)
    assert min(seconds(3200) for _ in range(2)) < 18 * min(seconds(400) for _ in range(3))
    LOG.clear()
