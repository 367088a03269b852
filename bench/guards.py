"""What the guards of whole models cost: `python -m bench.guards` prints one JSON object a model.

The guards are those of a recording that reads every module, parameter and hook dict of the tree. `hot_ns`: checks
back to back; `cold_ns`: with a megabyte of other memory read before each, as a model's own run would.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from typing import Any

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "python"))

import guard_trees

MEGABYTE = 1 << 20


def measure(name: str, model: torch.nn.Module) -> dict[str, Any]:
    from kintsugi._C import guard_testing

    builder = guard_testing.GuardBuilder()
    tree = guard_trees.TreeGuards(builder)
    ids = torch.zeros(1, 8, dtype=torch.long)
    builder.global_state()
    source = builder.source("arg", index=1)
    builder.guard("type", source, key=torch.Tensor)
    builder.tensor(source, ids)
    tree.module(builder.source("arg", index=0), model)
    start = time.perf_counter()
    program = builder.build()
    compiled = time.perf_counter() - start
    args = (model, ids)
    first = program.bench(args, 1, 1)
    model.train()
    model.eval()
    changed = program.bench(args, 1, 1)
    model.train()
    start = time.perf_counter()
    assert program.check(args) is None
    failing = time.perf_counter() - start
    model.eval()
    program.check(args)
    return {
        "model": name,
        "modules": sum(1 for _ in model.modules()),
        "parameters": sum(1 for _ in model.parameters()),
        "guards": program.guards,
        "compares": program.words,
        "hot_ns": round(program.bench(args, 100, 101)),
        "cold_ns": round(program.bench_cold(args, MEGABYTE, 101)),
        "compile_ns": round(compiled * 1e9),
        "structural_ns": round(first),
        "all_dicts_changed_ns": round(changed),
        "failing_ns": round(failing * 1e9),
    }


def main() -> None:
    torch.set_num_threads(1)
    for name, model in (("bert-12", guard_trees.bert()), ("qwen2-24", guard_trees.qwen2())):
        print(json.dumps(measure(name, model)))


if __name__ == "__main__":
    main()
