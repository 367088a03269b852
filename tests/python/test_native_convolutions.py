"""backend="native": convolutions with batch norm, residual and activation folded in, the channels last between them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from native_harness import assert_same, assert_values, check, in_threads, native
from torch import nn

LIBRARY = torch.backends.mkldnn.is_available()  # else convolutions are calls, and the results the same


@pytest.fixture(autouse=True, scope="module")
def _profiler_is_there() -> None:
    """The first profile of a process imports modules that register classes with ABCs, which traces guard."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        pass


def _ran_folded(runner: Callable[..., object], *inputs: torch.Tensor) -> int:
    """How many convolutions of a call are the library's fused operator."""
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        runner(*inputs)
    return sum(
        event.count for event in profile.key_averages() if event.key == "mkldnn::_convolution_pointwise"
    )


def _randomize(module: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.3)
            part.running_var.uniform_(0.5, 2)
            if part.affine:
                with torch.no_grad():
                    part.weight.uniform_(0.5, 1.5)
                    part.bias.normal_()
    return module.eval()


class Block(nn.Module):
    """A convolution, a batch norm and what `last` makes of it."""

    def __init__(
        self, last: Callable[[torch.Tensor], torch.Tensor], inner: int = 3, outer: int = 24, **options: object
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, padding=1, **options)
        self.bn = nn.BatchNorm2d(outer)
        self.last = last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.bn(self.conv(x)))


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "relu_": lambda x: F.relu(x, inplace=True),
    "silu": F.silu,
    "silu_": lambda x: F.silu(x, inplace=True),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "leaky": lambda x: F.leaky_relu(x, 0.1),
    "leaky_nothing": lambda x: F.leaky_relu(x, 0.0),
    "leaky_negative": lambda x: F.leaky_relu(x, -0.5),
    "relu6": F.relu6,
    "twice": lambda x: F.silu(x) + x,
    "pool": lambda x: F.max_pool2d(F.relu(x), 2),
    "mean": lambda x: x.mean((2, 3)),
    "flat": lambda x: torch.flatten(F.adaptive_avg_pool2d(x, 1), 1),
    "norm": lambda x: F.group_norm(x, 4),
    "both": lambda x: (x, F.silu(x)),  # type: ignore[dict-item, return-value]
    "view": lambda x: F.silu(x).permute(0, 2, 3, 1),
    "scaled": lambda x: x * x.mean((2, 3), keepdim=True).sigmoid(),
    "joined": lambda x: torch.cat([x, F.relu(x)], 1),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_what_follows(name: str) -> None:
    module = _randomize(Block(ACTIVATIONS[name]))
    runner = check(module, torch.randn(2, 3, 24, 24))
    assert not LIBRARY or _ran_folded(runner, torch.randn(2, 3, 24, 24)) == 1


# Not GELU by erf: what ATen makes of infinity depends on how many elements there are.
@pytest.mark.parametrize("name", ["none", "relu", "silu", "gelu_tanh", "hardswish", "leaky", "tanh", "relu6"])
def test_special_numbers(name: str) -> None:
    module = _randomize(Block(ACTIVATIONS[name]))
    x = torch.randn(2, 3, 24, 24)
    for place, number in (
        ((0, 0, 3), float("nan")),
        ((0, 1, 12), float("inf")),
        ((1, 2, 20), -float("inf")),
        ((1, 0, 9), 1e38),
    ):
        x[place][3] = number
    check(module, x)


@pytest.mark.parametrize(
    "options",
    [
        {"bias": False},
        {"stride": 2},
        {"dilation": 2},
        {"inner": 16, "outer": 16, "groups": 16},
        {"inner": 8, "outer": 24, "groups": 4},
        {"inner": 1, "outer": 8},
        {"inner": 16, "outer": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [(1, 24, 24), (2, 23, 31), (1, 1, 40), (3, 5, 5), (1, 1, 1)], ids=str)
def test_forms(options: dict[str, int], size: tuple[int, int, int]) -> None:
    module = _randomize(Block(F.relu, **options))
    if size[1] + 2 < 2 * options.get("dilation", 1) + 1:
        pytest.skip("larger than the image")
    check(module, torch.randn(size[0], options.get("inner", 3), *size[1:]), compiled=True)


class Residual(nn.Module):
    def __init__(self, add: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 24, 3, padding=1)
        self.second = nn.Conv2d(24, 24, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(24, affine=False)
        self.add = add

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(x))
        return self.add(self.bn(self.second(x)), x)


@pytest.mark.parametrize(
    "add",
    [
        lambda y, x: y + x,
        lambda y, x: x + y,
        lambda y, x: y.add_(x),
        lambda y, x: F.relu(y + x),
        lambda y, x: y.add_(x).relu_(),
        lambda y, x: (y + x) * 2 + y,
        lambda y, x: torch.add(y, x, alpha=2),
        lambda y, x: y + x[:, :1],
        lambda y, x: y + y,
    ],
)
def test_residuals(add: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    check(_randomize(Residual(add)), torch.randn(2, 3, 24, 24))


def _by_data(p: torch.Tensor) -> None:
    p.data.mul_(1.5)


def _by_numpy(p: torch.Tensor) -> None:
    p.detach().numpy().flat[-1] += 0.75


def _in_place(p: torch.Tensor) -> None:
    with torch.no_grad():
        p.flatten()[0] += 0.5


@pytest.mark.parametrize("change", [_by_data, _by_numpy, _in_place])
@pytest.mark.parametrize(
    "which", ["conv.weight", "conv.bias", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"]
)
def test_parameters_may_change(which: str, change: Callable[[torch.Tensor], None]) -> None:
    module = _randomize(Block(F.silu))
    runner = check(module, torch.randn(2, 3, 24, 24))
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    x = torch.randn(2, 3, 24, 24)
    with torch.no_grad():
        before = module(x)
        change(tensors[which])
        wanted = module(x)
        assert not torch.equal(before, wanted)
        assert_same(runner(x), wanted)
        module.load_state_dict(_randomize(Block(F.silu)).state_dict())
        assert_same(runner(x), module(x))


def test_running_statistics_change_while_training() -> None:
    # Their version counters say nothing of it.
    module = _randomize(Block(F.silu))
    x = torch.randn(2, 3, 24, 24)
    runner = check(module, x)
    with torch.no_grad():
        module.train()(torch.randn(4, 3, 24, 24) * 3 + 1)
        module.eval()
        assert_same(runner(x), module(x))


def test_no_variance_is_computed_step_by_step() -> None:
    module = _randomize(Block(F.silu))
    module.bn.eps = 0.0
    module.bn.running_var[5] = 0
    check(module, torch.randn(2, 3, 24, 24))


class Unet(nn.Module):
    """Skips, pooling, transposed convolutions and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.down = Block(lambda x: F.relu(x, inplace=True), 3, 16)
        self.inner = Block(F.silu, 16, 32)
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)
        self.merge = Block(F.relu, 32, 16)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        skip = self.down(x)
        x = self.inner(F.max_pool2d(skip, 2))
        x = self.merge(torch.cat([skip, self.up(x)], 1))
        return self.head(x), skip


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("batch", [1, 3])
def test_networks(batch: int, layout: torch.memory_format) -> None:
    module = _randomize(Unet()).to(memory_format=layout)
    runner = check(module, torch.randn(batch, 3, 32, 32).to(memory_format=layout))
    if LIBRARY and layout == torch.contiguous_format:
        assert _ran_folded(runner, torch.randn(batch, 3, 32, 32)) == 4


def test_views_see_what_is_written() -> None:
    module = _randomize(Block(lambda x: x))

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = module(x)
        seen = y.permute(0, 2, 3, 1)
        y.relu_()
        return y, seen, seen + 1

    check(fn, torch.randn(2, 3, 24, 24), compiled=False)

    def later(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.silu(module(x))
        z = y + 1
        y.mul_(2)
        return z, y, y.flatten(2)

    check(later, torch.randn(2, 3, 24, 24))


def test_an_argument_that_is_written_to_in_between() -> None:
    first, second = _randomize(Block(F.silu)), _randomize(Block(F.silu))

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        a = first(y)
        y.add_(1)
        return a + second(y)

    check(fn, torch.randn(2, 3, 24, 24))


def test_weights_made_in_the_function_are_not_packed() -> None:
    module = _randomize(Block(F.silu))

    def fn(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return F.silu(F.conv2d(x, module.conv.weight * factor, module.conv.bias, padding=1))

    runner = check(fn, torch.randn(2, 3, 24, 24), torch.tensor(2.0))
    assert _ran_folded(runner, torch.randn(2, 3, 24, 24), torch.tensor(2.0)) == 0


def test_strict_keeps_bits() -> None:
    module = _randomize(Block(F.relu))
    check(module, torch.randn(2, 3, 24, 24), exact=True, strict=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_floats(dtype: torch.dtype) -> None:
    module = _randomize(Block(F.relu)).to(dtype)
    x = torch.randn(2, 3, 24, 24, dtype=dtype)
    runner = native(module)
    with torch.no_grad():
        wanted = module(x)
        for _ in range(2):
            assert_values(runner(x), wanted)


def test_sizes_that_vary() -> None:
    import kintsugi

    module = _randomize(Unet())
    runner = kintsugi.compile(module, backend="native", dynamic=True, options={"sync": True})
    with torch.no_grad():
        for batch, size in ((2, 32), (3, 32), (1, 16), (2, 48)):
            x = torch.randn(batch, 3, size, size)
            assert_same(runner(x), module(x))


def test_gradients_are_those_of_eager_mode() -> None:
    module = _randomize(Block(F.silu))
    other = copy.deepcopy(module)
    runner = native(module)
    x = torch.randn(2, 3, 24, 24)
    for _ in range(2):
        module.zero_grad()
        other.zero_grad()
        runner(x).square().sum().backward()
        other(x).square().sum().backward()
        for p, q in zip(module.parameters(), other.parameters(), strict=True):
            assert_values(p.grad, q.grad)


def test_threads_share_a_packed_weight() -> None:
    module = _randomize(Block(F.silu))
    runner = native(module)
    x = torch.randn(2, 3, 24, 24)
    with torch.no_grad():
        runner(x)
        wanted = module(x)

    def work(_: int) -> None:
        for _ in range(20):
            assert_same(runner(x), wanted)

    in_threads(work, 4)
