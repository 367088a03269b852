"""What the tests over torch's own databases share: samples picked by a seed, and calls observed beside eager mode."""

from __future__ import annotations

import copy
import itertools
import random
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

import kintsugi
from bench import compare

FIRST = 40


def seed_of(name: str) -> int:
    return zlib.crc32(name.encode())


def pick(name: str, samples: Iterable[Any], most: int | None) -> list[tuple[int, Any]]:
    """All samples, or some of the first ones (to make all of them takes seconds for some operators)."""
    numbered = list(enumerate(samples if most is None else itertools.islice(samples, FIRST)))
    if most is None or len(numbered) <= most:
        return numbered
    return sorted(random.Random(seed_of(name)).sample(numbered, most), key=lambda pair: pair[0])


def detached(value: Any, memo: dict[int, Any]) -> Any:
    """A copy with storages of its own but the same sharing of storages, and without autograd history."""
    if isinstance(value, torch.Tensor):
        if id(value) not in memo:
            plain = value.detach()
            copied = copy.deepcopy(plain, memo) if value.layout is torch.strided else plain.clone()
            memo[id(value)] = copied.requires_grad_(value.requires_grad)
        return memo[id(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(detached(item, memo) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(detached(item, memo) for item in value)
    if isinstance(value, dict):
        return {key: detached(item, memo) for key, item in value.items()}
    return value


def observe(
    call: Callable[..., Any], inputs: tuple[Any, ...], leaves_too: Iterable[torch.Tensor] = ()
) -> dict[str, Any]:
    """What one call gives and changes, and gradients (of `leaves_too` as well); an exception is a result too."""
    memo: dict[int, Any] = {}
    args = detached(inputs, memo)
    torch.manual_seed(99)
    try:
        out = call(*args)
    except Exception as error:
        return {"exception": (type(error).__name__, str(error)), "inputs": args}
    seen = {
        "out": out,
        "inputs": args,
        "random": torch.random.get_rng_state(),
        "aliasing": compare.aliasing([out, args]),
    }
    wanted = [t for t in compare.tensors(out) if t.requires_grad and t.grad_fn is not None]
    leaves = [t for t in [*compare.tensors(args), *leaves_too] if t.requires_grad and t.is_leaf]
    if wanted and leaves:
        try:
            grads = torch.autograd.grad([t.abs().sum() for t in wanted], leaves, allow_unused=True)
        except Exception as error:
            return seen | {"backward": (type(error).__name__, str(error))}
        seen["gradients"] = grads
    return seen


def check(
    call: Callable[..., Any],
    inputs: tuple[Any, ...],
    tolerance: float,
    backend: str = "eager",
    turns: int = 2,
    nodes: bool = True,
) -> list[str]:
    """How `turns` calls of the compiled function differ from eager mode. Native code is there from the first one on.

    `nodes`: are autograd's nodes compared?
    """
    expected = observe(call, inputs)
    options = {"sync": True} if backend == "native" else None
    compiled = kintsugi.compile(call, backend=backend, options=options)
    problems = []
    for turn in range(turns):
        found = differences(expected, observe(compiled, inputs), "call", tolerance, backend, nodes)
        problems += [f"call {turn + 1}: {text}" for text in found]
    kintsugi.reset()
    return problems


def by_value(value: Any) -> Any:
    """For native code: one node of its own stands for several operators in autograd's graph, so what is left of a
    tensor is its value and whether it requires gradients."""
    if isinstance(value, torch.Tensor):
        return value.detach(), value.requires_grad
    if isinstance(value, list | tuple):
        return [by_value(part) for part in value]
    if isinstance(value, dict):
        return {key: by_value(part) for key, part in value.items()}
    return value


def is_window(tensor: torch.Tensor) -> bool:
    """Does it leave out elements of the memory that it lies in?"""
    dense = torch.empty_like(tensor, memory_format=torch.preserve_format)
    pairs = zip(tensor.shape, tensor.stride(), dense.stride(), strict=True)
    return tensor.layout is torch.strided and any(size > 1 and a != b for size, a, b in pairs)


def without_windows(expected: Any, actual: Any) -> tuple[Any, Any]:
    """Gradients: those that eager mode gives as windows on larger tensors are tensors of their own natively."""
    pairs = [
        (a, b) if a is None or b is None or not is_window(a) else (a.contiguous(), b.contiguous())
        for a, b in zip(expected, actual, strict=True)
    ]
    return [a for a, _ in pairs], [b for _, b in pairs]


def differences(
    expected: Any, actual: Any, path: str, tolerance: float, backend: str, nodes: bool = True
) -> list[str]:
    if backend == "native" or not nodes:
        expected, actual = by_value(expected), by_value(actual)
        if backend == "native" and "gradients" in expected and "gradients" in actual:
            plain = [
                [None if part is None else part[0] for part in seen["gradients"]]
                for seen in (expected, actual)
            ]
            expected["gradients"], actual["gradients"] = without_windows(*plain)
    return compare.differences(expected, actual, path, tolerance)


def report(problems: Iterator[str]) -> None:
    found = list(problems)
    assert not found, f"{len(found)} differences:\n" + "\n".join(text[:400] for text in found[:6])
