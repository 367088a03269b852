"""Several processes: DistributedDataParallel, FSDP and collectives, compiled, beside eager mode and one process."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
import torch

import kintsugi
from kintsugi import _logs, torchdynamo

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch was built without gloo", allow_module_level=True)

FOLDER = pathlib.Path(__file__).parent
ROOT = FOLDER.parent.parent
RUNS = [(2, "eager"), (2, "native"), (4, "eager"), (4, "native")]
FEW = (
    "plain",
    "accumulation",
    "buffers",
    "fully_shard",
    "all_reduce",
    "functional_collectives",
)  # of four in eager

# What runs as one step, and is listed.
BREAKS = {
    "whole_step": ["KTG0108"],
    "fully_shard": ["KTG0107"],
    "fsdp1": ["KTG0107"],
}
# Calls that are recorded: the first one, and those in which the module is in another state.
MISSES = {"accumulation": 4, "unused_parameters": 3}
# What runs natively is the forward with its backward.
TRAINING = {"plain", "inner", "accumulation", "buckets", "buckets_inner", "bucket_view", "buffers", "hook"}


def results(world: int, backend: str) -> dict[str, dict[str, Any]]:
    names = FEW if (world, backend) == (4, "eager") else ()
    run = subprocess.run(
        [sys.executable, str(FOLDER / "distributed_worker.py"), str(world), backend, *names],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return {one["program"]: one for one in found}


@pytest.mark.parametrize("world, backend", RUNS)
def test_processes_train_and_communicate(world: int, backend: str) -> None:
    found = results(world, backend)
    assert len(found) > 20 or set(found) == set(FEW)
    assert [name for name, one in found.items() if not one["as_eager"]] == []
    assert [name for name, one in found.items() if not one["as_one_process"]] == []
    assert [
        one for name, one in found.items() if one["misses"] > MISSES.get(name, 2) or one["hits"] < 3
    ] == []
    assert {name: sorted(set(one["breaks"])) for name, one in found.items() if one["breaks"]} == {
        name: codes for name, codes in BREAKS.items() if name in found
    }
    if backend == "native":
        assert [name for name in TRAINING if found[name]["backwards"] < 3] == []
        # A segment for each bucket, so that one is sent while the next is computed.
        assert found["buckets_inner"]["backwards"] > found["inner"]["backwards"]
        assert found["buckets"]["backwards"] > found["plain"]["backwards"]


def test_buckets_are_sent_while_the_backward_runs(tmp_path: pathlib.Path) -> None:
    """Between two buckets native code computes: the gradients of the next layers are not there yet."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(64, 64) for _ in range(4)]
        module = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)
        there: list[int] = []

        def hook(state, bucket):  # type: ignore[no-untyped-def]  # torch looks at annotations
            there.append(sum(bool((layer.weight.grad != 0).any()) for layer in layers))
            done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        module.register_comm_hook(None, hook)
        compiled = kintsugi.compile(module, backend="native", options={"sync": True})
        for _ in range(6):
            there.clear()
            module.zero_grad(set_to_none=False)
            compiled(torch.ones(2, 64)).sum().backward()
        assert compiled.stats().native_backwards >= 4 * 3
        assert there[0] == 1 and there[-1] == 4 and there == sorted(there) and len(set(there)) == 4, there
    finally:
        torch.distributed.destroy_process_group()


def test_the_example_of_the_docs(tmp_path: pathlib.Path) -> None:
    """docs/howto/distributed.md, run by torchrun as it says."""
    page = (ROOT / "docs/howto/distributed.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "train.py").write_text(code)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    for _ in range(5):
        run = subprocess.run(
            [*command, str(tmp_path / "train.py")], capture_output=True, text=True, timeout=120
        )
        if "terminate called without an active exception" not in run.stderr:
            break  # else gloo's threads have aborted the process at its end, as they do in eager mode too
    assert run.returncode == 0, run.stderr[-4000:]
    [line] = [line for line in run.stdout.splitlines() if line.startswith("hits")]
    hits, breaks = re.findall(r"\d+", line)
    assert int(hits) >= 15 and int(breaks) == 0, line


def test_optimize_ddp_is_accepted_and_said_to_have_no_effect() -> None:
    lines: list[str] = []
    with _logs.collecting(lines):
        torchdynamo.config.optimize_ddp = False
        kintsugi.compile(torch.relu, options={"optimize_ddp": True})
    assert torchdynamo.config.optimize_ddp is False
    assert len([line for line in lines if "optimize_ddp" in line and "no effect" in line]) == 2
    with pytest.raises(TypeError, match="optimize_ddp"):
        kintsugi.compile(torch.relu, options={"optimize_ddp": 3})
