"""Skip calling `torch.compiler.disable()`d function."""

import torch


@torch.compiler.disable
def outside(x):
    return x + 1


def problem(x):
    return outside(x) * 2


def workaround_1(x):
    return (x + 1) * 2


@torch.compiler.disable(recursive=False)
def shallow(x):
    return x + 1


def dead_end_1(x):
    return shallow(x) * 2
