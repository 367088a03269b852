"""C code that calls a Python function back, with tensors inside."""

import re

import torch

CODE = "KTG0102"


def program(x):
    y = x + 1
    total = [y]

    def seen(match):
        total.append(total[-1] * int(match[0]))
        return "#"

    text = re.compile(r"\d").sub(seen, "a1b2")
    return total[-1], text


def inputs(call):
    return (torch.ones(3) * call,)
