"""Programs that torch.compile breaks: distributed."""

import torch
import torch.distributed as dist

store = dist.HashStore()

dist.init_process_group("gloo", store=store, rank=0, world_size=1)


def gb2696(x):
    dist.isend(x, 0)
    return x + 1


def gb1750(x):
    dist.P2POp(dist.isend, x, 0)
    return x + 1


def gb9300(x):
    dist.batch_isend_irecv([])
    return x + 1


p2 = object.__new__(dist.P2POp)

p2.op = 3


def gb9860(x):
    p2.op = 4
    return x + 1


held = torch.ones(2)


def problem(x):
    dist.P2POp(dist.isend, held, 0)
    return x + 1


def workaround_1(x):
    return x + 1
