"""Guards of whole module trees, as a recording of the modules' forward would make them."""

from __future__ import annotations

from typing import Any

import torch

HOOKS = (
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks",
    "_forward_pre_hooks",
)
METHODS = ("__call__", "forward", "_call_impl", "_slow_forward")


class TreeGuards:
    """Writes sources and guards into a builder and keeps the number of each module and parameter."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.types: set[type] = set()
        self.sources: dict[str, int] = {}

    def type_version(self, cls: type) -> None:
        if cls not in self.types:
            self.types.add(cls)
            self.builder.guard("typeversion", key=cls)

    def module(self, source: int, module: torch.nn.Module, path: str = "self") -> None:
        b = self.builder
        self.sources[path] = source
        b.guard("type", source, key=type(module))
        self.type_version(type(module))
        attributes = b.source("dict", source)
        for name in METHODS:
            b.guard("lacks", attributes, key=name)
        for name in HOOKS:
            hooks = b.source("item", attributes, key=name)
            b.guard("type", hooks, key=type(module.__dict__[name]))
            b.guard("length", hooks, number=0)
        for name, value in module.__dict__.items():
            if isinstance(value, (bool, int, float, str, type(None))):
                b.guard("equals", b.source("item", attributes, key=name), key=value)
        for table in ("_parameters", "_buffers", "_modules"):
            self.table(attributes, module, table, path)

    def table(self, attributes: int, module: torch.nn.Module, table: str, path: str) -> None:
        b = self.builder
        entries = getattr(module, table)
        if not entries:
            return
        source = b.source("item", attributes, key=table)
        b.guard("type", source, key=type(entries))
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            b.guard("keys", source, key=tuple(entries))
        for name, value in entries.items():
            entry = b.source("item", source, key=name)
            where = f"{path}.{name}"
            if value is None:
                b.guard("equals", entry, key=None)
            elif isinstance(value, torch.Tensor):
                self.sources[where] = entry
                b.guard("type", entry, key=type(value))
                b.tensor(entry, value)
            else:
                self.module(entry, value, where)


def bert(layers: int = 12, width: int = 64) -> torch.nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * width,
        vocab_size=1000,
    )
    return BertModel(config).eval()


def qwen2(layers: int = 24, width: int = 64) -> torch.nn.Module:
    from transformers import Qwen2Config, Qwen2Model

    config = Qwen2Config(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=2 * width,
        vocab_size=1000,
    )
    return Qwen2Model(config).eval()
