"""Torch's higher-order operators: what they call is recorded like the program's own code, and equals eager."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from harness import Case, Suite, check, check_captured, describe, floats, signs
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as map_over
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import kintsugi

pytestmark = pytest.mark.filterwarnings("ignore")

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


# --- what eager mode does ---


@case(inputs=signs, traces=2)
def cond(x):
    return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))


@case(inputs=signs, traces=2)
def cond_of_structures(x):
    def some(a, more):
        return {"a": a + more[0], "b": [a.t() * 2, 3]}

    def others(a, more):
        return {"a": a * more[0], "b": [a.t() - 1, 4]}

    return torch.cond(x.sum() > 0, some, others, (x, [x * 2]))


@case()
def cond_of_a_known_predicate(x):
    return torch.cond(x.dim() == 2, lambda a: a.sin(), lambda a: a.cos(), (x,))


@case(inputs=signs, traces=2)
def cond_without_operands(x):
    return torch.cond((x.sum() > 0).reshape(1), lambda: x.sin(), lambda: x.cos())


@case(inputs=signs, traces=None)
def cond_in_cond(x):
    def inner(a):
        return torch.cond(a.max() > 1, lambda b: b * 2, lambda b: b * 3, (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: a - 1, (x,))


@case(inputs=signs, traces=2)
def cond_that_draws(x):
    dropout = torch.nn.functional.dropout
    return torch.cond(x.sum() > 0, lambda a: dropout(a), lambda a: dropout(a, 0.1), (x,))


@case(inputs=signs, traces=2)
def cond_under_autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return torch.cond(x.sum() > 0, lambda a: a @ a.t(), lambda a: (a @ a.t()) * 2, (x,))


@factory(inputs=signs, traces=None)
def make_cond_with_changing_closures():
    scale = [1.0]
    calls = [0]

    def program(x):
        calls[0] += 1
        if calls[0] == 3:
            scale[0] = 2.0
        return torch.cond(x.sum() > 0, lambda a: a * scale[0], lambda a: a - scale[0], (x,))

    return program, scale


OFFSET = 1.0


def _change_a_global(state: tuple[Any, ...]) -> None:
    global OFFSET
    OFFSET += 1


@factory(inputs=signs, traces=None)
def make_cond_with_changing_globals():
    def program(x):
        _change_a_global(())
        return torch.cond(x.sum() > 0, lambda a: a * OFFSET, lambda a: a - OFFSET, (x,)) / OFFSET

    return program


@factory(inputs=signs, traces=2)
def make_cond_of_modules():
    some, others = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    for number, parameter in enumerate([*some.parameters(), *others.parameters()]):
        torch.nn.init.constant_(parameter, 0.1 + number)

    @torch.no_grad()
    def program(x):
        return torch.cond(x.sum() > 0, some, others, (x,))

    return program


@case((3,), (3,))
def while_of_tensors(x, y):
    def going(i, a):
        return i < 3

    return while_loop(going, lambda i, a: (i + 1, a * y), (torch.tensor(0), x))


@case()
def while_of_numbers(x):
    def body(i, a):
        return i + 1, {"a": a["a"] * 2}

    return while_loop(lambda i, a: i < 3, body, [0, {"a": x}])


@case(inputs=signs, traces=None)
def while_of_data(x):
    return while_loop(lambda a: a.sum() < 20, lambda a: (a * 0.5 + 4,), (x,))


@case(breaks=None)
def while_that_does_not_run(x):
    return while_loop(lambda i, a: i > 0, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x))


@case()
def mapped(x):
    return map_over(lambda a: (a * 2, a.sum()), x)


@case((5, 3, 4), (4,))
def mapped_structures(x, y):
    def body(row, more, factor):
        return {"a": row["a"] + more["y"] * factor, "b": (row["b"][0].t() * 1, None)}

    return map_over(body, {"a": x, "b": [x + 1]}, {"y": y}, 3)


@case(inputs=signs, traces=None)
def map_of_cond(x):
    def row(a):
        return torch.cond(a.sum() > 0, lambda b: b + 1, lambda b: b - 1, (a,))

    return map_over(row, x)


@case((3, 4), (4,))
def scanned(x, c):
    return scan(lambda carry, a: (carry * 0.5 + a, carry + 1), c, x)


@case((2, 3, 4), (2, 4))
def scanned_structures(x, c):
    def step(carry, a):
        return [carry[0] + a["a"], carry[1] * 2], {"sum": carry[0] * 1, "last": (a["a"].t() * carry[1].t(),)}

    return scan(step, [c, c + 1], {"a": x}, dim=1, reverse=True)


@case((4, 3), breaks=None)
def scanned_associatively(x):
    return associative_scan(lambda a, b: a + b, x, dim=0, combine_mode="generic")


@case((2, 3, 4), traces=1)
def map_in_map(x):
    return map_over(lambda rows: map_over(lambda row: row.cumsum(0), rows), x)


@case((3, 4))
def checkpoint_without_gradients(x):
    with torch.no_grad():
        y = checkpoint(lambda a, scale: (a * scale).sin(), x, scale=2.0, use_reentrant=False)
        return checkpoint(torch.cos, y, use_reentrant=False, preserve_rng_state=False)


@factory((3, 4))
def make_sequence_without_gradients():
    layers = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh(), torch.nn.Sigmoid())

    @torch.no_grad()
    def program(x):
        return checkpoint_sequential(layers, 2, x, use_reentrant=False)

    return program


@case((3, 4), breaks=None)
def other_checkpoints(x):
    with torch.no_grad():
        y = checkpoint(torch.cos, x, use_reentrant=True)
        return y, checkpoint(torch.sin, y, use_reentrant=False, determinism_check="none")


@case((3, 4), grad=True, breaks=None, traces=None)
def checkpoint_in_training(x):
    def block(a):
        return torch.nn.functional.dropout(a.sin() * 2).exp()

    return checkpoint(block, x, use_reentrant=False)


# --- programs that torch refuses ---


@case(breaks=None, traces=None)
def branches_of_other_types(x):
    return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: (a + 1).double(), (x,))


@case(breaks=None, traces=None)
def branches_that_give_their_argument(x):
    return torch.cond(x.sum() > 0, lambda a: a, lambda a: a - 1, (x,))


@factory(breaks=None, traces=None)
def make_branches_with_side_effects():
    seen: list[int] = []

    def some(a):
        seen.append(1)
        return a + 1

    def program(x):
        try:
            return torch.cond(x.sum() > 0, some, some, (x,))
        except RuntimeError as error:
            return type(error).__name__

    return program, seen


@case(breaks=None, traces=None)
def predicate_of_many_elements(x):
    return torch.cond(x > 0, lambda a: a + 1, lambda a: a - 1, (x,))


@case(breaks=None, traces=None)
def map_over_numbers(x):
    return map_over(lambda a: a, [x, 1])


@case(breaks=None, traces=None)
def carry_of_another_size(x):
    return scan(lambda carry, a: (torch.cat([carry, a]), a * 1), x[0], x)


# --- who else wants to see the operator ---


@case((3, 4), breaks=None, traces=None)
def cond_under_vmap(x):
    return torch.vmap(lambda a: torch.cond(a.sum() > 0, lambda b: b + 1, lambda b: b - 1, (a,)))(x)


@case((3, 4), breaks=None, traces=None)
def map_under_grad(x):
    return torch.func.grad(lambda a: map_over(lambda row: row.sin(), a).sum())(x)


def _text(error: BaseException) -> list[str]:
    """Its first line: torch's compiler says in the others where it stood."""
    return str(error).splitlines()[:1]


def _outcomes(case: Case, wrap: Callable[..., Any]) -> list[Any]:
    called, state = case.start()
    called = wrap(called)
    made = []
    for call in range(case.calls):
        torch.manual_seed(call)
        args = case.inputs(call)
        try:
            made.append(describe(called(*args), args, state, torch.get_rng_state()))
        except Exception as error:
            made.append((type(error), _text(error)))
    return made


@SUITE.parametrize()
def test_equals_eager(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)
