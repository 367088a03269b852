"""The rows of csrc/ops/operators.def against torch: its schemas and tags, and what the operators do with arguments that
torch's own tests give them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from operator_samples import DRAWING, SAMPLES, f, overload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from bench.compare import same_values
from kintsugi import _C


def minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def of_torch(bounds: tuple[str, str], version: str) -> bool:
    """Has this torch the operator? `bounds`: the minor versions that it is there from on and before, or ""."""
    first, after = bounds
    return (not first or minor(version) >= minor(first)) and (not after or minor(version) < minor(after))


EVERY_ROW: list[dict[str, Any]] = _C.operators()
ROWS = {row["name"]: row for row in EVERY_ROW if of_torch(row["torch"], torch.__version__)}
Call = tuple[tuple[Any, ...], dict[str, Any]]
MOST_CALLS = 6  # of one operator

# Torch's schema says nothing of the memory that it shares, on purpose: nobody else may look at the argument, or
# autograd is not to know.
SHARES_UNSAID = {"aten._unsafe_view.default", "aten.data.default"}


def schema(name: str) -> Any:
    return overload(name)._schema


def arguments(name: str) -> list[str]:
    return [argument.name for argument in schema(name).arguments]


class Noting(TorchDispatchMode):
    """Keeps the arguments of operators that have a row."""

    def __init__(self, calls: dict[str, list[Call]]) -> None:
        self.calls = calls

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept = self.calls.setdefault(str(function), []) if str(function) in ROWS else None
        if kept is not None and len(kept) < MOST_CALLS:
            kept.append(fresh((args, kwargs or {})))
        return function(*args, **(kwargs or {}))


def fresh(values: Any) -> Any:
    """The same with tensors of their own, which lie as they did."""

    def copied(value: Any) -> Any:
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    return tree_map(copied, values)


@functools.cache
def calls() -> dict[str, list[Call]]:
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, list[Call]] = {}
    for name in (SAMPLES.keys() | DRAWING.keys()) & ROWS.keys():
        found[name] = [(args, {}) for args in (*SAMPLES.get(name, ()), *DRAWING.get(name, ()))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in op_db:
            if torch.float32 not in op.dtypes:
                continue
            try:
                for k, sample in enumerate(op.sample_inputs("cpu", torch.float32, requires_grad=False)):
                    if k == MOST_CALLS:
                        break
                    with Noting(found):
                        op(sample.input, *sample.args, **sample.kwargs)
            except Exception:  # such a sample shows an error, or wants what is not there
                continue
    return found


def runs(name: str, grad: bool = False) -> Iterator[tuple[Call, Any]]:
    """Fresh arguments and what the operator made of them."""
    for call in calls().get(name, ()):
        args, kwargs = fresh(call)
        if grad:
            for value in tree_leaves((args, kwargs)):
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    value.requires_grad_()
        torch.manual_seed(0)
        try:
            yield (args, kwargs), overload(name)(*args, **kwargs)
        except RuntimeError:
            continue


def storages(values: Any) -> set[int]:
    return {
        value.untyped_storage().data_ptr()
        for value in tree_leaves(values)
        if isinstance(value, torch.Tensor) and value.numel() > 0
    }


def same(a: Any, b: Any) -> bool:
    left, right = tree_leaves(a), tree_leaves(b)
    return len(left) == len(right) and all(
        same_values(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in zip(left, right, strict=True)
    )


def having(trait: str) -> list[str]:
    return [name for name, row in ROWS.items() if trait in row["traits"]]


def test_each_is_an_operator_of_torch() -> None:
    missing = []
    for name in ROWS:
        try:
            schema(name)
        except AttributeError as error:
            missing.append((name, str(error)))
    assert missing == []


def test_rows_of_other_torches_are_not_in_this_one() -> None:
    """What KTG_TORCH_FROM and KTG_TORCH_BEFORE leave out is not there, and no row is of no torch that we build for."""
    for row in EVERY_ROW:
        if row["name"] not in ROWS:
            space, packet, own = row["name"].split(".")
            found = getattr(getattr(torch.ops, space), packet, None)
            assert found is None or own not in found.overloads(), row["name"]
    built = [
        line.split()[1]
        for line in (Path(__file__).parents[2] / "requirements" / "pairs.txt").read_text().splitlines()
        if line[:1] != "#"
    ]
    for row in EVERY_ROW:
        assert any(of_torch(row["torch"], version) for version in built), row["name"]


def test_bounds_are_of_minor_versions() -> None:
    assert (
        of_torch(("", ""), "2.9.1")
        and of_torch(("2.9", ""), "2.10.0a0+git1")
        and of_torch(("", "2.10"), "2.9.1")
    )
    assert not of_torch(("2.10", ""), "2.9.1") and not of_torch(("", "2.10"), "2.10.0")


def test_schemas_agree() -> None:
    wrong = []
    for name, row in ROWS.items():
        traits, signature, tags = row["traits"], schema(name), {tag.name for tag in overload(name).tags}
        aliased = any(result.alias_info is not None for result in signature.returns)
        dynamic = {"dynamic_output_shape", "data_dependent_output"} & tags
        claims = {
            "fresh results, but the schema has an alias": "fresh" in traits and aliased,
            "a view, but the schema has no alias": row["view"] and not aliased and name not in SHARES_UNSAID,
            "pure, but it writes": "pure" in traits and signature.is_mutable,
            "random, but no tag says so": "random" in traits and "nondeterministic_seeded" not in tags,
            "sizes of data, which a tag says already": "sizes_of_data" in traits and bool(dynamic),
            "unmarked writes, but the schema marks them": "writes_unmarked" in traits
            and signature.is_mutable,
            "pure without fresh results": "pure" in traits and "fresh" not in traits,
            "a copy or a view, with fresh results": "may_copy" in traits and "fresh" in traits,
        }
        wrong += [(name, text) for text, holds in claims.items() if holds]
    assert wrong == []


def test_operands_are_what_rows_say() -> None:
    for name, row in ROWS.items():
        names = arguments(name)
        for k in row["quiet_if_zero"]:
            assert names[k] in ("train", "training", "dropout_p", "dropout", "p"), name
        left, right, added, _, count = row["product"]
        if count:
            assert names[left] in ("self", "input", "mat1", "batch1"), name
            assert names[right] in ("other", "weight", "mat2", "batch2"), name
            assert added < 0 or names[added] in ("self", "bias"), name
            assert set(names[count:]) <= {"beta", "alpha"}, name
        if row["attention"][0] >= 0:
            assert [names[k] for k in row["attention"]] == [
                "attn_mask",
                "dropout_p",
                "is_causal",
                "scale",
                "enable_gqa",
            ]


def test_what_is_quiet_draws_and_writes_nothing() -> None:
    seen = set()
    for name, row in ROWS.items():
        for k in row["quiet_if_zero"]:
            for call in [call for call in calls().get(name, ()) if len(call[0]) > k]:
                args, kwargs = fresh(call)
                args = (*args[:k], type(args[k])(0), *args[k + 1 :])
                before, kept = torch.get_rng_state(), fresh((args, kwargs))
                overload(name)(*args, **kwargs)
                assert torch.equal(torch.get_rng_state(), before), (name, k)
                assert same((args, kwargs), kept), (name, k)
                seen.add((name, k))
    assert {("aten.dropout.default", 1), ("aten.dropout.default", 2)} <= seen


def test_foreach_operators_exist() -> None:
    for name, row in ROWS.items():
        if row["foreach"]:
            assert hasattr(torch.ops.aten, f"_foreach_{row['foreach']}"), name


def test_what_is_fresh_shares_no_memory() -> None:
    sharing, unseen = [], []
    for name in having("fresh"):
        count = 0
        for given, made in runs(name):
            count += 1
            sharing += [name] if storages(made) & storages(given) else []
        unseen += [] if count else [name]
    assert sharing == []
    assert unseen == []


def test_what_is_pure_writes_nothing() -> None:
    for name in having("pure"):
        for call in calls()[name]:
            args, kwargs = fresh(call)
            overload(name)(*args, **kwargs)
            assert same((args, kwargs), call), name


def test_views_look_at_the_first_argument() -> None:
    unseen = []
    for name, row in ROWS.items():
        if not row["view"] or "may_copy" in row["traits"]:
            continue
        count = 0
        for (args, _), made in runs(name):
            if not storages(made):
                continue
            count += 1
            assert storages(made) <= storages(args[0]), name
        unseen += [] if count else [name]
    assert unseen == []


def filled(argument: Any) -> Any:
    """A value for an argument that has none by default."""
    values = {
        "Tensor": f(2, 2),
        "List[Tensor]": [f(2, 2)],
        "int": 1,
        "List[int]": [2, 2],
        "float": 0.5,
        "number": 0.5,
        "bool": True,
        "Device": torch.device("cpu"),
    }
    return values[str(argument.type)]


def written_to() -> Iterator[tuple[str, Any]]:
    """The overloads of ATen that write to their first argument, by their schemas."""
    for found in torch._C._jit_get_all_schemas():
        first = found.arguments[0] if found.arguments else None
        if found.name.startswith("aten::") and first is not None and str(first.type) == "Tensor":
            if first.alias_info is not None and first.alias_info.is_write:
                yield f"aten.{found.name.removeprefix('aten::')}.{found.overload_name or 'default'}", found


def what_it_is(x: torch.Tensor) -> tuple[Any, ...]:
    return x.shape, x.stride(), x.storage_offset(), x.data_ptr(), x.dtype, x.requires_grad


def test_what_changes_a_tensor_itself_is_known() -> None:
    """An operator that puts other memory, sizes or flags into a tensor must not be taken for one that writes to it."""
    unknown, count = [], 0
    for name, found in written_to():
        try:
            function = overload(name)
            needed = [a for a in found.arguments[1:] if not a.has_default_value() and not a.kwarg_only]
            args = [filled(a) for a in needed]
        except (AttributeError, KeyError):
            continue
        x = torch.linspace(-1, 1, 3)
        before = what_it_is(x)
        try:
            function(x, *args)
        except Exception:  # refuses such arguments
            continue
        count += 1
        if what_it_is(x) != before:
            tags = {tag.name for tag in function.tags}
            traits = ROWS.get(name, {"traits": []})["traits"]
            unknown += [] if "inplace_view" in tags or "replaces_tensor" in traits else [name]
    assert unknown == []
    assert count > 100


def test_what_is_made_by_form_does_not_read() -> None:
    for name in having("by_form"):
        count = 0
        for (args, kwargs), made in runs(name):
            count += 1
            other = torch.full_like(args[0], 7)
            assert same(made, overload(name)(other, *args[1:], **kwargs)), name
        assert count, name


def test_forms_in_place_compute_the_same() -> None:
    """`x.add_(y)` holds what `x.add(y)` is; those that only store do not read what was there."""
    seen = 0
    for name, row in ROWS.items():
        space, packet, own = name.split(".")
        known = row["new_form"] or f"{space}.{packet}.{own}"
        form = name if row["new_form"] else f"{space}.{packet}_.{own}"
        try:
            write = overload(form)
        except AttributeError:
            continue
        if "random" in row["traits"]:
            continue
        for (args, kwargs), made in runs(known):
            target = args[0].clone() if isinstance(args[0], torch.Tensor) else None
            if target is None or not isinstance(made, torch.Tensor) or target.shape != made.shape:
                continue
            if target.dtype != made.dtype:
                continue
            assert same(write(target, *args[1:], **kwargs), made), form
            seen += 1
            if "stores_only" in row["traits"]:
                assert same(write(torch.full_like(target, 7), *args[1:], **kwargs), made), form
    assert seen > 100


def test_backward_forgets_results() -> None:
    """Eager mode would raise in the backward where a result that it has kept was written to."""
    for name in having("forgets_result"):
        for given, made in runs(name, grad=True):
            results = [r for r in tree_leaves(made) if isinstance(r, torch.Tensor) and r.grad_fn is not None]
            for result in results:
                with torch.no_grad():
                    result.add_(0)
                if result.sum().requires_grad:
                    try:
                        result.sum().backward(retain_graph=True)
                    except RuntimeError as error:
                        assert "modified by an inplace operation" not in str(error), (name, given)
