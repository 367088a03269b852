"""operator.iadd() and its like, written in Python: the statements that they stand for. See _polyfills.py."""

from __future__ import annotations

from typing import Any


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
