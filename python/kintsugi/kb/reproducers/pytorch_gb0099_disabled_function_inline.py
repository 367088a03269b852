"""Skip inlining `torch.compiler.disable()`d function."""

import torch


@torch.compiler.disable(recursive=False)
def outside(x):
    return x + 1


def problem(x):
    return outside(x) * 2


def workaround_1(x):
    return (x + 1) * 2
