"""operator.iadd() and its like, written in Python: the statements that they stand for. What compares tuples and orders
einsums. See _polyfills.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.backends.opt_einsum import _get_enabled, _get_strategy, get_opt_einsum


def attribute_or(value: Any, name: str, default: Any, /) -> Any:
    """getattr() with a default, of an attribute that Python code computes."""
    try:
        return getattr(value, name)
    except AttributeError:
        return default


def has_attribute(value: Any, name: str, /) -> bool:
    try:
        getattr(value, name)
    except AttributeError:
        return False
    return True


def operator_iadd(a: Any, b: Any, /) -> Any:
    a += b
    return a


def operator_iand(a: Any, b: Any, /) -> Any:
    a &= b
    return a


def operator_ifloordiv(a: Any, b: Any, /) -> Any:
    a //= b
    return a


def operator_ilshift(a: Any, b: Any, /) -> Any:
    a <<= b
    return a


def operator_imatmul(a: Any, b: Any, /) -> Any:
    a @= b
    return a


def operator_imod(a: Any, b: Any, /) -> Any:
    a %= b
    return a


def operator_imul(a: Any, b: Any, /) -> Any:
    a *= b
    return a


def operator_ior(a: Any, b: Any, /) -> Any:
    a |= b
    return a


def operator_ipow(a: Any, b: Any, /) -> Any:
    a **= b
    return a


def operator_irshift(a: Any, b: Any, /) -> Any:
    a >>= b
    return a


def operator_isub(a: Any, b: Any, /) -> Any:
    a -= b
    return a


def operator_itruediv(a: Any, b: Any, /) -> Any:
    a /= b
    return a


def operator_ixor(a: Any, b: Any, /) -> Any:
    a ^= b
    return a


def operator_setitem(a: Any, b: Any, c: Any, /) -> None:
    a[b] = c


def operator_delitem(a: Any, b: Any, /) -> None:
    del a[b]


def operator_call(function: Any, /, *args: Any, **keywords: Any) -> Any:
    return function(*args, **keywords)


def compare_tuples(
    a: tuple[Any, ...], b: tuple[Any, ...], order: Callable[[Any, Any], Any], unequal: bool | None
) -> Any:
    """`unequal`: what to say of items that differ; None: they are ordered."""
    for left, right in zip(a, b, strict=False):
        if left is not right and not left == right:
            return order(left, right) if unequal is None else unequal
    return order(len(a), len(b))


def order_lt(a: Any, b: Any) -> Any:
    return a < b


def order_le(a: Any, b: Any) -> Any:
    return a <= b


def order_eq(a: Any, b: Any) -> Any:
    return a == b


def order_ne(a: Any, b: Any) -> Any:
    return a != b


def order_gt(a: Any, b: Any) -> Any:
    return a > b


def order_ge(a: Any, b: Any) -> Any:
    return a >= b


def einsum_in_order(equation: str, *operands: torch.Tensor) -> torch.Tensor:
    """torch.einsum() of more than two tensors. opt_einsum, where it is installed, says in which order."""
    found = get_opt_einsum()
    if found is None or not _get_enabled():
        return torch._C._VariableFunctions.einsum(equation, operands)
    shapes = tuple([tuple(operand.shape) for operand in operands])
    path = contraction_path(found.contract_path, equation, _get_strategy(), shapes)
    return torch._C._VariableFunctions.einsum(equation, operands, path=path)


def contraction_path(
    contract_path: Callable[..., Any], equation: str, strategy: str, shapes: tuple[tuple[int, ...], ...]
) -> tuple[int, ...]:
    """Pairs of tensors, one after the other."""
    path = contract_path(equation, *shapes, shapes=True, optimize=strategy)[0]
    return tuple([place for pair in path for place in pair])


# A comparison and the question for its truth, which CPython 3.13 has as one instruction. Here they are two.


def test_lt(a: Any, b: Any, /) -> bool:
    value = a < b
    return True if value else False


def test_le(a: Any, b: Any, /) -> bool:
    value = a <= b
    return True if value else False


def test_eq(a: Any, b: Any, /) -> bool:
    value = a == b
    return True if value else False


def test_ne(a: Any, b: Any, /) -> bool:
    value = a != b
    return True if value else False


def test_gt(a: Any, b: Any, /) -> bool:
    value = a > b
    return True if value else False


def test_ge(a: Any, b: Any, /) -> bool:
    value = a >= b
    return True if value else False
