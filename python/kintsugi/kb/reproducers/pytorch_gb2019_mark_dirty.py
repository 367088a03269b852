"""Unsupported autograd.Function context `mark_dirty`."""

import torch


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


def problem(x):
    return Double.apply(x.clone())


def workaround_1(x):
    return x.clone() * 2
