"""left-to-eager: a file is read line by line; the trace has a row of steps for each line, and eager mode is faster."""

import torch

KINTSUGI_BACKEND = "native"
CONFIG = {"eager_when_faster": True}


def around(run):
    for _ in range(24):  # calls are compared from the sixth on
        result = run()
    return result


def inputs(k):
    return (torch.full((4, 5), float(k)),)


def problem(x):
    words = 0
    for line in open(__file__):
        words += len(line.strip().split(" "))
    return x + words
