"""tensor-of-unknown-origin: a sparse tensor has no memory that a trace could name."""

import torch


def problem(x):
    return x.to_sparse().to_dense() + 1


def workaround_1(x):
    return torch.where(x != 0, x, 0.0) + 1
