"""missing_mp_subscript."""

import array


def problem(x):
    return x + array.array("i", [1, 2])[1]


def workaround_1(x):
    return x + 2
