"""The derivative of a function, as a function that is called later."""

import torch

CODE = "KTG0109"


def program(x):
    value, derivative = torch.func.vjp(lambda v: v * v, x)
    return derivative(value)[0] + 1


def inputs(call):
    return (torch.ones(3) * call,)
