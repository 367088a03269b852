"""Observed exception."""


def problem(x):
    try:
        raise ValueError("always")
    finally:
        x = x + 1


def workaround_1(x):
    return x + 1
