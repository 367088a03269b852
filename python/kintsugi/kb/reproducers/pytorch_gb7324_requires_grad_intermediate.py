"""returning intermediate with requires_grad_()."""


def problem(x):
    y = x * 2
    y.requires_grad_()
    return y + 1


def workaround_1(x):
    return x * 2 + 1
