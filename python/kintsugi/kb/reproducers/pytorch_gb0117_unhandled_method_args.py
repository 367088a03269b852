"""Unhandled args for method."""


def problem(x):
    y = x + 1
    y.share_memory_()
    return y


def workaround_1(x):
    return x + 1
