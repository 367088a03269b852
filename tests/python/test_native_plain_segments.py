"""Segments that consist of ATen's calls, what ends segments in training, and layers that are calls in them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import kintsugi

Tensors = list[torch.Tensor]


def native(fn: Any) -> Any:
    return kintsugi.compile(fn, backend="native", options={"sync": True})


def tensors(value: Any) -> Tensors:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value for tensor in tensors(part)]


def same(fn: Any, compiled: Any, train: bool, inputs: Callable[[], Tensors], calls: int = 4) -> None:
    """Outputs, their layout, and the gradients of everything, in each of several calls."""
    parameters = list(fn.parameters()) if isinstance(fn, nn.Module) else []
    for _ in range(calls):
        args = inputs()
        with torch.set_grad_enabled(train):
            wanted, found = tensors(fn(*args)), tensors(compiled(*args))
        assert [out.stride() for out in wanted] == [out.stride() for out in found]
        if train:
            leaves = [x for x in args if x.requires_grad] + parameters
            for outs in (wanted, found):
                outs += torch.autograd.grad(sum(out.pow(2).mean() for out in outs), leaves)
        for a, b in zip(wanted, found, strict=True):
            torch.testing.assert_close(b, a, atol=1e-5, rtol=1e-4)


def views(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return x.reshape(2, 2, -1).transpose(0, 1).unsqueeze(1)


def convolved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.conv1d(x[None], w[:4, :4, None])


def ordered(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return torch.sort(x, 1)[0]


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w)


def joined(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x], 1)


@pytest.mark.parametrize(
    ("fn", "train", "plain"),
    [
        (views, False, True),
        (views, True, True),
        (convolved, False, True),
        (convolved, True, True),
        (ordered, True, True),
        (product, False, False),
        (product, True, False),
        (joined, True, False),
    ],
)
def test_what_is_calls_alone_is_neither_ready_nor_refused(fn: Any, train: bool, plain: bool) -> None:
    w = torch.randn(8, 8, requires_grad=train and fn in (product, convolved))
    compiled = native(fn)
    same(fn, compiled, train, lambda: [torch.randn(4, 8, requires_grad=train), w])
    stats = compiled.stats()
    assert (stats.native_plain, stats.native_ready, stats.native_refused) == (plain, not plain, 0)
    assert (stats.native_runs > 0) is not plain


# What is between operators: calls of cached functions that only count hits, which may nevertheless end in an exception.

_broken = False


@functools.lru_cache
def plan(key: str) -> int:
    if _broken and key == "b":
        raise ValueError(key)
    return len(key)


@torch.library.custom_op("kintsugi_tests::forget_plans", mutates_args=())
def forget_plans(x: torch.Tensor) -> torch.Tensor:
    if _broken:
        plan.cache_clear()
    return x + 1


@forget_plans.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def planned(x: torch.Tensor, w: torch.Tensor) -> Any:
    x = torch.ops.kintsugi_tests.forget_plans(x)
    h = x * w
    seen: Tensors = []
    try:
        plan("a")
        y = h.sin()
        z = y.exp()
        plan("b")
        return z * 2, None
    except ValueError:
        h.register_hook(seen.append)
        return y.cos() * z, (h, y, seen)


def _calls_with_exceptions(call: Any) -> list[Any]:
    global _broken
    torch.manual_seed(0)
    plan.cache_clear()
    w = torch.randn(8, requires_grad=True)
    found = []
    for n in range(8):
        plan("a"), plan("b")
        _broken = n in (4, 6)
        try:
            out, parts = call(torch.randn(8), w)
        finally:
            _broken = False
        leaves = [w] if parts is None else [w, parts[0], parts[1]]
        gradients = torch.autograd.grad(out.sum(), leaves)
        hooked = [] if parts is None else parts[2]
        nodes = [] if parts is None else [type(part.grad_fn).__name__ for part in parts[:2]]
        found.append(([out.detach(), *gradients, *hooked], nodes, plan.cache_info()))
    return found


def test_steps_that_are_given_no_tensor_do_not_end_a_segment_and_may_raise() -> None:
    expected = _calls_with_exceptions(planned)
    compiled = native(planned)
    for (mine, nodes, info), (theirs, other, counted) in zip(
        expected, _calls_with_exceptions(compiled), strict=True
    ):
        torch.testing.assert_close(theirs, mine)
        assert nodes == other and info == counted
    stats = compiled.stats()
    assert stats.native_segments - stats.native_plain == 1 and stats.native_backwards > 0
    assert (stats.trace_count, stats.graph_break_count) == (1, 0)


def test_tensors_that_steps_are_given_end_segments() -> None:
    kept: Tensors = []

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = x * w
        plan("a")
        kept.append(h)
        y = h.sin()
        plan("a")
        return y.exp()

    plan("a")
    compiled = native(fn)
    w = torch.randn(8, requires_grad=True)
    for _ in range(4):
        x = torch.randn(8)
        found = []
        for call in (fn, compiled):
            out = call(x, w)
            h = kept.pop()
            hooked: Tensors = []
            h.register_hook(hooked.append)
            found.append([out.detach(), *torch.autograd.grad(out.sum(), [w, h]), *hooked])
        torch.testing.assert_close(found[1], found[0])


def test_gradients_lie_as_the_operator_lays_them() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 8, 3, padding=1, groups=4)
    compiled = native(lambda x: torch.relu(layer(x)))
    for _ in range(3):
        x = torch.randn(2, 4, 8, 8)
        strides = []
        for call in (lambda x: torch.relu(layer(x)), compiled):
            layer.zero_grad(set_to_none=True)
            call(x).sum().backward()
            strides.append((layer.weight.grad.stride(), layer.bias.grad.stride()))
        assert strides[0] == strides[1]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module], dropout: float = 0) -> None:
        super().__init__()
        self.layer = kind(8, 8, 2, batch_first=True, dropout=dropout)

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> Any:
        out, state = self.layer(torch.tanh(x * w))
        return (out * 2).sin(), state


class Cell(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.layer = kind(8, 8)

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> Any:
        return self.layer(torch.tanh(x * w)[:, 0])


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_recurrent_layers_are_calls(kind: Any, train: bool) -> None:
    torch.manual_seed(0)
    module = (Cell if "Cell" in kind.__name__ else Recurrent)(kind).train(train)
    compiled = native(module)
    w = torch.randn(8, requires_grad=train)
    same(module, compiled, train, lambda: [torch.randn(2, 5, 8, requires_grad=train), w])
    stats = compiled.stats()
    assert stats.native_ready > 0 and stats.native_refused == 0
    assert not train or stats.native_backwards > 0


def test_recurrent_layers_that_drop_out_draw_eager_modes_numbers() -> None:
    torch.manual_seed(0)
    module = Recurrent(nn.LSTM, dropout=0.5).train()
    compiled = native(module)
    for turn in range(3):
        x, w = torch.randn(2, 5, 8), torch.randn(8)
        found = []
        for call in (module, compiled):
            torch.manual_seed(turn)
            found.append([out.detach() for out in tensors(call(x, w))])
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(
    "pad",
    [
        lambda x: F.pad(x, (1, 2)).sin() + 1,
        lambda x: F.pad(x, (1, 2, 0, 3), value=2.0) * x.mean(),
        lambda x: F.pad(x, (0, 0, 0, 0)),
        lambda x: F.pad(x, (-1, 2)) * 2,
        lambda x: F.pad(x, (2, 2), mode="reflect") * 2,
        lambda x: F.pad(x, (1, 2), mode="circular") * 2,
        lambda x: F.pad(x, (2, 2), mode="replicate") * 2,
        lambda x: (F.pad(x, (1, 2)), x.exp()),
        lambda x: torch.constant_pad_nd(x.sin(), (3, 0), 1.5),
    ],
)
def test_padding_in_training(pad: Any, train: bool) -> None:
    torch.manual_seed(0)
    compiled = native(pad)
    same(pad, compiled, train, lambda: [torch.randn(2, 5, 8, requires_grad=train)])
    assert compiled.stats().native_refused == 0
