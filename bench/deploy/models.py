"""The models: published architectures from their configurations, with random weights, and one input each.

Each takes tensors by position, gives one and runs without gradients, which every exporter understands. Weights are
made once and loaded by each process (`python -m bench.deploy.models NAME FILE` writes them): convolutions and batch
norms are scaled so that numbers keep their magnitude through all layers, as trained weights do. With the libraries'
own random weights, MobileNetV2 gives zeros, by way of numbers that are too small to be normal ones.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

Tensors = tuple[torch.Tensor, ...]


class Text(nn.Module):
    """An encoder of texts: ids and mask to its last layer's states."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.inner(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]


class Images(nn.Module):
    """A classifier of images: pixels to logits."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.inner(pixel_values=pixel_values, return_dict=False)[0]


@dataclasses.dataclass(frozen=True)
class Model:
    """`title` says what runs, with the shape of the input."""

    name: str
    title: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Tensors]
    tolerance: float = 1e-3  # of the largest magnitude of eager mode's result


def _text(**config: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        made = transformers.BertConfig(**config)
        return Text(transformers.BertModel(made, add_pooling_layer=False))

    return build


def _images(kind: str, **config: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        made = getattr(transformers, f"{kind}Config")(**config)
        return Images(getattr(transformers, f"{kind}ForImageClassification")(made))

    return build


def _ids(batch: int, length: int, words: int) -> Callable[[], Tensors]:
    return lambda: (torch.randint(3, words, (batch, length)), torch.ones(batch, length, dtype=torch.long))


def _pixels() -> Tensors:
    return (torch.randn(1, 3, 224, 224),)


_BERT = dict(
    vocab_size=2000, hidden_size=256, num_hidden_layers=12, num_attention_heads=4, intermediate_size=1024
)
_MINILM = dict(
    vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
)
_VIT = dict(hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768)

MODELS = {
    model.name: model
    for model in (
        Model("bert-12", "BERT, 12 layers of 256, 4 x 64 tokens", _text(**_BERT), _ids(4, 64, 2000)),
        Model("minilm", "MiniLM-L6, 16 x 32 tokens", _text(**_MINILM), _ids(16, 32, 30522)),
        Model("vit", "ViT-Ti/16, one image of 224", _images("ViT", **_VIT), _pixels),
        Model("resnet-50", "ResNet-50, one image of 224", _images("ResNet"), _pixels),
        Model(
            "convnext-t",
            "ConvNeXt-T, one image of 224",
            _images("ConvNext", layer_scale_init_value=1.0),
            _pixels,
        ),
        Model("mobilenet-v2", "MobileNetV2, one image of 224", _images("MobileNetV2"), _pixels),
    )
}


def _scale(module: nn.Module, inputs: Tensors) -> None:
    """Convolutions keep the variance of what they get; batch norms know mean and variance of what comes to them."""
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    if norms:
        for norm in norms:
            norm.momentum = None  # the average of all batches
        module.train()
        with torch.no_grad():
            module(*inputs)
        module.eval()
        for norm in norms:
            norm.momentum = 0.1


def _build(name: str) -> tuple[nn.Module, Tensors]:
    torch.manual_seed(0)
    module = MODELS[name].build().eval()
    torch.manual_seed(1000)
    return module, MODELS[name].inputs()


def make(name: str, weights: pathlib.Path) -> tuple[nn.Module, Tensors]:
    """The module in evaluation mode with the weights of a file that write() made, and its input; no call is made."""
    module, inputs = _build(name)
    module.load_state_dict(torch.load(weights, weights_only=True))
    return module, inputs


def write(name: str, weights: pathlib.Path) -> None:
    """Writes the weights. Raises ValueError where the result's magnitude is none that differences can be seen in."""
    module, inputs = _build(name)
    _scale(module, inputs)
    with torch.no_grad():
        largest = float(module(*inputs).abs().max())
    if not 1e-3 < largest < 1e4:
        raise ValueError(f"{name} gives numbers up to {largest:g}")
    torch.save(module.state_dict(), weights)


if __name__ == "__main__":
    write(sys.argv[1], pathlib.Path(sys.argv[2]))
