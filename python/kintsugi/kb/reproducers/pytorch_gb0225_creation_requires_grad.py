"""Attempted to use tensor creation function with requires_grad=True."""

import torch


def problem(x):
    y = torch.ones(5, requires_grad=True)
    return x * y


ONES = torch.ones(5, requires_grad=True)


def workaround_1(x):
    return x * ONES


def dead_end_1(x):
    y = torch.full((5,), 1.0, requires_grad=True)
    return x * y
