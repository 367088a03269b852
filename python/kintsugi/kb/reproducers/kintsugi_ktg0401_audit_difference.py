"""audit-difference: a promise to the compiler, that a function gives the same each time, does not hold."""

import tempfile

import kintsugi

CONFIG = {"audit": 3, "cache_dir": tempfile.gettempdir()}


@kintsugi.assume_constant_result
def level(x):
    return round(float(x.sum()), 3)


def problem(x):
    return x + level(x)


def workaround_1(x):
    return x + round(float(x.sum()), 3)
