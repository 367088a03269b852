"""What a model of the registry is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

SIZES = ("tiny", "mid")

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Dims:
    """The numbers that tell one size from another; each family uses what it needs."""

    hidden: int
    layers: int
    heads: int
    batch: int
    seq: int
    vocab: int = 96
    image: int = 32
    channels: int = 8

    @property
    def ff(self) -> int:
        return 4 * self.hidden


TINY = Dims(hidden=32, layers=2, heads=2, batch=2, seq=8)
MID = Dims(hidden=256, layers=4, heads=4, batch=4, seq=64, vocab=2000, image=96, channels=64)


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """One model: how to build it, and how to make inputs for it.

    `build_module(dims)` and `make_inputs(module, dims)` draw from torch's global generator, which `build` and
    `inputs` seed and then put back, so a spec gives the same weights and inputs whatever ran before.
    """

    name: str
    kind: str
    build_module: Callable[[Dims], nn.Module]
    make_inputs: Callable[[nn.Module, Dims], Inputs]
    quick: bool = False
    sizes: dict[str, Dims] = dataclasses.field(default_factory=lambda: {"tiny": TINY, "mid": MID})
    # Does a call change its inputs (a cache that grows), so that every call needs inputs of its own?
    consumes_inputs: bool = False
    # Does the first call change what later ones read (weights that are rescaled once)? It records a trace of its own.
    initializes_itself: bool = False
    # Does the model come from the transformers library (which takes seconds to import)?
    transformers: bool = True

    def build(self, size: str = "tiny", seed: int = 0) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.build_module(self.sizes[size]).eval()

    def inputs(self, module: nn.Module, size: str = "tiny", seed: int = 0) -> Inputs:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1000 + seed)
            return self.make_inputs(module, self.sizes[size])
