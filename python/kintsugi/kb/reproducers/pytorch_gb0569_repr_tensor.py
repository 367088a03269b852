"""repr() on tensor."""


def problem(x):
    return x + len(repr(x.shape)) * 0 + len(repr(x)) * 0


def workaround_1(x):
    return x + len(str(x.dtype)) * 0


def dead_end_1(x):
    return x + len(f"{x!r}") * 0
