"""Functions of the standard library that compute or change one object: steps that break nothing."""

from __future__ import annotations

import collections
import hashlib
import io
import itertools
import os
import random
import struct
import threading
import time

import torch
from harness import Case, Suite, check, check_captured
from torch import nn

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory

OWN = random.Random(3)
DRAW = OWN.random


@case()
def random_numbers(x):
    random.seed(5)
    OWN.seed(int(x.numel()))
    state = random.getstate()
    drawn = random.random(), random.getrandbits(3), DRAW(), random.uniform(0, 1), random.randint(0, 5)
    random.setstate(state)
    return x * drawn[0], drawn, random.random() == drawn[0], random.gauss(0, 1), random.choice([1, 2, 3])


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


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)
