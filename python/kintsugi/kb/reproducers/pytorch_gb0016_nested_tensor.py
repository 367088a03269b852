"""Attempted to wrap strided NestedTensor."""

import torch


def inputs(k):
    return (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),)


def problem(x):
    return x * 2
