"""vmap over a function."""

import torch

CODE = "KTG0109"


def program(x):
    return torch.vmap(lambda v: v * 2)(x) + 1


def inputs(call):
    return (torch.ones(3) * call,)
