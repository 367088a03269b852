"""Failed to set tensor attribute."""

import torch


def problem(x):
    x = x.clone()
    x.__class__ = torch.nn.Parameter
    return x
