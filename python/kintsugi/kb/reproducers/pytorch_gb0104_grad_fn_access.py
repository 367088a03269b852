"""Tensor with grad_fn()."""


def problem(x):
    doubled = x.detach().clone().requires_grad_() * 2
    return x + len(doubled.grad_fn.name())


def workaround_1(x):
    return x + len("MulBackward0")
