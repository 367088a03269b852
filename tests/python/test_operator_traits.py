"""Traits of csrc/ops/operators.def that no schema shows: what decides over the sizes, the rank and the identity of a
result, what raises, what is left unwritten. Each is held against what the operators do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from operator_samples import DRAWING, SAMPLES, f, i, overload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from kintsugi import _C

TEXT = (Path(__file__).resolve().parents[2] / "csrc" / "ops" / "operators.def").read_text()
# Traits of all overloads of a name, and of single rows.
PACKETS = {
    name: set(re.findall(r"KTG_(\w+)", traits))
    for name, traits in re.findall(r'^KTG_PACKET\("aten\.(\w+)", (.*)\)$', TEXT, re.MULTILINE)
}
ROWS: dict[str, dict[str, Any]] = {row["name"]: row for row in _C.operators()}
aten = torch.ops.aten


def having(trait: str) -> set[str]:
    """Names, without their overloads."""
    rows = {name.split(".")[1] for name, row in ROWS.items() if trait.lower() in row["traits"]}
    return rows | {name for name, traits in PACKETS.items() if trait in traits}


SIZES = ((2, 3), (1, 1), (4, 1))
# Ways to give an argument back, or not to, that sizes of the same rank have no part in.
BY_TYPE: dict[str, list[Callable[[torch.Tensor], torch.Tensor]]] = {
    "flatten": [lambda x: aten.flatten(x[0]), lambda x: aten.flatten(x, 1, 1)],
    "atleast_1d": [aten.atleast_1d],
    "atleast_2d": [aten.atleast_2d],
    "atleast_3d": [lambda x: aten.atleast_3d(x[None])],
    "to": [lambda x: aten.to(x, torch.float32), lambda x: aten.to(x, torch.float64)],
    "type_as": [lambda x: aten.type_as(x, f(1)), lambda x: aten.type_as(x, i(1))],
    "positive": [aten.positive],
    "real": [aten.real],
    "conj": [aten.conj],
    "conj_physical": [aten.conj_physical],
    "resolve_conj": [aten.resolve_conj],
    "resolve_neg": [aten.resolve_neg],
    "dropout": [lambda x: aten.dropout(x, 0.5, False)],
    "feature_dropout": [lambda x: aten.feature_dropout(x, 0.5, False)],
    "alpha_dropout": [lambda x: aten.alpha_dropout(x, 0.5, False)],
    "feature_alpha_dropout": [lambda x: aten.feature_alpha_dropout(x, 0.5, False)],
    "cartesian_prod": [lambda x: aten.cartesian_prod([x.flatten()])],
    "chain_matmul": [lambda x: aten.chain_matmul([x])],
    "matrix_power": [lambda x: aten.matrix_power(x[:1, :1].expand(len(x[:1]), len(x[:1])), 1)],
}

# Taken for such out of caution: this torch copies a single matrix.
COPIES = {"chain_matmul", "matrix_power"}


def gives_back(way: Callable[[torch.Tensor], torch.Tensor], sizes: tuple[int, ...]) -> bool:
    """Is the result a tensor that the operator was given: no new one, and no view that it has made?"""
    given: list[torch.Tensor] = []

    class Watching(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "aten" in str(function):
                given.extend(leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor))
            return function(*args, **(kwargs or {}))

    x = f(*sizes)
    with Watching():
        made = way(x)
    return any(made is each for each in given)


def test_identity_of_type_is_not_decided_by_sizes() -> None:
    assert having("IDENTITY_OF_TYPE") == BY_TYPE.keys()
    for name, ways in BY_TYPE.items():
        for k, way in enumerate(ways):
            answers = {gives_back(way, sizes) for sizes in SIZES}
            assert len(answers) == 1, (name, k)
            assert answers == {k == 0 and name not in COPIES} or k > 0, name


def test_identity_of_sizes() -> None:
    assert having("IDENTITY_OF_SIZES") == {"sum_to_size"}
    x = f(2, 3)
    assert aten.sum_to_size(x, [2, 3]) is x
    assert aten.sum_to_size(x, [1, 3]) is not x


def test_rank_of_sizes() -> None:
    calls: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "squeeze": aten.squeeze,
        "squeeze_": lambda x: aten.squeeze_(x.clone()),
        "squeeze_copy": aten.squeeze_copy,
    }
    assert having("RANK_OF_SIZES") == calls.keys()
    for name, call in calls.items():
        assert {call(f(1, 3)).dim(), call(f(2, 3)).dim()} == {1, 2}, name


def test_rank_of_numbers() -> None:
    calls: dict[str, Callable[[Any], torch.Tensor]] = {
        "flatten": lambda last: aten.flatten(f(2, 3, 4), 0, last),
        "unflatten": lambda last: aten.unflatten(f(8), 0, [2] * last + [-1]),
    }
    assert having("RANK_OF_NUMBERS") == calls.keys()
    for name, call in calls.items():
        assert call(1).dim() != call(2).dim(), name


def test_sizes_of_masks() -> None:
    few, many = torch.tensor([True, False, False]), torch.tensor([True, True, False])
    calls: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "one_hot": lambda mask: aten.one_hot(mask.long() + mask.sum(), -1),
        "index": lambda mask: aten.index(f(3, 2), [mask]),
    }
    assert having("SIZES_OF_MASKS") == calls.keys() | {
        "_unsafe_index"
    }  # which takes no masks on this processor
    for name, call in calls.items():
        assert call(few).shape != call(many).shape, name
    # Neither masks nor a negative number: contents have no part in it.
    assert aten.index(f(3, 2), [i(0, 1)]).shape == aten.index(f(3, 2), [i(2, 2)]).shape
    assert aten.one_hot(i(0, 1), 3).shape == aten.one_hot(i(2, 2), 3).shape


def test_of_metadata_reads_no_contents() -> None:
    calls = {"is_same_size": aten.is_same_size, "_has_same_storage_numel": aten._has_same_storage_numel}
    assert calls.keys() <= having("OF_METADATA")
    for name, call in calls.items():
        assert call(f(2, 3), f(2, 3)) == call(f(2, 3) * torch.nan, torch.zeros(2, 3)) == True, name  # noqa: E712
        assert call(torch.empty(2, 3, device="meta"), f(2, 3)), name


# Taken for one that raises out of caution: this processor's code does not look.
UNCHECKED = {"aten.embedding_dense_backward.default"}
HOSTILE = {
    "div.Tensor_mode": lambda: aten.div(i(1, 2), i(1, 0), rounding_mode="floor"),
    "div.Scalar_mode": lambda: aten.div(i(1, 2), 0, rounding_mode="floor"),
    "repeat_interleave.self_Tensor": lambda: aten.repeat_interleave(f(2), i(1, -1)),
    "repeat_interleave.Tensor_out": lambda: aten.repeat_interleave.Tensor_out(i(1, -1), out=i(0)),
    "tensor_split.tensor_indices_or_sections": lambda: aten.tensor_split(f(3), torch.tensor(0)),
}


def test_contents_that_raise() -> None:
    """An index far out of range, a division by zero, a negative count."""
    seen = set()
    for name, row in ROWS.items():
        if "raises_of_data" not in row["traits"]:
            continue
        calls = [HOSTILE[name.removeprefix("aten.")]] if name.removeprefix("aten.") in HOSTILE else []
        for sample in SAMPLES.get(name, ()) if not calls else ():
            far = tree_map(
                lambda x: x + 10**6 if isinstance(x, torch.Tensor) and x.dtype is torch.int64 else x, sample
            )
            calls.append(lambda name=name, far=far: overload(name)(*far))
        for call in calls:
            seen.add(name)
            try:
                call()
            except (RuntimeError, IndexError, ZeroDivisionError):
                continue
            raise AssertionError(f"{name} did not raise")
    unseen = {name for name, row in ROWS.items() if "raises_of_data" in row["traits"]} - seen
    assert unseen <= {"aten.index_copy.default", "aten.index_put.default", "aten.scatter.src"} | UNCHECKED
    far = i(0, 10**6)
    for rest in (
        lambda: aten.index_copy(f(3, 2), 0, far, f(2, 2)),
        lambda: aten.index_put(f(3, 2), [far], f(2, 2)),
        lambda: aten.scatter(f(3, 2), 0, far.reshape(1, 2), f(1, 2)),
    ):
        with pytest.raises((RuntimeError, IndexError)):
            rest()


def test_what_makes_empty_writes_nothing() -> None:
    """With deterministic algorithms torch fills memory that nothing was written to, with NaN."""
    calls: dict[str, Callable[[], torch.Tensor]] = {
        "empty": lambda: aten.empty([4]),
        "empty_like": lambda: aten.empty_like(f(4)),
        "empty_strided": lambda: aten.empty_strided([2, 2], [2, 1]),
        "empty_permuted": lambda: aten.empty_permuted([2, 2], [1, 0]),
    }
    assert calls.keys() | {"empty_quantized"} == having("MAKES_EMPTY")
    torch.use_deterministic_algorithms(True)
    try:
        for name, call in calls.items():
            assert call().isnan().all(), name
    finally:
        torch.use_deterministic_algorithms(False)


def test_derivatives_of_forward_mode_go_along_unseen() -> None:
    assert {"_make_dual", "_unpack_dual", "_fw_primal"} <= having("FORWARD_MODE")
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(f(2), f(2) * 3)
        assert torch.equal(forward_ad.unpack_dual(dual).tangent, f(2) * 3)
        assert torch.equal(forward_ad.unpack_dual(aten._fw_primal(dual, 0)).primal, f(2))


def shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def test_what_may_copy_does_so_where_there_is_no_view() -> None:
    t = f(3, 2).transpose(0, 1)
    # By operator: a call whose result is in the argument's memory, and one whose result is not.
    calls: dict[str, tuple[torch.Tensor, Callable[..., Any], Callable[..., Any]]] = {
        "to.dtype": (t, lambda x: aten.to.dtype(x, torch.float32), lambda x: aten.to.dtype(x, torch.float64)),
        "to.other": (t, lambda x: aten.to.other(x, f(1)), lambda x: aten.to.other(x, i(1))),
        "to.device": (
            t,
            lambda x: aten.to.device(x, "cpu", torch.float32),
            lambda x: aten.to.device(x, "cpu", torch.float64),
        ),
        "to.dtype_layout": (
            t,
            lambda x: aten.to.dtype_layout(x, dtype=torch.float32),
            lambda x: aten.to.dtype_layout(x, dtype=torch.float64),
        ),
        "type_as.default": (t, lambda x: aten.type_as(x, f(1)), lambda x: aten.type_as(x, i(1))),
        "contiguous.default": (t, lambda x: aten.contiguous(x.t()), aten.contiguous),
        "reshape.default": (t, lambda x: aten.reshape(x, [2, 3, 1]), lambda x: aten.reshape(x, [6])),
        "flatten.using_ints": (t, lambda x: aten.flatten(x[0]), aten.flatten),
    }
    in_text = {"to.prim_dtype", "to.prim_device", "to.prim_other"}  # the calls of TorchScript
    rows = {name.removeprefix("aten.") for name, row in ROWS.items() if "may_copy" in row["traits"]}
    assert {name.lower() for name in rows} == calls.keys() | in_text
    for name, (x, view, copy) in calls.items():
        assert shares(view(x), x), name
        assert not shares(copy(x), x), name


# By row: calls that give the argument back, and calls that do not.
GIVEN_BACK: dict[str, tuple[list[Callable[..., Any]], list[Callable[..., Any]]]] = {
    "to.dtype": (
        [lambda x: aten.to.dtype(x, torch.float32), lambda x: aten.to.dtype(x, torch.float32, False, False)],
        [
            lambda x: aten.to.dtype(x, torch.float64),
            lambda x: aten.to.dtype(x, torch.float32, False, True),
            lambda x: aten.to.dtype(x, torch.float32, memory_format=torch.channels_last),
        ],
    ),
    "to.other": (
        [lambda x: aten.to.other(x, f(1))],
        [lambda x: aten.to.other(x, i(1)), lambda x: aten.to.other(x, f(1), False, True)],
    ),
    "to.device": (
        [lambda x: aten.to.device(x, "cpu", torch.float32)],
        [
            lambda x: aten.to.device(x, "cpu", torch.float64),
            lambda x: aten.to.device(x, "cpu", torch.float32, False, True),
            lambda x: aten.to.device(x, "meta", torch.float32),
        ],
    ),
    "to.dtype_layout": (
        [lambda x: aten.to.dtype_layout(x, dtype=torch.float32), lambda x: aten.to.dtype_layout(x)],
        [
            lambda x: aten.to.dtype_layout(x, dtype=torch.float64),
            lambda x: aten.to.dtype_layout(x, copy=True),
        ],
    ),
    "type_as.default": ([lambda x: aten.type_as(x, f(1))], [lambda x: aten.type_as(x, i(1))]),
    "contiguous.default": (
        [aten.contiguous],
        [
            lambda x: aten.contiguous(x, memory_format=torch.channels_last),
            lambda x: aten.contiguous(x.transpose(0, 1)),
        ],
    ),
    "dropout.default": (
        [lambda x: aten.dropout(x, 0.5, False), lambda x: aten.dropout(x, 0.0, True)],
        [lambda x: aten.dropout(x, 0.5, True)],
    ),
    "feature_dropout.default": (
        [lambda x: aten.feature_dropout(x, 0.5, False), lambda x: aten.feature_dropout(x, 0.0, True)],
        [lambda x: aten.feature_dropout(x, 0.5, True)],
    ),
    "dropout_.default": ([lambda x: aten.dropout_(x, 0.5, True), lambda x: aten.dropout_(x, 0.5, False)], []),
    "feature_dropout_.default": (
        [lambda x: aten.feature_dropout_(x, 0.5, True), lambda x: aten.feature_dropout_(x, 0.5, False)],
        [],
    ),
    "flatten.using_ints": ([lambda x: aten.flatten(x, 1, 1)], [aten.flatten]),
}


def test_what_gives_its_argument_back() -> None:
    rows = {name.removeprefix("aten."): row for name, row in ROWS.items() if row["gives_back"][0] != "never"}
    in_text = {"to.prim_dtype", "to.prim_Device", "to.prim_other"}  # the calls of TorchScript
    assert rows.keys() == GIVEN_BACK.keys() | in_text
    for name, (given, made) in GIVEN_BACK.items():
        for k, call in enumerate(given):
            x = f(2, 3, 4, 5)
            assert call(x) is x, (name, k)
        for k, call in enumerate(made):
            x = f(2, 3, 4, 5)
            assert call(x) is not x, (name, k)
    for name, row in rows.items():
        when, operand = row["gives_back"]
        names = [argument.name for argument in overload("aten." + name)._schema.arguments]
        expected = names.index("copy") if when == "same form" and "copy" in names else -1
        assert operand == expected, name
        assert (when == "if quiet") <= bool(row["quiet_if_zero"]), name


def test_no_row_that_may_give_back_is_left_out() -> None:
    """A row says when, if it may copy and is no view, or if its name is among those that may give back."""
    names = having("IDENTITY_OF_TYPE") | having("IDENTITY_OF_SIZES")
    for name, row in ROWS.items():
        converts = "may_copy" in row["traits"] and not row["view"]
        if converts or name.split(".")[1] in names:
            assert row["gives_back"][0] != "never", name


def test_copies_have_the_elements_of_their_argument_in_memory_of_their_own() -> None:
    calls: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {  # to floats, to integers
        "to.dtype": (
            lambda x: aten.to.dtype(x, torch.float32, False, True),
            lambda x: aten.to.dtype(x, torch.int64),
        ),
        "to.other": (lambda x: aten.to.other(x, f(1), False, True), lambda x: aten.to.other(x, i(1))),
        "to.device": (
            lambda x: aten.to.device(x, "cpu", torch.float32, False, True),
            lambda x: aten.to.device(x, "cpu", torch.int64),
        ),
        "to.dtype_layout": (
            lambda x: aten.to.dtype_layout(x, copy=True),
            lambda x: aten.to.dtype_layout(x, dtype=torch.int64),
        ),
        "type_as.default": (lambda x: aten.type_as(x.double(), x), lambda x: aten.type_as(x, i(1))),
        "clone.default": (aten.clone, lambda x: aten.clone(x.long())),
        "_to_copy.default": (aten._to_copy, lambda x: aten._to_copy(x, dtype=torch.int64)),
    }
    in_text = {"to.prim_dtype", "to.prim_Device", "to.prim_other"}
    rows = {name.removeprefix("aten.") for name, row in ROWS.items() if "copies" in row["traits"]}
    assert rows == calls.keys() | in_text
    for name, (floats, integers) in calls.items():
        x = f(2, 3) * 10
        assert torch.equal(floats(x), x) and not shares(floats(x), x), name
        assert torch.equal(integers(x), x.long()) and not shares(integers(x), x), name


def test_slices() -> None:
    """The operands that a row names are what torch's schema calls them, and give the slice that they say."""
    rows = {name: row["slice"] for name, row in ROWS.items() if row["slice"][0] >= 0}
    assert rows.keys() == {"aten.select.int", "aten.slice.Tensor"}
    x = f(3, 7)
    for name, operands in rows.items():
        names = [argument.name for argument in overload(name)._schema.arguments]
        dim, start, end, step = (names[k] if k >= 0 else None for k in operands)
        assert (dim, end, step) in {("dim", None, None), ("dim", "end", "step")}, name
        assert start == ("index" if end is None else "start"), name
        values = {"self": x, dim: 1, start: 2, end: 5, step: 1}
        result = overload(name)(**{key: value for key, value in values.items() if key is not None})
        assert shares(result, x), name
        assert torch.equal(result, x[:, 2] if end is None else x[:, 2:5]), name


def test_unmarked_writes() -> None:
    """The running statistics of a normalization; those of other processors are taken for such out of caution."""
    w, b = f(3), f(3, seed=1)
    calls: dict[str, Callable[..., Any]] = {
        "batch_norm.default": lambda x, m, v: aten.batch_norm(x, w, b, m, v, True, 0.1, 1e-5, False),
        "instance_norm.default": lambda x, m, v: aten.instance_norm(x, w, b, m, v, True, 0.1, 1e-5, False),
        "native_batch_norm.default": lambda x, m, v: aten.native_batch_norm(x, w, b, m, v, True, 0.1, 1e-5),
        "_batch_norm_impl_index.default": lambda x, m, v: aten._batch_norm_impl_index(
            x, w, b, m, v, True, 0.1, 1e-5, False
        ),
    }
    others = {"cudnn_batch_norm.default", "miopen_batch_norm.default", "quantized_batch_norm.default"}
    rows = {name.removeprefix("aten.") for name, row in ROWS.items() if "writes_unmarked" in row["traits"]}
    assert rows == calls.keys() | others
    for name, call in calls.items():
        mean, var = torch.zeros(3), torch.ones(3)
        call(f(2, 3, 4), mean, var)
        assert not torch.equal(mean, torch.zeros(3)) and not torch.equal(var, torch.ones(3)), name


def test_sizes_of_data() -> None:
    few, many = i(0, 0, 1), i(0, 2, 1)
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "where": lambda x: aten.where(x),
        "repeat_interleave": lambda x: aten.repeat_interleave.self_Tensor(f(3), x),
        "tensor_split": lambda x: aten.tensor_split(f(9), x),
        "nonzero": aten.nonzero,
        "nonzero_numpy": aten.nonzero_numpy,
        "argwhere": aten.argwhere,
        "masked_select": lambda x: aten.masked_select(f(3), x > 0),
        "unique_dim": lambda x: aten.unique_dim(x, 0)[0],
        "unique_consecutive": lambda x: aten.unique_consecutive(x)[0],
        "unique_dim_consecutive": lambda x: aten.unique_dim_consecutive(x, 0)[0],
        "_unique": lambda x: aten._unique(x)[0],
        "_unique2": lambda x: aten._unique2(x)[0],
        "bincount": aten.bincount,
        "linalg_lstsq": lambda x: aten.linalg_lstsq(
            torch.diag(x.float() + 1)[:, :2] * (x[1] > 0), f(3, 1), driver="gelsd"
        )[1],
        "_pack_padded_sequence": lambda x: aten._pack_padded_sequence(
            f(3, 3, 1), x.sort(descending=True).values.clamp(min=1), False
        )[0],
        "_pad_packed_sequence": lambda x: aten._pad_packed_sequence(
            f(3, 1), i(*[1] * 3) if x[1] > 0 else i(3), False, 0.0, -1
        )[0],
    }
    # A file's are of the file; lengths in segment_reduce are of data where they are told as offsets.
    assert having("SIZES_OF_DATA") == calls.keys() | {"from_file", "segment_reduce"}

    def shapes(made: Any) -> list[torch.Size]:
        return [leaf.shape for leaf in tree_leaves(made)]

    for name, call in calls.items():
        assert shapes(call(few)) != shapes(call(many)), name


def test_lists_are_as_long_as_lists_that_are_given() -> None:
    """How many tensors an operator gives does not follow from sizes where it takes a list (opEffects)."""
    scales, points = torch.ones(2), torch.zeros(2, dtype=torch.int64)
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "_histogramdd_bin_edges": lambda x: aten._histogramdd_bin_edges(x, [2, 2, 2]),
        "_to_cpu": lambda x: aten._to_cpu([x, x]),
        "atleast_1d.Sequence": lambda x: aten.atleast_1d([x, x]),
        "atleast_2d.Sequence": lambda x: aten.atleast_2d([x, x]),
        "atleast_3d.Sequence": lambda x: aten.atleast_3d([x, x]),
        "broadcast_tensors": lambda x: aten.broadcast_tensors([x, x]),
        "dequantize.tensors": lambda x: aten.dequantize([torch.quantize_per_tensor(x, 1.0, 0, torch.qint8)]),
        "dsplit.array": lambda x: aten.dsplit(x.T[None], [1, 2]),
        "gradient.array": lambda x: aten.gradient(x, dim=[0]),
        "gradient.scalararray": lambda x: aten.gradient(x, spacing=1.0, dim=[0, 1]),
        "gradient.scalarrayarray": lambda x: aten.gradient(x, spacing=[1.0, 2.0], dim=[0, 1]),
        "gradient.scalarrayint": lambda x: aten.gradient(x, spacing=[1.0], dim=0),
        "gradient.tensorarray": lambda x: aten.gradient(x, spacing=[torch.arange(len(x)) * 1.0], dim=[0]),
        "gradient.tensorarrayint": lambda x: aten.gradient(x, spacing=[torch.arange(len(x)) * 1.0], dim=0),
        "hsplit.array": lambda x: aten.hsplit(x.T, [1, 2]),
        "meshgrid": lambda x: aten.meshgrid([x[:, 0], x[0]]),
        "meshgrid.indexing": lambda x: aten.meshgrid([x[:, 0], x[0]], indexing="xy"),
        "quantize_per_tensor.tensors": lambda x: aten.quantize_per_tensor(
            [x, x], scales, points, torch.qint8
        ),
        "split.sizes": lambda x: aten.split(x, [1, len(x) - 1]),
        "split_with_sizes": lambda x: aten.split_with_sizes(x, [1, len(x) - 1]),
        "split_with_sizes_copy": lambda x: aten.split_with_sizes_copy(x, [1, len(x) - 1]),
        "tensor_split.indices": lambda x: aten.tensor_split(x, [1, 2]),
        "unflatten_dense_tensors": lambda x: aten.unflatten_dense_tensors(x.flatten(), [x]),
        "unsafe_split_with_sizes": lambda x: aten.unsafe_split_with_sizes(x, [1, len(x) - 1]),
        "vsplit.array": lambda x: aten.vsplit(x, [1, 2]),
    }
    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        own = name.removeprefix("aten::")
        if own == name or own.startswith("_foreach_") or not torch._C._dispatch_has_kernel(name):
            continue  # those of the name _foreach_ do the same to each
        schema = torch._C._get_schema(*[*name.split("."), ""][:2])
        lists = any(isinstance(argument.type, torch.ListType) for argument in schema.arguments)
        if lists and len(schema.returns) == 1 and isinstance(schema.returns[0].type, torch.ListType):
            found |= {own} if isinstance(schema.returns[0].type.getElementType(), torch.TensorType) else set()
    assert found == calls.keys()
    for name, call in calls.items():
        assert len(call(f(4, 3))) == len(call(f(7, 3))) == len(call(f(5, 3))), name


def test_what_is_random_draws() -> None:
    drawn = {
        **{name: calls[0] for name, calls in DRAWING.items()},
        "aten.rand.default": ([3],),
        "aten.dropout_.default": (f(2, 3), 0.5, True),
        "aten.feature_dropout.default": (f(2, 3), 0.5, True),
        "aten.feature_dropout_.default": (f(2, 3), 0.5, True),
    }
    for name in {name for name, row in ROWS.items() if "random" in row["traits"]}:
        before = torch.get_rng_state()
        overload(name)(*tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, drawn[name]))
        assert not torch.equal(torch.get_rng_state(), before), name


def test_what_lies_under_a_mask_is_no_part_of_the_result() -> None:
    masked = [name for name, row in ROWS.items() if "masked" in row["traits"]]
    assert len(masked) >= 2
    for name in masked:
        for x, mask, *rest in SAMPLES[name]:
            assert mask.dtype is torch.bool and overload(name)._schema.arguments[1].name == "mask"  # type: ignore[attr-defined]
            hidden = torch.where(mask, torch.nan, x)
            assert torch.equal(overload(name)(x, mask, *rest), overload(name)(hidden, mask, *rest)), name


def lies_last(x: torch.Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last)


def test_layout_roles() -> None:
    """Channels last in, channels last out; what only reads gives the same for both layouts."""
    one, two = f(2, 5, 4, 6), f(2, 5, 4, 6, seed=1)
    channel = f(5)
    special: dict[str, tuple[Any, ...]] = {
        "cat.default": ([one, two], 1),
        "mean.dim": (one, [2, 3]),
        "batch_norm.default": (one, channel, channel, channel, channel, False, 0.1, 1e-5, False),
        "max_pool2d.default": (one, [2, 2]),
        "avg_pool2d.default": (one, [2, 2]),
        "adaptive_avg_pool2d.default": (one, [2, 2]),
        "convolution.default": (one, f(7, 5, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        "conv2d.default": (one, f(7, 5, 3, 3)),
        "conv_transpose2d.input": (one, f(5, 7, 3, 3)),
    }

    def arguments(name: str) -> tuple[Any, ...]:
        short = name.removeprefix("aten.")
        own = short.split(".")[1]
        return special.get(short) or (
            (one, two) if own.startswith("Tensor") else (one, 1.5) if own.startswith("Scalar") else (one,)
        )

    def last(x: Any) -> Any:
        whole = isinstance(x, torch.Tensor) and x.dim() == 4
        return x.to(memory_format=torch.channels_last) if whole else x

    seen = set()
    for name, row in ROWS.items():
        if row["layout"] == "other":
            continue
        seen.add(row["layout"])
        kwargs = {"rounding_mode": "floor"} if name.endswith("_mode") else {}
        plain = overload(name)(*arguments(name), **kwargs)
        made = overload(name)(*tree_map(last, arguments(name)), **kwargs)
        torch.testing.assert_close(made, plain, msg=name)
        if row["layout"] != "reads":
            assert lies_last(made), name
            assert row["layout"] == "product" or not lies_last(plain), name
    assert seen == {"same", "reads", "product"}


def _reversed_in_memory(x: torch.Tensor) -> torch.Tensor:
    order = tuple(range(x.dim()))[::-1]
    return torch.empty([x.shape[d] for d in order], dtype=x.dtype).permute(order).copy_(x)


WAYS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.clone,
    lambda x: _reversed_in_memory(x) if x.dim() > 1 else x.clone(),
    lambda x: x.clone(memory_format=torch.channels_last) if x.dim() == 4 else x.clone(),
    lambda x: x[:1].expand_as(x) if x.dim() > 1 else x.clone(),
]


def _layouts(name: str, sample: Any, way: Callable[[torch.Tensor], torch.Tensor]) -> list[list[bool]]:
    """Which results are contiguous: the operator's, and those for fake tensors. Nothing: it takes no such input."""
    given = tree_map(lambda x: way(x) if isinstance(x, torch.Tensor) else x, sample)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = tree_map(lambda x: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x, given)
    try:
        made = overload(name)(*given)
        with mode:
            formal = overload(name)(*fakes)
    except (RuntimeError, NotImplementedError):
        return []
    return [
        [x.is_contiguous() for x in tree_leaves(each) if isinstance(x, torch.Tensor)]
        for each in (made, formal)
    ]


def test_lays_out_otherwise() -> None:
    """What the trait does not name, fake tensors lay out as the operator does."""
    differ, count = set(), 0
    for name in ROWS.keys() & SAMPLES.keys():
        for sample in SAMPLES[name]:
            for way in WAYS:
                layouts = _layouts(name, sample, way)
                count += bool(layouts)
                if layouts and layouts[0] != layouts[1]:
                    differ.add(name)
    assert count > 500
    assert differ == {
        name for name in SAMPLES if "lays_out_otherwise" in ROWS.get(name, {"traits": ()})["traits"]
    }


# What a meta function of torch's says otherwise than the operator does: no claim of the row.
OTHERWISE: set[str] = set()


def test_meta_functions_give_what_is_made() -> None:
    """Where no trait and no tag says that sizes are of data, a result's form follows from those of the arguments."""
    wrong, count = [], 0
    for name, row in ROWS.items():
        tags = {tag.name for tag in overload(name).tags} if name in SAMPLES else {"left out"}
        if (
            tags & {"left out", "dynamic_output_shape", "data_dependent_output"}
            or "sizes_of_data" in row["traits"]
        ):
            continue
        for sample in SAMPLES[name]:
            made = overload(name)(
                *tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, sample)
            )
            try:
                formal = overload(name)(
                    *tree_map(lambda x: x.to("meta") if isinstance(x, torch.Tensor) else x, sample)
                )
            except (NotImplementedError, RuntimeError):
                continue  # torch has no meta function of it
            for a, b in zip(tree_leaves(formal), tree_leaves(made), strict=True):
                if isinstance(b, torch.Tensor):
                    count += 1
                    same = (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
                    wrong += [] if same or name in OTHERWISE else [(name, a.shape, a.stride(), b.stride())]
    assert wrong == []
    assert count > 100
