"""A loop that makes the trace longer than the limit."""

import torch

CODE = "KTG0104"
CONFIG = {"trace_length_limit": 100}


def program(x):
    for i in range(300):
        x = x + i
    return x


def inputs(call):
    return (torch.ones(3) * call,)
