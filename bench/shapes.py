"""Sizes that vary: 20 batch sizes, 20 sequence lengths, a cache that grows. What recording them costs, and how often.

Every system sees the same calls in the same order, twice. The first pass is what a user waits for; what it takes
longer than the second is lost to recording and compiling.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from bench import compare, measure, models
from bench.systems import EAGER, System

Data = dict[str, Any]
Call = Callable[[Callable[..., Any]], Any]


@dataclasses.dataclass(frozen=True)
class ShapeCase:
    """A model, and the calls of one pass: each takes the (compiled) model."""

    name: str
    build: Callable[[], nn.Module]
    calls: Callable[[nn.Module], Iterator[Call]]


def _ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(
        0, 90, (batch, length), generator=torch.Generator().manual_seed(batch * 100 + length)
    )


def _bert(sizes: Sequence[tuple[int, int]]) -> Callable[[nn.Module], Iterator[Call]]:
    def calls(_model: nn.Module) -> Iterator[Call]:
        for batch, length in sizes:
            ids = _ids(batch, length)
            yield (
                lambda model, ids=ids: (
                    model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
                )
            )

    return calls


def _generation(_model: nn.Module) -> Iterator[Call]:
    """A prompt, then one token a call with the cache of the call before."""
    state: dict[str, Any] = {"past": None, "ids": _ids(1, 5)}

    def step(model: Callable[..., Any]) -> torch.Tensor:
        out = model(input_ids=state["ids"], past_key_values=state["past"], use_cache=True)
        state["past"] = out.past_key_values
        state["ids"] = out.logits[:, -1:].argmax(-1)
        return out.logits

    for _ in range(20):
        yield step


def _images(_model: nn.Module) -> Iterator[Call]:
    for batch in range(1, 21):
        x = torch.randn(batch, 3, 32, 32, generator=torch.Generator().manual_seed(batch))
        yield lambda model, x=x: model(x)


def cases() -> list[ShapeCase]:
    def build(name: str) -> Callable[[], nn.Module]:
        return lambda: models.REGISTRY[name].build()

    return [
        ShapeCase("BERT, 20 batch sizes", build("bert"), _bert([(n, 8) for n in range(1, 21)])),
        ShapeCase("BERT, 20 lengths", build("bert"), _bert([(2, n) for n in range(3, 23)])),
        ShapeCase("GPT-2, a cache that grows", build("gpt2-cache"), _generation),
        ShapeCase("ResNet, 20 batch sizes", build("resnet18"), _images),
    ]


def measure_case(case: ShapeCase, systems: Sequence[System]) -> Data:
    """Seconds of each pass, traces or graphs, and the largest difference to eager."""
    rows: Data = {}
    model = case.build()
    expected = [call(model) for call in case.calls(model)]
    for system in systems:
        system.reset()
        compiled = model if system is EAGER else system.compile(model)
        passes, difference = [], 0.0
        with measure.no_collection():
            for _ in range(3):
                start = time.perf_counter()
                results = [call(compiled) for call in case.calls(model)]
                passes.append(time.perf_counter() - start)
        difference = max(compare.distance(a, b) for a, b in zip(expected, results, strict=True))
        rows[system.name] = {
            "first_s": passes[0],
            "steady_s": min(passes[1:]),
            "lost_s": passes[0] - min(passes[1:]),
            "difference": difference,
            "counts": system.counts(compiled),
        }
    return rows
