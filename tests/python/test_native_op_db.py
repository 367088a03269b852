"""backend="native" on torch's own operator database: dtypes, layouts, and sizes fixed or open, within the tolerances.

What an operator gives goes through more arithmetic, so that native code reads its results. By default the operators
that are decomposed or looked through, one sample a dtype; with --all-ops all operators, six samples, each also with
arguments that do not lie contiguously. Operators by element and reductions meet sizes of 0, 1 and odd ones besides.
"""

from __future__ import annotations

import itertools
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from native_harness import TOLERANCES, tensors_in

import kintsugi
from bench import compare

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo

common_utils.extract_test_fn = lambda: None

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)

SMALL = (torch.bfloat16, torch.float16)

DECOMPOSED = set(
    "add sub rsub mul div true_divide maximum minimum neg abs sqrt floor ceil trunc exp log tanh erf eq "
    "ne lt le gt ge isnan logical_and logical_or logical_xor logical_not bitwise_and bitwise_or "
    "bitwise_xor bitwise_not where masked_fill nn.functional.relu nn.functional.relu6 clamp clamp_min "
    "clamp_max nn.functional.hardtanh nn.functional.hardsigmoid nn.functional.hardswish "
    "nn.functional.leaky_relu sigmoid nn.functional.silu nn.functional.gelu rsqrt reciprocal square pow "
    "addcmul lerp to type_as clone contiguous sum mean amax amin argmax argmin softmax log_softmax "
    "nn.functional.layer_norm nn.functional.rms_norm nn.functional.batch_norm view reshape transpose "
    "permute t unsqueeze squeeze expand expand_as select narrow chunk split unbind flatten unflatten cat "
    "stack gather index_select matmul nn.functional.linear addmm mm nn.functional.group_norm nn.functional.pad "
    "nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.avg_pool1d nn.functional.avg_pool2d "
    "nn.functional.adaptive_avg_pool2d constant_pad_nd where full ones new_full arange "
    "nn.functional.scaled_dot_product_attention".split()
)

# Their results are memory that nobody wrote, or random numbers.
UNCOMPARABLE = (
    "empty",
    "rand",
    "normal",
    "bernoulli",
    "multinomial",
    "dropout",
    "resize",
    "uniform",
    "exponential",
)

pytestmark = pytest.mark.filterwarnings("ignore")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    everything = metafunc.config.getoption("--all-ops")
    ops = [
        op
        for op in op_db
        if not any(part in op.name for part in UNCOMPARABLE) and (everything or op.name in DECOMPOSED)
    ]
    if metafunc.function is test_sizes:
        ops = [op for op in ops if isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo, ReductionOpInfo))]
    metafunc.parametrize("op", ops, ids=[op.formatted_name for op in ops])


def _more(value: Any) -> Any:
    """Something fused on top of each tensor of a result."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_complex():
            return value
        return value, (value.logical_not() if value.dtype == torch.bool else value + value)
    if isinstance(value, (tuple, list)):
        return [_more(part) for part in value]
    return value


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    return tensor.dtype, tuple(tensor.shape), strides, tensor.layout


def _wider(value: Any) -> Any:
    """The same values as float32."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in SMALL else value
    if isinstance(value, (tuple, list)):
        return type(value)(_wider(part) for part in value)
    if isinstance(value, dict):
        return {key: _wider(part) for key, part in value.items()}
    return value


def _leeway(fn: Callable[[Any, Any, Any], Any], args: tuple[Any, Any, Any], wanted: list[Any]) -> list[float]:
    """By result, twice what eager mode is wrong by: small floats are rounded in between there too, at other places."""
    none = [0.0] * len(wanted)
    if not any(t.dtype in SMALL for t in wanted) or any(t.layout is not torch.strided for t in wanted):
        return none
    try:
        exact = tensors_in(fn(*_wider(args)))
    except Exception:
        return none
    if [t.shape for t in exact] != [t.shape for t in wanted]:
        return none
    wrong = [(a.float() - b.float()).abs().nan_to_num(0, 0, 0) for a, b in zip(exact, wanted, strict=True)]
    return [
        2 * w.max().item() if w.numel() and b.dtype in SMALL else 0.0
        for w, b in zip(wrong, wanted, strict=True)
    ]


def _check(fn: Callable[[Any, Any, Any], Any], args: tuple[Any, Any, Any], dynamic: bool) -> str | None:
    """The first difference."""
    try:
        wanted = tensors_in(fn(*args))
    except Exception:
        return None
    leeway = _leeway(fn, args, wanted)
    runner = kintsugi.compile(fn, backend="native", dynamic=dynamic, options={"sync": True})
    for turn in range(2):
        got = tensors_in(runner(*args))
        if len(got) != len(wanted):
            return f"turn {turn}: {len(got)} tensors, not {len(wanted)}"
        for a, b, more in zip(got, wanted, leeway, strict=True):
            if _form(a) != _form(b):
                return f"turn {turn}: {_form(a)}, not {_form(b)}"
            rtol, atol = TOLERANCES.get(a.dtype, (1e-6, 1e-6))
            try:
                compare.assert_near(a, b, rtol, atol + more)
            except AssertionError as error:
                return f"turn {turn}: {str(error)[:300]}"
    return None


def _dtypes(op: Any) -> list[torch.dtype]:
    return [dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu")]


def _through_arithmetic(op: Any) -> Callable[[Any, Any, Any], Any]:
    function = op.op
    return lambda value, args, kwargs: _more(function(value, *args, **kwargs))


def _is_strided(sample: Any) -> bool:
    """Others can't be made to lie otherwise."""
    arguments = [sample.input, *sample.args, *sample.kwargs.values()]
    return all(tensor.layout is torch.strided for tensor in tensors_in(arguments))


def _report(problems: Iterator[str]) -> None:
    found = list(problems)
    assert not found, f"{len(found)} differences:\n" + "\n".join(found[:5])


def test_samples(op: Any, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--all-ops")
    fn = _through_arithmetic(op)

    def problems() -> Iterator[str]:
        for dtype in _dtypes(op):
            torch.manual_seed(zlib.crc32(op.formatted_name.encode()))
            samples = list(itertools.islice(op.sample_inputs("cpu", dtype), 40))
            step = max(1, len(samples) // (6 if everything else 1))
            for number, sample in list(enumerate(samples))[::step]:
                forms = [("", sample, False), ("open sizes", sample, True)]
                if everything and _is_strided(sample):
                    forms.append(("strided", sample.noncontiguous(), False))
                for form, made, dynamic in forms:
                    inputs = (made.input, tuple(made.args), dict(made.kwargs))
                    with torch.no_grad():
                        problem = _check(fn, inputs, dynamic)
                    kintsugi.reset()
                    if problem:
                        yield f"{dtype} sample {number} {form}: {problem}"

    _report(problems())


SIZES = ((0,), (1,), (7,), (33,), (0, 3), (3, 0), (1, 1), (1, 5), (7, 1), (3, 17), (2, 1, 9))


def _tensor(shape: tuple[int, ...], dtype: torch.dtype, domain: Any, layout: str) -> torch.Tensor:
    """Within what the operator is defined on; strided: every second element, the dimensions the other way round."""
    low, high = (domain or (None, None)) if dtype.is_floating_point else (None, None)
    if layout == "contiguous":
        return torch.testing.make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)
    wide = tuple(2 * size for size in reversed(shape))
    made = torch.testing.make_tensor(wide, dtype=dtype, device="cpu", low=low, high=high)
    return made[tuple(slice(None, None, 2) for _ in shape)].permute(*reversed(range(len(shape))))


def test_sizes(op: Any, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--all-ops")
    fn = _through_arithmetic(op)
    binary = isinstance(op, BinaryUfuncInfo)
    domains = (
        (op.lhs_make_tensor_kwargs, op.rhs_make_tensor_kwargs)
        if binary
        else ({"domain": getattr(op, "domain", None)},)
    )

    def problems() -> Iterator[str]:
        dtypes = _dtypes(op)
        for dtype in dtypes if everything else dtypes[:1]:
            torch.manual_seed(zlib.crc32(op.formatted_name.encode()))
            for shape, layout in itertools.product(
                SIZES if everything else SIZES[::3], ("contiguous", "strided")
            ):
                made = [_tensor(shape, dtype, _domain(domain), layout) for domain in domains]
                with torch.no_grad():
                    problem = _check(fn, (made[0], tuple(made[1:]), {}), False)
                kintsugi.reset()
                if problem:
                    yield f"{dtype} {shape} {layout}: {problem}"

    _report(problems())


def _domain(kwargs: dict[str, Any]) -> Any:
    """The bounds that op_db gives for an argument."""
    if kwargs.get("domain") is not None:
        return kwargs["domain"]
    return kwargs.get("low"), kwargs.get("high")
