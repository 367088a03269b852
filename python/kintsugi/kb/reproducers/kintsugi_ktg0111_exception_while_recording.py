"""exception-while-recording: the function refuses its arguments."""


def problem(x):
    y = x + 1
    if y.dim() != 3:
        raise ValueError("three dimensions are expected")
    return y
