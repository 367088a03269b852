"""Data dependent operator."""

import torch


def problem(x):
    return x + 1 if torch.equal(x, x.abs()) else x - 1


def workaround_1(x):
    return torch.where((x == x.abs()).all(), x + 1, x - 1)


def dead_end_1(x):
    return x + 1 if torch.allclose(x, x.abs()) else x - 1
