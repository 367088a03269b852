"""Dynamo recompile limit exceeded: one function, more kinds of arguments than versions are kept."""

import torch

DYNAMO_CONFIG = {"recompile_limit": 1}


def inputs(k):
    return torch.linspace(-1, 1, 6), "n" * (k + 1), torch.tensor(k + 1)


def problem(x, name, count):
    return x + len(name)


def workaround_1(x, name, count):
    return x + count
