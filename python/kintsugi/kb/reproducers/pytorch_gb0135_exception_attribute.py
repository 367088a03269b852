"""Unsupported attribute assignment on Exception object."""


def problem(x):
    error = ValueError("x")
    error.args2 = x
    try:
        raise error
    except ValueError as e:
        e.__traceback__ = None
        return x + 1


def workaround_1(x):
    return x + 1
