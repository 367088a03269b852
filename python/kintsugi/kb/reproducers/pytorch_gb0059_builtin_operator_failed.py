"""Failed to trace builtin operator."""


def problem(x):
    return x + len(str(x.sum())) * 0


def workaround_1(x):
    return x + 0
