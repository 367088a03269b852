"""Functions of Python's on numbers of the run: each is computed again, and no new number leaves the trace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import describe

import kintsugi

# `s`: a float, `n`: an int, both of which vary.
EXPRESSIONS = """
math.cos(s), math.sqrt(abs(s)), math.exp(-s * s), math.log(s * s + 1), math.pow(s, 2), math.atan2(s, 1.0)
math.floor(s), math.ceil(s), math.trunc(s), math.fmod(s, 1.0), math.hypot(s, 1), math.copysign(1.0, s)
math.isnan(s), math.isfinite(s), s.is_integer(), n.bit_length()
math.prod((s, 2.0)), math.fsum([s, 1.0]), math.prod(x[:n].shape)
math.gcd(n, 6), math.isqrt(n), math.log2(n), math.ceil(x.shape[0] / n), math.comb(n + 3, 2)
round(s), round(s, 2), round(n / 2), abs(s), abs(-n), divmod(s, 0.7), divmod(n, 3), pow(s, 2), pow(n, 2, 5)
int(s * 10), float(n), complex(s, 1), hash(s), bool(s)
s.hex(), s.as_integer_ratio(), (n + 0).to_bytes(4, "little")
n << 1, n >> 1, n & 3, n | 8, n ^ 1, ~n, +n, -n, n**2, n // 2, n % 3
"%.3f" % s, "%d of %d" % (n, 7), "%s" % n, f"{s:.2f}", f"{n:03d}", str(n), repr(s), "{:.1e}".format(s), "ab" * n
n in (1, 2, 3), n not in (4, 5), n in {1, 7}, n in range(3)
sum([s, s]), bin(n), hex(n), chr(65 + n)
""".strip().splitlines()


def varied(
    function: Callable[[torch.Tensor, float, int], Any], numbers: Callable[[int], tuple[float, int]]
) -> kintsugi.Stats:
    compiled = kintsugi.compile(function)
    x = torch.randn(8)
    for turn in range(12):
        s, n = numbers(turn)
        expected = describe(function(x, s, n))
        assert describe(compiled(x, s, n)) == expected
    return compiled.stats()


def numbers_of(turn: int) -> tuple[float, int]:
    return 0.37 * turn - 1.1 + 0.01 * turn * turn, turn + 1


@pytest.mark.parametrize("line", EXPRESSIONS)
def test_arguments(line: str) -> None:
    scope: dict[str, Any] = {"math": math, "torch": torch}
    exec(f"def function(x, s, n):\n    return x * 2, [{line}]", scope)
    stats = varied(scope["function"], numbers_of)
    assert (stats.trace_count, stats.misses, stats.side_exits, stats.graph_break_count) == (2, 2, 0, 0)


@pytest.mark.parametrize("line", EXPRESSIONS)
def test_items_of_tensors(line: str) -> None:
    scope: dict[str, Any] = {"math": math, "torch": torch}
    source = (
        "def function(x, s, n):\n    s, n = torch.tensor(s).double().item(), torch.tensor(n).item()\n"
        f"    return x * 2, [{line}]"
    )
    exec(source, scope)
    stats = varied(scope["function"], numbers_of)
    assert stats.side_exits == 0
    assert stats.graph_break_count == 0


def test_what_raises_for_some_numbers() -> None:
    def function(x: torch.Tensor, s: float, n: int) -> Any:
        try:
            return x * math.sqrt(s), "%d" % n
        except ValueError as error:
            return x, str(error)

    assert varied(function, numbers_of).misses == 2


def test_what_was_computed_reaches_tensors() -> None:
    def function(x: torch.Tensor, s: float, n: int) -> Any:
        rate = 0.5 * (1 + math.cos(math.pi * s))
        return x * rate, x[: n & 3], x.new_zeros(math.ceil(n / 2)), rate

    stats = varied(function, numbers_of)
    assert (stats.trace_count, stats.side_exits) == (2, 0)


def test_the_program_decides_on_what_was_computed() -> None:
    def function(x: torch.Tensor, s: float, n: int) -> Any:
        if math.floor(s) % 2 == 0:
            x = x + 1
        if n & 1:
            x = x * 2
        return x

    assert varied(function, numbers_of).misses == 2


def test_a_scheduler_steps_in_one_trace() -> None:
    def trained(compiled: bool) -> tuple[Any, Any]:
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 3)
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
        optimizer.zero_grad()  # torch changes the function in the first call of a process

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = net(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss.detach()

        run = kintsugi.compile(step) if compiled else step
        losses = [run(torch.randn(8, 4)) for _ in range(10)]
        return (losses, scheduler.get_last_lr()), run

    expected, _ = trained(False)
    with kintsugi.config.patch(report_compiling=False):
        got, run = trained(True)
    assert describe(got) == describe(expected)
    # The first step is special to the scheduler.
    assert run.stats().side_exits <= 1
