"""Attempted to use `torch.nn.Parameter()` constructor with Dynamo."""

import torch


def problem(x):
    p = torch.nn.Parameter(torch.ones(5))
    return x * p


P = torch.nn.Parameter(torch.ones(5))


def workaround_1(x):
    return x * P
