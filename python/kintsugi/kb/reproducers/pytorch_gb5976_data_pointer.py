"""Data pointer comparison."""


def problem(x):
    y = x.view(-1)
    return x + 1 if y.data_ptr() == x.data_ptr() else x


def workaround_1(x):
    return x + 1
