"""setattr() on Tensor.requires_grad."""


def problem(x):
    y = x.detach().clone()
    y.requires_grad = True
    return y * 2


def workaround_1(x):
    return x.detach().clone() * 2


def dead_end_1(x):
    y = x.detach().clone()
    setattr(y, "requires_grad", True)
    return y * 2
