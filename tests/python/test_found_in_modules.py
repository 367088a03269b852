"""Classes of programs that cut graphs in modules of packages that nobody here had tried (scripts/unseen_modules.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from fx_recorder import Recorder
from torch import nn
from torch.backends import opt_einsum

import kintsugi
from kintsugi._callable import core_of

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def in_one_graph(f: Callable[..., Any], *inputs: Any, graphs: int = 1) -> Any:
    """The same from an FX backend, in replay and natively; one graph and no break."""
    made: list[Any] = []

    def keep(gm: torch.fx.GraphModule, _: Any) -> Any:
        made.append(gm)
        return gm.forward

    for backend in (keep, "eager", "native"):
        compiled = kintsugi.compile(f, backend=backend)
        for _ in range(4):
            torch.testing.assert_close(compiled(*inputs), f(*inputs))
            kintsugi.wait()
        core = core_of(compiled)
        assert core is not None
        assert compiled.stats().graph_break_count == 0, core.breaks()
        assert compiled.stats().misses == 1, core.recompiles()
    assert len(made) == graphs, [str(gm.graph) for gm in made]
    return compiled


# --- versions ---


@pytest.mark.parametrize("text", ["1.5", "2.0", "99"])
@pytest.mark.parametrize("compare", ["__lt__", "__le__", "__gt__", "__ge__", "__eq__"])
def test_versions_are_compared_once(text: str, compare: str) -> None:
    """The text is of a class that extends str; it follows from its characters that can't change."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        return y * 2 if getattr(torch.__version__, compare)(text) else y - 1

    compiled = in_one_graph(f, X)
    assert not [t for t in compiled.traces() if "call" in t.split("trace ")[1].replace("callable", "")]


def test_a_version_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.__version__ < "2.0" else x - 1

    compiled = kintsugi.compile(f, backend="eager")
    for version in ("1.5", "3.0", "1.9", "1.5"):
        monkeypatch.setattr(torch, "__version__", type(torch.__version__)(version))
        torch.testing.assert_close(compiled(X), f(X))


class Level:
    """Says in Python how it compares."""

    asked = 0

    def __init__(self, level: float) -> None:
        self.level = level

    def __eq__(self, other: object) -> bool:
        Level.asked += 1
        return isinstance(other, Level) and self.level == other.level

    def __lt__(self, other: Any) -> Any:
        Level.asked += 1
        return self.level < other.level if isinstance(other, Level) else NotImplemented

    def __gt__(self, other: Any) -> Any:
        return self.level > other.level if isinstance(other, Level) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


LOW, ALSO_LOW, HIGH = Level(0), Level(0), Level(1)
PAIRS: list[tuple[Any, Any]] = [
    ((0, LOW), (0, HIGH)),
    ((0, HIGH), (0, LOW)),
    ((0, LOW), (0, ALSO_LOW)),
    ((0, LOW), (0, LOW)),
    ((LOW,), (ALSO_LOW, 1)),
    ((LOW, 2), (ALSO_LOW,)),
    ((1, (LOW, 3)), (1, (ALSO_LOW, 2))),
    ((), (LOW,)),
    ((LOW, float("nan")), (LOW, float("nan"))),
]


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_tuples_of_objects_that_compare_in_python(op: str, number: int) -> None:
    a, b = PAIRS[number]
    names: dict[str, Any] = {"a": a, "b": b}
    exec(f"def f(x):\n    y = x + 1\n    return y * 2 if a {op} b else y * 3", names)
    f = names["f"]
    compiled = kintsugi.compile(f, backend="eager")
    for _ in range(3):
        outcomes, counts = [], []
        for call in (compiled, f):
            Level.asked = 0
            try:
                outcomes.append(call(X))
            except TypeError as error:
                outcomes.append(str(error))
            counts.append(Level.asked)
        assert type(outcomes[0]) is type(outcomes[1])
        if isinstance(outcomes[0], str):
            assert outcomes[0] == outcomes[1]
        else:
            torch.testing.assert_close(outcomes[0], outcomes[1])
    if isinstance(outcomes[1], torch.Tensor):
        assert compiled.stats().graph_break_count == 0


def test_a_method_that_compares_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (LOW, 1), (HIGH, 0)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if a < b else x - 1

    compiled = kintsugi.compile(f, backend="eager")
    torch.testing.assert_close(compiled(X), f(X))
    monkeypatch.setattr(Level, "__lt__", lambda self, other: False)
    torch.testing.assert_close(compiled(X), f(X))
    monkeypatch.setattr(HIGH, "level", 0)
    torch.testing.assert_close(compiled(X), f(X))


# --- einsums of more than two tensors ---


class Paths:
    """Stands for opt_einsum, which need not be there."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

        def contract_path(
            equation: str, *operands: Any, optimize: str, shapes: bool = False
        ) -> tuple[list[tuple[int, ...]], None]:
            sizes = [tuple(o) if shapes else tuple(o.shape) for o in operands]
            self.calls.append((equation, sizes, optimize))
            return [(0, 2), (0, 1)] if optimize == "auto" else [(1, 2), (0, 1)], None

        self.contract_path = contract_path


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    settings = opt_einsum.get_opt_einsum.__globals__
    found = Paths()
    monkeypatch.setitem(settings, "_opt_einsum", found)
    monkeypatch.setitem(settings, "enabled", True)
    monkeypatch.setitem(settings, "strategy", "auto")
    opt_einsum.is_available.cache_clear()
    yield found
    monkeypatch.undo()
    opt_einsum.is_available.cache_clear()


def chain(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return torch.einsum("ij,jk,kl->il", a.sin(), b, c).cos()


def tensors(*sizes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=generator) for size in sizes]


def test_an_order_of_contraction_is_asked_for_once(paths: Paths) -> None:
    in_one_graph(chain, *tensors((3, 4), (4, 5), (5, 6)))
    assert all(call == ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 6)], "auto") for call in paths.calls)


def test_einsums_of_other_sizes_and_settings(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = kintsugi.compile(chain, backend="eager")
    for n in (3, 7, 2, 1, 7):
        inputs = tensors((n, 4), (4, 5), (5, n))
        assert torch.equal(compiled(*inputs), chain(*inputs))
    monkeypatch.setitem(opt_einsum.get_opt_einsum.__globals__, "strategy", "greedy")
    assert torch.equal(compiled(*inputs), chain(*inputs))
    assert paths.calls[-1][2] == paths.calls[-2][2] == "greedy"
    monkeypatch.setitem(opt_einsum.get_opt_einsum.__globals__, "enabled", False)
    before = len(paths.calls)
    assert torch.equal(compiled(*inputs), chain(*inputs))
    assert len(paths.calls) == before


def test_einsums_that_are_none(paths: Paths) -> None:
    compiled = kintsugi.compile(chain, backend="eager")
    wrong = tensors((3, 4), (5, 5), (5, 6))
    with pytest.raises(RuntimeError) as expected:
        chain(*wrong)
    with pytest.raises(RuntimeError) as seen:
        compiled(*wrong)
    assert str(seen.value) == str(expected.value)


@pytest.mark.parametrize("equation", ["bhnd,bhde,bhn->bhne", "...nd,...de,...n->...ne"])
def test_einsums_in_training(paths: Paths, equation: str) -> None:
    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.einsum(equation, a, b, c)

    compiled = kintsugi.compile(f, backend="native", options={"sync": True})
    for _ in range(3):
        inputs = [t.requires_grad_() for t in tensors((2, 2, 3, 4), (2, 2, 4, 5), (2, 2, 3))]
        given = [torch.autograd.grad(call(*inputs).sin().sum(), inputs) for call in (compiled, f)]
        torch.testing.assert_close(given[0], given[1])
    assert compiled.stats().native_refused == 0


# --- what derivatives are autograd's of ---


@pytest.mark.parametrize(
    "f",
    [
        lambda x: F.glu(x.sin(), -1),
        lambda x: x.sin().flip(0) * x,
        lambda x: torch.lerp(x.sin(), x.cos(), x.sigmoid()),
        lambda x: x.sin() * x.cos().max(),
        lambda x: x.sin() / x.cos().min(),
        lambda x: torch.einsum("ii,ij->j", x[:, :3].sin(), x.cos()),
    ],
)
def test_derivatives(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    compiled = kintsugi.compile(f, backend="native", options={"sync": True})
    for call in range(4):
        x, y = ((X + call).requires_grad_() for _ in range(2))
        out, expected = compiled(x), f(y)
        torch.testing.assert_close(out, expected)
        out.pow(2).sum().backward()
        expected.pow(2).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert compiled.stats().native_refused == 0


# --- sizes ---


def test_a_given_number_of_classes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        hot = F.one_hot(x.argmax(-1), 4)
        gate, index = (x.softmax(-1) * hot).topk(1, dim=-1)
        return gate.squeeze(-1) + F.one_hot(index.squeeze(-1), 4).sum(-1)

    in_one_graph(f, X)


def test_classes_that_are_counted() -> None:
    def f(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return F.one_hot(index).sum() + x

    compiled = kintsugi.compile(f, backend="eager")
    for most in (2, 5, 3, 9):
        index = torch.tensor([0, most])
        torch.testing.assert_close(compiled(X, index), f(X, index))
        assert F.one_hot(index).shape == (2, most + 1)


@pytest.mark.parametrize("size", [(1, 24), [1, 24]])
def test_functions_of_torch_that_ask_abcs(size: Any) -> None:
    """isinstance(x, Iterable) runs code of the standard library inside torch's function."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return F.fold(x.relu(), output_size=size, kernel_size=(1, 8), stride=(1, 4)).sin()

    in_one_graph(f, torch.randn(1, 8, 5))


def test_attention_with_masks() -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def f(x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(3, 3, dtype=torch.bool).triu(1)
        out, _ = module(x, x, x, attn_mask=mask, need_weights=False)
        return out * 2

    with torch.no_grad():
        in_one_graph(f, torch.randn(2, 3, 8))


# --- arrays, settings, functions under a mode ---

SCALES = numpy.array([1, 2, 3])


def test_arrays_side_by_side() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for i, (scale, shift) in enumerate(zip(SCALES, [1, 2, 3], strict=False)):
            x = x * int(scale) + shift * i
        for i, scale in enumerate(SCALES):
            x = x + int(scale) * i
        return x

    compiled = kintsugi.compile(f, backend="eager")
    for first in (1, 4, 1):
        SCALES[0] = first
        torch.testing.assert_close(compiled(X), f(X))
    assert compiled.stats().graph_break_count == 0


def test_numbers_of_arrays_in_calls_of_torch() -> None:
    dilations = numpy.array([1, 2], dtype=numpy.int32)
    kernel = torch.linspace(-1, 1, 6).reshape(2, 1, 3)

    def f(x: torch.Tensor) -> torch.Tensor:
        found = []
        for dilation, padding in zip(dilations, [1, 2], strict=True):
            found.append(F.conv1d(x, kernel, padding=padding, dilation=dilation).sum(-1) * numpy.float32(0.5))
        return torch.cat(found, 1)

    compiled = kintsugi.compile(f, backend="eager")
    x = torch.linspace(-1, 1, 16).reshape(2, 1, 8)
    for second in (2, 1, 2, 3, 2):
        dilations[1] = second
        outcomes = []
        for call in (compiled, f):
            try:
                outcomes.append(call(x))
            except RuntimeError as error:
                outcomes.append(str(error))
        assert type(outcomes[0]) is type(outcomes[1])
        if isinstance(outcomes[1], torch.Tensor):
            torch.testing.assert_close(outcomes[0], outcomes[1], rtol=0, atol=0)
    assert compiled.stats().graph_break_count == 0


def test_sets_of_modules() -> None:
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def f(x: torch.Tensor) -> torch.Tensor:
        chosen = set(layers[:2])
        for layer in layers:
            x = layer(x) if layer in chosen else x + 1
        return x * len(set(layers))

    in_one_graph(f, X)


def test_attributes_of_modules_by_their_own_method() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if ModuleType.__getattribute__(torch.version, "__version__") == "0" else x - 1

    in_one_graph(f, X)


class Doubled(torch.autograd.Function):
    @staticmethod
    @torch.no_grad()
    def forward(ctx: Any, x: torch.Tensor, by: float) -> torch.Tensor:
        ctx.by = by
        ctx.save_for_backward(x)
        return x * by

    @staticmethod
    @torch.no_grad()
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * ctx.by + x, None


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_functions_with_a_forward_under_a_mode(backend: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(x.sin(), 2.0).cos()

    compiled = kintsugi.compile(f, backend=backend)
    for _ in range(4):
        x, y = (X.clone().requires_grad_() for _ in range(2))
        compiled(x).sum().backward()
        f(y).sum().backward()
        kintsugi.wait()
        torch.testing.assert_close(x.grad, y.grad)
    assert compiled.stats().graph_break_count == 0


class Window:
    def __init__(self, values: list[int]) -> None:
        self.values = values

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return at.start, at.stop, at.step, self.values[at], at.indices(len(self.values))
        return self.values[at]


def parts_of_slices(x: torch.Tensor, window: Window, n: Any) -> Any:
    given = slice(n, x)
    same = given.stop is x, given.start is n, given.step is None
    return x * 2, window[n:], window[:n:2], window[1], slice(4).stop, slice(1, None).start, same


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_parts_of_slices(backend: str) -> None:
    compiled, window = kintsugi.compile(parts_of_slices, backend=backend), Window([5, 6, 7, 8])
    for n in (1, 1, 2, -1, None, 3, True, 2.5, 1):
        results = []
        for function in (parts_of_slices, compiled):
            try:
                results.append(repr(function(torch.ones(2), window, n)))
            except TypeError as error:
                results.append(repr(error))
        assert results[0] == results[1], n
        kintsugi.wait()


def test_parts_of_a_sequential_cut_no_graph() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i in range(len(self.layers)):
                x = self.layers[i](x)
            return self.layers[-1](x)

    backend, net = Recorder(), Net()
    compiled = kintsugi.compile(net, backend=backend)
    for _ in range(3):
        x = torch.randn(2, 3)
        assert torch.equal(compiled(x), net(x))
    assert len(backend.graphs) == 1
