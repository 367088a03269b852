"""autograd-opaque: backward() or a custom autograd."""

import torch


def problem(x):
    w = torch.ones(5, requires_grad=True)
    (x * w).sum().backward()
    return w.grad + 1


def workaround_1(x):
    return x.sum(0) + 1
