"""trace-too-long: The recording grew past the limit, usually because of a long loop in Python."""

CONFIG = {"trace_length_limit": 100}


def problem(x):
    for i in range(300):
        x = x + i
    return x


def workaround_1(x):
    return x + sum(range(300))
