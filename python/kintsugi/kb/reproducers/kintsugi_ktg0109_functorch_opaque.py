"""functorch-opaque: vjp or another functorch transform runs as one step."""

import torch


def problem(x):
    value, derivative = torch.func.vjp(lambda v: v * v, x)
    return derivative(torch.ones_like(value))[0] + 1


def workaround_1(x):
    return 2 * x + 1
