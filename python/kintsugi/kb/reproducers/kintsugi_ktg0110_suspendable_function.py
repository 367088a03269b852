"""suspendable-function: Generator and coroutine functions can be suspended; they are not compiled as entries."""


def problem(x):
    yield x + 1


def workaround_1(x):
    return [x + 1]
