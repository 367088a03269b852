"""A trace function is set while the function is called."""

import sys

import torch

CODE = "KTG0105"


def program(x):
    return x + 1


def inputs(call):
    return (torch.ones(3) * call,)


def around(run):
    sys.settrace(lambda frame, event, arg: None)
    try:
        return run()
    finally:
        sys.settrace(None)
