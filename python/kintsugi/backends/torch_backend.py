"""The other way round: `torch.compile(model, backend="kintsugi")` runs TorchDynamo's graphs with Kintsugi."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def kintsugi_backend(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any
) -> Callable[..., Any]:
    """A backend as torch.compile wants it. The entry point `torch_dynamo_backends` of the package names it."""
    from .._public import compile

    compiled: Callable[..., Any] = compile(gm.forward, options=options.get("options"))
    return compiled


def register_with_torch() -> None:
    """Registers the name `kintsugi` with torch, for a package that runs without having been installed."""
    from torch._dynamo.backends import registry

    if "kintsugi" not in registry.list_backends(exclude_tags=()):
        registry.register_backend(kintsugi_backend, name="kintsugi")
