"""Sample calls of ATen's operators, one table: for tests of rows (`test_operator_registry.py`), of native code beside
eager mode (`test_native_samples.py`), and of what autograd keeps of them (`test_native_training_saved.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def f(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(sizes, generator=torch.Generator().manual_seed(seed + len(sizes))) + 0.2


def t(*sizes: int) -> torch.Tensor:
    """Not contiguous: the first two dimensions lie the other way round."""
    return f(sizes[1], sizes[0], *sizes[2:]).transpose(0, 1)


def i(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)


def mask(*sizes: int) -> torch.Tensor:
    return (torch.arange(torch.Size(sizes).numel()) % 3 == 0).reshape(sizes)


ONE = (f(2, 3),)
TWO = (f(2, 3), f(2, 3, seed=5))
# By operator: arguments of calls. What has a derivative and no entry is called with one tensor of two dimensions.
SAMPLES: dict[str, list[tuple[Any, ...]]] = {
    **dict.fromkeys(
        [
            *(f"aten.{name}.Tensor" for name in ("add", "sub", "rsub", "mul", "div", "true_divide")),
            *(f"aten.{name}.default" for name in ("maximum", "minimum", "view_as", "expand_as", "type_as")),
            *(
                "aten.to.other",
                "aten.mse_loss.default",
                "aten.smooth_l1_loss.default",
                "aten.l1_loss.default",
            ),
            *("aten.binary_cross_entropy_with_logits.default", "aten.pow.Tensor_Tensor"),
        ],
        [TWO],
    ),
    **dict.fromkeys(
        [f"aten.{name}.Scalar" for name in ("add", "sub", "rsub", "mul", "div")]
        + ["aten.clamp_min.default", "aten.clamp_max.default"],
        [(f(2, 3), 0.5)],
    ),
    **dict.fromkeys([f"aten.{name}.default" for name in ("_softmax", "_log_softmax")], [(f(2, 3), 1, False)]),
    **dict.fromkeys(["aten.softmax.int", "aten.log_softmax.int"], [(f(2, 3), 1), (t(3, 2), 1)]),
    **dict.fromkeys([f"aten.{name}.default" for name in ("amax", "amin", "logsumexp")], [(f(2, 3), [1])]),
    **dict.fromkeys(
        [
            "aten.sum.dim_IntList",
            "aten.mean.dim",
            "aten.var.dim",
            "aten.var.correction",
            "aten.std.correction",
        ],
        [(f(2, 3), [1])],
    ),
    **dict.fromkeys([f"aten.{n}.default" for n in ("squeeze", "unsqueeze")], [(f(2, 3), 0)]),
    **dict.fromkeys(["aten.dropout.default", "aten.feature_dropout.default"], [(f(2, 3), 0.5, False)]),
    "aten.squeeze.default": [ONE],
    "aten.squeeze.dim": [(f(1, 3), 0)],
    "aten.squeeze.dims": [(f(1, 3), [0])],
    "aten.clamp.default": [(f(2, 3), 0.3, 0.9), (f(2, 3), None, 0.5)],
    "aten.threshold.default": [(f(2, 3), 0.5, 0.0)],
    "aten.hardshrink.default": [(f(2, 3),), (f(2, 3), 0.7), (f(2, 3), 0), (f(2, 3), -0.5)],
    "aten.prelu.default": [(f(2, 3), f(3)), (f(2, 3), f(1)), (f(3), f(1)), (f(2, 3), f())],
    "aten.pow.Tensor_Scalar": [(f(2, 3), 2), (f(2, 3), 3), (f(2, 3), 0.5), (f(2, 3), 0)],
    "aten.addcmul.default": [(f(2, 3), f(2, 3, seed=3), f(2, 3, seed=4))],
    "aten.lerp.Scalar": [(*TWO, 0.3)],
    "aten.where.ScalarSelf": [(mask(2, 3), 1.0, f(2, 3))],
    "aten.where.ScalarOther": [(mask(2, 3), f(2, 3), 1.0)],
    "aten.where.self": [(mask(2, 3), *TWO)],
    "aten.masked_fill.Scalar": [(f(2, 3), mask(2, 3), 0.5)],
    "aten.masked_fill.Tensor": [(f(2, 3), mask(2, 3), torch.tensor(0.5))],
    "aten.to.dtype": [
        (f(2, 3), torch.float32),
        (f(2, 3), torch.float64),
        (f(2, 3), torch.float32, False, True),
    ],
    "aten.view.default": [(f(2, 3), [3, 2])],
    "aten._unsafe_view.default": [(f(2, 3), [3, 2])],
    "aten.reshape.default": [(f(2, 3), [3, 2]), (t(2, 3), [3, 2])],
    "aten.flatten.using_ints": [ONE, (t(2, 3),), (f(3),)],
    "aten.contiguous.default": [ONE, (t(2, 3),)],
    "aten.unflatten.int": [(f(2, 6), 1, [2, 3])],
    "aten.expand.default": [(f(1, 3), [2, 3])],
    "aten.transpose.int": [(f(2, 3), 0, 1)],
    "aten.swapaxes.default": [(f(2, 3), 0, 1)],
    "aten.swapdims.default": [(f(2, 3), 0, 1)],
    "aten.permute.default": [(f(2, 3), [1, 0])],
    "aten.movedim.int": [(f(2, 3), 0, 1)],
    "aten.narrow.default": [(f(2, 3), 1, 0, 2)],
    "aten.pad.default": [(f(2, 3), [1, 2]), (f(2, 3), [1, 0, 0, 2], "constant", 1.5), (f(2, 3), [-1, 2])],
    **{
        f"aten.{kind}.input": [
            (
                f(3, 2, 4),
                [f(1, 2, 4, seed=1), f(1, 2, 4, seed=2)] if kind == "lstm" else f(1, 2, 4, seed=1),
                [f(n * 4, 4, seed=3), f(n * 4, 4, seed=4), f(n * 4, seed=5), f(n * 4, seed=6)],
                *(True, 1, 0.0, False, False, False),
            )
        ]
        for kind, n in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1))
    },
    **{
        f"aten.{kind}_cell.default": [
            (
                f(2, 4),
                [f(2, 4, seed=1), f(2, 4, seed=2)] if kind == "lstm" else f(2, 4, seed=1),
                *(f(n * 4, 4, seed=3), f(n * 4, 4, seed=4), f(n * 4, seed=5), f(n * 4, seed=6)),
            )
        ]
        for kind, n in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1))
    },
    "aten.select.int": [(f(2, 3), 1, 0)],
    "aten.slice.Tensor": [(f(2, 3), 1, 0, 2, 1)],
    "aten.cat.default": [([f(2, 3), f(2, 3, seed=3)],)],
    "aten.stack.default": [([f(2, 3), f(2, 3, seed=3)],)],
    "aten.layer_norm.default": [
        (f(2, 3), [3], f(3), f(3, seed=1)),
        (t(2, 3), [3], f(3), None),
        (f(2, 3), [3]),
    ],
    "aten.rms_norm.default": [(f(2, 3), [3], f(3)), (f(2, 3), [3])],
    "aten.group_norm.default": [(f(2, 4, 3), 2, f(4), f(4))],
    "aten.batch_norm.default": [
        (f(4, 3), f(3), f(3, seed=1), f(3, seed=2), f(3, seed=3), training, 0.1, 1e-5, False)
        for training in (True, False)
    ],
    "aten.cumsum.default": [(f(2, 3), 1)],
    "aten.norm.ScalarOpt_dim": [(f(2, 3), 2, [1])],
    "aten.linalg_vector_norm.default": [(f(2, 3), 2, [1])],
    "aten.scaled_dot_product_attention.default": [
        (f(1, 2, 4, 8), f(1, 2, 4, 8, seed=1), f(1, 2, 4, 8, seed=2), None, 0.0, causal)
        for causal in (False, True)
    ]
    + [
        (f(1, 2, 4, 8), f(1, 2, 4, 8, seed=1), f(1, 2, 4, 8, seed=2), f(4, 4)),
        (f(1, 2, 4, 8), f(1, 2, 4, 8, seed=1), f(1, 2, 4, 8, seed=2), mask(4, 4) | torch.eye(4).bool()),
    ],
    "aten.linear.default": [
        (x, f(4, 3), bias)
        for x in (f(2, 3), t(2, 3), f(2, 2, 3), t(2, 2, 3), f(2, 2, 2, 3), t(2, 2, 2, 3), f(3))
        for bias in (None, f(4))
    ],
    "aten.mm.default": [(f(2, 3), f(3, 4))],
    "aten.bmm.default": [(f(2, 2, 3), f(2, 3, 4))],
    "aten.addmm.default": [(f(4), f(2, 3), f(3, 4))],
    "aten.baddbmm.default": [(f(2, 2, 4), f(2, 2, 3), f(2, 3, 4))],
    "aten.matmul.default": [
        (f(2, 3), f(3, 4)),
        *((x, f(3, 4)) for x in (f(2, 2, 3), t(2, 2, 3), f(2, 2, 2, 3), t(2, 2, 2, 3))),
        *((x, y) for x in (f(2, 2, 3), t(2, 2, 3)) for y in (f(2, 3, 4), t(2, 3, 4))),
        *((x, y) for x in (f(2, 2, 2, 3), t(2, 2, 2, 3)) for y in (f(2, 2, 3, 4), t(2, 2, 3, 4))),
        (f(2, 3), f(2, 3, 4)),
        (f(2, 2, 2, 3), f(2, 3, 4)),
    ],
    "aten.max_pool2d.default": [(f(1, 2, 4, 4), [2, 2])],
    "aten.avg_pool2d.default": [(f(1, 2, 4, 4), [2, 2])],
    "aten.adaptive_avg_pool2d.default": [(f(1, 2, 4, 4), [1, 1]), (f(1, 2, 4, 4), [2, 2])],
    "aten.upsample_nearest2d.vec": [(f(1, 2, 4, 4), [8, 8], None)],
    "aten.upsample_bilinear2d.vec": [(f(1, 2, 4, 4), [8, 8], False, None)],
    "aten.constant_pad_nd.default": [(f(2, 3), [1, 1])],
    "aten.conv1d.default": [(f(1, 2, 5), f(3, 2, 1), f(3))],
    "aten.conv2d.default": [(f(1, 2, 5, 5), f(3, 2, 1, 1), f(3)), (f(2, 5, 5), f(3, 2, 1, 1))],
    "aten.conv3d.default": [(f(1, 2, 3, 3, 3), f(3, 2, 1, 1, 1))],
    "aten.convolution.default": [
        (f(1, 2, 5, 5), f(3, 2, 1, 1), f(3), [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    ],
    "aten.conv_transpose2d.input": [(f(1, 2, 5, 5), f(2, 3, 1, 1))],
    "aten.embedding.default": [(f(5, 3), i(1, 2))],
    "aten.index_select.default": [(f(3, 3), 0, i(1, 2))],
    "aten.index.Tensor": [(f(3, 3), [i(1, 2)])],
    "aten.gather.default": [(f(3, 3), 0, i(0, 1, 2).reshape(1, 3))],
    "aten.index_add.default": [(f(3, 3), 0, i(1, 2), f(2, 3))],
    "aten.scatter_add.default": [(f(3, 3), 0, i(0, 1, 2).reshape(1, 3), f(1, 3))],
    "aten.scatter_reduce.two": [(f(3, 3), 0, i(0, 1, 2).reshape(1, 3), f(1, 3), "sum")],
    "aten.cross_entropy_loss.default": [(f(2, 3), i(0, 2)), (f(2, 3), i(0, 2), f(3))],
    "aten.nll_loss_nd.default": [(f(2, 3), i(0, 2))],
    "aten.nll_loss.default": [(f(2, 3), i(0, 2))],
    "aten.repeat.default": [(f(2, 3), [2, 1])],
    "aten.topk.default": [(f(2, 3), 2)],
    "aten.glu.default": [(f(2, 4), 1)],
    "aten.flip.default": [(f(2, 3), [1])],
    "aten.lerp.Tensor": [(f(2, 3), f(2, 3, seed=1), f(2, 3, seed=2))],
    "aten.einsum.default": [
        ("ij,kj->ik", [f(2, 3), f(4, 3, seed=1)]),
        ("bi,bi,bi->bi", [f(2, 3), f(2, 3, seed=1), f(2, 3, seed=2)]),
    ],
    "aten.split.Tensor": [(f(2, 3), 1)],
    "aten.split.sizes": [(f(2, 3), [1, 2], 1)],
    "aten.split_with_sizes.default": [(f(2, 3), [1, 2], 1)],
    "aten.chunk.default": [(f(2, 3), 2)],
    **dict.fromkeys(
        [
            *(f"aten.{name}.default" for name in ("relu6", "square", "log_sigmoid", "alias_copy", "data")),
            *(f"aten.{name}.default" for name in ("numpy_T", "mT")),
        ],
        [ONE],
    ),
    "aten.gt.Scalar": [(f(2, 3), 0.5)],
    "aten.bitwise_and.Tensor": [(i(1, 2), i(3, 4))],
    "aten.bitwise_or.Tensor": [(i(1, 2), i(3, 4))],
    "aten.bitwise_not.default": [(i(1, 2),)],
    "aten.where.Scalar": [(mask(2, 3), 1.0, 2.0)],
    "aten._native_batch_norm_legit.no_stats": [(f(2, 3, 4), f(3), f(3, seed=1), True, 0.1, 1e-5)],
    "aten._scaled_dot_product_flash_attention_for_cpu.default": [
        (f(1, 2, 4, 8), f(1, 2, 4, 8, seed=1), f(1, 2, 4, 8, seed=2))
    ],
    "aten.outer.default": [(f(3), f(4))],
    "aten.scatter.value": [(f(2, 3), 1, i(0, 1).reshape(2, 1), 2.0)],
    "aten.arange.start": [(0, 4)],
    "aten.item.default": [(f(1),)],
    "aten.dropout_.default": [(f(2, 3), 0.5, False)],
    "aten.feature_dropout_.default": [(f(2, 3), 0.5, False)],
}


def _cell(kind: str, gates: int) -> tuple[Any, ...]:
    weights = [f(gates * 4, 4), f(gates * 4, 4), f(gates * 4), f(gates * 4)] * 2
    state = [f(2, 2, 4), f(2, 2, 4)] if kind == "lstm" else f(2, 2, 4)
    return (f(3, 2, 4), state, weights, True, 2, 0.5, True, False, False)


# Calls that draw random numbers: what they give can't be compared.
DRAWING: dict[str, list[tuple[Any, ...]]] = {
    "aten.dropout.default": [(f(2, 3), 0.5, True)],
    **{
        f"aten.{kind}.input": [_cell(kind, gates)]
        for kind, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1))
    },
}


def overload(name: str) -> Callable[..., Any]:
    space, packet, own = name.split(".")
    return getattr(getattr(getattr(torch.ops, space), packet), own)  # type: ignore[no-any-return]
