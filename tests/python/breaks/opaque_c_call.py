"""A C function that Kintsugi has no model of."""

import zlib

import torch

CODE = "KTG0101"


def program(x):
    y = x + 1
    check = zlib.crc32(bytes(y.shape))
    return y * (check % 7)


def inputs(call):
    return (torch.ones(3) * call,)
