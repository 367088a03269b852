"""python-callback-from-c: A C function calls a Python function back."""

import re


def problem(x):
    total = [x + 1]

    def seen(match):
        total.append(total[-1] * int(match[0]))
        return "#"

    re.compile(r"\d").sub(seen, "a1b2")
    return total[-1]


def workaround_1(x):
    total = x + 1
    for digit in ("1", "2"):
        total = total * int(digit)
    return total
