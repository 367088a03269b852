"""untracked-mutation: an element of an array that C code has made is deleted."""

import array


def problem(x):
    weights = array.array("f", [1.0, 2.0, 3.0])
    del weights[0]
    return x + weights[0]


def workaround_1(x):
    weights = [1.0, 2.0, 3.0]
    del weights[0]
    return x + weights[0]
