"""torch, with Kintsugi where torch.compile would be: `import kintsugi.as_torch as torch`.

For programs and guides that are to run as they are: `torch.compile`, `torch._dynamo` and `torch.compiler` lead here,
everything else is torch's own.
"""

from __future__ import annotations

import types
from typing import Any

import torch as _torch

from . import _guard_filter, _marks, _numpy, _public, _stance, _substitutes, backends
from . import torchdynamo as _dynamo
from ._public import compile

compiler = types.SimpleNamespace(
    **{name: getattr(_torch.compiler, name) for name in _torch.compiler.__all__}
    | {"compile": compile, "reset": _public.reset, "list_backends": backends.list_backends}
    | {name: getattr(_marks, name) for name in ("allow_in_graph", "assume_constant_result", "disable")}
    | {name: getattr(_marks, name) for name in ("is_compiling", "is_dynamo_compiling", "is_exporting")}
    | {name: getattr(_stance, name) for name in ("get_default_backend", "set_default_backend", "set_stance")}
    | {name: getattr(_guard_filter, name) for name in _guard_filter.HELPERS}
    | {"substitute_in_graph": _substitutes.substitute_in_graph, "wrap_numpy": _numpy.wrap_numpy}
)


def __getattr__(name: str) -> Any:
    return getattr(_torch, name)


__all__ = ["_dynamo", "compile", "compiler"]
