"""torch.jit.script/freeze modules unsupported."""

import torch


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return x + 1


module = torch.jit.script(torch.nn.ReLU())


def problem(x):
    return module(x + 1)


def workaround_1(x):
    return torch.relu(x + 1)


def dead_end_1(x):
    return torch.jit.freeze(module.eval())(x + 1)
