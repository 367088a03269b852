"""backend="native" on the models of the registry: evaluation without gradients, within the documented tolerances."""

from __future__ import annotations

import pytest
import torch
from native_harness import native, tensors_in

import kintsugi
from bench.models import select
from bench.models.spec import ModelSpec

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    everything = metafunc.config.getoption("--all-models")
    specs = select(metafunc.config.getoption("--model"), quick=not everything)
    metafunc.parametrize("spec", specs, ids=[spec.name for spec in specs])


def _leaves(result: object) -> list[torch.Tensor]:
    # Outputs of the transformers library are ordered dicts; caches in them are compared by the other model tests.
    parts = list(result.values()) if isinstance(result, dict) else result
    return tensors_in(parts)


def test_evaluation(spec: ModelSpec) -> None:
    model = spec.build("tiny")
    with kintsugi.config.patch(report_compiling=False), torch.no_grad():
        runner = native(model)
        for call in range(3):
            args, kwargs = spec.inputs(model, "tiny", call)
            wanted = _leaves(model(*args, **kwargs))
            args, kwargs = spec.inputs(model, "tiny", call)
            got = _leaves(runner(*args, **kwargs))
            assert len(got) == len(wanted)
            for a, b in zip(got, wanted, strict=True):
                assert a.dtype == b.dtype and a.stride() == b.stride()
                # Errors of single operators add up over the layers.
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
