"""Attempted to call op with non-contiguous `out=` tensor."""

import torch


def problem(x):
    out = torch.empty(x.shape[1], x.shape[0]).t()
    torch.add(x, 1, out=out)
    return out * 1


def workaround_1(x):
    out = torch.empty_like(x)
    torch.add(x, 1, out=out)
    return out * 1
