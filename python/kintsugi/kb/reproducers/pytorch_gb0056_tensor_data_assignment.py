"""Failed to mutate tensor data attribute."""


def problem(x):
    y = x.clone()
    y.data = y.data.double()
    return y


def workaround_1(x):
    return x.double()
