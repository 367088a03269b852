"""Numbers that are known only at run time: `.item()`, random numbers, int and float arguments that vary.

They go into tensor operations as values of the trace: a new number neither records again nor leaves the trace. Where
torch's bindings have to know the number, the trace is pinned to it; results are eager's either way.
"""

from __future__ import annotations

import functools
import math
import operator
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kintsugi
from bench import compare

FLOATS: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "mul": lambda x, s: x * s,
    "reflected_mul": lambda x, s: s * x,
    "reflected_sub": lambda x, s: s - x,
    "div": lambda x, s: x / s,
    "reflected_div": lambda x, s: s / x,
    "pow": lambda x, s: x**s,
    "reflected_pow": lambda x, s: s**x,
    "full": lambda x, s: torch.full((2,), s),
    "clamp": lambda x, s: (x.clamp(max=s), torch.clamp(x, s)),
    "where": lambda x, s: torch.where(x > s, x, s),
    "alpha": lambda x, s: x.add(x, alpha=s),
    "lerp": lambda x, s: torch.lerp(x, x + 1, s),
    "in_place": lambda x, s: x.add_(s).mul_(s).fill_(s),
    "masked_fill": lambda x, s: x.masked_fill(x > 0.5, s),
    "functional": lambda x, s: F.leaky_relu(x, s),
    "compare": lambda x, s: (x == s, x <= s, x.eq(s)),
    "power": lambda x, s: x * (0.9**s) - s**0.5 + s % 0.7 + s // 0.3,
    "arithmetic": lambda x, s: x * (2 * s + 1) - s / 3,
    "integer_tensor": lambda x, s: x.long() * s,
    "half": lambda x, s: (x.half() * s).dtype,
}

INTEGERS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "arange": lambda x, n: (torch.arange(n), torch.arange(0, n, 2)),
    "sizes": lambda x, n: (x.new_zeros(n, 2), torch.zeros(n), torch.zeros((n, 3)), torch.ones(2, n)),
    "repeat": lambda x, n: (x.repeat(n), x.repeat_interleave(n), x.expand(n, -1)),
    "views": lambda x, n: (x.repeat(n).view(n, -1), x.repeat(n).reshape(-1, n)),
    "slices": lambda x, n: (x[:n], x[n:], x.narrow(0, 0, n)),
    "roll": lambda x, n: (x.roll(n), x.topk(n)[0]),
    "matrices": lambda x, n: (torch.eye(n), torch.ones(3, 3).tril(n - 2)),
    "padding": lambda x, n: F.pad(x, (n, 0)),
    "random": lambda x, n: torch.rand(n),
    "arithmetic": lambda x, n: x * (n // 2 + n % 3),
    "index": lambda x, n: (x[n], x[-n], x.view(1, 8).T[n], x[n].add_(1), x[n].shape),
    "identity": lambda x, n: (x * n, n is None, None is n, n is not x, n is text),
}

PINNED: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "dimension": lambda x, n: x[None, None].sum(n % 3),
    "chunks": lambda x, n: (x.chunk(n), x.split(n)),
    "unfold": lambda x, n: x.unfold(0, n, 1),
    "assigned": lambda x, n: x.__setitem__(slice(None, n), 0),
    "one_hot": lambda x, n: F.one_hot(torch.tensor([0]), n),
    "python": lambda x, n: [x + i for i in range(n)],
    "text": lambda x, n: f"{n:03d}",
}


def text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {value.stride()} {value.tolist()}"
    if isinstance(value, (list, tuple)):
        return str([text(v) for v in value])
    return repr(value)


def run(function: Callable[..., Any], number: int) -> tuple[str, str]:
    torch.manual_seed(number)
    x = torch.rand(8) * number
    try:
        result = text(function(x, torch.tensor(number)))
    except (RuntimeError, TypeError, ValueError, IndexError) as e:
        result = repr(e)
    return result, text(x)


def check(function: Callable[..., Any]) -> kintsugi.Stats:
    compiled = kintsugi.compile(function, backend="eager")
    for number in (1, 2, 3, 4, 2, 5):
        assert run(compiled, number) == run(function, number), number
    return compiled.stats()


@pytest.mark.parametrize("name", FLOATS)
def test_float(name: str) -> None:
    stats = check(lambda x, n: FLOATS[name](x, x.sum().item()))
    assert (stats.trace_count, stats.side_exits) == (1, 0)


@pytest.mark.parametrize("name", INTEGERS)
def test_integer(name: str) -> None:
    stats = check(lambda x, n: INTEGERS[name](x, int(n.item())))
    assert (stats.trace_count, stats.side_exits) == (1, 0)


@pytest.mark.parametrize("kind", [torch.SymInt, torch.SymFloat])
def test_what_a_symbolic_number_runs_when_it_is_made(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.SymInt.__init__ is Python code, which may call code that is not torch's: typing.cast, in torch 2.14."""
    made: list[Any] = []
    init = kind.__init__

    def calls_others(self: Any, node: Any) -> None:
        made.append(bisect_left_by_hand([1, 2], 2))
        init(self, node)

    monkeypatch.setattr(kind, "__init__", calls_others)
    take = int if kind is torch.SymInt else float
    stats = check(lambda x, n: (x + take(n.item()), torch.full((2,), take(n.item()))))
    assert made and (stats.trace_count, stats.side_exits, stats.op_count) == (1, 0, 4)


def bisect_left_by_hand(numbers: list[int], number: int) -> int:
    return sum(other < number for other in numbers)


@pytest.mark.parametrize("name", PINNED)
def test_pinned(name: str) -> None:
    check(lambda x, n: PINNED[name](x, int(n.item())))


def test_index_out_of_bounds() -> None:
    """A run whose index is out of bounds leaves the trace, and raises what the subscript raises."""

    def pick(x: torch.Tensor, n: int) -> torch.Tensor:
        return x[n] + 1

    compiled = kintsugi.compile(pick, backend="eager")
    for x in (torch.rand(4), torch.rand(3, 2, requires_grad=True), torch.tensor(1.0)):
        for n in (0, 1, 2, -1, 7, -4, 3, -9):
            assert run(lambda y, _: compiled(x, n), n) == run(lambda y, _: pick(x, n), n), n
    assert compiled.stats().hits > 8


def test_index_under_a_transform_and_of_a_subclass() -> None:
    def pick(x: torch.Tensor, n: int) -> torch.Tensor:
        return torch.func.vmap(lambda row: row[n] * 2)(x)

    compiled = kintsugi.compile(pick, backend="eager")
    for n in (0, 1, 2, -1):
        assert torch.equal(compiled(torch.ones(2, 3), n), pick(torch.ones(2, 3), n))

    class Own(torch.Tensor):
        pass

    def first(x: torch.Tensor, n: int) -> torch.Tensor:
        return x[n]

    own = torch.rand(4).as_subclass(Own)
    compiled = kintsugi.compile(first, backend="eager")
    for n in (0, 1, 2, -1):
        found = compiled(own, n)
        assert type(found) is Own and found == own[n]


def test_elements_of_a_list_that_a_step_gave() -> None:
    """Indices in another order in each call (DataLoader with shuffle=True) neither record again nor leave the trace."""

    def rows(x: torch.Tensor) -> torch.Tensor:
        order = torch.randperm(8).tolist()
        return torch.stack([x[n] for n in order[:4]]) * (order[4] + 0.5) + sum(order[5:])

    compiled = kintsugi.compile(rows, backend="eager")
    x = torch.rand(8, 2)
    for seed in range(8):
        expected, found = (_seeded(function, x, seed) for function in (rows, compiled))
        assert torch.equal(found, expected)
    stats = compiled.stats()
    assert (stats.trace_count, stats.misses, stats.side_exits) == (1, 1, 0)


def _seeded(function: Callable[..., Any], x: torch.Tensor, seed: int) -> Any:
    torch.manual_seed(seed)
    random.seed(seed)
    return function(x)


def test_epochs_over_a_data_loader() -> None:
    def make() -> tuple[Callable[[], float], nn.Module]:
        torch.manual_seed(0)
        data = torch.utils.data.TensorDataset(torch.rand(24, 4), torch.randint(3, (24,)))
        loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def epoch() -> float:
            total = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss.item()
            return total

        return epoch, model

    plain, expected = make()
    epoch, model = make()
    compiled = kintsugi.compile(epoch, backend="eager")
    for seed in range(6):
        torch.manual_seed(seed)
        loss = plain()
        torch.manual_seed(seed)
        assert compiled() == loss
        assert torch.equal(model.weight, expected.weight)
    stats = compiled.stats()
    assert (stats.trace_count, stats.side_exits, stats.side_traces) == (1, 0, 0)


def test_arguments_that_vary() -> None:
    def scaled(x: torch.Tensor, n: int, s: float) -> Any:
        return x[:n] * s + n, torch.arange(n) * s

    compiled = kintsugi.compile(scaled)
    x = torch.rand(8)
    for n in range(1, 9):
        assert text(compiled(x, n, n / 3)) == text(scaled(x, n, n / 3))
    assert compiled.stats().trace_count <= 3
    assert compiled.stats().side_exits == 0


def test_random_numbers() -> None:
    def jitter(x: torch.Tensor) -> torch.Tensor:
        return x * random.random() + random.gauss(0, 1)

    compiled = kintsugi.compile(jitter)
    x = torch.rand(8)
    for seed in range(6):
        random.seed(seed)
        expected = jitter(x)
        random.seed(seed)
        assert torch.equal(compiled(x), expected)


def test_numbers_that_steps_give_are_values() -> None:
    table = {"a": 1.5}

    def f(x: torch.Tensor) -> tuple[torch.Tensor, float, int]:
        scale = 0.5 + 2 * random.random()
        start = time.perf_counter()
        if scale > 0.4:
            x = x * scale + random.uniform(1, 2)
        passed = time.perf_counter() - start
        return x * min(passed, 0.0) + table["a"] * scale, -scale, random.randrange(10) + 1

    compiled = kintsugi.compile(f)
    x = torch.rand(8)
    for seed in range(6):
        random.seed(seed)
        expected = f(x)
        random.seed(seed)
        found = compiled(x)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
    stats = compiled.stats()
    assert (stats.trace_count, stats.misses, stats.side_traces) == (1, 1, stats.side_exits)
    assert stats.side_exits <= 2  # the number of bits that randrange() has to draw again


def test_gradient_through_a_number() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * x.detach().sum().item()).sum()

    compiled = kintsugi.compile(f)
    for i in range(4):
        x = torch.rand(3, generator=torch.Generator().manual_seed(i), requires_grad=True)
        y = x.detach().clone().requires_grad_()
        compiled(x).backward()
        f(y).backward()
        assert torch.equal(x.grad, y.grad)
    assert compiled.stats().side_exits == 0


def test_numbers_that_vary_behind_a_step() -> None:
    """A guard behind a step sees another number: the side trace that is recorded then leaves it open."""
    state = {"n": 0, "scale": 0.5}

    @kintsugi.disable
    def step() -> None:
        state["n"] += 1
        state["scale"] += 0.25

    def program(x):
        step()
        return x * state["n"] + state["scale"]

    compiled = kintsugi.compile(program, backend="eager")
    x = torch.arange(3.0)
    for _ in range(12):
        actual = compiled(x)
        assert torch.equal(actual, x * state["n"] + state["scale"])
    stats = compiled.stats()
    assert stats.trace_count == 1 and stats.side_traces <= 2 and stats.side_exits <= 2


POWERS = [
    (0.9, 3),
    (2, -1.5),
    (-2.0, 3),
    (-2.0, 0.5),
    (0.0, 2.0),
    (0.0, -1),
    (1e200, 2.0),
    (1e-200, 2.0),
    (2.0, -1074),
]
POWERS += [
    (math.inf, 2),
    (math.nan, 0),
    (1.0, math.nan),
    (-1.0, math.inf),
    (0.5, 10**18),
    (7, 2.0),
    (-0.0, 3.0),
]


def test_powers_are_those_of_python() -> None:
    def program(x: torch.Tensor, base: float, exponent: float) -> Any:
        power = base**exponent
        return (x * 2, power) if isinstance(power, complex) else (x * power, power)

    x = torch.arange(3.0)
    compiled = kintsugi.compile(program)
    for base, exponent in [*POWERS, *reversed(POWERS)]:
        try:
            wanted, error = program(x, base, exponent), None
        except ArithmeticError as raised:
            wanted, error = None, raised
        if error is not None:
            with pytest.raises(type(error)) as seen:
                compiled(x, base, exponent)
            assert str(seen.value) == str(error)
            continue
        got = compiled(x, base, exponent)
        assert type(got[1]) is type(wanted[1])
        assert str(got[1]) == str(wanted[1])
        assert compare.same_values(got[0], wanted[0])


def test_powers_do_not_record_again() -> None:
    compiled = kintsugi.compile(lambda x, s: x * (1 - 0.9**s) ** 0.5)
    x = torch.arange(3.0)
    seen = []
    for k in range(12):
        assert torch.equal(compiled(x, 1.0 + k), x * (1 - 0.9 ** (1.0 + k)) ** 0.5)
        stats = compiled.stats()
        seen.append((stats.trace_count, stats.side_traces, stats.side_exits))
    assert len(set(seen[4:])) == 1


RAISING: dict[str, Callable[[torch.Tensor], Any]] = {
    "floordiv": lambda x: 6 // int(x.sum()),
    "mod": lambda x: 6 % int(x.sum()),
    "truediv": lambda x: 6 / x.sum().item(),
    "by_int": lambda x: x.max().item() / int(x.sum()),
    "operator": lambda x: operator.floordiv(6, int(x.sum())),
    "divmod": lambda x: divmod(6, int(x.sum())),
    "infinite": lambda x: int(1 / x.prod().item() if x.prod() else x.sum().item() + float("inf")),
    "not_a_number": lambda x: int(x.sum().item() * float("inf")),
    "round": lambda x: round(x.sum().item() * float("inf")),
    "sqrt": lambda x: math.sqrt(x.sum().item() - 1),
    "index": lambda x: [1, 2][int(x.sum())],
    "shift": lambda x: 1 << int(x.sum()) - 1,
    "chr": lambda x: chr(int(x.sum()) - 1),
    "text": lambda x: int("12x"[: int(x.sum()) + 1]),
}


@pytest.mark.parametrize("name", RAISING)
def test_what_raised_while_it_was_recorded_need_not_raise_again(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            made = RAISING[name](x)
        except (ArithmeticError, ValueError, IndexError) as error:
            return x + 1, str(error)
        return x * 2, made

    compiled = kintsugi.compile(program, backend="eager")
    for values in ([0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [1.0, -1.0], [0.0, 1.0], [2.0, 3.0], [1.0, 0.0]):
        x = torch.tensor(values)
        wanted, found = program(x), compiled(x)
        assert torch.equal(found[0], wanted[0]) and repr(found[1]) == repr(wanted[1])


HIDDEN: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "partial": lambda x, n: functools.partial(torch.add, x, alpha=n)(x),
    "partial_argument": lambda x, n: functools.partial(torch.mul, n)(x),
    "partial_of_both": lambda x, n: functools.partial(torch.add, alpha=n)(x, n),
    "keywords": lambda x, n: torch.add(x, x, **{"alpha": n}),
    "arguments": lambda x, n: torch.mul(*(x, n)),
    "nested": lambda x, n: torch.zeros(**{"size": (n + 1, 2)}),
    "method": lambda x, n: functools.partial(x.clamp, max=n)(),
    "reduced": lambda x, n: functools.reduce(torch.mul, [x, n, 2]),
    "mapped": lambda x, n: list(map(torch.mul, [x, x], [n, 3])),
    "functional": lambda x, n: F.pad(**{"input": x, "pad": (n, 0)}),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_numbers_that_do_not_stand_on_the_stack_themselves(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        return HIDDEN[name](x, int(x.sum().item()))

    compiled = kintsugi.compile(program, backend="eager")
    for value in (1.0, 2.0, 3.0, 2.0):
        x = torch.full((2,), value)
        wanted, found = program(x), compiled(x)
        wanted, found = ([t] if isinstance(t, torch.Tensor) else t for t in (wanted, found))
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))


RANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "of_an_array": lambda x: [i * 2 for i in range(1, len(x.numpy()) + 1)],
    "of_a_list": lambda x: [i for i in range(len(x.tolist()))],
    "of_a_number": lambda x: [x[i] for i in range(int(x.new_tensor(2).item()))],
    "of_a_number_of_numpy": lambda x: [i for i in range(np.prod(x.shape))],
    "itself": lambda x: (range(len(x.numpy())), len(range(0, len(x.numpy()), 2))),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges_of_numbers_that_come_again(name: str) -> None:
    compiled = kintsugi.compile(lambda x: RANGES[name](x), backend="eager")
    for _ in range(6):
        x = torch.randn(4)
        assert repr(compiled(x)) == repr(RANGES[name](x))
    assert compiled.stats().side_exits == 0


NUMBERS = [1.5, 0.1, 1e300, math.nan, math.inf, -0.0, 3, 2**53 + 1, 2**60 + 1, -5, True, 1e-320]


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float64, torch.int64, torch.int16, torch.bool])
def test_tensors_of_numbers(dtype: torch.dtype | None) -> None:
    def program(x: torch.Tensor, number: float) -> Any:
        made = torch.tensor(number, dtype=dtype)
        return made, made.dtype, made.shape, made * x, made._version, made.is_leaf

    def outcome(function: Callable[..., Any], number: float) -> str:
        try:
            return repr(function(torch.ones(2), number))
        except (RuntimeError, OverflowError, ValueError) as error:
            return repr(error)

    compiled = kintsugi.compile(program, backend="eager")
    for number in NUMBERS * 2:
        assert outcome(compiled, number) == outcome(program, number)


def test_metadata_of_a_tensor_of_a_number_are_known() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        scale = torch.sqrt(torch.tensor(x.size(-1) * 3, dtype=x.dtype))
        y = (x / scale).unsqueeze(0)
        return y.view(y.shape[0], -1).sum() + len(y)

    compiled = kintsugi.compile(program, backend="native", options={"sync": True})
    for _ in range(3):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(x), program(x))
    assert compiled.stats().native_segments == 1


NUMPY: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "constant": lambda x, n: x * np.log(2 * np.pi) - np.float32(0.5),
    "of_the_argument": lambda x, n: np.sqrt(np.float64(n)) * x + np.int64(n),
    "of_the_tensor": lambda x, n: (x * 2).sum() * np.max(x.numpy()) / np.float64(4),
    "nan": lambda x, n: torch.clamp(x, max=np.float64("nan")),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numbers_of_numpy_are_compared_by_value(name: str) -> None:
    compiled = kintsugi.compile(lambda x, n: NUMPY[name](x, n), backend="eager")
    for n in (2, 2, 3, 3, 2, 2, 3):
        x = torch.full((3,), float(n))
        assert torch.equal(compiled(x, n), NUMPY[name](x, n)) or name == "nan"
    exits = compiled.stats().side_exits
    for n in (2, 3, 2):
        compiled(torch.full((3,), float(n)), n)
    assert compiled.stats().side_exits == exits


def test_integers_beyond_64_bits_are_constants() -> None:
    def program(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * (n % 7) + len(str(n))

    compiled = kintsugi.compile(program, backend="eager")
    x = torch.ones(2)
    for n in (3, 5, 7, 10**400, 9, -(10**30), 2**63, 2**63 - 1, 2**64, 11, 10**400):
        assert torch.equal(compiled(x, n), program(x, n))


def _adds_beyond(x: torch.Tensor, y: torch.Tensor) -> None:
    y.index_add_(0, torch.tensor([0, 1, 99]), torch.ones(3), alpha=int(x))


def _fills_beyond(x: torch.Tensor, y: torch.Tensor) -> None:
    y.scatter_(0, torch.tensor([0, 1, 99]), float(x))


def _negative_size(x: torch.Tensor, y: torch.Tensor) -> None:
    y.resize_(-int(x))


def _not_resizable(x: torch.Tensor, y: torch.Tensor) -> None:
    y.numpy()
    y.resize_(int(x) + 7)


def _random_numbers_into_it(x: torch.Tensor, y: torch.Tensor) -> None:
    y.numpy()
    torch.rand(int(x) + 7, out=y)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize(
    "fn", [_adds_beyond, _fills_beyond, _negative_size, _not_resizable, _random_numbers_into_it]
)
def test_an_operator_that_raises_has_run_once(fn: Any, backend: str) -> None:
    options = {"sync": True} if backend == "native" else None
    compiled = kintsugi.compile(fn, backend=backend, options=options)
    for number in (2, 2, 3, 1):
        seen = []
        for run in (fn, compiled):
            torch.manual_seed(0)
            y = torch.zeros(4)
            with pytest.raises((IndexError, RuntimeError)) as caught:
                run(torch.tensor(number), y)
            seen.append(
                (caught.type, str(caught.value), y.shape, y.untyped_storage().tolist(), torch.get_rng_state())
            )
        assert seen[0][:-1] == seen[1][:-1]
        assert torch.equal(seen[0][-1], seen[1][-1])
