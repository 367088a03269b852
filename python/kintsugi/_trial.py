"""Tries whether a caller could tell two functions apart: on inputs drawn around given ones, with gradients.

What has to agree: values (the sign of a zero included), types, dtypes, shapes, strides of the result; which inputs it
shares memory with; what becomes of the inputs, and of a module's parameters and buffers; exceptions; and the gradients
of every input and parameter that can have one.
"""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch.utils import _pytree as pytree

Function = Callable[..., Any]
Values = tuple[Any, ...]

DRAWS = 4
"""Random inputs of each kind."""
PATIENCE = 1.0
"""Seconds; a call with drawn inputs that takes longer, and ten times as long as with those given, is given up."""
ENDLESS = "no end"


def _changed(values: Values, change: Callable[[Any], Any], only: int | None = None) -> Values:
    """The values with each tensor and number changed, wherever it stands in them; `only` in the given argument."""

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            with torch.no_grad():
                return change(value.detach().clone()).requires_grad_(value.requires_grad)
        if type(value) in (int, float):
            made = change(torch.tensor(value, dtype=torch.float64 if type(value) is float else torch.int64))
            return type(value)(made.item())
        return copy.deepcopy(value)

    def argument(position: int, value: Any) -> Any:
        return pytree.tree_map(leaf, value) if only in (None, position) else copy.deepcopy(value)

    return tuple(argument(position, value) for position, value in enumerate(values))


def _floating(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: change(t) if t.is_floating_point() and t.numel() else t


def _at(position: int, value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(t: torch.Tensor) -> torch.Tensor:
        t.reshape(-1)[position].fill_(value) if t.is_contiguous() else t.fill_(value)
        return t

    return _floating(change)


def _signed(size: Callable[[torch.finfo], float]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Of the given size, with the signs that are there."""
    return _floating(lambda t: torch.copysign(torch.full_like(t, size(torch.finfo(t.dtype))), t))


def _around(scale: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Normally distributed around what is there; whole numbers move by one at most."""

    def change(t: torch.Tensor) -> torch.Tensor:
        if t.is_floating_point() or t.is_complex():
            return t + scale * torch.randn_like(t)
        if t.dtype == torch.bool:
            return t ^ (torch.rand(t.shape) < 0.5)
        return t + torch.randint(-1, 2, t.shape, dtype=torch.int64).to(t.dtype)

    return change


_EACH: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("negated", lambda t: ~t if t.dtype == torch.bool else -t),
    ("made zeros", torch.zeros_like),
    ("made negative zeros", _floating(lambda t: torch.full_like(t, -0.0))),
    ("tiny", _signed(lambda info: info.tiny * 4)),
    ("small", _floating(lambda t: t * 1e-7)),
    ("below the smallest normal number", _signed(lambda info: info.tiny / 8)),
    ("huge", _signed(lambda info: info.max / 8)),
    ("large", _floating(lambda t: t * 1e7)),
)

_SPECIAL: tuple[tuple[str, float], ...] = (
    ("a zero", 0.0),
    ("an infinity", math.inf),
    ("a negative infinity", -math.inf),
    ("a NaN", math.nan),
)


def drawn(values: Values) -> Iterator[tuple[str, Values]]:
    """The given inputs, and others like them: signs, zeros, tiny, huge, infinite, NaN, and random ones around."""
    generator = torch.get_rng_state()
    try:
        torch.manual_seed(0)
        yield "the inputs as given", _changed(values, lambda t: t)
        for words, change in _EACH:
            yield f"the inputs {words}", _changed(values, change)
        for words, value in _SPECIAL:
            yield f"the inputs with {words}", _changed(values, _at(0, value))
            yield f"the inputs with {words} at the end", _changed(values, _at(-1, value))
        for scale in (0.1, 1.0, 100.0):
            for _ in range(DRAWS):
                yield f"random inputs around them (± {scale:g})", _changed(values, _around(scale))
        if len(values) > 1:
            for position in range(len(values)):
                for words, change in _EACH:
                    yield f"input {position + 1} {words}", _changed(values, change, position)
                for words, value in _SPECIAL:
                    yield f"input {position + 1} with {words}", _changed(values, _at(0, value), position)
    finally:
        torch.set_rng_state(generator)


def _shared(result: Any, values: Values) -> list[tuple[int, int]]:
    storages = [v.untyped_storage()._cdata for v in _tensors(values)]
    return [
        (i, j)
        for i, tensor in enumerate(_tensors(result))
        for j, storage in enumerate(storages)
        if storage == tensor.untyped_storage()._cdata
    ]


def _tensors(value: Any) -> list[torch.Tensor]:
    found = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return [t for t in found if t.layout == torch.strided]


def _same_tensor(a: torch.Tensor, b: torch.Tensor, *, signs: bool) -> bool:
    if (a.dtype, a.shape, a.layout) != (b.dtype, b.shape, b.layout):
        return False
    if a.layout == torch.strided and a.stride() != b.stride() and a.numel() > 1:
        return False
    a, b = a.detach(), b.detach()
    inexact = a.dtype.is_floating_point or a.dtype.is_complex
    tolerance = 4 * torch.finfo(a.dtype).eps if inexact else 0.0
    try:
        torch.testing.assert_close(a, b, equal_nan=True, rtol=tolerance, atol=0)
    except (AssertionError, RuntimeError, TypeError, ValueError):
        return False
    if signs and a.dtype.is_floating_point and a.layout == torch.strided:
        zeros = a == 0
        return bool((torch.signbit(a)[zeros] == torch.signbit(b)[zeros]).all())
    return True


def same(a: Any, b: Any, *, signs: bool = True) -> bool:
    """Values, types, dtypes and shapes: a number is not a tensor that holds it."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.requires_grad == b.requires_grad and _same_tensor(a, b, signs=signs)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, torch.nn.Module):
        return same(dict(a.state_dict()), dict(b.state_dict()))
    if isinstance(a, float):
        return math.isclose(a, b, rel_tol=1e-15) or (math.isnan(a) and math.isnan(b))
    try:
        return bool(a == b) or getattr(type(a), "__eq__", None) is object.__eq__
    except (RuntimeError, TypeError, ValueError):
        return True


class NotTriedError(Exception):
    """Nothing can be said: the inputs can't be copied, or the original fails with those that are given."""


class _TooLongError(BaseException):
    """Raised in a program that does not end."""


def _until(deadline: float) -> Callable[[FrameType, str, Any], Any]:
    """A trace function: the first line that starts after the deadline raises."""

    def watch(frame: FrameType, event: str, arg: Any) -> Any:
        if time.monotonic() > deadline:
            raise _TooLongError
        return watch

    return watch


def _observe(fn: Function, values: Values, seconds: float) -> tuple[Any, str]:
    """The result, or the name of the exception; an input may send a loop round for ever."""
    before = sys.gettrace()
    sys.settrace(_until(time.monotonic() + seconds))
    try:
        return fn(*values), ""
    except Exception as error:
        return None, type(error).__name__
    except _TooLongError:
        return None, ENDLESS
    finally:
        sys.settrace(before)


def _words(error: str) -> str:
    if error == ENDLESS:
        return "does not end"
    return f"raises {error}" if error else "returns"


def _with_gradients(values: Values) -> tuple[Values, list[torch.Tensor]]:
    """Copies that take part in autograd, as results of an operation (which may be changed in place), and the leaves."""
    values = copy.deepcopy(values)
    leaves: list[torch.Tensor] = []

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            leaves.extend(p for p in value.parameters() if p.requires_grad)
        if not isinstance(value, torch.Tensor) or isinstance(value, torch.nn.Parameter):
            return value
        if not (value.is_floating_point() or value.is_complex()):
            return value
        leaves.append(value.detach().requires_grad_())
        return leaves[-1].clone()

    return pytree.tree_map(leaf, values), leaves


def _gradients(result: Any, leaves: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Of a weighted sum of all that the result holds."""
    outputs = [t for t in _tensors(result) if t.requires_grad]
    if not outputs:
        return [None] * len(leaves)
    state = torch.get_rng_state()
    torch.manual_seed(1)
    weights = [torch.randn_like(t) for t in outputs]
    torch.set_rng_state(state)
    return list(torch.autograd.grad(outputs, leaves, weights, allow_unused=True))


def _copied(values: Values) -> Values:
    try:
        return copy.deepcopy(values)
    except Exception as error:
        raise NotTriedError(f"the inputs can't be copied: {error}") from None


class Trial:
    """Two functions that should be one, and the inputs around which they are compared."""

    def __init__(self, original: Function, other: Function, values: Values) -> None:
        """Raises NotTriedError."""
        self._original, self._other, self._values = original, other, values
        start = time.monotonic()
        state = torch.get_rng_state()
        _, error = _observe(original, _copied(values), math.inf)
        torch.set_rng_state(state)
        if error:
            raise NotTriedError(f"the original {_words(error)} with the inputs as given")
        self._seconds = max(PATIENCE, 10 * (time.monotonic() - start))

    def difference(self) -> str:
        """What a caller of the other function could see, and with which inputs; empty: nothing."""
        for name, values in drawn(self._values):
            found = self._plain(values) or self._with_backward(values)
            if found:
                return f"with {name}: {found}"
        return ""

    def _compare(self, a_values: Values, b_values: Values) -> tuple[str, tuple[Any, Any] | None]:
        """What differs between two calls, and their results where both return."""
        state = torch.get_rng_state()
        a_result, a_error = _observe(self._original, a_values, self._seconds)
        torch.set_rng_state(state)
        b_result, b_error = _observe(self._other, b_values, self._seconds)
        if a_error != b_error:
            return f"the original {_words(a_error)}, it {_words(b_error)}", None
        if a_error == ENDLESS:
            return "", None
        if not same(a_values, b_values):
            return "the inputs are left in another state", None
        if a_error:
            return "", None
        if _shared(a_result, a_values) != _shared(b_result, b_values):
            return "the result shares memory with other inputs", None
        if not same(a_result, b_result):
            return "the result differs", None
        return "", (a_result, b_result)

    def _plain(self, values: Values) -> str:
        return self._compare(_copied(values), _copied(values))[0]

    def _with_backward(self, values: Values) -> str:
        a_values, a_leaves = _with_gradients(values)
        b_values, b_leaves = _with_gradients(values)
        if not a_leaves:
            return ""
        found, results = self._compare(a_values, b_values)
        if found:
            return f"{found}, where gradients are wanted"
        if results is None:
            return ""
        grads, error = _observe(_gradients, (results[0], a_leaves), self._seconds)
        other, other_error = _observe(_gradients, (results[1], b_leaves), self._seconds)
        if error != other_error:
            return f"the original's backward {_words(error)}, its backward {_words(other_error)}"
        for mine, its in zip(grads or (), other or (), strict=True):
            if (mine is None) != (its is None):
                return "an input has no gradient any more" if its is None else "an input has a gradient now"
            if mine is not None and not _same_tensor(mine, its, signs=False):
                return (
                    "the gradient is NaN"
                    if its.isnan().sum() > mine.isnan().sum()
                    else "the gradient differs"
                )
        return ""
