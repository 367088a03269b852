"""What traces say of tensors: names of types and devices, strides, and the sizes that were seen where they vary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from native_harness import assert_same

import kintsugi

DTYPES = {
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex32: "c32",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.bool: "bool",
    torch.bfloat16: "bf16",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2fnuz: "f8e5m2fnuz",
    torch.float8_e4m3fnuz: "f8e4m3fnuz",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.float8_e8m0fnu: "f8e8m0",
}


def _descriptions(fn: Any, *args: Any, **options: Any) -> list[str]:
    """The rows of the trace's table, of one call that is recorded."""
    compiled = kintsugi.compile(fn, backend="eager", **options)
    compiled(*args)
    (trace,) = compiled.traces()
    return [line.split(" ", 4)[4] for line in trace.splitlines() if line.startswith("  meta ")]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_types_have_torchs_numbers(dtype: torch.dtype) -> None:
    assert (
        _descriptions(lambda x: x.detach(), torch.empty(2, dtype=dtype))[0]
        == f"tensor<{DTYPES[dtype]},[2],cpu>"
    )


def test_devices_have_torchs_numbers() -> None:
    assert _descriptions(lambda x: x + 1, torch.empty(2, device="meta"))[0] == "tensor<f32,[2],meta>"
    # The table is in the order of torch's, which tells of a number that it does not know.
    numbers = {
        torch._C._autograd.DeviceType.__members__[name].value: name for name in ("CPU", "CUDA", "XPU", "Meta")
    }
    assert numbers == {0: "CPU", 1: "CUDA", 12: "XPU", 14: "Meta"}


STRIDES = {
    "new": (lambda: torch.zeros(3, 4), ""),
    "no elements": (lambda: torch.zeros(3, 0), ""),
    "transposed": (lambda: torch.zeros(4, 3).t(), ",strides=[1,3]"),
    "expanded": (lambda: torch.zeros(4, 1).expand(4, 3), ",strides=[1,0]"),
    "of a size of 1": (lambda: torch.zeros(3, 2).as_strided((3, 1), (1, 7)), ",strides=[1,7]"),
}


@pytest.mark.parametrize("name", STRIDES)
def test_strides_are_told_where_a_new_tensor_has_others(name: str) -> None:
    make, text = STRIDES[name]
    x = make()
    sizes = ",".join(map(str, x.shape))
    assert _descriptions(lambda x: x.detach(), x)[0] == f"tensor<f32,[{sizes}],cpu{text}>"


def test_guards_on_strides_of_sizes_of_1() -> None:
    compiled = kintsugi.compile(lambda x: x.stride(), backend="eager")
    base = torch.zeros(8)
    for strides in ((1, 7), (1, 3), (1, 7)):
        assert compiled(base.as_strided((3, 1), strides)) == strides
    assert len(compiled.traces()) == 2


def test_sizes_that_vary_are_not_in_the_text() -> None:
    compiled = kintsugi.compile(lambda x: x * 2 + 1, backend="eager")
    for rows in (3, 5, 9):
        x = torch.randn(rows, 4).t()
        assert_same(compiled(x), x * 2 + 1, exact=True)
    texts = compiled.traces()
    assert len(texts) == 2
    assert any("meta 0 tensor<f32,[4,?],cpu>" in text for text in texts)


# What was seen is no promise: other tensors are computed as well, whatever they look like.
@pytest.mark.parametrize("seen", ["new", "transposed", "expanded"])
def test_native_code_takes_what_was_seen_for_likely(seen: str) -> None:
    def make(rows: int, how: str) -> torch.Tensor:
        if how == "transposed":
            return torch.randn(6, rows).t()
        return torch.randn(rows, 1).expand(rows, 6) if how == "expanded" else torch.randn(rows, 6)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + 1) - x

    compiled = kintsugi.compile(fn, backend="native", dynamic=True, options={"sync": True})
    for how in (seen, "new", "transposed", "expanded", seen):
        for rows in (5, 1, 0, 64):
            x = make(rows, how)
            assert_same(compiled(x), fn(x))
    # What is computed of transposed ones lies as ATen decides: nothing is left to compile.
    assert (compiled._kintsugi_compiled.stats()["native_runs"] > 0) == (seen != "transposed")


def test_hints_go_on_to_side_traces() -> None:
    def fn(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if flag.sum() > 0:
            y = torch.relu(y + 1)
        return y - x

    compiled = kintsugi.compile(fn, backend="native", dynamic=True, options={"sync": True})
    on, off = torch.ones(2), -torch.ones(2)
    for rows in (4, 7, 1, 0, 33):
        for flag in (off, on):
            x = torch.randn(rows, 8)
            assert_same(compiled(x, flag), fn(x, flag))
    assert len(compiled.traces()) == 1


def test_parameters_and_buffers_with_gradients() -> None:
    net = torch.nn.Linear(4, 3)
    texts = _descriptions(lambda x: net(x), torch.randn(2, 4, requires_grad=True))
    assert texts[0] == "tensor<f32,[2,4],cpu,grad>"
    assert "tensor<f32,[3,4],cpu,grad,param>" in texts and "tensor<f32,[3],cpu,grad,param>" in texts
