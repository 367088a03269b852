"""Failed to convert args/kwargs to proxy."""


def problem(x):
    return x.clone().apply_(lambda v: v + 1)


def workaround_1(x):
    return x + 1
