"""Numbers of TorchScript: C++'s, where a script is recorded as Python code (python/kintsugi/_scripts.py)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi
from kintsugi import _scripts

VALUES: dict[str, list[Any]] = {
    "int": [0, 1, -1, 2, -3, 7, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), -(2**62) - 3],
    "float": [
        *(0.0, -0.0, 1.5, -2.5, 3.0, 1e308, -1e308, 5e-324),
        *(math.inf, -math.inf, math.nan, 9007199254740993.0),
    ],
    "bool": [True, False],
}
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")

pytestmark = pytest.mark.usefixtures("calls_of_scripts")


def script_of(result: str, text: str, **types: str) -> Any:
    given = ", ".join(f"{name}: {kind}" for name, kind in types.items())
    return torch.jit.CompilationUnit(f"def script({given}) -> {result}:\n    return {text}\n").script


def outcome(f: Callable[..., Any], *given: Any) -> tuple[Any, ...]:
    try:
        value = f(*given)
    except Exception as error:
        return type(error), str(error).strip().splitlines()[-1]
    if isinstance(value, float):
        return float, str(value), math.copysign(1, value) if value == 0 else 0
    return type(value), value


# Integer division by these ends the process in TorchScript itself.
CRASH = {"//": (0, -1), "%": (0, -1)}


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "//", "%", *COMPARISONS])
def test_arithmetic(operator: str) -> None:
    """Of all pairs of values: what has a Python form has the same result, and the ordinary pairs of types have one."""
    formed = set()
    for left, right in itertools.product(VALUES, repeat=2):
        result = "bool" if operator in COMPARISONS else "int"
        if operator not in COMPARISONS and ("float" in (left, right) or operator == "/"):
            result = "float"
        try:
            script = script_of(result, f"a {operator} b", a=left, b=right)
        except RuntimeError:  # TorchScript has no such operator
            continue
        made = _scripts.function_of(script, (VALUES[left][0], VALUES[right][0]), None)
        if made is None:
            continue
        formed.add((left, right))
        for a, b in itertools.product(VALUES[left], VALUES[right]):
            if "float" not in (left, right) and b in CRASH.get(operator, ()):
                continue
            assert outcome(made, a, b) == outcome(script, a, b), (left, right, a, b)
    assert ("int", "int") in formed


@pytest.mark.parametrize(
    ("result", "text", "kind"),
    [
        ("int", "int(a)", "float"),
        ("int", "int(a)", "bool"),
        ("float", "float(a)", "int"),
        ("bool", "bool(a)", "float"),
        ("bool", "not bool(a)", "int"),
        ("int", "-a", "int"),
        ("float", "-a", "float"),
    ],
)
def test_conversions(result: str, text: str, kind: str) -> None:
    script = script_of(result, text, a=kind)
    made = _scripts.function_of(script, (VALUES[kind][0],), None)
    assert made is not None
    for value in VALUES[kind]:
        assert outcome(made, value) == outcome(script, value), value


@pytest.mark.parametrize("text", ["len(a)", "int(a)", "ord(a)"])
def test_texts_are_left_alone(text: str) -> None:
    """They are bytes there."""
    assert _scripts.function_of(script_of("int", text, a="str"), ("é",), None) is None


@torch.jit.script
def cubed(x: torch.Tensor):  # type: ignore[no-untyped-def]
    k = int(x.sum().item())
    return k * k * k, 1 / (k - 3), x * (k % 5)


@torch.jit.script
def affine(x, w):  # type: ignore[no-untyped-def]
    return x @ w + 1


@torch.jit.script
def summed(x: torch.Tensor, n: int):  # type: ignore[no-untyped-def]
    for i in range(n):
        x = x * 0.5 + i
    return x


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_numbers_of_a_run(backend: str) -> None:
    compiled = kintsugi.compile(lambda x: cubed(x), backend=backend)
    for value in (2.0, 3e6, 3e6 + 1, 3.0, -3e6, 3.0, 0.0):
        x = torch.tensor([value])
        wanted, got = cubed(x), compiled(x)
        assert got[:2] == wanted[:2]
        assert torch.equal(got[2], wanted[2])


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_under_autocast(backend: str) -> None:
    """TorchScript has an autocast of its own, which knows nothing of the one around the call."""

    def f(x: torch.Tensor, on: bool) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            return affine(x, x)

    compiled = kintsugi.compile(f, backend=backend)
    x = torch.rand(4, 4)
    for on in (True, True, False, False, True, False):
        wanted, got = f(x, on), compiled(x, on)
        assert got.dtype == wanted.dtype
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_loops_of_other_lengths_are_one_graph(backend: str) -> None:
    compiled = kintsugi.compile(lambda x, n: summed(x, n), backend=backend)
    x = torch.rand(8)
    for n in (40, 40, 3, 5, 40, 17, 30, 0, 40):
        torch.testing.assert_close(compiled(x, n), summed(x, n))
    assert compiled.stats().native_segments <= 8
