"""TypeError when making fake tensor call."""

import torch


def problem(x):
    return torch.reshape(x, "two")
