"""What autograd keeps of an operator (KTG_SAVES in csrc/ops/operators.def): held against autograd's own nodes, and each
argument and result attacked between forward and backward."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from operator_samples import ONE, SAMPLES, f, overload

import kintsugi
from kintsugi import _C

ROWS: dict[str, dict[str, Any]] = {row["name"]: row for row in _C.operators() if row["gradient"]}
Tensors = list[torch.Tensor]


# Neither makes gradients nor is one asked of it.
NONE = {name for name, row in ROWS.items() if name.split(".")[1] in {
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "logical_and", "logical_or", "logical_xor", "logical_not",
    "bitwise_and", "bitwise_or", "bitwise_not", "sign", "floor", "ceil", "trunc", "round"}}  # fmt: skip


def tensors_of(case: tuple[Any, ...]) -> list[tuple[int, torch.Tensor]]:
    """With the number of the operand; those of a list have its number."""
    found = []
    for k, value in enumerate(case):
        found += [
            (k, each)
            for each in (value if isinstance(value, list) else [value])
            if isinstance(each, torch.Tensor)
        ]
    return found


def with_tensors(case: tuple[Any, ...], tensors: Tensors) -> tuple[Any, ...]:
    rest = iter(tensors)

    def fill(value: Any) -> Any:
        if isinstance(value, list):
            return [fill(each) for each in value]
        return next(rest) if isinstance(value, torch.Tensor) else value

    return tuple(fill(value) for value in case)


def fresh(tensor: torch.Tensor, leaf: bool) -> torch.Tensor:
    """The same, lying as it did."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)
    return made.requires_grad_(leaf)


# Operands that no gradient is asked for: there is none, or another operator is taken for it.
CONSTANT = {
    "aten.cross_entropy_loss.default": {2},
    "aten.batch_norm.default": {3, 4},
    "aten.scaled_dot_product_attention.default": {3},
}


def subsets(name: str, case: tuple[Any, ...]) -> Iterator[frozenset[int]]:
    floats = [
        k
        for k, (operand, tensor) in enumerate(tensors_of(case))
        if tensor.is_floating_point() and operand not in CONSTANT.get(name, ())
    ]
    for count in range(1, len(floats) + 1):
        yield from map(frozenset, itertools.combinations(floats, count))


CALLS = [
    pytest.param(name, number, id=f"{name}-{number}")
    for name in sorted(set(ROWS) - NONE)
    for number in range(len(SAMPLES.get(name, [ONE])))
]


def kept_by_torch(outputs: Tensors, tensors: Tensors) -> set[tuple[int, str]]:
    """(which tensor, itself or view) of all that the nodes of the graph keep; -1 for the first output."""
    waiting = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen, kept = set(), set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [next_node for next_node, _ in node.next_functions]
        for name in dir(node):
            value = getattr(node, name) if name.startswith("_saved_") else None
            for saved in value if isinstance(value, (list, tuple)) else [value]:
                for k, tensor in (
                    [*enumerate(tensors), (-1, outputs[0])] if isinstance(saved, torch.Tensor) else []
                ):
                    if saved is tensor:
                        kept.add((k, "itself"))
                    elif saved.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
                        kept.add((k, "view"))
    return kept


@pytest.mark.parametrize(("name", "number"), CALLS)
def test_rows_are_what_autograd_s_nodes_keep(name: str, number: int) -> None:
    row, case = ROWS[name], SAMPLES.get(name, [ONE])[number]
    if row["gradient"] == "taped" and not row["saves"]:
        return  # autograd itself keeps and checks
    if name == "aten.batch_norm.default" and not case[5]:
        return  # likewise
    positions = [k for k, _ in tensors_of(case)]
    for active in subsets(name, case):
        tensors = [fresh(x, k in active) for k, (_, x) in enumerate(tensors_of(case))]
        made = overload(name)(*with_tensors(case, tensors))
        outputs = [made] if isinstance(made, torch.Tensor) else list(made)
        if outputs[0].untyped_storage().data_ptr() in {x.untyped_storage().data_ptr() for x in tensors}:
            outputs[:1] = [outputs[0], *outputs[1:]]
        kept = kept_by_torch(outputs, tensors)
        wanted_operands = {positions[k] for k in active}
        expected = set()
        for what, how, wanted in row["saves"]:
            if wanted and not any(wanted >> k & 1 for k in wanted_operands):
                continue
            if what == -1:
                expected.add((-1, "view"))
            elif what in positions:
                k = positions.index(what)
                if how == "folded":
                    kept = {(-2, how) if index == k else (index, text) for index, text in kept}
                    continue  # the attack below tells
                if how == "widened":
                    how = "itself" if tensors[k].dim() == outputs[0].dim() else "view"
                if how == "unless a mean":
                    how = "none" if outputs[0].shape[-2:] == (1, 1) else "itself"
                if how == "unless bools":
                    how = "none" if tensors[k].dtype == torch.bool else "itself"
                if how != "none":
                    expected.add((k, how))
        kept = {(index, text) for index, text in kept if index != -2}
        if row["view"] or not row["saves"]:
            kept = {(index, text) for index, text in kept if index >= 0}
        assert kept == expected, sorted(active)


@pytest.mark.parametrize(("name", "number"), CALLS)
def test_rows_say_of_what_something_is_freed(name: str, number: int) -> None:
    """Where a row says that autograd keeps a tensor, a second backward raises; elsewhere it does not."""
    row, case = ROWS[name], SAMPLES.get(name, [ONE])[number]
    positions = [k for k, _ in tensors_of(case)]
    for active in subsets(name, case):
        tensors = [fresh(x, k in active) for k, (_, x) in enumerate(tensors_of(case))]
        made = overload(name)(*with_tensors(case, tensors))
        first = made if isinstance(made, torch.Tensor) else made[0]
        if not first.requires_grad:
            continue
        wanted = {positions[k] for k in active}
        mean = first.shape[-2:] == (1, 1)
        saves = [by for _, how, by in row["saves"] if how != "unless a mean" or not mean]
        keeps = any(not by or any(by >> k & 1 for k in wanted) for by in saves)
        if row["gradient"] == "taped" and not row["saves"]:
            keeps = "keeps_nothing" not in row["traits"]
        inputs = [tensors[k] for k in sorted(active)]
        torch.autograd.grad(first, inputs, torch.ones_like(first), allow_unused=True)
        try:
            torch.autograd.grad(first, inputs, torch.ones_like(first), allow_unused=True)
        except RuntimeError as error:
            assert "second time" in str(error)
            assert keeps, sorted(active)
        else:
            assert not keeps, sorted(active)


# What is done to a tensor between forward and backward
def other(tensor: torch.Tensor) -> torch.Tensor:
    """Other values of the same kind, that an operator takes as well."""
    if tensor.dtype in (torch.int64, torch.bool):
        return tensor.flip(-1).clone()
    return (tensor.detach() * 1.5 + 0.1).clone()


def through_view(tensor: torch.Tensor) -> None:
    tensor.detach().view_as(tensor).copy_(other(tensor))


def other_memory(tensor: torch.Tensor) -> None:
    tensor.data = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(other(tensor))


CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "nothing": lambda tensor: None,
    "written": lambda tensor: tensor.copy_(other(tensor)),
    "through a view": through_view,
    "through .data": lambda tensor: tensor.data.copy_(other(tensor)),
    "other memory": other_memory,
}


def once(loss: torch.Tensor, inputs: Tensors) -> list[Any]:
    return list(torch.autograd.grad(loss, inputs, allow_unused=True))


def of_the_first(loss: torch.Tensor, inputs: Tensors) -> list[Any]:
    return list(torch.autograd.grad(loss, inputs[:1], allow_unused=True))


def twice(loss: torch.Tensor, inputs: Tensors) -> list[Any]:
    first = torch.autograd.grad(loss, inputs, retain_graph=True, allow_unused=True)
    return [*first, *torch.autograd.grad(loss, inputs, allow_unused=True)]


def again_without_graph(loss: torch.Tensor, inputs: Tensors) -> list[Any]:
    first = torch.autograd.grad(loss, inputs, allow_unused=True)
    return [*first, *torch.autograd.grad(loss, inputs, allow_unused=True)]


def second_order(loss: torch.Tensor, inputs: Tensors) -> list[Any]:
    first = torch.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
    following = [x.square().sum() for x in first if x is not None and x.requires_grad]
    if not following:
        return [x if x is None else x.detach() for x in first]
    second = torch.autograd.grad(sum(following), inputs, allow_unused=True)  # type: ignore[arg-type]
    return [x if x is None else x.detach() for x in (*first, *second)]


WAYS = {way.__name__: way for way in (once, of_the_first, twice, again_without_graph, second_order)}


def attack(
    run: Callable[..., Any], case: tuple[Any, ...], active: frozenset[int], target: int, change: str, way: str
) -> Any:
    """The gradients, or the error, of `run` where a tensor (-1: the result) is changed before the backward."""
    tensors = [fresh(x, k in active) for k, (_, x) in enumerate(tensors_of(case))]
    made, loss = run(*with_tensors(case, tensors))
    try:
        with torch.no_grad():
            CHANGES[change](made if target == -1 else tensors[target])
        return [x if x is None else x.detach() for x in WAYS[way](loss, [tensors[k] for k in sorted(active)])]
    except RuntimeError as error:
        return str(error)


def function_of(name: str, weights: torch.Tensor | None) -> Callable[..., Any]:
    """Of which autograd keeps what the operator makes it keep, and the weights of the result's elements."""
    operator = overload(name)

    def run(*args: Any) -> Any:
        made = operator(*args)
        first = made if isinstance(made, torch.Tensor) else made[0]
        return first, (first + 1 if weights is None else first * weights).sum()

    return run


def differs(expected: Any, actual: Any) -> str:
    if isinstance(expected, str) or isinstance(actual, str):
        texts = [
            x.split(":")[0].split(" (")[0] if isinstance(x, str) else "gradients" for x in (expected, actual)
        ]
        return "" if texts[0] == texts[1] else f"{actual!s:.200}, in eager mode {expected!s:.200}"
    for wanted, given in zip(expected, actual, strict=True):
        if wanted is None or given is None:
            if wanted is not given:
                return "None in one of them"
            continue
        largest = max(1.0, float(wanted.abs().max())) if wanted.numel() else 1.0
        if wanted.shape != given.shape or wanted.dtype != given.dtype:
            return f"{given.dtype} {given.shape}, in eager mode {wanted.dtype} {wanted.shape}"
        if not torch.allclose(given, wanted, rtol=1e-3, atol=1e-4 * largest, equal_nan=True):
            return f"{given!s:.100}, in eager mode {wanted!s:.100}"
    return ""


def is_known(way: str, change: str, actual: Any) -> bool:
    """The segment is run again for the gradient of a gradient. What is computed of tensors that have been written to
    since is lost then: an error, which eager mode has not; writes through .data are not even noticed."""
    modified = isinstance(actual, str) and "modified" in actual
    return way == "second_order" and (modified or change == "through .data")


def weights_of(name: str, case: tuple[Any, ...]) -> torch.Tensor:
    made = overload(name)(*case)
    return f(*(made if isinstance(made, torch.Tensor) else made[0]).shape, seed=7)


@pytest.mark.parametrize(("name", "number"), CALLS)
def test_attacks(name: str, number: int) -> None:
    case = SAMPLES.get(name, [ONE])[number]
    found = []
    for active, weighed in itertools.product(subsets(name, case), (True, False)):
        run = function_of(name, weights_of(name, case) if weighed else None)
        compiled = kintsugi.compile(run, backend="native", options={"sync": True})
        for _ in range(3):
            attack(compiled, case, active, 0, "nothing", "once")
        for target, change, way in itertools.product(range(-1, len(tensors_of(case))), CHANGES, WAYS):
            if (change == "nothing" and target != 0) or (not weighed and way != "again_without_graph"):
                continue
            expected = attack(run, case, active, target, change, way)
            actual = attack(compiled, case, active, target, change, way)
            text = differs(expected, actual)
            if text and not is_known(way, change, actual):
                found.append(f"{sorted(active)} {target} {change}, {way}: {text}")
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize(("name", "number"), CALLS)
def test_attacks_by_turns(name: str, number: int) -> None:
    """While it is found out what is faster, each second call is replayed in a graph of its own."""
    case = SAMPLES.get(name, [ONE])[number]
    active = list(subsets(name, case))[-1]
    run = function_of(name, weights_of(name, case))
    compiled = kintsugi.compile(run, backend="native", options={"autotune": True})
    for _ in range(3):
        attack(compiled, case, active, 0, "nothing", "once")
    kintsugi.wait()
    found = []
    for target, change in itertools.product(range(-1, len(tensors_of(case))), list(CHANGES)[1:]):
        expected = attack(run, case, active, target, change, "once")
        for _ in range(2):
            text = differs(expected, attack(compiled, case, active, target, change, "once"))
            if text:
                found.append(f"{sorted(active)} {target} {change}: {text}")
    assert not found, "\n".join(found[:20])
