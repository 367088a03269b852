"""side-exit: A guard inside a running trace failed: a value is not what it was when the call was recorded."""

import torch


def problem(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def workaround_1(x):
    y = x * 2
    return torch.where(y.sum() > 0, y + 1, y - 1)
