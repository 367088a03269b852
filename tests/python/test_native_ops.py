"""backend="native", operator by operator: types, layouts, sizes, special numbers; reductions, norms, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from native_harness import assert_same, check, native

import kintsugi

SPECIAL = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1e-40,
    -1e-40,
    3e38,
    -3e38,
    88.0,
    89.0,
    -104.0,
    0.5,
    -0.5,
    20.0,
]

UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "neg": lambda x: -x,
    "abs": torch.abs,
    "relu": torch.relu,
    "hardshrink": F.hardshrink,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "log": torch.log,
    "erf": torch.erf,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "square": torch.square,
    "pow2": lambda x: x**2,
    "pow3": lambda x: x**3,
    "pow_half": lambda x: x**0.5,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_min": lambda x: x.clamp(min=0.25),
    "hardtanh": F.hardtanh,
    "threshold": lambda x: F.threshold(x, 0.25, -2.0),
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.2])),
    "add_scalar": lambda x: x + 0.1,
    "rsub": lambda x: 1.5 - x,
    "div_scalar": lambda x: x / 3,
    "isnan": torch.isnan,
    "compare": lambda x: x > 0,
    "masked": lambda x: x.masked_fill(x < 0, -1.0),
    "where": lambda x: torch.where(x > 1, x, x * 2),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "lerp": lambda x: torch.lerp(x, x * 2, 0.3),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    fn = UNARY[name]
    torch.manual_seed(1)
    special = torch.tensor(SPECIAL)
    if name == "gelu":  # where it overflows, eager's own loops say NaN or infinity, by processor and place
        special = special[special.abs().nan_to_num() < 1e30]
    for x in (special, torch.randn(3, 17), torch.randn(2, 33) * 10):
        check(lambda t: fn(t) if fn(t).dtype == torch.bool else fn(t) * 1.0, x, calls=2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "add_scalar", "clamp", "where", "tanh"])
def test_other_floats(name: str, dtype: torch.dtype) -> None:
    fn = UNARY[name]
    x = torch.randn(5, 19).to(dtype)
    check(lambda t: fn(t + t), x, calls=2)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
def test_integers_wrap(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    x = torch.tensor([info.min, info.max, 0, 1, 7, 100], dtype=dtype)
    check(lambda t: (t + t) * 3 - t, x, exact=True)
    check(lambda t: (t > 3) & (t < 100), x, exact=True)
    check(lambda t: t * 0.5 + 1, x, exact=True)
    check(lambda t: torch.maximum(t, t * 2), x, exact=True)


def test_promotion() -> None:
    a, b = torch.randn(4, 5), torch.arange(5)
    check(lambda x, y: x * y + 1, a, b)
    check(lambda x, y: x.double() * y, a, b)
    check(lambda x, y: (x > 0) + y, a, b)
    check(lambda x, y: (x.to(torch.bfloat16) + 1).float() * 2, a, b)
    check(lambda x, s: x * s + s, a, torch.tensor(2.0, dtype=torch.float64))


SHAPES = [
    ((4, 5), (5,)),
    ((4, 5), (4, 1)),
    ((2, 1, 7), (3, 1)),
    ((1,), (3, 17)),
    ((), (3, 3)),
    ((0, 4), (4,)),
    ((3, 0), (3, 1)),
    ((1, 1), (1, 1)),
    ((2, 3, 4, 5), (3, 1, 5)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (torch.randn(s) for s in shapes)
    check(lambda x, y: (x + y) * y.exp(), a, b)


def test_strided_inputs() -> None:
    x = torch.randn(6, 8, 10)
    check(lambda t: t * 2 + 1, x.transpose(0, 2))
    check(lambda t: t * 2 + 1, x[::2, 1:, ::3])
    check(lambda t: t * 2 + 1, x.permute(1, 0, 2)[:, :, 3])
    check(lambda t: t * 2 + 1, x[:1].expand(4, 8, 10))
    check(lambda t, u: t * 2 + u, x.transpose(0, 2), x.permute(2, 1, 0).contiguous())
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(lambda t: F.relu(t) + 1, image)
    check(lambda t: (t + 1).contiguous() * 2, image)


@pytest.mark.parametrize("size", [1, 2, 7, 8, 15, 16, 17, 31, 63, 64, 65, 1000, 100_003])
def test_sizes(size: int) -> None:
    check(lambda x: F.gelu(x) * x + 1, torch.randn(size), calls=2)


REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(-1) * 2,
    "sum_keepdim": lambda x: x / x.sum(-1, keepdim=True),
    "mean": lambda x: x.mean(-1),
    "mean_two": lambda x: x.mean((-2, -1)),
    "amax": lambda x: x - x.amax(-1, keepdim=True),
    "amin": lambda x: x.amin(-1),
    "softmax": lambda x: F.softmax(x, -1),
    "scaled_softmax": lambda x: F.softmax(x * 0.3 + 1, dim=-1) * 2,
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "layer_norm_two": lambda x: F.layer_norm(x, x.shape[-2:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "manual_rms": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "gelu_norm": lambda x: F.layer_norm(F.gelu(x) + x, x.shape[-1:]) * 2,
    "chained": lambda x: F.softmax(F.layer_norm(x, x.shape[-1:]), -1),
}


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 64), (1, 1, 1), (2, 7, 129), (0, 3, 4)], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, shape: tuple[int, ...]) -> None:
    check(REDUCTIONS[name], torch.randn(shape) * 3, calls=2)


@pytest.mark.parametrize("name", ["sum", "amax", "amin", "softmax", "log_softmax", "layer_norm"])
def test_reductions_of_special_numbers(name: str) -> None:
    fn = REDUCTIONS[name]
    for row in (
        [math.nan, 1, 2],
        [math.inf, 1, 2],
        [-math.inf] * 3,
        [math.inf, -math.inf, 0],
        [1e3, -2e3, 1],
    ):
        check(fn, torch.tensor([[row, [1.0, 2.0, 3.0]]]), calls=2)


ALONG: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sum": lambda x, d: (x * 2).sum(d) + 1,
    "sum_keepdim": lambda x, d: x / (x.abs().sum(d, keepdim=True) + 1),
    "mean": lambda x, d: x.mean(d),
    "amax": lambda x, d: x - x.amax(d, keepdim=True),
    "softmax": lambda x, d: F.softmax(x * 0.5, d) * 2,
    "log_softmax": lambda x, d: F.log_softmax(x, d),
    "argmax": lambda x, d: (x * 2).argmax(d) + 1,
    "argmin_keepdim": lambda x, d: x.argmin(d, keepdim=True) * 2,
    "variance": lambda x, d: (x - x.mean(d, keepdim=True)).square().mean(d),
}


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 37, 70), (19, 3, 130), (1, 1, 1), (5, 1, 17)], ids=str)
@pytest.mark.parametrize("name", ALONG)
def test_reductions_along_any_dimension(name: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    for dim in range(len(shape)):
        check(lambda t, d=dim: ALONG[name](t, d), x, calls=2)


def test_reductions_of_inputs_that_lie_otherwise() -> None:
    x = torch.randn(7, 40, 24)
    for fn in (lambda t: t.sum(-1) + 1, lambda t: F.softmax(t, 1) * 2, lambda t: t.argmax(0)):
        check(fn, x.transpose(1, 2), calls=2)
        check(fn, x[:, ::3, 1:], calls=2)
        check(fn, x[:1].expand(4, 40, 24), calls=2)
    image = torch.randn(2, 6, 5, 7)
    check(lambda t: t.mean((2, 3)) * 2, image.to(memory_format=torch.channels_last))
    check(lambda t: t.mean((0, 2, 3), keepdim=True) * t, image)
    check(lambda t: t.sum((0, 1)) + t.sum(), image)
    check(lambda t: (t.bfloat16() * 2).sum(1) + 1, image)


@pytest.mark.parametrize("shape", [(100_003,), (3, 50_000), (40_000, 3), (3000, 20), (2, 2000, 33)], ids=str)
def test_reductions_of_long_rows(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    for dim in range(len(shape)):
        check(lambda t, d=dim: t.mean(d) * 2, x, calls=2)
        check(lambda t, d=dim: F.softmax(t, d), x, calls=2)
        check(lambda t, d=dim: F.log_softmax(t, d), x, calls=2)
        check(lambda t, d=dim: t.argmax(d) + 1, x, calls=2)
    check(lambda t: t.mean() * 2, x + 1, calls=2)


def test_sums_of_columns_are_as_close_as_those_of_rows() -> None:
    x = torch.randn(16, 333, 517)
    runner = native(lambda t: t.sum(1) * 1.0)
    exact = x.double().sum(1)
    with torch.no_grad():
        runner(x)
        wrong = (runner(x).double() - exact).abs().max()
    assert wrong <= 2 * (x.sum(1).double() - exact).abs().max()


def test_argmax_takes_the_first_and_nan() -> None:
    for row in ([1, 3, 3, 2], [3.0] * 40, [1, math.nan, 5, math.nan], [-math.inf] * 20, [math.inf, math.nan]):
        x = torch.tensor([row, row[::-1]], dtype=torch.float32)
        for t in (x, x.t().contiguous(), x.repeat(1, 9)):
            check(
                lambda v: (v.argmax(-1) * 2, v.argmax(0) * 2, v.argmin(-1) * 2, v.argmin(0) * 2), t, calls=2
            )
    check(lambda v: v.argmax() + 1, torch.randn(33, 17), calls=2)


def test_rows_kept_within_the_stack() -> None:
    """Lengths that vary are checked by each run: longer rows are replayed, or have kernels of their own."""
    fn = lambda t: F.softmax(t * 2, 0)
    runner = kintsugi.compile(fn, backend="native", dynamic=True, options={"sync": True})
    with torch.no_grad():
        for rows in (40, 50, 700, 5000, 20_000):
            x = torch.randn(rows, 40)
            assert_same(runner(x), fn(x))


def test_norms_with_weights() -> None:
    x, w, b = torch.randn(5, 32), torch.randn(32), torch.randn(32)
    check(lambda x, w, b: F.layer_norm(x, (32,), w, b) + x, x, w, b)
    check(lambda x, w, b: F.rms_norm(x, (32,), w) * b, x, w, b)
    bn = torch.nn.BatchNorm2d(6).eval()
    bn.running_mean.normal_()
    bn.running_var.uniform_(0.5, 2)
    image = torch.randn(2, 6, 5, 7)
    check(lambda x: F.relu(bn(x)) + x, image)
    check(lambda x: F.relu(bn(x)) + x, image.to(memory_format=torch.channels_last))


def test_strict_is_bitwise() -> None:
    x, y = torch.randn(3, 50), torch.randn(3, 50)
    check(lambda a, b: torch.relu(a * b + a - b / 3).clamp(-1, 1), x, y, exact=True, strict=True)
    check(lambda a, b: F.gelu(a * b) * 2 + torch.softmax(a, -1), x, y, exact=True, strict=True)


@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(affine: bool) -> None:
    for shape, groups in (((2, 6, 5, 7), 3), ((3, 8, 11), 1), ((2, 6), 2), ((2, 4, 3, 3), 4)):
        norm = torch.nn.GroupNorm(groups, shape[1], affine=affine)
        if affine:
            torch.nn.init.normal_(norm.weight)
            torch.nn.init.normal_(norm.bias)
        x = torch.randn(shape) * 3 + 1
        check(lambda t, n=norm: F.silu(n(t)) + t, x)
        check(lambda t, n=norm: n(t * 2), x)


def test_reshapes_between_computations() -> None:
    x, w = torch.randn(4, 6, 10), torch.randn(10)
    check(lambda t: (t * 2).view(24, 10) + w, x)
    check(lambda t: ((t * 2).view(4, 60) + 1).view(2, 2, 6, 10) * t.view(2, 2, 6, 10), x)
    check(lambda t: (t * 2).view(4, 3, 2, 10) + torch.ones(4, 3, 1, 1) * torch.ones(2, 1), x)
    check(lambda t: F.softmax((t * 2).view(2, 12, 10), -1).view(4, 6, 10) + t, x)
    check(lambda t: (t.sum(-1) * 2 + 1, (t.sum(-1) * 2 + 1).view(24)), x)
    check(lambda t: (t.exp().flatten(), t.exp().flatten() * 2), x)
    check(lambda t: (t + 1).view(2, 2, 6, 10).transpose(1, 2) + 1, x)
    check(lambda t: t.mean(1) + t.amax((0, 1)), x)


def test_products() -> None:
    x, b = torch.randn(3, 5, 48), torch.randn(64)
    rows, columns = torch.randn(64, 48), torch.randn(48, 64)
    wide = torch.randn(5, 64)

    def layers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.linear(x, rows, b)
        return (
            F.gelu(y),
            F.linear(x, rows) * 2,
            F.linear(x[:, 0], rows, b) + 1,
            F.linear(x.transpose(0, 1), rows, b) + 1,
            F.linear(x[0, 0], rows, b) + 1,
            torch.addmm(b, x[0], columns),
            torch.addmm(wide, x[1], columns, beta=0.5, alpha=2.0) * 2,
            torch.addmm(wide, x[1], rows.t()) * 2,
            torch.addmm(b[:1], x[1], columns) * 2,
            x @ columns[:, 3:50] + 1,
            x[0] @ columns[:, ::2] + 1,
            x.mm(columns) if x.dim() == 2 else x[2].mm(columns).relu_(),
        )

    check(layers, x)
    check(lambda x: F.linear(x.bfloat16(), rows.bfloat16(), b.bfloat16()) * 2, x)
    check(lambda x: F.linear(x.double(), rows.double(), b.double()) * 2, x)
    check(lambda x: F.linear(x, rows) * 1.0 + b, x, exact=True, strict=True)
    for shape in ((0, 5, 48), (1, 48), (1, 1, 48)):
        check(lambda x: F.relu(F.linear(x, rows, b)), torch.randn(shape))
    check(lambda x: F.linear(x, torch.ones(1, 48), torch.ones(1)) * 2, x)
    check(lambda x: F.linear(x[..., :1], torch.ones(3, 1), None) * 2, x)


WINDOWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max_2": lambda x: F.max_pool2d(x, 2),
    "max_3_2_1": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_dilated": lambda x: F.max_pool2d(x, (2, 3), 1, (1, 1), (2, 1)),
    "max_ceil": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "max_1d": lambda x: F.max_pool1d(x.flatten(0, 1), 3, 2, 1),
    "max_one": lambda x: F.max_pool2d(x, 1, 2),
    "avg_2": lambda x: F.avg_pool2d(x, 2),
    "avg_3_1": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "avg_uncounted": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "avg_1d": lambda x: F.avg_pool1d(x.flatten(0, 1), 3, 2, 1),
    "adaptive_1": lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1),
    "adaptive_2": lambda x: F.adaptive_avg_pool2d(x[..., :4, :6], (2, 3)),
    "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=0.5),
    "pad_outer": lambda x: F.pad(x, (0, 0, 0, 0, 1, 1)),
    "pad_negative": lambda x: F.pad(x, (-1, 2)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str) -> None:
    fn = WINDOWS[name]
    for shape in ((2, 3, 7, 9), (1, 2, 12, 40), (1, 1, 4, 6), (2, 1, 5, 33)):
        x = torch.randn(shape)
        check(lambda t: F.relu(fn(t)) + 1, x, calls=2)
        check(lambda t: fn(t * 2 + 1), x, calls=2)
    check(lambda t: fn(t) * 2, torch.randn(2, 3, 7, 9).to(memory_format=torch.channels_last), calls=2)
    x[0, 0, 1, 2], x[0, 0, 0, 0], x[0, 0, -1, -1] = math.nan, -math.inf, math.nan
    check(lambda t: fn(t) * 2, x, calls=2)


def test_concatenation_within_computations() -> None:
    x, y = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 4)

    def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    check(rotary, x, torch.randn(5, 8), torch.randn(5, 8))
    check(rotary, torch.randn(2, 5, 3, 64).transpose(1, 2), torch.randn(5, 64), torch.randn(5, 64))
    for dim in range(4):
        check(lambda a, d=dim: torch.cat((a, a * 2 + 1, a.exp()), d) * 2, x)
        check(lambda a, d=dim: F.relu(torch.cat((a.select(d, 0).unsqueeze(d), a), d)), x)
    check(lambda a, b: torch.cat((a, b), -1) + 1, x, y)
    check(lambda a, b: (torch.cat((a * 2, b), -1), torch.cat((a * 2, b), -1) + 1), x, y)
    check(lambda a, b: torch.cat((a, b), 3).sum(-1) + torch.cat((b, a), -1).softmax(-1).sum(-1), x, y)
    check(lambda a, b: torch.cat((a, b[..., :0]), -1) * torch.cat((a.sum(-1, True), a[..., 1:]), -1), x, y)
    check(
        lambda a, b: (
            torch.cat((a[:, :1].expand(2, 3, 5, 8), a.mean((0, 2), keepdim=True).expand(2, 3, 5, 8)), 2) * 2
        ),
        x,
        y,
    )
    check(lambda a, b: torch.cat((a > 0, b > 0), -1).logical_not(), x, y)
    check(lambda a, b: torch.cat((a.bfloat16(), b.bfloat16()), -1) * 2, x, y)
    check(
        lambda a: torch.cat((torch.relu(a / 0), torch.where(a > 0, a, a * a), a), 0) + torch.cat((a, a, a)), x
    )


@pytest.mark.parametrize("shape", [(40, 24), (17, 300), (3, 9, 33), (2, 8, 5, 70), (100, 8)])
def test_memory_along_another_dimension(shape: tuple[int, ...]) -> None:
    x, y = torch.randn(shape), torch.randn(shape)
    check(lambda x: x.transpose(-1, -2).contiguous() + 1, x)
    check(lambda x: x.transpose(0, -1).contiguous() * 2, x)
    check(lambda x: x.transpose(-1, -2).contiguous(), x, compiled=shape[-2] >= 8)
    check(lambda x, y: x.transpose(0, -1).clone() + y.transpose(0, -1), x, y)
    check(lambda x, y: (x.transpose(0, -1) * y.transpose(0, -1).contiguous()).sum(-1), x, y)
    check(lambda x: x.permute(*range(1, len(shape)), 0).contiguous().relu(), x)
    check(lambda x: x[..., 1:].transpose(-1, -2).contiguous().exp(), x)


@pytest.mark.parametrize("scale", [(2, 2), (1, 4), (8, 2), (3, 3), (2.5, 2)], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 2, 3), (2, 3, 5, 7), (1, 4, 9, 40)], ids=str)
def test_upsampling_to_neighbours(shape: tuple[int, ...], scale: tuple[float, float]) -> None:
    x = torch.randn(shape)
    up = lambda x: F.interpolate(x, scale_factor=scale)
    check(lambda x: up(x) * 2, x)
    check(lambda x: up(x * 3).relu(), x)
    check(lambda x: up(x.contiguous(memory_format=torch.channels_last)) + 1, x)
    check(lambda x: F.interpolate(x[:, :, :, 0], scale_factor=4) - 1, x)
    check(lambda x: F.interpolate(x, size=[2 * x.shape[2], 4 * x.shape[3]]) - 1, x)
    check(lambda x, y: up(x) + y, x, up(x))


def test_one_plus_tanh() -> None:
    x = torch.tensor([*SPECIAL, *torch.linspace(-12, 12, 101).tolist()])
    check(lambda x: 1 + x.tanh(), x)
    check(lambda x: x * (x.tanh() + 1.0) / 4, x[torch.isfinite(x)])
    check(lambda x: (x.tanh() + 1, x.tanh()), x)


@pytest.mark.parametrize("kind", [torch.nn.Dropout, torch.nn.Dropout2d])
def test_dropout_in_place_that_does_nothing_is_no_obstacle(kind: type[torch.nn.Module]) -> None:
    """Models of phones have it behind their pooling."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), kind(0.5, inplace=True), torch.nn.ReLU()).eval()
    compiled = kintsugi.compile(model, backend="native", options={"sync": True})
    with torch.no_grad():
        for _ in range(4):
            x = torch.rand(2, 3, 6)
            torch.testing.assert_close(compiled(x), model(x))
    assert compiled.stats().native_refused == 0
    assert compiled.stats().native_runs > 0
