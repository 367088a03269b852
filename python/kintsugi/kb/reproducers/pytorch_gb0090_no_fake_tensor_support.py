"""Operator does not support running with fake tensors."""

import torch


def problem(x):
    return torch.nested.nested_tensor([x[0], x[1]]).to_padded_tensor(0.0)


def workaround_1(x):
    return torch.stack([x[0], x[1]])
