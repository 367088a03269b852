"""backward() inside the compiled function."""

import torch

CODE = "KTG0108"


def program(x):
    w = torch.ones(3, requires_grad=True)
    (x * w).sum().backward()
    return w.grad + 1


def inputs(call):
    return (torch.ones(3) * call,)
