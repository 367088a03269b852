"""untracked-mutation: an element of an array that C code has made is written to."""

import array


def problem(x):
    weights = array.array("f", [1.0, 2.0])
    weights[0] = 3.0
    return x + weights[0]


def workaround_1(x):
    weights = [1.0, 2.0]
    weights[0] = 3.0
    return x + weights[0]
