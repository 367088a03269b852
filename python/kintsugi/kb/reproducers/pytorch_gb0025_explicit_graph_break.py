"""Call to `torch._dynamo.graph_break()`."""

import torch


def problem(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def workaround_1(x):
    y = x + 1
    return y * 2


def dead_end_1(x):
    y = x + 1
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break()
    return y * 2
