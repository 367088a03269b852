"""Zeros, infinities, NaN, the smallest and the largest numbers in every operator that is compiled natively.

Each operator runs over a table of such numbers, those with several tensors over all pairs and triples of them:
forward, its gradient by autograd, within a chain, broadcast, behind products, in reductions. NaN, infinities and the
signs of zeros are those of eager mode, other numbers within its tolerance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from native_harness import assert_values, native

Program = Callable[..., torch.Tensor]

TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
each_type = pytest.mark.parametrize("dtype", TYPES, ids=["f32", "f64", "bf16", "f16"])


def table(dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    magnitudes = [
        0.0,
        math.inf,
        info.smallest_normal,
        info.max,
        1e-30,
        0.5,
        1.0,
        3.0,
        20.0,
        88.0,
        89.0,
        104.0,
    ]
    magnitudes += [710.0, 1e4, 1e13, 1.5e19, 3e19, 1e30, 2e38]
    least = torch.tensor([1], dtype={8: torch.int64, 4: torch.int32, 2: torch.int16}[dtype.itemsize]).view(
        dtype
    )
    fitting = [m for m in magnitudes if m <= info.max or math.isinf(m)]
    positive = torch.cat([torch.tensor(fitting, dtype=torch.float64).to(dtype), least])
    return torch.cat([positive, -positive, torch.tensor([math.nan], dtype=dtype)])


def short_table(dtype: torch.dtype) -> torch.Tensor:
    # The library's results below the normal numbers are 0.
    most, least = torch.finfo(dtype).max, 1e-30
    return torch.tensor(
        [0.0, -0.0, math.inf, -math.inf, math.nan, most, -most, least, 1.0, -0.5], dtype=dtype
    )


def crossed(values: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Tensors whose elements side by side are each combination of the values. Contiguous: of other ones eager mode
    gives the other one of two equal zeros as their maximum, and rounds products with `alpha` to small floats.
    """
    rows = list(itertools.product(values.tolist(), repeat=count))
    return [t.contiguous() for t in torch.tensor(rows, dtype=values.dtype).unbind(1)]


def check(program: Program, tensors: list[torch.Tensor], *, gradient: bool = False) -> None:
    runner = native(program)

    def results(function: Program) -> list[torch.Tensor | None]:
        if not gradient:
            with torch.no_grad():
                return [function(*tensors)]
        leaves = [t.clone(memory_format=torch.preserve_format).requires_grad_() for t in tensors]
        out = function(*leaves)
        if not out.requires_grad:
            return [out]
        return [out, *torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)]

    wanted = results(program)
    for _ in range(3):
        for place, (mine, theirs) in enumerate(zip(results(runner), wanted, strict=True)):
            assert (mine is None) == (theirs is None)
            if mine is not None and theirs is not None:
                assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
                assert_values(mine, theirs, message=f"gradient {place}" if place else "result")


UNARY: dict[str, Program] = {
    "neg": lambda x: -x,
    "abs": lambda x: x.abs(),
    "sqrt": lambda x: x.sqrt(),
    "floor": lambda x: x.floor(),
    "ceil": lambda x: x.ceil(),
    "trunc": lambda x: x.trunc(),
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "tanh": lambda x: x.tanh(),
    "erf": lambda x: x.erf(),
    "relu": lambda x: x.relu(),
    "relu6": lambda x: F.relu6(x),
    "clamp": lambda x: x.clamp(-1, 2),
    "clamp to infinities": lambda x: x.clamp(-math.inf, math.inf),
    "clamp to zeros": lambda x: x.clamp(-0.0, 0.0),
    "clamp that crosses": lambda x: x.clamp(2, -1),
    "clamp_min": lambda x: x.clamp_min(0.0),
    "clamp_max": lambda x: x.clamp_max(-0.0),
    "hardtanh": lambda x: F.hardtanh(x, -2.0, 0.0),
    "threshold": lambda x: F.threshold(x, 0.0, -5.0),
    "hardshrink": lambda x: F.hardshrink(x, 0.5),
    "hardshrink to nothing": lambda x: F.hardshrink(x, math.inf),
    "softshrink": lambda x: F.softshrink(x, 0.5),
    "hardsigmoid": lambda x: F.hardsigmoid(x),
    "hardswish": lambda x: F.hardswish(x),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "leaky_relu of 0": lambda x: F.leaky_relu(x, 0.0),
    "sigmoid": lambda x: x.sigmoid(),
    "silu": lambda x: F.silu(x),
    "gelu": lambda x: F.gelu(x),
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "rsqrt": lambda x: x.rsqrt(),
    "reciprocal": lambda x: x.reciprocal(),
    "square": lambda x: x.square(),
    "pow 2": lambda x: x**2,
    "pow 3": lambda x: x**3,
    "pow 0": lambda x: x**0,
    "pow 1": lambda x: x**1,
    "pow 0.5": lambda x: x**0.5,
    "pow -0.5": lambda x: x**-0.5,
    "pow -1": lambda x: x**-1,
    "pow -2": lambda x: x**-2,
    "pow 4": lambda x: x**4,
    "power of a number": lambda x: 2.0**x,
    "cos": lambda x: x.cos(),
    "sin": lambda x: x.sin(),
    "softplus": lambda x: F.softplus(x),
    "elu": lambda x: F.elu(x),
    "selu": lambda x: F.selu(x),
    "celu": lambda x: F.celu(x),
    "mish": lambda x: F.mish(x),
    "logsigmoid": lambda x: F.logsigmoid(x),
    "log1p": lambda x: x.log1p(),
    "expm1": lambda x: x.expm1(),
    "softsign": lambda x: F.softsign(x),
    "tanhshrink": lambda x: F.tanhshrink(x),
    "nan_to_num": lambda x: x.nan_to_num(),
    "sign": lambda x: x.sign(),
    "round": lambda x: x.round(),
    "add a number": lambda x: x + 0.7,
    "add infinity": lambda x: x + math.inf,
    "subtract from a number": lambda x: 0.0 - x,
    "subtract from a number with alpha": lambda x: torch.rsub(x, 1.0, alpha=0.0),
    "times 0": lambda x: x * 0,
    "times infinity": lambda x: x * math.inf,
    "by 0": lambda x: x / 0,
    "by a number": lambda x: x / 3,
    "a number by": lambda x: 1 / x,
    "compare": lambda x: torch.where(x <= 0.0, x, -x),
    "equal": lambda x: torch.where(x == 0.0, 1.0, x),
    "isnan": lambda x: torch.where(x.isnan(), 0.0, x),
    "isinf": lambda x: torch.where(x.isinf(), 0.0, x),
    "truth": lambda x: x.bool().to(x.dtype),
    "logical_not": lambda x: torch.where(torch.logical_not(x), 2.0, x),
    "masked_fill": lambda x: x.masked_fill(x > 0, -0.0),
    "to f32": lambda x: x.to(torch.float32) * 1,
    "to bf16": lambda x: x.to(torch.bfloat16) * 1,
    "to f16": lambda x: x.to(torch.float16) * 1,
    "to f64": lambda x: x.to(torch.float64) * 1,
}

BINARY: dict[str, Program] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "add alpha": lambda a, b: torch.add(a, b, alpha=2),
    "sub alpha": lambda a, b: torch.sub(a, b, alpha=0.5),
    "add alpha 0": lambda a, b: torch.add(a, b, alpha=0),
    "rsub": lambda a, b: torch.rsub(a, b),
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "maximum": lambda a, b: torch.maximum(a, b),
    "minimum": lambda a, b: torch.minimum(a, b),
    "fmax": lambda a, b: torch.fmax(a, b),
    "pow": lambda a, b: a**b,
    "prelu": lambda a, b: F.prelu(a, b.flatten()[:1]),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "lerp from the other end": lambda a, b: torch.lerp(a, b, 0.7),
    "less": lambda a, b: torch.where(a < b, a, b),
    "less or equal": lambda a, b: torch.where(a <= b, a, b),
    "greater": lambda a, b: torch.where(a > b, a, b),
    "greater or equal": lambda a, b: torch.where(a >= b, a, b),
    "equal": lambda a, b: torch.where(a == b, a, b * 2),
    "unequal": lambda a, b: torch.where(a != b, a, b * 2),
    "logical": lambda a, b: torch.where(torch.logical_xor(a, b), a, b * 2),
    "clamp_min": lambda a, b: torch.clamp(a, min=b),
    "atan2": lambda a, b: torch.atan2(a, b),
    "remainder": lambda a, b: torch.remainder(a, b),
    "fmod": lambda a, b: torch.fmod(a, b),
    "floor_divide": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "mse": lambda a, b: F.mse_loss(a, b, reduction="none"),
    "l1": lambda a, b: F.l1_loss(a, b, reduction="none"),
    "smooth l1": lambda a, b: F.smooth_l1_loss(a, b, reduction="none"),
    "bce": lambda a, b: F.binary_cross_entropy_with_logits(a, b, reduction="none"),
    "silu times": lambda a, b: F.silu(a) * b,
    "gelu times": lambda a, b: F.gelu(a) * b,
}

TERNARY: dict[str, Program] = {
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=0.5),
    "addcdiv": lambda a, b, c: torch.addcdiv(a, b, c, value=0.5),
    "addcmul of ones": lambda a, b, c: torch.addcmul(a, b, c),
    "addcdiv of ones": lambda a, b, c: torch.addcdiv(a, b, c),
    "addcmul of nothing": lambda a, b, c: torch.addcmul(a, b, c, value=0),
    "clamp": lambda a, b, c: torch.clamp(a, b, c),
    "lerp": lambda a, b, c: torch.lerp(a, b, c),
    "where": lambda a, b, c: torch.where(a > 0, b, c),
}

# Small floats are computed in float32 between operators, so twice a number must not overflow within the chain.
CONTEXTS: dict[str, Callable[[Program], Program]] = {
    "alone": lambda f: f,
    "in a chain": lambda f: lambda *args: -f(*(-a if a.dtype is torch.float16 else a * 2 for a in args)),
    "broadcast": lambda f: lambda *args: f(*(a.unsqueeze(1) for a in args)) + args[0][:3],
}
WAYS = [("alone", False), ("alone", True), ("in a chain", False), ("broadcast", True)]
each_way = pytest.mark.parametrize(
    ("context", "gradient"), WAYS, ids=[f"{name}-{'gradient' if of else 'forward'}" for name, of in WAYS]
)


@each_type
@each_way
@pytest.mark.parametrize("name", UNARY)
def test_one_tensor(name: str, dtype: torch.dtype, context: str, gradient: bool) -> None:
    check(CONTEXTS[context](UNARY[name]), [table(dtype)], gradient=gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@each_way
@pytest.mark.parametrize("name", BINARY)
def test_two_tensors(name: str, dtype: torch.dtype, context: str, gradient: bool) -> None:
    check(CONTEXTS[context](BINARY[name]), crossed(short_table(dtype), 2), gradient=gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", TERNARY)
@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
def test_three_tensors(name: str, dtype: torch.dtype, gradient: bool) -> None:
    check(TERNARY[name], crossed(short_table(dtype), 3), gradient=gradient)


LAYOUTS: dict[str, Program] = {
    "contiguous": lambda x: x,
    "one": lambda x: x[1:2],
    "one of no dimensions": lambda x: x[1],
    "two": lambda x: x[1:3],
    "every other": lambda x: torch.stack([x, x], 1)[:, 0],
    "transposed": lambda x: torch.stack([x, x]).t(),
    "channels last": lambda x: (
        torch.stack([x] * 4)
        .reshape(2, 2, -1, 1)
        .expand(2, 2, len(x), 2)
        .contiguous(memory_format=torch.channels_last)
    ),
    "many": lambda x: x.repeat(1000),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_gelu_is_a_librarys_where_eager_mode_says_so(layout: str, dtype: torch.dtype) -> None:
    check(lambda x: F.gelu(x), [LAYOUTS[layout](table(dtype))])
    check(lambda x: F.gelu(x + 0), [LAYOUTS[layout](table(dtype))])


PRODUCTS: dict[str, Callable[[Program], Program]] = {
    "mm": lambda f: lambda a, w: f(a @ w),
    "linear": lambda f: lambda a, w: f(F.linear(a, w.t(), w[0])),
    "conv": lambda f: lambda a, w: f(F.conv2d(a[None, None], w[None, None, :1, :1])),
}


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize(
    "name", ["relu", "gelu", "gelu by tanh", "silu", "sigmoid", "tanh", "hardswish", "exp", "clamp"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_behind_products(name: str, product: str, dtype: torch.dtype) -> None:
    values = table(dtype)
    rows = torch.zeros(len(values), len(values), dtype=dtype)
    rows[:, 0] = values
    weight = torch.zeros_like(rows)
    weight[0] = 1
    if product == "conv":
        rows = values[:, None].expand(len(values), 4).contiguous()
    check(PRODUCTS[product](UNARY[name]), [rows, weight])


FOLDED = ["relu", "gelu", "gelu by tanh", "silu", "sigmoid", "tanh", "hardswish", "leaky_relu", "hardsigmoid"]


@pytest.mark.parametrize("name", FOLDED)
def test_behind_folded_convolutions(name: str) -> None:
    values = table(torch.float32)
    x = torch.zeros(1, 16, 48, 48)
    x[0, :, : len(values), 0] = values
    weight = torch.zeros(16, 16, 1, 1)
    for k in range(16):
        weight[k, k] = 1
    function = UNARY[name]
    check(lambda a, w: function(F.conv2d(F.conv2d(a, w), w)), [x, weight])


REDUCTIONS: dict[str, Program] = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "sum of columns": lambda x: x.sum(0),
    "sum of all": lambda x: x.sum(),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin(-1),
    "amax of columns": lambda x: x.amax(0),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
    "argmax of columns": lambda x: x.argmax(0),
    "max": lambda x: x.max(-1)[0],
    "softmax": lambda x: x.softmax(-1),
    "softmax of columns": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1, unbiased=False),
    "norm": lambda x: x.norm(dim=-1),
    "norm 1": lambda x: x.norm(p=1, dim=-1),
    "norm inf": lambda x: x.norm(p=math.inf, dim=-1),
    "cumsum": lambda x: x.cumsum(-1),
    "rms_norm": lambda x: F.rms_norm(x, (x.shape[-1],)),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "max_pool": lambda x: F.max_pool2d(x[None, None], 2)[0, 0],
    "avg_pool": lambda x: F.avg_pool2d(x[None, None], 2)[0, 0],
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(len(x)) % x.shape[1], reduction="none"),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None] * 0, x[None, None]),
}


def rows_of(dtype: torch.dtype) -> torch.Tensor:
    """Rows with one special number at different places, and with pairs of them."""
    rows = []
    for special in (math.inf, -math.inf, math.nan, 0.0, -0.0):
        for place in (0, 5, 16, 30):
            row = torch.linspace(-2, 2, 31, dtype=torch.float64)
            row[place] = special
            rows.append(row)
        rows.append(torch.full((31,), special, dtype=torch.float64))
    pairs = [(math.inf, math.inf), (math.inf, -math.inf), (math.nan, math.inf), (-math.inf, math.nan)]
    for a, b in pairs:
        for i, j in ((3, 20), (20, 3)):
            row = torch.linspace(-2, 2, 31, dtype=torch.float64)
            row[i], row[j] = a, b
            rows.append(row)
    return torch.stack(rows).to(dtype)


# Gradients that are 0 but for rounding, which decides their signs.
ROUNDED = ["softmax", "softmax of columns", "log_softmax"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
@pytest.mark.parametrize("chained", [False, True], ids=["alone", "in a chain"])
def test_reductions(name: str, dtype: torch.dtype, gradient: bool, chained: bool) -> None:
    function = REDUCTIONS[name]
    if gradient and name in ROUNDED:
        return
    check((lambda x: function(x * 2) + 1) if chained else function, [rows_of(dtype)], gradient=gradient)


SIGNS: dict[str, Callable[[torch.Tensor, torch.dtype], torch.Tensor]] = {
    "of the opposite": lambda x, to: -((-x.to(to)).masked_fill((-x.to(to)) > 0, -0.0)),
    "before the conversion": lambda x, to: torch.where(x < 0, 0.0, x.to(to)),
    "of the opposite before it": lambda x, to: torch.where(-x > 0, 0.0, x.to(to)),
    "above": lambda x, to: torch.where(x > 0, -0.0, x.to(to)),
    "behind the conversion": lambda x, to: torch.where(x.to(to) > 0, -0.0, x),
    "of the opposite behind it": lambda x, to: torch.where(-x.to(to) > 0, 0.0, x),
    "relu": lambda x, to: -(-x).to(to).relu(),
}


@each_type
@pytest.mark.parametrize("to", TYPES, ids=["to f32", "to f64", "to bf16", "to f16"])
@pytest.mark.parametrize("name", SIGNS)
def test_zeros_of_converted_numbers_keep_their_signs(name: str, to: torch.dtype, dtype: torch.dtype) -> None:
    """LLVM takes a comparison, a conversion and a choice for a maximum, whose zeros have other signs."""
    values = torch.tensor([-0.0, 0.0, 1.0, -1.0, math.nan, math.inf, -math.inf] * 5, dtype=dtype)
    check(lambda x: SIGNS[name](x, to), [values])
