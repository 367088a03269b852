"""Comparison of results, bit by bit, down through containers, dataclasses and plain objects."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Set
from typing import Any

import torch

_ATOMS = (
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
    type,
    slice,
    range,
)


def leaves(value: Any, path: str = "out", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Every part of `value` that is not a container, with its path; containers give their type and length."""
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor) or isinstance(value, _ATOMS):
        yield path, value
        return
    if id(value) in seen:
        yield path, "(seen before)"
        return
    seen.add(id(value))
    yield f"{path}.__class__", type(value).__qualname__
    if isinstance(value, Mapping):
        yield f"{path}.__len__()", len(value)
        for key, item in value.items():
            yield from leaves(item, f"{path}[{key!r}]", seen)
    elif isinstance(value, list | tuple):
        yield f"{path}.__len__()", len(value)
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]", seen)
    elif isinstance(value, Set):
        yield path, sorted(map(repr, value))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name, None), f"{path}.{field.name}", seen)
    elif type(value).__module__.split(".")[0] in ("builtins", "functools"):
        pass  # functions and the like: only their type is compared
    else:
        for key, item in sorted(getattr(value, "__dict__", {}).items()):
            yield from leaves(item, f"{path}.{key}", seen)


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return tensor.resolve_conj().resolve_neg().contiguous()


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in every bit of the values (NaN equals itself, 0.0 differs from -0.0). Meta tensors have none."""
    if a.is_meta and b.is_meta:
        return True
    a, b = _dense(a), _dense(b)
    return a.numel() == 0 or bool(torch.equal(_bytes(a), _bytes(b)))


_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """Floats that can be asked for signs and NaN: the two parts of complex numbers, 8-bit floats as wider ones."""
    tensor = _dense(tensor)
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex64) if tensor.itemsize == 4 else tensor)
    return tensor.float() if tensor.is_floating_point() and tensor.itemsize == 1 else tensor


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in every bit of the values, but for the sign and payload of NaN; so 0.0 differs from -0.0."""
    if a.dtype != b.dtype or a.shape != b.shape or a.is_meta != b.is_meta:
        return False
    if same_bits(a, b):
        return True
    if not a.is_floating_point() and not a.is_complex():
        return False
    a, b = _parts(a), _parts(b)
    words = _WORDS[a.itemsize]
    return bool(((a.view(words) == b.view(words)) | (a.isnan() & b.isnan())).all())


def special_difference(a: torch.Tensor, b: torch.Tensor) -> str:
    """Where NaN, infinities or the signs of zeros are not the same ("": nowhere), however close the numbers are."""
    if a.is_meta or a.shape != b.shape or not (a.is_floating_point() or a.is_complex()):
        return ""
    a, b = _parts(a), _parts(b)
    kinds = {
        "NaN": a.isnan() != b.isnan(),
        "inf": (a.isinf() | b.isinf()) & (a != b) & ~(a.isnan() | b.isnan()),
        "the sign of zero": (a == 0) & (b == 0) & (a.signbit() != b.signbit()),
    }
    for name, wrong in kinds.items():
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            return f"{name} differs at {int(wrong.sum())} places, first {at}: {b[at].item()}, expected {a[at].item()}"
    return ""


def assert_near(
    actual: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float, message: str = ""
) -> None:
    """Within the tolerance, with NaN, infinities and signs of zeros at the same places."""
    text = special_difference(expected, actual)
    assert not text, f"{message}: {text}"
    if actual.layout is not torch.strided:
        actual, expected = _dense(actual), _dense(expected)
    torch.testing.assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=True,
        msg=lambda text: f"{message}: {text}" if message else text,
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    if flat.stride(0) != 1:  # one element with any stride counts as contiguous, but not for `view(dtype)`
        flat = torch.empty_like(flat, memory_format=torch.contiguous_format).copy_(flat)
        flat = flat.as_strided((flat.numel(),), (1,))
    return flat.view(torch.uint8)


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest absolute difference; infinite where one is NaN and the other is not."""
    if a.shape != b.shape:
        return math.inf
    if a.numel() == 0 or same_bits(a, b):
        return 0.0
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    a, b = _dense(a).to(wide), _dense(b).to(wide)
    gap = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
    return math.inf if gap.isnan().any() else float(gap.abs().max())


SEGMENT = "KintsugiSegmentBackward"  # csrc/torchapi/grad_node.cc


def _tensor_difference(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> str:
    for name in ("dtype", "shape", "device", "layout", "requires_grad", "is_leaf"):
        if getattr(a, name) != getattr(b, name):
            return f"{name} is {getattr(b, name)}, expected {getattr(a, name)}"
    # A whole segment of native code is one node, and rounds in its own way.
    nodes = a.grad_fn is not None and b.grad_fn is not None
    compiled = tolerance > 0 and nodes and b.grad_fn.name() == SEGMENT
    if type(a.grad_fn) is not type(b.grad_fn) and not compiled:
        return f"grad_fn is {type(b.grad_fn).__name__}, expected {type(a.grad_fn).__name__}"
    if a.layout is torch.strided and a.stride() != b.stride():
        return f"stride is {b.stride()}, expected {a.stride()}"
    if type(a) is not type(b):
        return f"class is {type(b).__name__}, expected {type(a).__name__}"
    if same_values(a, b):
        return ""
    if math.isinf(tolerance):  # no value is compared then
        return ""
    text = special_difference(a, b)
    if text:
        return text
    if not a.is_floating_point() and not a.is_complex():  # nothing is rounded
        tolerance = 0.0
    gap = distance(a, b)
    scale = float(_dense(a).to(torch.complex128).abs().nan_to_num(0, 0, 0).max())
    return (
        ""
        if gap <= tolerance * max(1.0, scale)
        else f"values differ by {gap:.3g} (largest value {scale:.3g})"
    )


def _atom_difference(a: Any, b: Any, tolerance: float) -> str:
    if type(a) is not type(b):
        return f"is {b!r} ({type(b).__name__}), expected {a!r} ({type(a).__name__})"
    if isinstance(a, float | complex):
        pairs = [(a.real, b.real), (a.imag, b.imag)]
        return "" if all(_near(x, y, tolerance) for x, y in pairs) else f"is {b!r}, expected {a!r}"
    return "" if a == b else f"is {b!r}, expected {a!r}"


def _near(a: float, b: float, tolerance: float) -> bool:
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or math.isinf(b) or (a == 0 and b == 0):
        return repr(a) == repr(b)
    return abs(a - b) <= tolerance * max(1.0, abs(a))


def aliasing(value: Any) -> list[tuple[int, int]]:
    """For each tensor: the index of the first one that is the same object, and of the first with the same memory."""
    objects: dict[int, int] = {}
    memory: dict[int, int] = {}
    found = []
    for index, tensor in enumerate(tensors(value)):
        plain = tensor.layout is torch.strided and tensor.numel() > 0
        address = tensor.untyped_storage().data_ptr() if plain else 0
        place = memory.setdefault(address, index) if address else -1
        found.append((objects.setdefault(id(tensor), index), place))
    return found


def differences(expected: Any, actual: Any, path: str = "out", tolerance: float = 0.0) -> list[str]:
    """What differs between two results; empty when they are the same. `tolerance` 0 means in every bit.

    Integers, truths, infinities, NaN and signs of zeros have no tolerance, unless it is infinite: then no values of
    tensors are compared."""
    wanted = dict(leaves(expected, path))
    seen = dict(leaves(actual, path))
    found = [f"{where} is missing" for where in wanted if where not in seen]
    found += [f"{where} is not expected" for where in seen if where not in wanted]
    for where in wanted.keys() & seen.keys():
        a, b = wanted[where], seen[where]
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            text = _tensor_difference(a, b, tolerance)
        else:
            text = _atom_difference(a, b, tolerance)
        if text:
            found.append(f"{where}: {text}")
    return sorted(found)


def largest_distance(expected: Any, actual: Any) -> float:
    """The largest absolute difference between the tensors of two results."""
    first, second = tensors(expected), tensors(actual)
    if len(first) != len(second):
        return math.inf
    return max((distance(a, b) for a, b in zip(first, second, strict=True)), default=0.0)
