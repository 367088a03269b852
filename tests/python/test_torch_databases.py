"""Torch's own databases of modules, optimizers, autograd functions, custom operators and higher-order operators.

Every entry with its sample inputs, in replay (equal in every bit) and natively (within the tolerances): results, what
the call did to its inputs and to the module, the random generator, gradients. By default one sample each, picked by a
seed; all of them, with every element type of a module, with --all-ops.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from db_harness import check, differences, observe, pick, report, seed_of
from native_harness import TOLERANCES

import kintsugi

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    # What these operators import when they are first called: once, and not again in the child that each test may be.
    import torch._dynamo
    import torch._functorch.aot_autograd
    import torch._higher_order_ops
    from torch.testing._internal import common_utils
    from torch.testing._internal.autograd_function_db import autograd_function_db
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db
    from torch.testing._internal.custom_op_db import custom_op_db
    from torch.testing._internal.hop_db import hop_db

common_utils.extract_test_fn = lambda: None

TURNS = 3
STEPS = 4
BACKENDS = ("eager", "native")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.parametrize("backend", BACKENDS)]


def _numbered(entries: list[Any], name: Callable[[Any], str]) -> list[Any]:
    """Names may come twice."""
    return [pytest.param(entry, id=f"{name(entry)}-{number}") for number, entry in enumerate(entries)]


def _tolerance(backend: str, dtype: torch.dtype = torch.float32) -> float:
    return 0.0 if backend == "eager" else max(TOLERANCES.get(dtype, TOLERANCES[torch.float32]))


def _compile(what: Any, backend: str) -> Any:
    return kintsugi.compile(what, backend=backend, options={"sync": True} if backend == "native" else None)


# --- operators ---


@pytest.mark.parametrize(
    "op", _numbered([*autograd_function_db, *custom_op_db, *hop_db], lambda op: op.formatted_name)
)
def test_operators(op: Any, backend: str, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--all-ops")
    supported = op.supported_dtypes("cpu")
    if not supported:
        pytest.skip("the operator has no samples for the CPU")
    dtype = torch.float32 if torch.float32 in supported else sorted(supported, key=str)[0]
    function = op.op

    def call(value: Any, args: Any, kwargs: Any) -> Any:
        return function(value, *args, **kwargs)

    def problems() -> Iterator[str]:
        for gradients in (False, True):
            if gradients and not (op.supports_autograd and dtype.is_floating_point):
                continue
            torch.manual_seed(seed_of(op.formatted_name))
            made = op.sample_inputs("cpu", dtype, requires_grad=gradients)
            for number, sample in pick(op.formatted_name, made, None if everything else 1):
                inputs = (sample.input, tuple(sample.args), dict(sample.kwargs))
                nodes = op not in hop_db  # which are recorded as what they compute
                for text in check(call, inputs, _tolerance(backend, dtype), backend, TURNS, nodes):
                    yield f"sample {number}: {text}"

    report(problems())


# --- modules ---


def _module(info: Any, sample: Any, dtype: torch.dtype, train: bool) -> torch.nn.Module:
    torch.manual_seed(seed_of(info.formatted_name))
    given = sample.constructor_input
    return info.module_cls(*given.args, **given.kwargs).to(dtype).train(train)


def _with_state(module: torch.nn.Module, call: Any, inputs: tuple[Any, ...]) -> dict[str, Any]:
    seen = observe(lambda args, kwargs: call(*args, **kwargs), inputs, module.parameters())
    return seen | {"state": {name: value.clone() for name, value in module.state_dict().items()}}


def _module_problems(
    info: Any, dtype: torch.dtype, train: bool, backend: str, most: int | None
) -> Iterator[str]:
    torch.manual_seed(seed_of(info.formatted_name))
    made = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=train)
    for number, sample in pick(info.formatted_name, made, most):
        if sample.forward_input is None:
            continue
        inputs = (tuple(sample.forward_input.args), dict(sample.forward_input.kwargs))
        reference = _module(info, sample, dtype, train)
        module = _module(info, sample, dtype, train)
        compiled = _compile(module, backend)
        for turn in range(TURNS):
            expected = _with_state(reference, reference, inputs)
            actual = _with_state(module, compiled, inputs)
            for text in differences(expected, actual, "call", _tolerance(backend, dtype), backend):
                yield f"{dtype} train={train} sample {number} ({sample.desc}) call {turn + 1}: {text}"
        kintsugi.reset()


@pytest.mark.parametrize("info", _numbered(module_db, lambda info: info.formatted_name))
def test_modules(info: Any, backend: str, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--all-ops")
    supported = [dtype for dtype in (torch.float32, torch.float64) if dtype in info.dtypes] or list(
        info.dtypes
    )
    trains = (False, True) if everything else (seed_of(info.formatted_name) % 2 == 0,)

    def problems() -> Iterator[str]:
        for dtype in supported if everything else supported[:1]:
            for train in trains:
                yield from _module_problems(info, dtype, train, backend, None if everything else 1)

    report(problems())


# --- optimizers ---


def _parameters(info: Any) -> list[torch.nn.Parameter]:
    torch.manual_seed(5)
    shapes = [(4, 3), (3, 4)] if info.optim_cls is torch.optim.Muon else [(4, 3), (3,), (2, 4)]
    return [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]


def _training(info: Any, given: Any, wrap: Callable[[Any], Any], whole: bool) -> Iterator[dict[str, Any]]:
    """Parameters and the optimizer's state after each step. `whole`: loss, backward and step in one function."""
    parameters = _parameters(info)
    optimizer = info.optim_cls(parameters, **copy.deepcopy(given.kwargs))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(((p * scale).sin() ** 2).sum() for p in parameters)
        if info.only_supports_sparse_grads:
            for p in parameters:
                p.grad = (p.detach() * scale).to_sparse()
        else:
            loss.backward()
        return loss.detach()

    def step() -> torch.Tensor:
        if info.step_requires_closure:
            return optimizer.step(closure)
        loss = closure()
        optimizer.step()
        return loss

    if whole:
        step = wrap(step)
    else:
        optimizer.step = wrap(optimizer.step)
    for turn in range(STEPS):
        scale = 1.0 + turn / 8
        loss = step()
        yield {
            "loss": loss,
            "parameters": [p.detach().clone() for p in parameters],
            "state": copy.deepcopy(optimizer.state_dict()),
        }


@pytest.mark.parametrize("whole", [False, True], ids=["step", "training step"])
@pytest.mark.parametrize("info", _numbered(optim_db, lambda info: info.optim_cls.__name__))
def test_optimizers(info: Any, backend: str, whole: bool, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--all-ops")
    name = info.optim_cls.__name__

    def problems() -> Iterator[str]:
        made = list(info.optim_inputs_func(device="cpu", dtype=torch.float32))
        for implementation in ("", "foreach", "fused"):
            if implementation == "fused" and "cpu" not in info.supports_fused_on:
                continue
            if implementation == "foreach" and implementation not in info.supported_impls:
                continue
            for number, given in pick(name + implementation, made, None if everything else 1):
                chosen = copy.copy(given)
                if implementation:
                    chosen.kwargs = {**given.kwargs, implementation: True}
                yield from _optimizer_problems(
                    info, chosen, backend, whole, f"{number} {chosen.desc} {implementation}"
                )

    report(problems())


def _optimizer_problems(info: Any, given: Any, backend: str, whole: bool, label: str) -> Iterator[str]:
    try:
        expected = list(_training(info, given, lambda call: call, whole))
    except Exception as error:
        expected = [{"exception": (type(error).__name__, str(error))}]
    try:
        actual = list(_training(info, given, lambda call: _compile(call, backend), whole))
    except Exception as error:
        actual = [{"exception": (type(error).__name__, str(error))}]
    for turn, (mine, theirs) in enumerate(zip(expected, actual, strict=False)):
        for text in differences(mine, theirs, "step", _tolerance(backend), backend):
            yield f"{label} step {turn + 1}: {text}"
    if len(expected) != len(actual):
        yield f"{label}: {expected[-1].get('exception')} / {actual[-1].get('exception')}"
    kintsugi.reset()
