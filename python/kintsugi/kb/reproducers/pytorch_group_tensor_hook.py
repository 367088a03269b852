"""Programs that torch.compile breaks: tensor hook."""

import types

import torch

leaf = torch.ones(4, 5, requires_grad=True)

hooked = torch.nn.Linear(5, 5)

hooked.register_full_backward_hook(lambda m, a, b: None)


def gb0083(x):
    return hooked(x)


handle = leaf.register_hook(lambda g: g)


def gb0013(x):
    return (handle, x + 1)


stored = None


def gb0100(x):
    global stored
    y = leaf * x
    stored = y.register_hook(lambda g: g)
    return y


def gb0101(x):
    return helper.store(leaf * x)


helper = types.ModuleType("helper")

exec(
    "def store(y):\n    global kept\n    kept = y.register_hook(lambda g: g)\n    return y\n", helper.__dict__
)


def gb7444(x):
    y = x * 2
    y.register_hook(lambda g: g.as_strided((2,), (1,)) if g.stride()[0] == 5 else g)
    return y.sum()


def problem(x):
    global stored
    y = leaf * x
    stored = y.register_hook(lambda g: g)
    return y


def workaround_1(x):
    y = leaf * x
    y.register_hook(lambda g: g)
    return y
