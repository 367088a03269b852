"""Unsupported ndarray method call."""


def problem(x):
    return x + len(x.numpy().tobytes()) * 0


def workaround_1(x):
    return x + 0
