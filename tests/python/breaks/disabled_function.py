"""A function that the user took out, with the reason."""

import torch

import kintsugi

CODE = "KTG0107"
TEXT = "loads a file"


@kintsugi.disable(reason="loads a file")
def load(x):
    return x.sum()


def program(x):
    return x * load(x + 1)


def inputs(call):
    return (torch.ones(3) * call,)
