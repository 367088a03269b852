"""Shape mismatch with out= tensor variant."""

import torch


def problem(x):
    out = torch.empty(0)
    torch.add(x, 1, out=out)
    return out


def workaround_1(x):
    out = torch.empty_like(x)
    torch.add(x, 1, out=out)
    return out


def dead_end_1(x):
    out = torch.empty(1)
    torch.add(x, 1, out=out)
    return out
