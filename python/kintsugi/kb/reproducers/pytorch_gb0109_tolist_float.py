"""Tensor.tolist() with non-integer tensor."""


def problem(x):
    return x + sum(x[0].tolist())


def workaround_1(x):
    return x + x[0].sum()


def dead_end_1(x):
    return x + sum(float(v) for v in x[0])
