"""All models of the registry against eager: three calls with fresh inputs each, in evaluation and in training.

With `report_compiling=False` everything is compared bit by bit: outputs, their autograd nodes, aliasing, gradients,
what the call changed in the module and in its inputs, and the state of every random generator. With True the libraries
may take their branch for compilers: outputs and gradients are as close to float64 as eager mode's (bench/accuracy.py).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kintsugi
from bench import observe
from bench.models import REGISTRY, select, select_libraries
from bench.models.spec import ModelSpec

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "spec" not in metafunc.fixturenames:
        return
    everything = metafunc.config.getoption("--all-models")
    if metafunc.config.getoption("--libraries"):
        cases = [(spec, "tiny") for spec in select_libraries(metafunc.config.getoption("--model"))]
    else:
        specs = select(metafunc.config.getoption("--model"), quick=not everything)
        cases = [(spec, size) for spec in specs for size in (spec.sizes if everything else ("tiny",))]
    metafunc.parametrize("spec,size", cases, ids=[f"{spec.name}-{size}" for spec, size in cases])


def _check(spec: ModelSpec, size: str, train: bool, exact: bool) -> None:
    kept: list[Any] = []
    for twin in observe.calls(spec, size, train, kept):
        found = twin.differences(tuple(twin.expected), 0.0) if exact else twin.far("out", "gradients")
        assert not found, f"call {twin.turn + 1}: " + "\n".join(found[:8])
        if twin.turn == (2 if spec.initializes_itself else 1):
            stats = kept[0].stats()
            assert stats.hits >= 1, f"call {twin.turn + 1} was no cache hit: {stats}"


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
def test_equal_in_every_bit(spec: ModelSpec, size: str, train: bool) -> None:
    with kintsugi.config.patch(report_compiling=False):
        _check(spec, size, train, exact=True)


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
def test_close_when_compiling_is_reported(spec: ModelSpec, size: str, train: bool) -> None:
    with kintsugi.config.patch(report_compiling=True):
        _check(spec, size, train, exact=False)


def test_one_trace_without_a_break(spec: ModelSpec, size: str) -> None:
    module = spec.build(size)
    compiled = kintsugi.compile(module, backend="eager")
    with torch.no_grad():
        for seed in range(2):
            args, kwargs = spec.inputs(module, size, seed)
            if seed == 0 and spec.initializes_itself:
                module(*args, **kwargs)
            compiled(*args, **kwargs)
    stats = compiled.stats()
    assert (stats.graph_count, stats.graph_break_count) == (1, 0)


def test_the_registry_covers_what_it_has_to() -> None:
    kinds = {spec.kind for spec in REGISTRY.values()}
    assert kinds >= {
        "encoder",
        "decoder",
        "encoder-decoder",
        "vision",
        "speech",
        "mixture of experts",
        "recurrent",
        "plain torch",
    }
    architectures = {name.split("-")[0] for name, spec in REGISTRY.items() if spec.transformers}
    assert len(architectures) >= 20
