"""Attempted to wrap sparse Tensor."""

import torch


def inputs(k):
    return (torch.eye(3).to_sparse() * (k + 1), torch.ones(3))


def problem(s, x):
    return torch.mv(s.to_dense(), x) + s.to_dense().sum()


def workaround_1(s, x):
    return torch.mv(s.to_dense(), x) + s.to_dense().sum()
