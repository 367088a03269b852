"""Programs that torch.compile breaks: nn module."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel


def gb0119(x):
    return empty.forward(x)


def gb0053(x):
    return fsdp(x)


dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
fsdp = FullyShardedDataParallel(torch.nn.Linear(5, 5), use_orig_params=False, device_id=torch.device("cpu"))


class Empty(torch.nn.Module):
    def __init__(self):
        pass

    def forward(self, x):
        return x + 1


empty = Empty()


def problem(x):
    return empty.forward(x)


class Filled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 1

    def forward(self, x):
        return x + self.n


filled = Filled()


def workaround_1(x):
    return filled.forward(x)
