"""The setting or class is gone from torch 2.13."""

import torch


def problem(x):
    torch._dynamo.config.cache_dir = "/tmp"
    return x + 1


def workaround_1(x):
    return x + 1
