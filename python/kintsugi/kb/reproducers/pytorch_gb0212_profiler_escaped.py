"""torch.profiler object escaped from compiled region."""

import torch


def problem(x):
    p = torch.profiler.profile()
    return x + 1, p


def workaround_1(x):
    return x + 1
