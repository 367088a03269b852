"""Programs that torch.compile breaks: comparison."""

import array


def gb6622(x):
    return ([x.sum()] == [x.sum()], x)


b_array = array.array("i", [1, 2])


def gb1220(x):
    return (b_array == b_array, x + 1)


def gb0682(x):
    return (hash(x.sum), x + 1)


def gb6215(x):
    return (x.sum == x.mean, x + 1)


def problem(x):
    return x + (x.sum == x.mean)


def workaround_1(x):
    return x + ("sum" == "mean")
