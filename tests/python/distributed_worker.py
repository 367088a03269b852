"""Trains and communicates in several processes, compiled and not: `distributed_worker.py WORLD BACKEND [PROGRAM...]`.

Forks WORLD processes, which find each other through a file. Each runs every program twice, in eager mode and compiled,
and compares: losses, parameters, buffers, gradients. Rank 0 prints a line of JSON for each program.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import kintsugi

Compile = Callable[[Any], Any]
Tensors = list[torch.Tensor]
EACH = 4  # rows of a batch in each process


class Net(nn.Module):
    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.a = nn.Linear(8, 32)
        self.norm = nn.BatchNorm1d(32) if norm else nn.Identity()
        self.b = nn.Linear(32, 32)
        self.c = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm(self.a(x)))
        out: torch.Tensor = self.c(h + torch.tanh(self.b(h)))
        return out


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.left, self.right = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, left: bool) -> torch.Tensor:
        h = torch.relu(self.a(x))
        out: torch.Tensor = self.left(h) if left else self.right(h)
        return out


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)])
        self.c = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        out: torch.Tensor = self.c(x)
        return out


def batches(steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Of all processes together."""
    generator = torch.Generator().manual_seed(3)
    rows = EACH * dist.get_world_size()
    for _ in range(steps):
        yield torch.randn(rows, 8, generator=generator), torch.randn(rows, 4, generator=generator)


def mine(t: torch.Tensor) -> torch.Tensor:
    at = dist.get_rank() * EACH
    return t[at : at + EACH]


def local(t: torch.Tensor) -> torch.Tensor:
    t = t.detach()
    return t.to_local().clone() if hasattr(t, "to_local") else t.clone()


def train(
    call: Callable[..., torch.Tensor],
    module: nn.Module,
    steps: int = 8,
    accumulate: int = 1,
    whole: bool = False,
) -> Tensors:
    """Losses, gradients, parameters and buffers. `whole`: on the batches of all processes."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    seen: Tensors = []
    for i, (x, y) in enumerate(batches(steps)):
        last = (i + 1) % accumulate == 0
        with contextlib.nullcontext() if last or whole else module.no_sync():  # type: ignore[operator]
            loss = nn.functional.mse_loss(call(x if whole else mine(x), i), y if whole else mine(y))
            loss.backward()
        seen.append(loss.detach().clone())
        if last:
            optimizer.step()
            seen += [local(p.grad) for p in module.parameters() if p.grad is not None]
            optimizer.zero_grad()
    return seen + [local(t) for t in (*module.parameters(), *module.buffers())]


def parallel(make: Callable[[], nn.Module], compile: Compile, inner: bool = False, **options: Any) -> Any:
    """A module in DistributedDataParallel, and what is called: one of the two is compiled."""
    torch.manual_seed(1)
    hook = options.pop("hook", None)
    module = make()
    module = DistributedDataParallel(compile(module) if inner else module, **options)
    if hook is not None:
        module.register_comm_hook(None, hook)
    return module, module if inner else compile(module)


Result = tuple[Tensors, Any]  # what came out, and what was compiled
SCALES = {"hook": 300.0}  # of tolerances: gradients are sent in half precision
PROGRAMS: dict[str, Callable[[Compile], Result]] = {}
ALONE: dict[str, Callable[[], Tensors]] = {}  # the same in one process, on the whole batches


def program(function: Callable[[Compile], Result]) -> Callable[[Compile], Result]:
    PROGRAMS[function.__name__] = function
    return function


def training(
    name: str, make: Callable[[], nn.Module], steps: int = 8, accumulate: int = 1, **options: Any
) -> None:
    def call(f: Any) -> Callable[..., torch.Tensor]:
        return (lambda x, i: f(x, i % 3 == 0)) if make is Branches else (lambda x, i: f(x))

    def run(compile: Compile) -> Result:
        module, f = parallel(make, compile, **options)
        return train(call(f), module, steps, accumulate), module.module if options.get("inner") else f

    def alone() -> Tensors:
        torch.manual_seed(1)
        module = make()
        return train(call(module), module, steps, accumulate, whole=True)

    PROGRAMS[name] = run
    ALONE[name] = alone


training("plain", Net)
training("inner", Net, inner=True)
training("accumulation", Net, steps=15, accumulate=3)
training("unused_parameters", Branches, steps=12, find_unused_parameters=True)
training("static_graph", Net, static_graph=True)
training("bucket_view", Net, gradient_as_bucket_view=True)
training("buckets", Net, bucket_cap_mb=0.002)
training("buckets_inner", Net, bucket_cap_mb=0.002, inner=True)
training("buffers", lambda: Net(norm=True))
training("hook", Net, hook=fp16_compress_hook)
del ALONE["buffers"], ALONE["hook"]  # statistics are those of a process; half precision


@program
def whole_step(compile: Compile) -> Result:
    module, _ = parallel(Net, lambda m: m)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    f = compile(step)
    return [f(mine(x), mine(y)).clone() for x, y in batches(8)] + [local(p) for p in module.parameters()], f


@program
def join(compile: Compile) -> Result:
    """Some processes have more batches than others."""
    module, f = parallel(Net, compile)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    with module.join():
        for x, y in batches(5 + 2 * dist.get_rank()):
            nn.functional.mse_loss(f(mine(x)), mine(y)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return [local(p) for p in module.parameters()], f


@program
def fully_shard(compile: Compile) -> Result:
    from torch.distributed.fsdp import fully_shard as shard

    torch.manual_seed(1)
    module = Blocks()
    for block in module.blocks:
        shard(block)
    shard(module)
    f = compile(module)
    return train(lambda x, i: f(x), module), f


@program
def fsdp1(compile: Compile) -> Result:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    torch.manual_seed(1)
    policy = ModuleWrapPolicy({nn.Sequential})
    module = FullyShardedDataParallel(Blocks(), auto_wrap_policy=policy, device_id=torch.device("cpu"))
    f = compile(module)
    return train(lambda x, i: f(x), module), f


def on_tensors(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    def run(compile: Compile) -> Result:
        f = compile(function)
        seen: Tensors = []
        for x, _ in batches(6):
            given = mine(x) + dist.get_rank()
            result = f(given)
            seen += [given, *(result if isinstance(result, (tuple, list)) else [result])]
        return [torch.as_tensor(t).clone() for t in seen], f

    PROGRAMS[function.__name__] = run
    return function


@on_tensors
def all_reduce(x: torch.Tensor) -> Any:
    y = x * 2
    dist.all_reduce(y)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    return y + x


@on_tensors
def asynchronous(x: torch.Tensor) -> Any:
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x.sin()
    work.wait()
    return y + z


@on_tensors
def gather_and_scatter(x: torch.Tensor) -> Any:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    whole = torch.cat(parts) * 2
    part = torch.empty_like(x)
    dist.reduce_scatter_tensor(part, whole)
    swapped = torch.empty_like(part)
    dist.all_to_all_single(swapped, part)
    return whole, part, swapped + 1


@on_tensors
def from_one_to_all(x: torch.Tensor) -> Any:
    y = x + 1
    dist.broadcast(y, src=1)
    total = y * 1
    dist.reduce(total, dst=0)
    dist.barrier()
    return y, total if dist.get_rank() == 0 else x


@on_tensors
def rank_decides(x: torch.Tensor) -> Any:
    return x.relu() if dist.get_rank() == 0 else x.sigmoid() * dist.get_world_size()


@on_tensors
def functional_collectives(x: torch.Tensor) -> Any:
    y = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
    z = functional.all_gather_tensor(x.sin(), 0, dist.group.WORLD)
    return y + 1, z.sum()


@on_tensors
def functional_operators(x: torch.Tensor) -> Any:
    group = dist.group.WORLD.group_name
    y = torch.ops._c10d_functional.all_reduce(x.sin(), "sum", group)
    z = x.cos()
    y = torch.ops._c10d_functional.wait_tensor(y) * 2
    w = x * 3
    torch.ops._c10d_functional.all_reduce_(w, "sum", group)
    torch.ops._c10d_functional.wait_tensor(w)
    return y + z, w + 1


@on_tensors
def raises(x: torch.Tensor) -> Any:
    try:
        dist.all_gather([x], x)
    except (RuntimeError, ValueError):
        return x + 1
    return x


def same(got: Tensors, wanted: Tensors, exact: bool, scale: float = 1.0) -> bool:
    if len(got) != len(wanted):
        return False
    return all(
        torch.equal(a, b) if exact else torch.allclose(a, b, rtol=2e-5 * scale, atol=2e-6 * scale)
        for a, b in zip(got, wanted, strict=True)
    )


def report(name: str, backend: str) -> dict[str, Any]:
    options = {"options": {"sync": True}} if backend == "native" else {}
    wanted, _ = PROGRAMS[name](lambda f: f)
    got, compiled = PROGRAMS[name](lambda f: kintsugi.compile(f, backend=backend, **options))
    alone = ALONE[name]() if name in ALONE else None
    # The last loss is a process's own: what all have in common are gradients and parameters.
    parameters = None if alone is None else alone[-6:]
    checks = [
        same(got, wanted, exact=backend == "eager", scale=SCALES.get(name, 1.0)),
        parameters is None or same(got[-6:], parameters, exact=False),
    ]
    everywhere = torch.tensor([float(check) for check in checks])
    dist.all_reduce(everywhere, op=dist.ReduceOp.MIN)
    stats = compiled.stats()
    return {
        "program": name,
        "as_eager": everywhere[0].item() == 1,
        "as_one_process": everywhere[1].item() == 1,
        "hits": stats.hits,
        "misses": stats.misses,
        "breaks": [b["code"] for b in compiled.breaks()],
        "native": stats.native_runs,
        "backwards": stats.native_backwards,
    }


def work(rank: int, world: int, path: str, backend: str, names: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
    for name in names or PROGRAMS:
        found = report(name, backend)
        if rank == 0:
            print(json.dumps(found), flush=True)
    dist.barrier()  # destroying the group aborts now and then, in eager mode too: gloo's threads


def main(world: int, backend: str, names: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(world):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    work(rank, world, os.path.join(folder, "rendezvous"), backend, names)
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    os._exit(status)
            children.append(child)
        return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
