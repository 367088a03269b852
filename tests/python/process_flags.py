"""The flags of the process that programs set: read, to be compared, and put back."""

from __future__ import annotations

import gc
import logging
import sys
from typing import Any

import numpy as np
import torch
from torch.backends import cuda as cuda_backend
from torch.backends import cudnn, mkldnn, opt_einsum

_ATTRIBUTES = (
    (cudnn, ("enabled", "benchmark", "deterministic", "allow_tf32")),
    (
        cuda_backend.matmul,
        ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"),
    ),
    (opt_einsum, ("enabled",)),
)


def read() -> tuple[Any, ...]:
    """All of them, as plain values."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        str(torch.get_autocast_dtype("cpu")),
        torch.get_default_dtype(),
        (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        torch.get_float32_matmul_precision(),
        mkldnn.enabled,
        tuple(getattr(module, name) for module, names in _ATTRIBUTES for name in names),
        (cuda_backend.flash_sdp_enabled(), cuda_backend.math_sdp_enabled()),
        torch.is_warn_always_enabled(),
        torch.get_num_threads(),
        _print_options(),
        tuple(sorted(np.geterr().items())),
        gc.isenabled(),
        sys.getrecursionlimit(),
        logging.getLogger("generated").level,
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
    )


def restore(flags: tuple[Any, ...]) -> None:
    """Sets what read() gave. Modes that are entered are left alone."""
    if read() == flags:
        return
    torch.set_grad_enabled(flags[0])
    torch.set_default_dtype(flags[4])
    enabled, warn_only = flags[5]
    torch._C._set_deterministic_algorithms(enabled, warn_only=warn_only)
    torch.set_float32_matmul_precision(flags[6])
    torch._C._set_mkldnn_enabled(flags[7])
    values = iter(flags[8])
    for module, names in _ATTRIBUTES:
        for name in names:
            setattr(module, name, next(values))
    cuda_backend.enable_flash_sdp(flags[9][0])
    cuda_backend.enable_math_sdp(flags[9][1])
    torch.set_warn_always(flags[10])
    torch.set_num_threads(flags[11])
    torch.set_printoptions(**dict(flags[12]))
    np.seterr(**dict(flags[13]))
    (gc.enable if flags[14] else gc.disable)()
    sys.setrecursionlimit(flags[15])
    logging.getLogger("generated").setLevel(flags[16])


def _print_options() -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(vars(torch._tensor_str.PRINT_OPTS).items()))
