"""What stands before each generated program: imports, classes, functions and the globals that are written to."""

from __future__ import annotations

# The globals that programs write to, and how they are made.
STATE = {
    "COUNT": "0",
    "TABLE": '{"k": 2}',
    "GROUPS": "collections.defaultdict(list)",
    "TALLY": "collections.Counter()",
    "RECENT": "collections.deque([1], maxlen=4)",
    "HEAP": "[2, 5]",
}

PRELUDE = """
import bisect, collections, contextlib, copy, dataclasses, decimal, fractions, functools, heapq, inspect, io, itertools
import json, logging, math, operator, random, statistics, sys, time, traceback, types, typing, warnings
import numpy
import torch

logger = logging.getLogger("generated")

class Box:
    scale = 2
    def __init__(self, n):
        self.n = n
        self.w = torch.nn.Parameter(torch.full((4,), 0.5))
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        with torch.no_grad():
            self.net[0].weight.copy_(torch.arange(16.0).reshape(4, 4) / 16 - 0.4)
            self.net[0].bias.fill_(0.25)
    def apply(self, v):
        return v * self.scale + self.n
    @property
    def twice(self):
        return self.n * 2
    @twice.setter
    def twice(self, value):
        self.n = value // 2
    def __getattr__(self, name):
        if name.startswith("maybe"):
            return len(name)
        raise AttributeError(name)

BOX_METHODS = {name: vars(Box)[name] for name in ("apply", "scale", "twice", "__getattr__")}

def restore_box(box):
    box.__class__ = Box
    for name, value in BOX_METHODS.items():
        setattr(Box, name, value)
    box.n = 1
    for name in set(vars(box)) - {"n", "w", "net"}:
        delattr(box, name)
    for module in box.net.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    box.w.grad = None

@dataclasses.dataclass
class Pair:
    a: typing.Any
    b: typing.Any = 1
    def __add__(self, other):
        return Pair(self.a + other.a, self.b + other.b)
    def __iter__(self):
        yield self.a
        yield self.b
    def __getitem__(self, i):
        return (self.a, self.b)[i]
    def __len__(self):
        return 2
    def __call__(self, v):
        return self.a * v

class Point(typing.NamedTuple):
    t: typing.Any
    n: int = 1

class Countdown:
    def __init__(self, n):
        self.n = n
    def __iter__(self):
        return self
    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n

class Guarded:
    def __init__(self, log, swallows):
        self.log, self.swallows = log, swallows
    def __enter__(self):
        self.log.append("enter")
        return self
    def __exit__(self, kind, value, tb):
        self.log.append(kind.__name__ if kind else "exit")
        return self.swallows and kind is not None and issubclass(kind, (ValueError, IndexError))

@contextlib.contextmanager
def section(log, name):
    log.append(("in", name))
    try:
        yield len(name)
    finally:
        log.append(("out", name))

@contextlib.contextmanager
def forgiving(log, t):
    if t.sum() > 0:
        log.append("positive")
    try:
        yield t * 2
    except (ValueError, KeyError) as e:
        log.append(str(e))
    else:
        log.append("fine")

def numbers(n):
    total = 0
    for i in range(n):
        yield i * 2
        total += i
    return total

def relay(n, log):
    try:
        total = yield from numbers(n)
        yield total
    finally:
        log.append("relayed")

def chosen(t):
    for row in t:
        if row.sum() > 0:
            yield row
        else:
            yield -row

def echo(start):
    got = start
    while got is not None:
        try:
            got = yield got
        except ValueError as e:
            got = len(str(e))

def averaging():
    total, count = 0, 0
    while True:
        value = yield total
        if value is None:
            return count
        total += value
        count += 1

async def later(t):
    return t + 1

async def both(t):
    return await later(t) + await later(t * 2)

def finished(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as e:
        return e.value

def depth_first(n, t):
    if n <= 0 or t.sum() > 8:
        return t
    return depth_first(n - 1, t + 1) * 0.5

@functools.lru_cache(maxsize=2)
def squared(n):
    return n * n

def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        TALLY[function.__name__] += 1
        return function(*args, **kwargs)
    return wrapper

@logged
def doubled(t, *, by=2):
    return t * by

""" + "".join(f"{name} = {value}\n" for name, value in STATE.items())
