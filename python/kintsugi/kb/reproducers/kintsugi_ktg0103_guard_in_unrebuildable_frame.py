"""guard-in-unrebuildable-frame: the function looks at its own frame, which is not CPython's while a trace runs."""

import sys


def problem(x):
    name = sys._getframe().f_code.co_name
    return x + len(name)


def workaround_1(x):
    return x + len("problem")
