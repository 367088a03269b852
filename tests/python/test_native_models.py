"""backend="native" on the models of the registry: evaluation without gradients, within the documented tolerances."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from native_harness import native, tensors_in
from torch.utils._pytree import tree_map_only

import kintsugi
from bench.models import select
from bench.models.spec import ModelSpec

ILL_CONDITIONED = {"resnet18"}

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


def _steps(tensor: torch.Tensor) -> list[int]:
    """Strides that are ever taken: autograd keeps a gradient whose other strides are not its parameter's."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]


def _losses(result: object) -> torch.Tensor:
    return sum((t.float().square().mean() for t in _leaves(result) if t.requires_grad), torch.zeros(()))


def _step(
    run: Callable[..., object], model: torch.nn.Module, spec: ModelSpec, call: int, wide: bool = False
) -> list[torch.Tensor]:
    """Results and gradients of one training step. `wide`: on the same inputs in float64."""
    model.zero_grad()
    args, kwargs = spec.inputs(model, "tiny", call)
    if wide:
        args, kwargs = tree_map_only(
            torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, (args, kwargs)
        )
    torch.manual_seed(call)
    np.random.seed(call)  # speech models choose what to hide with it
    result = run(*args, **kwargs)
    _losses(result).backward()
    found = [t.detach() for t in _leaves(result)]
    return found + [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_training(spec: ModelSpec, mode: str) -> None:
    model = spec.build("tiny").train(mode == "train")
    if not any(p.requires_grad for p in model.parameters()):
        pytest.skip("nothing to train")
    state = copy.deepcopy(model.state_dict())
    with kintsugi.config.patch(report_compiling=False):
        try:
            wanted = [_step(model, model, spec, call) for call in range(3)]
        except RuntimeError as error:
            pytest.skip(f"eager mode refuses: {error}")
        model.load_state_dict(state)
        runner = native(model)
        got = [_step(runner, model, spec, call) for call in range(3)]
    # Norms of a batch of two by one pixel magnify every rounding: what eager mode's own distance from float64 is.
    exact = []
    if spec.name in ILL_CONDITIONED and mode == "train":
        wide = spec.build("tiny").train()
        wide.load_state_dict(state)
        exact = [_step(wide.double(), wide, spec, call, wide=True) for call in range(3)]
    for call, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
        assert len(mine) == len(theirs)
        away = 0.0
        if exact:
            pairs = [(b, e) for b, e in zip(theirs, exact[call], strict=True) if b.is_floating_point()]
            away = max(float((b - e).abs().max() / e.abs().max().clamp(min=1e-6)) for b, e in pairs)
        for a, b in zip(mine, theirs, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and _steps(a) == _steps(b)
            # Errors of single operators add up over the layers, and scale with the gradient's largest elements.
            most = float(b.abs().max()) if b.is_floating_point() and b.numel() else 1.0
            atol = 2e-5 * max(1.0, most) + 4 * away * most
            torch.testing.assert_close(a, b, rtol=1e-3, atol=atol, equal_nan=True)
