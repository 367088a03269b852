"""Sizes that vary between calls: the second one makes them values, and one trace does for all that follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from harness import describe
from native_harness import assert_values
from torch import nn

import kintsugi

PROGRAMS: dict[str, Callable[..., Any]] = {}
SIZES = (4, 7, 1, 9, 2, 7, 16, 3, 0, 5)


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one tensor (n, 6)."""
    PROGRAMS[function.__name__] = function
    return function


@program
def arithmetic(x: torch.Tensor) -> Any:
    return (x * 2 + 1).relu().sum(-1), x.t().contiguous(), x.new_ones(x.shape) + x


@program
def shapes_as_values(x: torch.Tensor) -> Any:
    n, k = x.shape
    return (
        n,
        k,
        x.shape,
        x.size(),
        x.size(0),
        x.size(-1),
        len(x),
        x.numel(),
        x.dim(),
        x.ndim,
        x.dtype,
        n * 2 + k,
    )


@program
def views(x: torch.Tensor) -> Any:
    n = x.shape[0]
    y = x.view(n, 2, 3).transpose(1, 2).reshape(n, 6)
    return y, x.reshape(-1), x.view(*x.shape[:-1], 3, 2), x.view(x.size(0), 6), x.view(-1, 6).expand(2, n, 6)


@program
def shape_sequences(x: torch.Tensor) -> Any:
    lead = x.shape[:-1]
    return (
        x.view(lead + (2, 3)),
        x.view((*lead, 3, 2)),
        torch.Size([1]) + x.shape,
        list(x.shape),
        tuple(x.size()),
    )


@program
def slices(x: torch.Tensor) -> Any:
    return x[:3], x[:3, :2], x[:, 1:], x[..., :4], x[-2:, ::2], x[:, None, :5], x[: x.shape[0] // 2, 1:3]


@program
def factories(x: torch.Tensor) -> Any:
    n = x.size(0)
    positions = torch.arange(n)
    return (
        positions,
        torch.zeros(n, 2),
        torch.full((n,), 3.0),
        x.new_zeros(n),
        torch.ones_like(x),
        torch.eye(n),
    )


@program
def masks(x: torch.Tensor) -> Any:
    n = x.shape[0]
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    scores = (x @ x.t()).masked_fill(~causal, float("-inf"))
    return scores.softmax(-1) @ x


@program
def functional(x: torch.Tensor) -> Any:
    y = F.layer_norm(x, (6,))
    return F.gelu(y), F.softmax(x, dim=-1), F.dropout(x, 0.5, False), F.normalize(x), F.pad(x, (1, 2))


@program
def joined(x: torch.Tensor) -> Any:
    return torch.cat([x, x[:2]]), torch.stack([x, x + 1]), torch.cat([x, x.new_zeros(2, 6)], 0).sum(0)


@program
def branches(x: torch.Tensor) -> Any:
    if x.shape[0] > 5:
        return x.mean(0), "long"
    assert x.shape[-1] == 6
    return x.sum(0), "short"


@program
def comparisons(x: torch.Tensor) -> Any:
    y = x[:3]
    return (
        x.shape == y.shape,
        x.shape != y.shape,
        x.size(0) == 7,
        x.shape[1:] == (6,),
        x.size() == torch.Size([4, 6]),
    )


@program
def extremes(x: torch.Tensor) -> Any:
    n = x.shape[0]
    return max(n, 5), min(n, 5), min(x.shape), x[: min(n, 3)], abs(n - 5), x.sum() / max(1, n)


@program
def loops(x: torch.Tensor) -> Any:
    total = torch.zeros(6)
    for i in range(min(x.shape[0], 3)):
        total = total + x[i]
    return total, [row.sum() for row in x.unbind(1)]


@program
def written(x: torch.Tensor) -> Any:
    y = x.clone()
    y[:, 0] = 1
    y[:2, 1:3] = 5
    y[..., -1] += x[..., 0]
    return y


@program
def squeezed(x: torch.Tensor) -> Any:
    return x.squeeze(), x.squeeze(0), x.unsqueeze(0).squeeze(0), x.squeeze().dim(), x.flatten()


@program
def pieces(x: torch.Tensor) -> Any:
    a, b = x.chunk(2, dim=-1)
    return a * b, x.split(3, dim=1)[0], torch.split(x, [2, 4], dim=-1)


@program
def strides(x: torch.Tensor) -> Any:
    y = x.t()
    return y.stride(), y.stride(0), y.is_contiguous(), y.contiguous().is_contiguous(), x.is_contiguous()


@program
def formatted(x: torch.Tensor) -> Any:
    return f"{x.shape[0]} rows", str(tuple(x.shape)), {"n": x.shape[0]}, "%d" % x.shape[0]


@program
def scaled(x: torch.Tensor) -> Any:
    return x / x.shape[0] ** 0.5 if x.shape[0] else x, x * x.size(-1) ** -0.5


def text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.tolist()}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}{[text(v) for v in value]}"
    return repr(value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_size(name: str) -> None:
    compiled = kintsugi.compile(PROGRAMS[name])
    torch.manual_seed(0)
    for size in SIZES * 2:
        x = torch.randn(size, 6)
        assert text(compiled(x)) == text(PROGRAMS[name](x)), f"size {size}"
    assert compiled.stats().trace_count == 2
    assert compiled.stats().graph_break_count == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_from_the_start(name: str) -> None:
    compiled = kintsugi.compile(PROGRAMS[name], dynamic=True)
    torch.manual_seed(0)
    for size in SIZES:
        x = torch.randn(size, 6)
        assert text(compiled(x)) == text(PROGRAMS[name](x)), f"size {size}"
    assert compiled.stats().trace_count == 1


@pytest.mark.parametrize("name", ["arithmetic", "functional", "masks", "views", "joined", "slices"])
def test_native_code_beside_sizes_that_vary(name: str) -> None:
    """Static traces run natively, those with open sizes are replayed: neither takes the other's sizes."""
    compiled = kintsugi.compile(PROGRAMS[name], backend="native", options={"sync": True})
    with torch.no_grad():
        for size in (4, 4, 4, 7, 2, 4, 9, 4):
            x = torch.randn(size, 6, generator=torch.Generator().manual_seed(size))
            assert_values(compiled(x), PROGRAMS[name](x))
    assert compiled.stats().trace_count == 2


def test_never() -> None:
    compiled = kintsugi.compile(lambda x: x * 2, dynamic=False)
    for size in (2, 3, 4, 3):
        compiled(torch.ones(size))
    assert compiled.stats().trace_count == 3


def test_two_tensors_of_equal_size_by_chance() -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        return a.shape[0] == b.shape[0], torch.cat([a, b]), a.sum() + b.sum()

    compiled = kintsugi.compile(f)
    for m, n in ((3, 3), (4, 4), (5, 6), (2, 2), (1, 7), (8, 8)):
        a, b = torch.randn(m), torch.randn(n)
        assert text(compiled(a, b)) == text(f(a, b))
    assert compiled.stats().trace_count == 2


def test_broadcasting_with_sizes_of_one() -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a + b).sum(0)

    compiled = kintsugi.compile(f)
    for m, n in ((3, 3), (4, 4), (1, 4), (4, 1), (1, 1), (0, 1)):
        a, b = torch.randn(m, 2), torch.randn(n, 2)
        assert torch.equal(compiled(a, b), f(a, b))
    with pytest.raises(RuntimeError, match="must match"):
        compiled(torch.randn(3, 2), torch.randn(4, 2))
    assert compiled.stats().trace_count == 2


def test_strides_and_aliases() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x.contiguous()
        y.add_(1)
        return y, x, y.data_ptr() == x.data_ptr()

    compiled = kintsugi.compile(f)
    for size in (2, 3, 4, 5, 1):
        for make in (
            lambda n: torch.ones(n, 3),
            lambda n: torch.ones(3, n).t(),
            lambda n: torch.ones(n, 6)[:, ::2],
        ):
            ours, theirs = make(size), make(size)
            assert text(compiled(ours)) == text(f(theirs)), size


def squeezed_in_place(x: torch.Tensor) -> Any:
    y = x.clone()
    n = y.shape[0]
    y.squeeze_()
    return n, y.dim(), y.shape, y + 0


def transposed_in_place(x: torch.Tensor) -> Any:
    y = x.clone()
    n = y.shape[1]
    y.t_()
    return n, y.shape[1], y.shape


def there_and_back(x: torch.Tensor) -> Any:
    y = x.clone()
    n = y.shape
    y.unsqueeze_(0)
    y.squeeze_(0)
    return n, y.shape, y.dim()


def given_other_data(x: torch.Tensor) -> Any:
    y = x.clone()
    n = y.shape
    y.data = y.data[: max(1, y.shape[0] - 1)]
    return n, y.shape, y.shape[0]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "function",
    [squeezed_in_place, transposed_in_place, there_and_back, given_other_data],
    ids=lambda function: function.__name__,
)
def test_writes_that_change_sizes_with_some_sizes_only(
    function: Callable[..., Any], dynamic: bool | None
) -> None:
    """What changes no size while it is recorded (t_ of a square) changes it later."""
    compiled = kintsugi.compile(function, dynamic=dynamic)
    for shape in ((4, 6), (5, 5), (3, 6), (1, 6), (6, 1), (1, 1), (5, 5), (1, 6)):
        x = torch.randn(shape)
        assert text(compiled(x)) == text(function(x)), shape


@pytest.mark.parametrize("dynamic", [None, True])
def test_resize_to_a_number_that_varies(dynamic: bool | None) -> None:
    def f(x: torch.Tensor, count: int) -> Any:
        y = x.flatten().clone()
        n = y.shape[0]
        y.resize_(count)
        return n, y.shape[0], y.numel()

    compiled = kintsugi.compile(f, dynamic=dynamic)
    for shape, count in (((2, 3), 6), ((2, 4), 8), ((2, 4), 8), ((3, 4), 5), ((2, 2), 4), ((2, 2), 3)):
        x = torch.randn(shape)
        assert compiled(x, count) == f(x, count), (shape, count)


def test_gradients() -> None:
    layer = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.LayerNorm(5))

    def f(x: torch.Tensor) -> torch.Tensor:
        return layer(x.view(-1, 2, 6)).flatten(1).mean(0)

    compiled = kintsugi.compile(f)
    for size in (2, 4, 8, 6):
        x = torch.randn(size, 6)
        gradients = []
        for function in (f, compiled):
            leaf = x.clone().requires_grad_()
            layer.zero_grad()
            function(leaf).sum().backward()
            gradients.append([leaf.grad, *[p.grad.clone() for p in layer.parameters()]])
        assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert compiled.stats().trace_count == 2


def test_numbers_and_sizes_together() -> None:
    def f(x: torch.Tensor, n: int, s: float) -> torch.Tensor:
        return x[:n].mul(s).sum() + x.shape[0] * n

    compiled = kintsugi.compile(f)
    for size, n, s in ((5, 2, 0.5), (6, 3, 0.25), (7, 1, 2.0), (2, 4, 3.0)):
        x = torch.randn(size)
        assert torch.equal(compiled(x, n, s), f(x, n, s))
    assert compiled.stats().trace_count == 2


def test_state_that_grows() -> None:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.past: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.past = x if self.past is None else torch.cat([self.past, x], 1)
            return (x @ self.past.transpose(1, 2)).softmax(-1) @ self.past

    ours, theirs = Cache(), Cache()
    compiled = kintsugi.compile(ours)
    for _ in range(12):
        x = torch.randn(2, 1, 4)
        assert torch.equal(compiled(x), theirs(x))
    assert kintsugi.explain(ours) is not None
    assert compiled.stats().trace_count <= 3


def test_marks() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1) * 2

    compiled = kintsugi.compile(f)
    for size in (3, 4, 5):
        x = torch.randn(size, 4)
        kintsugi.mark_dynamic(x, 0)
        assert torch.equal(compiled(x), f(x))
    assert compiled.stats().trace_count == 1
    wide = torch.randn(3, 8)
    kintsugi.mark_dynamic(wide, 0)
    compiled(wide)
    assert compiled.stats().trace_count == 2

    compiled = kintsugi.compile(f)
    for size in (3, 4, 5, 4):
        x = torch.randn(size, 4)
        kintsugi.mark_static(x)
        compiled(x)
    assert compiled.stats().trace_count == 3


def test_marks_are_those_of_torch() -> None:
    import torch._dynamo

    compiled = kintsugi.compile(lambda x: x + 1)
    for size in (3, 4, 5):
        x = torch.randn(size)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        compiled(x)
    assert compiled.stats().trace_count == 1


def test_marks_refuse_nonsense() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(IndexError, match="2 dimensions, there is none numbered 2"):
        kintsugi.mark_dynamic(x, 2)
    with pytest.raises(TypeError, match="expects a tensor, got list"):
        kintsugi.mark_static([1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got 'a'"):
        kintsugi.maybe_mark_dynamic(x, ["a"])  # type: ignore[list-item]


def test_assume_static_by_default() -> None:
    with kintsugi.config.patch(assume_static_by_default=False):
        compiled = kintsugi.compile(lambda x: x.sum(0))
        for size in (3, 4, 5):
            compiled(torch.randn(size, 2))
    assert compiled.stats().trace_count == 1


def test_buckets() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(-1)

    compiled = kintsugi.compile(f, dynamic=False)
    for size in range(1, 17):
        x = torch.randn(2, size)
        padded = kintsugi.pad_to_bucket(x, (4, 8, 16))
        assert padded.shape[1] == kintsugi.bucket(size, (4, 8, 16))
        assert torch.equal(compiled(padded)[:, :size], f(x))
    assert compiled.stats().trace_count == 3
    with pytest.raises(ValueError, match="17 is above the largest bucket, 16"):
        kintsugi.bucket(17, (4, 8, 16))


def test_another_rank_is_another_trace() -> None:
    compiled = kintsugi.compile(lambda x: x.sum(-1))
    for shape in ((3,), (4,), (5,), (2, 3), (3, 3), (4, 5), (6,)):
        x = torch.randn(shape)
        assert torch.equal(compiled(x), x.sum(-1))
    assert compiled.stats().trace_count <= 4


def test_fx_backend_sees_sizes() -> None:
    graphs: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm

    def f(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        return (x.view(n, 2, 3) + n).reshape(n * 2, 3).relu()

    compiled = kintsugi.compile(f, backend=backend)
    for size in (2, 3, 4, 5, 6):
        x = torch.randn(size, 6)
        assert torch.equal(compiled(x), f(x))
    assert compiled.stats().trace_count == 2
    assert len(graphs) == 2  # the second one has symbolic sizes


ITERATIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "for": lambda x: [v * 2 for v in x],
    "enumerate": lambda x: [(i, v) for i, v in enumerate(x)],
    "zip": lambda x: [a + b for a, b in zip(x, x * 2, strict=True)],
    "dict": lambda x: {int(i): float(v) for i, v in enumerate(x.sum(1))},
    "unpacked": lambda x: [*x, 1],
    "starred": lambda x: (lambda first, *rest: (first, rest))(*x),
    "map": lambda x: list(map(float, x.sum(1))),
}


@pytest.mark.parametrize("name", ITERATIONS)
def test_iteration_over_as_many_rows_as_there_are(name: str) -> None:
    """How many rows a mask leaves is known in each run only: another number leaves the trace and is a side trace."""

    def chosen(x: torch.Tensor, mask: torch.Tensor) -> Any:
        return ITERATIONS[name](x[mask])

    compiled = kintsugi.compile(chosen, backend="eager")
    for turn in range(6):
        x = torch.randn(6, 4)
        mask = torch.arange(6) < 2 + turn % 3
        assert describe(compiled(x, mask)) == describe(chosen(x, mask))
    stats = compiled.stats()
    assert (stats.misses, stats.graph_break_count) == (1, 0)
    assert stats.side_exits <= 4


# --- bounds, hints and unbacked sizes ---


def graphs_of(compile, mark, sizes, **bounds):
    """How many graphs a backend gets when the first tensor is marked and the others are not."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    torch._dynamo.reset()
    compiled = compile(lambda x: x.sin() * 2, backend=backend)
    for number, size in enumerate(sizes):
        x = torch.linspace(-1, 1, size * 3).reshape(size, 3)
        if number == 0:
            mark(x, 0, **bounds)
        assert torch.equal(compiled(x), x.sin() * 2)
    return len(graphs)


@pytest.mark.parametrize(
    ("sizes", "bounds"),
    [
        ((5, 6, 9), {"min": 2, "max": 10}),
        ((5, 6, 20, 30), {"min": 2, "max": 10}),
        ((5, 2, 10), {"min": 2, "max": 10}),
        ((5, 7, 11), {}),
    ],
)
def test_bounds_of_marked_sizes_as_torch_has_them(sizes, bounds) -> None:
    ours = graphs_of(kintsugi.compile, kintsugi.mark_dynamic, sizes, **bounds)
    assert ours == graphs_of(torch.compile, torch._dynamo.mark_dynamic, sizes, **bounds)
    # A tensor that torch has marked is marked for us, and the other way round.
    assert ours == graphs_of(kintsugi.compile, torch._dynamo.mark_dynamic, sizes, **bounds)
    assert ours == graphs_of(torch.compile, kintsugi.mark_dynamic, sizes, **bounds)


def test_sizes_outside_of_the_bounds_are_another_trace() -> None:
    compiled = kintsugi.compile(lambda x: x * 2, backend="eager")
    x = torch.ones(5, 2)
    kintsugi.mark_dynamic(x, 0, min=2, max=10)
    compiled(x)
    for size in (2, 10, 7):
        compiled(torch.ones(size, 2))
    assert compiled.stats().trace_count == 1
    for size in (1, 11, 12, 100):
        assert torch.equal(compiled(torch.ones(size, 2)), torch.full((size, 2), 2.0))
    assert compiled.stats().trace_count == 2
    assert any("shape[0] between 2 and 10" in event["expected"] for event in compiled.recompiles())


def test_a_size_outside_of_its_own_bounds_is_refused() -> None:
    for mark in (kintsugi.mark_dynamic, kintsugi.mark_unbacked):
        with pytest.raises(ValueError, match=r"has the size 5, not in \[2, 4\]"):
            mark(torch.ones(5, 2), 0, min=2, max=4)
        with pytest.raises(TypeError, match="min must be an int"):
            mark(torch.ones(5, 2), 0, min="2")
        with pytest.raises(TypeError, match="hint_override"):
            mark(torch.ones(5, 2), 0, hint_override=0)
    x = torch.ones(50, 3)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=10)
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="50 not in range"):
        torch.compile(lambda x: x.sin(), backend="eager")(x)
    assert torch.equal(kintsugi.compile(lambda x: x + 1, backend="eager")(x), x + 1)


def test_unbacked_sizes() -> None:
    for mark in (kintsugi.mark_unbacked, torch._dynamo.decorators.mark_unbacked):
        graphs = []

        def backend(gm, example_inputs, graphs=graphs):
            graphs.append(gm)
            return gm.forward

        torch._dynamo.reset()
        ours = kintsugi.compile(lambda x: x.sin(), backend="eager")
        torchs = torch.compile(lambda x: x.sin(), backend=backend)
        for size in (5, 1, 7, 0):
            x = torch.ones(size, 3)
            mark(x, 0)
            assert torch.equal(ours(x), x.sin()) and torch.equal(torchs(x), x.sin())
        assert ours.stats().trace_count == len(graphs) == 1


def test_hints_reach_the_backend() -> None:
    hints = []

    def backend(gm, example_inputs):
        for node in gm.graph.nodes:
            value = node.meta.get("val")
            if node.op == "placeholder" and isinstance(value, torch.Tensor):
                hints.append(value.fake_mode.shape_env)
        return gm.forward

    x = torch.ones(6, 3)
    kintsugi.mark_dynamic(x, 0, hint_override=64)
    assert x._dynamo_hint_overrides == {0: 64}
    y = torch.ones(6, 3)
    torch._dynamo.mark_dynamic(y, 0, hint_override=64)
    assert y._dynamo_hint_overrides == x._dynamo_hint_overrides
    assert torch.equal(kintsugi.compile(lambda x: x + 1, backend=backend)(x), x + 1)
    (environment,) = hints
    assert 64 in environment.var_to_hint_override.values()


def test_mark_static_takes_bounds_back() -> None:
    x = torch.ones(5, 2)
    kintsugi.mark_dynamic(x, 0, min=2, max=10)
    kintsugi.mark_static(x, 0)
    compiled = kintsugi.compile(lambda x: x * 2, backend="eager")
    compiled(x)
    assert "dimrange" not in compiled.traces()[0]
