"""Tensor.retain_grad() with AOTDispatcher."""


def problem(x):
    w = x.detach().clone().requires_grad_()
    y = w * 2
    y.retain_grad()
    return y
