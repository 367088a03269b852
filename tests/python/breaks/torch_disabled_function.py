"""torch's own decorator means the same."""

import torch

CODE = "KTG0107"


@torch.compiler.disable
def load(x):
    return x.sum()


def program(x):
    return x * load(x + 1)


def inputs(call):
    return (torch.ones(3) * call,)
