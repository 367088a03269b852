"""More different inputs than traces are kept."""

import torch

CODE = "KTG0202"
CONFIG = {"recompile_limit": 2}


def program(x, name):
    return x + len(name)


def inputs(call):
    return torch.ones(3), "n" * call
