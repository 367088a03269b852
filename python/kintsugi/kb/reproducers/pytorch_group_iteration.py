"""Programs that torch.compile breaks: iteration."""

import itertools

import torch


def gb0268(x):
    return x + sum((a for a, _ in itertools.product([1, 2], [3], repeat=1, again=2)))


def gb0155(x):
    return x + len(list(itertools.groupby([1, 1, 2], k=None)))


def gb0134(x):
    return x + len(list(itertools.groupby([1, 1], None, None)))


def gb0115(x):

    def key(v):
        raise ValueError("no key")

    return x + len(list(itertools.groupby([1, 1, 2], key=key)))


def gb0003(x):
    yield (x + 1)


def inner():
    yield 1


made = inner()


def gb0253(x):
    return x + made.send(None)


def gb4347(x):
    return x + next(torch.finfo(torch.float32))


mv = memoryview(b"ab")


def gb0811(x):
    for i in plainiter:
        pass
    return x + 1


plainiter = mv


def gb8335(x):
    return (gen(x), x + 1)


lst = []


def gen(x):
    lst.append(1)
    yield x
    lst.append(2)


lib = torch.library.Library("kintsugi_kb2", "DEF")

lib.define("odd(Tensor x) -> Tensor")

lib.impl("odd", lambda x: x + 1, "CompositeImplicitAutograd")

lib.define("meta(Tensor x) -> Tensor")

lib.impl("meta", lambda x: x + 1, "CPU")

view = memoryview(b"ab")

listed = list(view)


def problem(x):
    for _ in view:
        x = x + 1
    return x


def workaround_1(x):
    for _ in listed:
        x = x + 1
    return x
