"""Unsupported Tensor.resize_as_() call."""

import torch


def problem(x):
    y = x.clone()
    y.resize_as_(torch.empty(2, 2))
    return y * 1


def workaround_1(x):
    return x.reshape(-1)[:4].reshape(2, 2).clone()
