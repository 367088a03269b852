"""A forward with a branch on data, as the message describes."""

import torch


def inputs(k):
    x = torch.ones(4) if k % 2 == 0 else -torch.ones(4)
    if k == 2:
        x[0] = float("inf")
    return (x,)


def problem(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


def with_where(x):
    return torch.where(x.sum() > 0, x * 2, x - 1)


def with_masked_select(x):
    chosen = torch.masked_select(x, x.sum() > 0)
    return x * 2 if chosen.numel() else x - 1


def with_blend(x):
    yes = (x.sum() > 0).float()
    return yes * (x * 2) + (1 - yes) * (x - 1)


@torch.compiler.disable
def branch(x):
    return x * 2 if x.sum() > 0 else x - 1


def with_disable(x):
    return branch(x)


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    if bool(x.sum() > 0):
        return x * 2
    return x - 1


def with_script(x):
    return scripted(x)


@torch.jit.ignore
def ignored(x):
    return x * 2 if x.sum() > 0 else x - 1


def with_ignore(x):
    return ignored(x)


def with_log_level(x):
    torch._dynamo.config.log_level = 20
    return problem(x)
