"""disabled-function: The function is marked with kintsugi."""

import kintsugi


@kintsugi.disable(reason="loads a file")
def load(x):
    return x.sum()


def problem(x):
    return x * load(x + 1)


def workaround_1(x):
    return x * (x + 1).sum()
