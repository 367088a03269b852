"""Programs that torch.compile breaks: container."""

import collections
import functools
import types
import typing

import torch


class Plain:
    def __init__(self, n=1):
        self.n = n


plain = Plain()


def gb0257(x):
    return (TD(a=1), x + 1)


class TD(typing.TypedDict, total=False):
    a: int


def gb0258(x):
    return (collections.deque(1, 2, 3), x + 1)


def gb0260(x):
    import functools

    return (functools.partial(), x + 1)


def gb0222(x):
    return (len(tset), x + 1)


tset = {torch.ones(2)}

proxy = types.MappingProxyType({plain: 1})

consts = types.MappingProxyType({"a": 1})


def gb0204(x):
    return (len(proxy), x + 1)


keys = {plain: 1}.keys()


def gb0203(x):
    return (len(keys), x + 1)


existing = {"a": 1}


def gb0198(x):
    existing["a"] = 2
    return (consts["a"], x + 1)


def gb5849(x):
    p = Plain()
    p.__dict__ = {x: 1}
    return (p.__dict__, x + 1)


def gb7637(x):
    p = Plain()
    p.__dict__ = {1: 1}
    return (p.__dict__, x + 1)


tensors = {torch.ones(2)}


def problem(x):
    return x + len(tensors)


listed = [torch.ones(2)]


def workaround_1(x):
    return x + len(listed)
