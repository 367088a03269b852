"""Attempted to wrap sparse Tensor with VariableTracker."""

import torch


def problem(x):
    sparse = torch.eye(5).to_sparse()
    return x @ sparse.to_dense()


def workaround_1(x):
    return x @ torch.eye(5)
