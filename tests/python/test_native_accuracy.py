"""Elementary functions that native code computes, over the whole range of floats, against float64.

`csrc/ops/operators.def` (`KTG_ACCURACY`) states how far each may be from the true value. A run takes a sample of all
bit patterns of float32, other ones for each seed; `--all-floats` takes every one. NaN, infinities and the signs of
zeros are those of eager mode, and the smaller floats are tried whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from native_harness import native

import kintsugi
from bench import compare
from kintsugi import _C

Function = Callable[[torch.Tensor], torch.Tensor]

PATTERNS = 1 << 32
SAMPLE = 1 << 19
CHUNK = 1 << 22
SMALLEST = {
    torch.float64: -1074,
    torch.float32: -149,
    torch.bfloat16: -133,
    torch.float16: -24,
}  # exponents of the last digit
DIGITS = {torch.float64: 53, torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}

ROWS = _C.native_accuracies()
NAMES = [f"{name.split('.')[1]}{argument and '-'}{argument}" for name, argument, *_ in ROWS]
each_row = pytest.mark.parametrize("row", ROWS, ids=NAMES)
Row = tuple[str, str, float, float, float]


def function_of(row: Row) -> Function:
    namespace, operator, overload = row[0].split(".")
    call = getattr(getattr(getattr(torch.ops, namespace), operator), overload)
    if not row[1]:
        return lambda x: call(x)
    if operator == "gelu":
        return lambda x: call(x, approximate=row[1])
    number = float(row[1]) if "." in row[1] else int(row[1])
    return lambda x: call(x, number)


def spacing(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Between neighbours of a type at x, which is of float64."""
    _, exponent = torch.frexp(x.abs())
    return torch.ldexp(torch.ones_like(x), (exponent - DIGITS[dtype]).clamp(min=SMALLEST[dtype]))


def bits(patterns: torch.Tensor) -> torch.Tensor:
    return (
        torch.where(patterns >= 1 << 31, patterns - (1 << 32), patterns).to(torch.int32).view(torch.float32)
    )


def floats(request: pytest.FixtureRequest) -> Iterator[torch.Tensor]:
    special = [0.0, 1e-45, 1.1754942e-38, 1.17549435e-38, 3.4028235e38, math.inf, math.nan, 0.5, 1.0, 2.0]
    yield torch.tensor([*special, *(-x for x in special)])
    if request.config.getoption("--all-floats"):
        for start in range(0, PATTERNS, CHUNK):
            yield bits(torch.arange(start, start + CHUNK))
        return
    step = PATTERNS // SAMPLE
    offset = request.config.getoption("--float-seed") % step
    for start in range(0, PATTERNS, CHUNK * step):
        yield bits(torch.arange(start + offset, min(PATTERNS, start + CHUNK * step), step))
    yield torch.linspace(-25, 25, SAMPLE // 4)


def wrong(row: Row, x: torch.Tensor, got: torch.Tensor, more: float = 0.0) -> str:
    """The worst result beyond the bound. `more`: units that another rounding takes."""
    _, _, ulp, of_x, least = row
    exact = function_of(row)(x.double())
    limit = (ulp + more) * spacing(exact, got.dtype) + of_x * spacing(x.double(), torch.float32) + least
    away = (got.double() - exact).abs()
    # What does not fit is infinite on one side of the largest number or the other: eager mode decides.
    away = torch.where(exact.isfinite() & got.isfinite(), away, 0.0)
    share = away / limit
    worst = int(share.argmax())
    if share[worst] <= 1:
        return ""
    units = away[worst] / spacing(exact, got.dtype)[worst]
    return f"f({x[worst].item()!r}) = {got[worst].item()!r}, exact {exact[worst].item()!r}: {units.item():.3g} ulp"


@each_row
def test_of_float32(row: Row, request: pytest.FixtureRequest) -> None:
    function = function_of(row)
    runner = native(function)
    with torch.no_grad():
        for x in floats(request):
            runner(x)
            got, eager = runner(x), function(x)
            problem = compare.special_difference(eager, got) or wrong(row, x, got)
            assert not problem, problem
    assert runner._kintsugi_compiled.stats()["native_runs"] > 0


@each_row
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_of_small_floats(row: Row, dtype: torch.dtype) -> None:
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    function = function_of(row)
    runner = native(function)
    with torch.no_grad():
        got = [runner(x) for _ in range(2)][-1]
        eager = function(x)
        called = dtype is torch.float16 and row[1] in ("0.5", "-0.5")  # these are powers in the sense of C
        assert (runner._kintsugi_compiled.stats()["native_runs"] > 0) != called
        # ATen's cubes are rounded twice. The units of float32 are small next to one of these.
        units = row[2] * 2.0 ** (DIGITS[dtype] - DIGITS[torch.float32])
        exact = (row[0], row[1], units, row[3], row[4])
        problem = compare.special_difference(eager, got) or wrong(
            exact, x, got, more=1.5 if row[1] == "3" else 0.5
        )
        assert not problem, problem


@each_row
def test_of_float64(row: Row) -> None:
    """What native code computes of it is rounded operation by operation; the rest are calls."""
    function = function_of(row)
    runner = native(lambda x: function(x * 2))
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-310, 1e308]
    x = torch.cat([torch.linspace(-30, 30, 1001).double(), torch.tensor(special, dtype=torch.float64)])
    with torch.no_grad():
        got, eager = [runner(x) for _ in range(2)][-1], function(x * 2)
    assert not compare.special_difference(eager, got)
    away = torch.where(eager.isfinite(), (got - eager).abs() / spacing(eager, torch.float64), 0.0)
    assert away.max() <= 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("number", [-1.0, 0.3, 0.7, 1e-3, 3.0])
def test_what_one_operator_multiplies_and_adds_is_rounded_once(dtype: torch.dtype, number: float) -> None:
    # Behind whole vectors ATen computes of smaller floats in another way.
    a, b, c = (torch.randn(1024, dtype=torch.float64).to(dtype) for _ in range(3))
    programs: list[Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = [
        lambda a, b, c: torch.add(a, b, alpha=number),
        lambda a, b, c: torch.sub(a, b, alpha=number),
        lambda a, b, c: torch.rsub(a, b, alpha=number),
        lambda a, b, c: torch.addcmul(a, b, c, value=number),
        lambda a, b, c: torch.addcdiv(a, b, c, value=number),
        lambda a, b, c: torch.lerp(a, b, number),
        lambda a, b, c: torch.add(a, 0.7, alpha=number),
        lambda a, b, c: a + number,
        lambda a, b, c: a - number,
        lambda a, b, c: number - a,
        lambda a, b, c: a * number,
        lambda a, b, c: a / number,
        lambda a, b, c: a**3,
    ]
    for program in programs:
        runner = native(program)
        with torch.no_grad():
            got = [runner(a, b, c) for _ in range(2)][-1]
            assert compare.same_values(got, program(a, b, c))


SUMS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=0.3),
    "addcmul of ones": lambda a, b, c: torch.addcmul(a, b, c),
    "addcdiv": lambda a, b, c: torch.addcdiv(a, b, c, value=0.3),
    "addcdiv of ones": lambda a, b, c: torch.addcdiv(a, b, c),
    "lerp": lambda a, b, c: torch.lerp(a, b, 0.3),
    "lerp from the other end": lambda a, b, c: torch.lerp(a, b, 0.7),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bound_of_sums_of_several_tensors(
    name: str, dtype: torch.dtype, request: pytest.FixtureRequest
) -> None:
    """The rows without KTG_ACCURACY: no bit differs from ATen's, over the whole range of floats."""
    generator = torch.Generator().manual_seed(request.config.getoption("--float-seed"))
    patterns = torch.randint(-(1 << 31), 1 << 31, (3, 1 << 18), generator=generator).to(torch.int32)
    runner = native(SUMS[name])
    with torch.no_grad():
        for a, b, c in (patterns.view(torch.float32), torch.randn(3, 1 << 14, generator=generator)):
            a, b, c = a.to(dtype), b.to(dtype), c.to(dtype)
            got = [runner(a, b, c) for _ in range(2)][-1]
            assert compare.same_values(got, SUMS[name](a, b, c))
    assert runner._kintsugi_compiled.stats()["native_runs"] > 0


def test_strict_is_eager_mode_in_every_bit() -> None:
    programs: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
        lambda a, b: a + b,
        lambda a, b: a - b * a,
        lambda a, b: a / b,
        lambda a, b: (a * b).sqrt(),
        lambda a, b: a.abs().rsqrt(),
        lambda a, b: a.reciprocal() - b.square(),
        lambda a, b: torch.maximum(a, b).floor() + torch.minimum(a, b).ceil() - a.trunc(),
        lambda a, b: torch.where(a < b, -a, b.clamp(-1, 1)).relu(),
        lambda a, b: F.leaky_relu(a, 0.1) + F.hardtanh(b),
        lambda a, b: a.masked_fill(b > 0, 0.3) * 0.7,
    ]
    generator = torch.Generator().manual_seed(11)
    patterns = torch.randint(-(1 << 31), 1 << 31, (2, 1 << 16), generator=generator).to(torch.int32)
    for dtype in (torch.float32, torch.float64):
        for a, b in (patterns.view(torch.float32), torch.randn(2, 1 << 12, generator=generator)):
            a, b = a.to(dtype), b.to(dtype)
            for program in programs:
                runner = native(program, strict=True)
                with torch.no_grad():
                    got = [runner(a, b) for _ in range(2)][-1]
                    assert compare.same_values(got, program(a, b))


def test_operators_of_the_program_are_rounded_one_by_one() -> None:
    """Contracted, `a * a - b * b` has the rounding error of one product for a result."""

    def root(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * a - b * b).sqrt()

    a = torch.rand(1000)
    programs: list[Callable[..., torch.Tensor]] = [
        root,
        lambda a, b: a * b + (-a) * b,
        lambda a, b: (a * b).sub(b * a),
        lambda a, b: a * 0.1 + b * 0.3 - b * 0.3 - a * 0.1,
        lambda a, b: 1 + torch.where(a > 0.5, a * b, -1.0) - a * b,
        lambda a, b: (a * b).add(a * b, alpha=-1),
        lambda a, b: a.pow(2) - b.square(),
        lambda a, b: a.pow(3) - b * b * b,
        lambda a, b: (a / 3 * 3 - b) * 7 / 7,
    ]
    for program in programs:
        for dtype in (torch.float32, torch.float64):
            x = a.to(dtype)
            y = x.clone()
            runner = native(program)
            with torch.no_grad():
                got = [runner(x, y) for _ in range(2)][-1]
                assert compare.same_values(got, program(x, y))
            assert runner._kintsugi_compiled.stats()["native_runs"] > 0


@pytest.mark.skipif(not _C.target_info()["fma"], reason="the target has no multiply-adds")
def test_contraction_is_there_for_who_asks() -> None:
    a = torch.rand(1000)
    runner = native(lambda a, b: a * a - b * b, fp_contract=True)
    with torch.no_grad():
        got = [runner(a, a.clone()) for _ in range(2)][-1]
    assert got.abs().max() < 1e-6
    if "fma" in torch.__config__.show().lower() or torch.backends.cpu.get_cpu_capability() in (
        "AVX2",
        "AVX512",
    ):
        assert got.abs().max() > 0
    with pytest.raises(TypeError, match="fp_contract"):
        kintsugi.compile(lambda x: x, backend="native", options={"fp_contract": 1})
