"""Comparison on compile-time-only id or hash value."""


def problem(x):
    return x + (id(x + 1) > 0)


def workaround_1(x):
    return x + 1
