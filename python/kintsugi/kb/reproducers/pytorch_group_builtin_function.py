"""Programs that torch.compile breaks: builtin function."""

import collections
import decimal
import functools
import io
import re
import typing
import unittest

import torch

DYNAMO = {"gb0060": {"enable_trace_unittest": True}, "gb0296": {"reorderable_logging_functions": {print}}}


def gb0005(x):
    return (str(bytes_io), x + 1)


bytes_io = decimal.Decimal("1.5")


def gb0467(x):
    setattr(iter([1, 2]), "a", 1)
    return x + 1


def gb6053(x):
    return (repr(iter([x])), x + 1)


def gb2852(x):
    return (repr(decimal.Decimal("1.5")), x + 1)


def gb1584(x):
    y = x + 1

    def f():
        return y

    return (repr(f), y)


def gb0137(x):
    return (slice(1, 2).nothing, x + 1)


def gb9137(x):
    return (typing.List[x], x + 1)


def gb0297(x):
    import random

    return random.Random(1, 2).random() + x


def gb0292(x):
    import re

    return (re.compile("a").finditer("aab"), x + 1)


def gb0296(x):
    import logging

    print(x, file=io.StringIO())
    return x + 1


def gb0060(x):
    import unittest

    case.assertWarns(UserWarning, lambda: None)
    return x


case = unittest.TestCase()


def gb0201(x):
    return (collections.namedtuple("P", [x])(1), x + 1)


def gb0180(x):
    import dataclasses

    return (len(dataclasses.fields(3)), x + 1)


class Plain:
    def __init__(self, n=1):
        self.n = n


plain = Plain()


def gb0150(x):
    return (
        hasattr(functools.partial(len), "func"),
        hasattr(x.sum, "a"),
        hasattr([x], "append"),
        hasattr({}.keys(), "a"),
        x + 1,
    )


pat = re.compile("a")


def gb0299(x):
    return (pat.match(plain), x + 1)


def gb0190(x):
    return (getattr(plain, x), x + 1)


def gb0183(x):
    return (dict.fromkeys([[1]]), x + 1)


lib = torch.library.Library("kintsugi_kb2", "DEF")

lib.define("odd(Tensor x) -> Tensor")

lib.impl("odd", lambda x: x + 1, "CompositeImplicitAutograd")

lib.define("meta(Tensor x) -> Tensor")

lib.impl("meta", lambda x: x + 1, "CPU")


@torch._dynamo.assume_constant_result
def constant(a):
    return 3


def gb2520(x):
    return constant([x, iter([1])]) + x


def problem(x):
    return x + hasattr(zip([1], [2]), "a")


has_it = hasattr(zip([1], [2]), "a")


def workaround_1(x):
    return x + has_it
