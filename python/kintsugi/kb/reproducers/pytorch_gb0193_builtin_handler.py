"""invalid call to builtin op handler."""

import torch


def problem(x):
    return min([x[0], x[1]], key=lambda row: row.sum())


def workaround_1(x):
    first = x[0].sum() <= x[1].sum()
    return torch.where(first, x[0], x[1])
