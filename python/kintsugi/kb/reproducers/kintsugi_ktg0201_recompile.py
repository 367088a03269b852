"""recompile: A guard of every trace failed, so the call was recorded again."""

import torch


def inputs(k):
    return torch.ones(3), "n" * (k + 1), torch.tensor(k + 1)


def problem(x, name, count):
    return x + len(name)


def workaround_1(x, name, count):
    return x + count
