"""An opaque object was created in the middle of the program."""

import torch


def problem(x):
    g = torch.Generator()
    g.manual_seed(3)
    return x + torch.rand(5, generator=g)


RAND = torch.rand(5, generator=torch.Generator().manual_seed(3))


def workaround_1(x):
    return x + RAND
