"""FX graphs whose sizes are symbols: what decides on a size, and how many tensors sizes and data make."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fx_recorder import Recorder, tensor_inputs
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import kintsugi


def _mixed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    y = (x @ w).relu().reshape(n * 2, -1)
    return torch.cat([y, y[: n // 2]]) / n


@pytest.mark.parametrize("backend", ["eager_graph", "aot_eager", "inductor"])
def test_one_graph_for_all_sizes(backend: str) -> None:
    seen = Recorder()

    def counted(gm: Any, inputs: Any, **options: Any) -> Any:
        seen(gm, inputs)
        if backend == "eager_graph":
            return gm.forward
        return torch._dynamo.lookup_backend(backend)(gm, inputs)

    compiled = kintsugi.compile(_mixed, backend=counted)
    w = torch.randn(4, 6)
    for size in (6, 8, 10, 7, 12, 9, 30):
        x = torch.randn(size, 4)
        assert torch.allclose(compiled(x, w), _mixed(x, w), atol=1e-6)
    assert len(seen.graphs) == 2  # one for the first size, one for all others
    first = tensor_inputs(seen.graphs[-1])[0]
    assert isinstance(first.meta["val"].shape[0], torch.SymInt)
    assert all(type(example) in (torch.Tensor, torch.SymInt) for example in seen.examples[-1])


def test_sizes_that_a_backend_decides_on_get_graphs_of_their_own() -> None:
    graphs, ran = [], []

    def decides(gm: Any, inputs: Any) -> Any:
        large = bool(tensor_inputs(gm)[0].meta["val"].shape[0] > 10)
        graphs.append(large)

        def run(*args: Any) -> Any:
            ran.append(large)
            return gm.forward(*args)

        return run

    compiled = kintsugi.compile(lambda x: x.sin() * 2, backend=decides)
    for size in (4, 5, 20, 6, 30, 7, 21):
        x = torch.ones(size)
        assert torch.equal(compiled(x), x.sin() * 2)
    assert graphs == [False, False, True]
    assert ran[-5:] == [True, False, True, False, True]


def test_open_sizes_in_training() -> None:
    backend = Recorder()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    compiled = kintsugi.compile(model, backend=backend)
    for size in (3, 5, 6, 1, 9):
        x = torch.randn(size, 4)
        gradients = []
        for call in (model, compiled):
            model.zero_grad()
            call(x).pow(2).sum().backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        assert all(torch.allclose(a, b) for a, b in zip(*gradients, strict=True))
    assert len(backend.graphs) == 3  # the first size, the size 1, all others


def test_a_backend_that_wants_numbers_gets_them() -> None:
    refused = []

    def wants_numbers(gm: Any, inputs: Any) -> Any:
        if isinstance(tensor_inputs(gm)[0].meta["val"].shape[0], torch.SymInt):
            refused.append(gm)
            raise ValueError("no symbols")
        return gm.forward

    compiled = kintsugi.compile(lambda x: x.sin() * 2, backend=wants_numbers)
    for size in (4, 5, 6, 5, 6):
        x = torch.ones(size)
        assert torch.equal(compiled(x), x.sin() * 2)
    assert len(refused) == 1


def test_a_size_that_a_backend_asks_for_has_a_graph_of_its_own() -> None:
    """A size that is a number from then on is no guard on a symbol, and has to hold all the same."""
    ran = []

    def decides(gm: Any, inputs: Any) -> Any:
        size = int(tensor_inputs(gm)[0].meta["val"].shape[0])

        def run(*args: Any) -> Any:
            ran.append((size, len(args[-1])))
            return gm.forward(*args)

        return run

    compiled = kintsugi.compile(lambda x: x.sin() * 2, backend=decides, dynamic=True)
    for size in (4, 5, 4, 6, 5):
        compiled(torch.ones(size))
    assert len(ran) == 4 and all(compiled_for == given for compiled_for, given in ran)


def test_symbols_are_inputs_in_front_of_the_others() -> None:
    """As with torch.compile: caches of compiled graphs ask guards of such inputs alone."""
    seen = Recorder()
    compiled = kintsugi.compile(lambda x, y: x @ y, backend=seen, dynamic=True)
    for rows, shared, columns in ((4, 3, 5), (6, 7, 2)):
        x, y = torch.randn(rows, shared), torch.randn(shared, columns)
        assert compiled(x, y).equal(x @ y)
    (examples,) = seen.examples
    assert [type(each) for each in examples] == [torch.SymInt] * 3 + [torch.Tensor] * 2
    placeholders = [node for node in seen.graphs[0].graph.nodes if node.op == "placeholder"]
    assert [type(node.meta["val"]) for node in placeholders[:3]] == [torch.SymInt] * 3


SPLITS = """
import sys, torch, kintsugi

def f(x):
    total = torch.zeros(())
    for i, part in enumerate(torch.tensor_split(x, 3)):
        total = total + part.sum() * i
    return total

compiled = kintsugi.compile(f, backend="inductor", dynamic=True)
for rows in map(int, sys.argv[1:]):
    x = torch.arange(rows * 3.0).view(rows, 3)
    for _ in range(2):
        assert compiled(x).equal(f(x)), (rows, compiled(x), f(x))
"""


def test_code_in_the_cache_of_inductor_is_for_sizes_that_fit(tmp_path: Path) -> None:
    """What one process has compiled for five rows is no code for four."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    for rows in ("5", "4"):
        subprocess.run([sys.executable, "-c", SPLITS, rows], env=environment, check=True)


# --- decisions on sizes -----------------------------------------------------------------------------------------------
def decides_on_sizes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w
    if y.shape[0] > 4:
        y = y.relu()
    z = y.view(y.shape[0], 2, -1).transpose(1, 2)
    z = (z if z.is_contiguous() else z.contiguous()) + 1
    if z.shape[0] % 2 == 0:
        z = z * 2
    return z.flatten(1) / z.shape[0]


def test_decisions_on_sizes_are_part_of_the_graph() -> None:
    """They hold for the sizes of a graph; others go along the instructions and have side traces."""
    seen = Recorder()
    compiled = kintsugi.compile(decides_on_sizes, backend=seen, dynamic=True)
    w = torch.randn(3, 8)
    for rows in (6, 8, 10, 12):
        assert compiled(x := torch.randn(rows, 3), w).equal(decides_on_sizes(x, w))
    assert len(seen.graphs) == compiled.stats().graph_count == 1
    assert not any("checks" in str(node.target) for node in seen.graphs[0].graph.nodes)
    for rows in (7, 3, 4, 9, 6, 1, 2):
        for _ in range(2):
            assert compiled(x := torch.randn(rows, 3), w).equal(decides_on_sizes(x, w)), rows


def test_decisions_behind_writes_and_random_numbers() -> None:
    """A graph for other sizes is refused before it has changed anything."""

    def f(x: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
        counter.add_(1)
        y = x * torch.rand(3)
        if y.shape[0] > 4:
            y = y.relu()
        return y + counter

    compiled = kintsugi.compile(f, backend=lambda gm, inputs: gm.forward, dynamic=True)
    mine, theirs = torch.zeros(1), torch.zeros(1)
    for seed, rows in enumerate((6, 7, 3, 2, 9, 4, 3)):
        x = torch.randn(rows, 3)
        torch.manual_seed(seed)
        wanted = f(x, theirs)
        torch.manual_seed(seed)
        assert compiled(x, mine).equal(wanted), rows
        assert mine.equal(theirs)


@pytest.mark.parametrize(
    "decision",
    [
        lambda n: n * 0.1 * 10 > n,
        lambda n: n * 0.1 * 3 == n * 0.3,
        lambda n: 0.1 + n * 1.0 + 0.2 == n + 0.3,
        lambda n: max(n * 0.1 * 3, n * 0.3) > n * 0.3,
        lambda n: int(n * 0.1 * 10) < n,
        lambda n: n**-0.5 * n**0.5 == 1,
    ],
    ids=["above", "equal", "sum", "max", "truncated", "powers"],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_floats_of_sizes_are_no_algebra(decision: Callable[[int], bool], dynamic: bool | None) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y + 8 if decision(y.shape[0]) else y - 8

    compiled = kintsugi.compile(f, backend=lambda gm, inputs: gm.forward, dynamic=dynamic)
    for rows in (5, 8, 3, 6, 7, 9, 12, 14, 10, 11):
        x = torch.ones(rows, 2)
        assert compiled(x).equal(f(x)), rows


MADE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mul": lambda x: x * 2,
    "sort": lambda x: x.sort(0).values,
    "frexp": lambda x: torch.frexp(x).mantissa,
    "logsigmoid": torch.nn.functional.logsigmoid,
    "batch_norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
}


@pytest.mark.parametrize("name", MADE)
def test_fake_tensors_do_not_decide_on_strides(name: str) -> None:
    """Those of a single element, and those of some operators, are not what the operator makes."""

    made = MADE[name]

    def f(x: torch.Tensor) -> torch.Tensor:
        y = made(x)
        if y.stride(0) == 1:
            y = y + 1
        return y * 2 if y.is_contiguous() else y * 3

    compiled = kintsugi.compile(f, backend=lambda gm, inputs: gm.forward, dynamic=True)
    given = [torch.ones(5, 3), torch.ones(6, 3), torch.ones(3, 4).t(), torch.ones(3, 2).t(), torch.ones(3, 7)]
    if name != "batch_norm":  # which raises for a single row
        given.append(torch.ones(3, 1).t())
    for x in given:
        for _ in range(2):
            assert compiled(x).equal(f(x)), x.shape


def test_a_check_behind_writes_that_no_schema_names() -> None:
    """Batch norm writes to its running statistics; what has no fake kernel is asked in the run alone."""
    norms = [torch.nn.BatchNorm1d(3) for _ in range(2)]

    def f(x: torch.Tensor, norm: torch.nn.Module) -> torch.Tensor:
        z = doubled(norm(x))
        for row in z:
            z = z + row
        return z

    compiled = kintsugi.compile(f, backend=lambda gm, inputs: gm.forward, dynamic=True)
    for rows in (5, 5, 6, 4, 5):
        x = torch.randn(rows, 3)
        assert compiled(x, norms[0]).equal(f(x, norms[1]))
        assert norms[0].running_mean.equal(norms[1].running_mean)


@pytest.mark.parametrize("refused", ["checkpoint", "step"])
def test_decisions_in_graphs_that_a_backend_takes_in_pieces(refused: str) -> None:
    """A piece must not find that it is for other sizes when those before it have written."""

    def inside(y: torch.Tensor) -> torch.Tensor:
        y = y.sin()
        if y.shape[0] > 4:
            y = y * 2
        return y.cos()

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x * w
        x.add_(1)
        if refused == "checkpoint":
            return checkpoint(inside, y, use_reentrant=False)
        y.register_hook(lambda gradient: gradient * 2)
        return inside(y)

    def refuses(gm: Any, inputs: Any) -> Any:
        if any(refused in str(node.target) for node in gm.graph.nodes):
            raise ValueError("only what is plain")
        return gm.forward

    compiled = kintsugi.compile(f, backend=refuses, dynamic=True)
    for rows in (5, 6, 3, 8, 2):
        w = torch.ones(3, requires_grad=True)
        mine, theirs = torch.zeros(rows, 3), torch.zeros(rows, 3)
        assert compiled(mine, w).equal(f(theirs, w)), rows
        assert mine.equal(theirs)


def test_decisions_on_sizes_that_data_makes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        rows = x[x[:, 0] > 0].sin()
        if rows.shape[0] > 2:
            rows = rows * 2
        return rows.sum(0) + x.nonzero().shape[0]

    compiled = kintsugi.compile(f, backend=lambda gm, inputs: gm.forward)
    torch.manual_seed(0)
    for count in (4, 4, 4, 8, 2, 5, 5, 1, 7):
        x = torch.randn(count, 3).round()
        assert compiled(x).equal(f(x))


@pytest.mark.parametrize("name", ["Bert", "GPT2", "T5Encoder"])
def test_models_have_one_graph_for_all_lengths(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    small: dict[str, int] = {
        "vocab_size": 50,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    if name == "T5Encoder":
        small = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    elif name == "GPT2":
        small = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2}
    config = getattr(transformers, f"{name.removesuffix('Encoder')}Config")(**small)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(config).eval()
    seen = Recorder()
    compiled = kintsugi.compile(model, backend=seen, dynamic=True)
    with torch.no_grad():
        for length in (8, 12, 7, 30, 9):
            ids = torch.randint(0, 50, (3, length))
            mask = torch.ones_like(ids)
            mask[0, 3:] = 0
            got = compiled(input_ids=ids, attention_mask=mask, use_cache=False)[0]
            wanted = model(input_ids=ids, attention_mask=mask, use_cache=False)[0]
            assert got.equal(wanted), length
    assert len(seen.graphs) == 1


# --- as many tensors as sizes and data say ----------------------------------------------------------------------------
def sums(parts: Any) -> torch.Tensor:
    total = torch.zeros(())
    for i, part in enumerate(parts):
        total = total + part.sum() * i
    return total


def first_and_others(x: torch.Tensor) -> torch.Tensor:
    first, *others = x * 2
    return first + sum(others) if others else first


def in_a_checkpoint(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda y: sums((y * 2).split(3)), x, use_reentrant=False)


def behind_a_step(x: torch.Tensor) -> torch.Tensor:
    y = (x + 1).requires_grad_()
    z = y * 2
    z.register_hook(lambda gradient: gradient * 3)
    return sums(z.unbind())


@torch.library.custom_op("kintsugi_fx_sizes::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def behind_an_operator_without_a_fake_kernel(x: torch.Tensor) -> torch.Tensor:
    return sums(doubled(x).unbind())


COUNTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "for": lambda x: sums(row for row in x),
    "enumerate": lambda x: torch.stack([row * i for i, row in enumerate(x.relu())]),
    "zip": lambda x: [a * b for a, b in zip(x + 0, x + 1, strict=True)],
    "star": first_and_others,
    "arguments": lambda x: torch.broadcast_tensors(*x),
    "unbind": lambda x: sums(x.unbind(0)),
    "of the transposed": lambda x: sums(x.T.unbind(1)),
    "split": lambda x: sums((x * 2).reshape(-1).split(3)),
    "split by a size": lambda x: len(torch.split(x, x.shape[0] // 2)),
    "sizes of parts": lambda x: torch.cat(x.split([1, x.shape[0] - 1])),
    "chunk": lambda x: sums((x + 1).chunk(3)),
    "tensor_split": lambda x: sums(torch.tensor_split(x, 3)),
    "parts of parts": lambda x: [part.sum() for row in x.unbind() for part in row.split(2)],
    "rows and columns": lambda x: [cell for column in x.T for cell in column[:2]],
    "hsplit": lambda x: [part.sum() for part in x.T.hsplit(x.shape[0])],
    "nonzero": lambda x: sums(row for row in x.nonzero()),
    "where": lambda x: len(torch.where(x > 2)[0].unbind()),
    "unique": lambda x: sums(torch.unique(x).unbind()),
    "a mask": lambda x: sums(x[x[:, 0] > 0].sin().split(2)),
    "in a checkpoint": in_a_checkpoint,
    "behind a step": behind_a_step,
    "no fake kernel": behind_an_operator_without_a_fake_kernel,
}


def _same(got: Any, wanted: Any) -> bool:
    mine, theirs = tree_leaves(got), tree_leaves(wanted)
    return len(mine) == len(theirs) and all(
        a.equal(b) if isinstance(b, torch.Tensor) else a == b for a, b in zip(mine, theirs, strict=True)
    )


@pytest.mark.parametrize(
    ("backend", "dynamic"), [("as it is", None), ("as it is", True), ("aot_eager", True)]
)
@pytest.mark.parametrize("name", COUNTS)
def test_as_many_tensors_as_sizes_and_data_say(name: str, backend: str, dynamic: bool | None) -> None:
    """Also where the graph writes to what it is given, and can't be run again."""
    program = COUNTS[name]

    def writes(x: torch.Tensor, counter: torch.Tensor) -> Any:
        counter.add_(1)
        return program(x)

    torch.manual_seed(0)
    given: Any = (lambda gm, inputs: gm.forward) if backend == "as it is" else backend
    alone = kintsugi.compile(program, backend=given, dynamic=dynamic)
    behind_a_write = kintsugi.compile(writes, backend=given, dynamic=dynamic)
    counter = torch.zeros(1)
    rows = (4, 4, 5, 8, 8, 3, 5, 11, 4, 2)
    for calls, count in enumerate(rows, 1):
        x = torch.randn(count, 3).round() * 2
        assert _same(alone(x), program(x)), count
        assert _same(behind_a_write(x, counter), program(x)), count
        assert counter.item() == calls
