"""Unsupported Tensor.backward() call."""

import torch


def problem(x):
    w = x.detach().clone().requires_grad_()
    (w * w).sum().backward()
    return w.grad


def workaround_1(x):
    return torch.func.grad(lambda w: (w * w).sum())(x)


def dead_end_1(x):
    w = x.detach().clone().requires_grad_()
    torch.autograd.backward((w * w).sum())
    return w.grad
