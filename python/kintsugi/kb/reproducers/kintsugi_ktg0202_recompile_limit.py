"""recompile-limit: More different inputs than traces are kept; the trace that was used least recently was dropped."""

import torch

CONFIG = {"recompile_limit": 2}


def inputs(k):
    return torch.ones(3), "n" * (k + 1)


def problem(x, name):
    return x + len(name)
