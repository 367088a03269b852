"""Attempted to read undefined local variable."""


def problem(x):
    if x.shape[0] == 99:
        y = x
    return y
