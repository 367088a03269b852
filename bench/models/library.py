"""Any architecture of the `transformers` library, from its own default configuration made small.

`zoo` says for each architecture what its configuration is; here one rule makes a configuration small, so that the
whole library can be sampled: sizes are known by the names that the library gives them. library.toml lists the sample
(seeded, see scripts/sample_library.py) and what does not run in eager mode this way, with the reason.
"""

from __future__ import annotations

import functools
import inspect
import os
import pathlib
import tomllib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from bench.models.spec import TINY, Dims, Inputs, ModelSpec

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "decoder_hidden_size", "emb_dim", "hidden_dim",
           "projection_dim", "attention_hidden_size", "lru_width", "embedding_size")  # fmt: skip
_DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
           "num_encoder_layers", "num_decoder_layers", "depth")  # fmt: skip
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "num_key_value_heads",
          "decoder_attention_heads", "decoder_num_attention_heads", "num_attention_head")  # fmt: skip
_INNER = ("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_hidden_size",
          "moe_intermediate_size", "shared_expert_intermediate_size", "decoder_intermediate_size", "mlp_dim",
          "d_inner")  # fmt: skip
_HEAD_WIDTHS = ("head_dim", "d_kv", "v_head_dim", "qk_nope_head_dim", "attention_head_size")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k")
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx")

# By the names of configurations' attributes. Only those are set that a configuration has.
_SMALL: dict[str, int] = {
    **dict.fromkeys(_WIDTHS, 32),
    **dict.fromkeys(_DEPTHS, 2),
    **dict.fromkeys(_HEADS, 2),
    **dict.fromkeys(_INNER, 64),
    **dict.fromkeys(_HEAD_WIDTHS, 16),
    **dict.fromkeys(_EXPERTS, 4),
    **dict.fromkeys(_CHOSEN, 2),
    **dict.fromkeys(_POSITIONS, 128),
    **dict(qk_rope_head_dim=8, q_lora_rank=16, kv_lora_rank=16, vocab_size=128, image_size=32, patch_size=8),
    **dict(state_size=8, num_channels=3, bos_token_id=1, eos_token_id=2, pad_token_id=0),
}

BATCH, LENGTH = 2, 8

# The first call changes something in the module that later ones read: padding, hooks, another kind of attention.
_INITIALIZE_THEMSELVES = ("voxtral_realtime_encoder", "bigbird_pegasus", "data2vec-audio", "unispeech-sat")


def _small(config: Any) -> dict[str, Any]:
    """Arguments for the class of `config` that make it small, its parts (vision, text) too."""
    from transformers import PretrainedConfig

    made: dict[str, Any] = {}
    for name, value in _SMALL.items():
        current = getattr(config, name, None)
        if isinstance(current, int) and not isinstance(current, bool) and current != 0:
            made[name] = value
    kinds = getattr(config, "layer_types", None)
    if isinstance(kinds, list):
        made["layer_types"] = (list(dict.fromkeys(kinds)) * 2)[:2]
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            made[name] = _small(value)
    return made


def _build(model_type: str, class_name: str, _: Dims) -> nn.Module:
    import transformers

    transformers.logging.set_verbosity_error()
    config_class = type(transformers.AutoConfig.for_model(model_type))
    return getattr(transformers, class_name)(config_class(**_small(config_class())))


def _tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, 100, (BATCH, length))


def _inputs(module: nn.Module, _: Dims) -> Inputs:
    """What the class says it needs: text, pictures, sound."""
    config: Any = module.config
    main: Any = module.main_input_name
    parameters = inspect.signature(module.forward).parameters
    made: dict[str, torch.Tensor] = {}
    if "input_ids" in parameters:
        made["input_ids"] = _tokens()
    if "decoder_input_ids" in parameters:
        made["decoder_input_ids"] = _tokens(LENGTH // 2)
    if main == "pixel_values":
        size = getattr(config, "image_size", None) or 32
        sizes = (size, size) if isinstance(size, int) else tuple(size)
        made["pixel_values"] = torch.randn(BATCH, getattr(config, "num_channels", None) or 3, *sizes)
    if main == "input_values":
        made["input_values"] = torch.randn(BATCH, 4000)
    if main == "input_features":
        made["input_features"] = torch.randn(BATCH, getattr(config, "num_mel_bins", None) or 80, 64)
    if main not in made:
        raise ValueError(f"no input of the kind {main!r}")
    return (), made


def spec(model_type: str, class_name: str) -> ModelSpec:
    build = functools.partial(_build, model_type, class_name)
    return ModelSpec(
        f"library/{class_name}",
        "library",
        build,
        _inputs,
        sizes={"tiny": TINY},
        initializes_itself=model_type in _INITIALIZE_THEMSELVES,
    )


def listed() -> dict[str, Any]:
    with (pathlib.Path(__file__).parent / "library.toml").open("rb") as file:
        return tomllib.load(file)


def specs() -> Iterator[ModelSpec]:
    for class_name, model_type in listed()["models"].items():
        yield spec(model_type, class_name)
