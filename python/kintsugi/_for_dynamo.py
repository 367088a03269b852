"""TorchDynamo looks through what kintsugi.compile() returned: torch.export(strict=True) needs that.

A call of a compiled callable is a slot in C, of which TorchDynamo knows nothing. It is told once it is loaded: this
module never loads it, which takes a second.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from . import _C

_told = False


def tell() -> None:
    """Tells TorchDynamo, if it is there and does not know."""
    if not _told and "torch._dynamo" in sys.modules:
        _tell()


def _tell() -> None:
    global _told
    _told = True
    from ._callable import CompiledFunction

    # The names of the arguments are those of the originals; TorchDynamo reads these functions as text.
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, torch.nn.Module):
            return self._orig_mod(*args, **kwargs)
        return self.__wrapped__(*args, **kwargs)

    def bind(self: Any, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else self.__wrapped__.__get__(instance, owner)

    known = torch.compiler.substitute_in_graph  # type: ignore[attr-defined, unused-ignore]
    known(_C.CallHolder.__call__, skip_signature_check=True)(call)
    known(CompiledFunction.__get__, skip_signature_check=True)(bind)
