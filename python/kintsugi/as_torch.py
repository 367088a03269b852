"""torch, with Kintsugi where torch.compile would be: `import kintsugi.as_torch as torch`.

For programs and guides that are to run as they are: `torch.compile`, `torch._dynamo` and `torch.compiler` lead here,
everything else is torch's own.
"""

from __future__ import annotations

import types
from typing import Any

import torch as _torch

from . import torchdynamo as _dynamo
from ._marks import allow_in_graph, assume_constant_result, disable, is_compiling
from ._public import compile, reset

compiler = types.SimpleNamespace(
    **{name: getattr(_torch.compiler, name) for name in _torch.compiler.__all__}
    | {"compile": compile, "disable": disable, "reset": reset, "is_compiling": is_compiling}
    | {"allow_in_graph": allow_in_graph, "assume_constant_result": assume_constant_result}
)


def __getattr__(name: str) -> Any:
    return getattr(_torch, name)


__all__ = ["_dynamo", "compile", "compiler"]
