"""Unsupported Tensor.item() call with capture_scalar_outputs=False."""


def problem(x):
    return x * x.sum().item()


def workaround_1(x):
    return x * x.sum()


def dead_end_1(x):
    return x * float(x.sum())
