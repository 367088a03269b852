"""tp_as_number slot not implemented."""


def problem(x):
    return x + hash(x + 1) * 0


def workaround_1(x):
    return x + 0
