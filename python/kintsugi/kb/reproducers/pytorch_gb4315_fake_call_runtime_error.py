"""RuntimeError when making fake tensor call."""

import torch


@torch.library.custom_op("kintsugi_kb::without_fake", mutates_args=())
def without_fake(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torch.library.custom_op("kintsugi_kb::with_fake", mutates_args=())
def with_fake(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@with_fake.register_fake
def _(x):
    return torch.empty_like(x)


def problem(x):
    return without_fake(x)


def workaround_1(x):
    return with_fake(x)
