"""A branch on tensor data that goes the other way."""

import torch

CODE = "KTG0203"


def program(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def inputs(call):
    return (torch.ones(3) * (1 if call % 2 == 0 else -1),)
