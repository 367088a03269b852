"""Tensor.uniform_ op called with `from` keyword."""

import torch


def problem(x):
    y = torch.empty_like(x)
    y.uniform_(**{"from": 1, "to": 1})
    return x + y


def workaround_1(x):
    y = torch.empty_like(x)
    y.uniform_(1, 1)
    return x + y


def dead_end_1(x):
    bounds = {"from": 1.0}
    y = torch.empty_like(x)
    y.uniform_(to=1.0, **bounds)
    return x + y
