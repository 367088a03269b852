"""Functions of the standard library that compute or change one object: steps that break nothing."""

from __future__ import annotations

import collections
import csv
import hashlib
import importlib.metadata
import importlib.util
import io
import itertools
import json
import os
import random
import struct
import tempfile
import threading
import time
from typing import Any

import pytest
import torch
from harness import Case, Suite, check, check_captured, describe
from torch import nn

import kintsugi
from kintsugi import _polyfills

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory

OWN = random.Random(3)
DRAW = OWN.random
FOLDER = tempfile.mkdtemp()


@case()
def random_numbers(x):
    random.seed(5)
    OWN.seed(int(x.numel()))
    state = random.getstate()
    drawn = random.random(), random.getrandbits(3), DRAW(), random.uniform(0, 1), random.randint(0, 5)
    random.setstate(state)
    return x * drawn[0], drawn, random.random() == drawn[0], random.gauss(0, 1), random.choice([1, 2, 3])


@case()
def normal_paths(x):
    path = os.path.normpath(f"{x.dim()}//a/../b/./c")
    return (
        x + len(path),
        path,
        os.path.normpath(""),
        os.path.normpath(b"/a//b/.."),
        os.path.abspath("/a/../b"),
    )


@case()
def json_of_plain_data(x):
    number = x.argmax().item() + 0.25
    nested = {
        "b": [1, 2.5, None, (True, "é\n")],
        "a": {"shape": list(x.shape), "mean": number},
        3: f"{number:.2f}",
    }
    return (
        x + len(json.dumps(nested)),
        json.dumps(nested, sort_keys=False, separators=(",", ":")),
        json.dumps({"k": number, "a": [number, {}]}, sort_keys=True),
        json.dumps([], ensure_ascii=False) + json.dumps("ü", ensure_ascii=False),
        json.loads(json.dumps(nested))["a"]["shape"],
        json.dumps(float("nan")),
    )


class Encoder(json.JSONEncoder):
    def default(self, o: Any) -> Any:
        SEEN.append(type(o).__name__)
        return o.tolist() if isinstance(o, torch.Tensor) else str(o)


class Text(str):
    pass


class Float(float):
    def __repr__(self) -> str:
        SEEN.append("repr")
        return "0.5"


SEEN: list[str] = []


def make_json_of_other_objects():
    def run(x):
        SEEN.clear()
        texts = [
            json.dumps({"x": x, "n": 1}, cls=Encoder),
            json.dumps([Text("a"), Float(1.0), {Text("k"): 2}]),
            json.dumps({"o": x.dtype}, default=str),
            json.dumps({"a": [1, 2]}, indent=1),
        ]
        for bad in (float("inf"), {1, 2}):
            try:
                texts.append(json.dumps({"v": [bad, x.sum().item()]}, allow_nan=False))
            except (TypeError, ValueError) as error:
                texts.append(f"{type(error).__name__}: {error}")
        circle: list[Any] = [1]
        circle.append(circle)
        try:
            json.dumps(circle)
        except ValueError as error:
            texts.append(str(error))
        return x * 2, texts, list(SEEN)

    return run


def make_json_of_what_varies():
    table = {"a": [1], "t": "text"}

    def run(x):
        table["a"].append(len(table["a"]))
        if x.sum() > 0:
            table["t"] = str(x.sum().item())
        if len(table["a"]) == 5:
            table["o"] = Text("other")
        level = {"loss": x.mean().item() if x.sum() > 0 else None}
        return x, json.dumps(table), json.dumps(level), json.dumps([table["t"], x.shape[0]])

    return run


@pytest.mark.parametrize("make", [make_json_of_other_objects, make_json_of_what_varies])
def test_json(make: Any) -> None:
    eager, compiled = make(), kintsugi.compile(make())
    for turn in range(10):
        x = torch.full((turn % 3 + 1,), 1.5 if turn % 2 else -1.0)
        assert describe(compiled(x)) == describe(eager(x)), f"call {turn}"


@case()
def bytes_of_numbers(x):
    packed = struct.pack("2f", *x.flatten()[:2].tolist())
    digest = hashlib.sha256(packed)
    digest.update(b"more")
    buffer = io.BytesIO()
    buffer.write(packed)
    buffer.seek(0)
    first = struct.unpack("f", buffer.read(4))[0]
    return (
        x * first,
        digest.hexdigest(),
        buffer.tell(),
        buffer.getvalue(),
        struct.calcsize("i"),
    )


@case()
def of_the_system(x):
    before = time.process_time()
    lock = threading.Lock()
    with lock:
        y = x * 2
    return y, time.process_time() >= before, os.getpid() == os.getpid(), len(os.urandom(4)), time.gmtime(0)


@case(breaks=1)
def whether_a_module_is_there(x):
    found = importlib.util.find_spec("json") is not None
    return x + 1 if found and importlib.util.find_spec("no_such_module_at_all") is None else x


@case(breaks=1)
def version_of_a_package(x):
    return x + len(importlib.metadata.version("numpy"))


@factory((2, 3))
def make_layers_by_index():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))

    def f(x):
        return model[0](x) + model[-1](x), model[1:](x), model[2].bias, len(model)

    return f


@case()
def first_of_an_iterator(x):
    values = {"a": 1, "b": 2}
    big = next(filter(lambda v: v > 1, values.values()))
    none = next(filter(lambda v: v > 9, values.values()), None)
    second = next(itertools.islice(values.items(), 1, None))
    try:
        next(itertools.islice(values, 5, None))
    except StopIteration as error:
        ended = error.value
    return x * big, none, second, ended, next(map(lambda v: x + v, values.values()))


@factory()
def make_least_recently_used():
    kept: collections.OrderedDict[int, torch.Tensor] = collections.OrderedDict()
    kept[7] = torch.zeros(2)

    def f(x):
        kept[7] = x
        kept.move_to_end(7)
        made = collections.OrderedDict(a=1, b=2, c=x)
        last, first = made.popitem(), made.popitem(last=False)
        made.clear()
        try:
            made.popitem()
        except KeyError as error:
            return last, first, str(error), len(made), kept[7]

    return f, kept


@case()
def cleared(x):
    made, plain = collections.OrderedDict(a=x, b=1), {"a": x}
    made.clear()
    plain.clear()
    plain["b"] = x
    return made, plain


@case(breaks=None)
def a_cell_that_a_hook_writes_to(x):
    y = (x * 2).requires_grad_()
    got = []
    total = 0

    def hook(grad):
        nonlocal total
        total += 1
        got.append(grad.sum().item())

    z = y.tanh()
    z.register_hook(hook)
    z.sum().backward()
    total += 10
    z = y.sin()
    z.register_hook(hook)
    z.sum().backward()
    return got, total, y.grad


@case()
def categorical(x):
    choice = torch.distributions.Categorical(logits=x)
    return choice.log_prob(choice.sample()), choice.entropy(), choice.support.upper_bound


def written(path):
    with open(path) as file:
        return file.read()


def make_files_that_nobody_closes():
    """What is written is there when the file object goes, and no sooner."""
    path = os.path.join(FOLDER, "text")

    def inner(x):
        file = open(path, "w")
        file.write(f"inner {tuple(x.shape)}")
        early = written(path)
        return early

    def f(x):
        seen = []
        open(path, "w").write("at once")
        seen.append(written(path))
        file = open(path, "w")
        file.write("later")
        seen.append(written(path))
        write = file.write
        write("!")
        seen.append(written(path))
        del file
        seen.append(written(path))
        write = None
        seen.append(written(path))
        seen.append(inner(x))
        seen.append(written(path))
        rows = csv.writer(open(path, "w"))
        rows.writerow([1, 2])
        seen.append(written(path))
        rows = None
        seen.append(written(path))
        return seen, x + 1

    return f


def make_files_and_exits():
    path = os.path.join(FOLDER, "exits")

    def f(x):
        file = open(path, "w")
        file.write("a")
        if x.sum() > 0:
            file.write("b")
            early = written(path)
            del file
            return early, written(path), x
        file = None
        return written(path), x * 2

    return f


class Writer:
    def __init__(self, path):
        self.file = open(path, "w")

    def put(self, text):
        self.file.write(text)
        return self


def make_files_that_others_hold():
    path = os.path.join(FOLDER, "held")

    def generator():
        file = open(path, "w")
        try:
            file.write("g")
            yield 1
        finally:
            file.write("!")

    def f(x):
        seen = []
        holder = Writer(path).put("instance")
        seen.append(written(path))
        del holder
        seen.append(written(path))
        waiting = generator()
        next(waiting)
        seen.append(written(path))
        del waiting
        seen.append(written(path))
        files = {"one": open(path, "w")}
        files["one"].write("dict")
        seen.append(written(path))
        files["one"] = None
        seen.append(written(path))
        print("printed", x.numel(), file=open(path, "w"))
        seen.append(written(path))
        return seen, x + 1

    return f


@case((3,))
def unpacked_tensors(x):
    def count(*items):
        return len(items), sum(items)

    items = [1]
    items.extend(x)
    return [*x], [0, *x], (*x, 1), count(*x), count(1, *x, *x), torch.stack([*x[None]]), max(*x), items


@factory((2, 3), breaks=None)
def make_state_of_a_module():
    torch.manual_seed(0)
    kept = nn.Linear(3, 3).state_dict()

    def f(x):
        made = nn.Linear(3, 3)
        said = made.load_state_dict({name: value * 2 for name, value in kept.items()})
        return str(said), made(x)

    return f


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)


@pytest.mark.parametrize(
    "make", [make_files_that_nobody_closes, make_files_that_others_hold, make_files_and_exits]
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_files_go_when_the_program_drops_them(make: Any) -> None:
    eager, compiled = make(), kintsugi.compile(make(), backend="eager")
    for turn in range(8):
        x = torch.full((2,), 1.0 if turn % 2 else -1.0)
        assert describe(compiled(x)) == describe(eager(x)), f"call {turn}"
    assert compiled.stats().hits >= 6


@pytest.mark.parametrize("kinds", [1, 2, 3, 10, 100])
def test_short_lists_are_sorted_by_cpython_s_own_comparisons(kinds: int) -> None:
    compared: list[tuple[int, int]] = []

    class Key:
        def __init__(self, value: int, place: int) -> None:
            self.value, self.place = value, place

        def __lt__(self, other: Key) -> bool:
            compared.append((self.place, other.place))
            return self.value < other.value

    draw = random.Random(kinds)
    for _ in range(400):
        values = [draw.randrange(kinds) for _ in range(draw.randint(2, draw.choice((3, 5, 9, 63))))]
        if draw.random() < 0.3:
            values.sort(reverse=True)
        keys, reverse = (
            [Key(*pair) for pair in zip(values, range(len(values)), strict=True)],
            draw.random() < 0.3,
        )
        wanted = [key.place for key in sorted(keys, reverse=reverse)], compared[:]
        compared.clear()
        assert (_polyfills.order(keys, reverse), compared) == wanted, (values, reverse)
        compared.clear()
