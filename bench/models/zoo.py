"""Architectures of the `transformers` library, from their configuration, with random weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from bench.models.spec import Dims, Inputs, ModelSpec

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

Config = Callable[[Dims], dict[str, Any]]


def _library() -> Any:
    """`transformers`, imported at the first use because that takes seconds."""
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


def _builder(model_type: str, auto_class: str, config: Config, **fixed: Any) -> Callable[[Dims], nn.Module]:
    def build(dims: Dims) -> nn.Module:
        library = _library()
        made = library.AutoConfig.for_model(model_type, **config(dims), **fixed)
        return getattr(library, auto_class).from_config(made)

    return build


# --- configurations, by the names that the families use -------------------------------------------------------------


def _standard(d: Dims) -> dict[str, Any]:
    return dict(
        vocab_size=d.vocab,
        hidden_size=d.hidden,
        num_hidden_layers=d.layers,
        num_attention_heads=d.heads,
        intermediate_size=d.ff,
        max_position_embeddings=max(128, 2 * d.seq),
    )


def _no_special_tokens(d: Dims) -> dict[str, Any]:
    return dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


def _decoder(d: Dims) -> dict[str, Any]:
    return _standard(d) | _no_special_tokens(d)


def _grouped(d: Dims) -> dict[str, Any]:
    return _decoder(d) | dict(num_key_value_heads=max(1, d.heads // 2), head_dim=d.hidden // d.heads)


def _distilbert(d: Dims) -> dict[str, Any]:
    return dict(vocab_size=d.vocab, dim=d.hidden, n_layers=d.layers, n_heads=d.heads, hidden_dim=d.ff,
                max_position_embeddings=max(128, 2 * d.seq))  # fmt: skip


def _gpt2(d: Dims) -> dict[str, Any]:
    return dict(vocab_size=d.vocab, n_embd=d.hidden, n_layer=d.layers, n_head=d.heads, n_positions=max(128, 2 * d.seq),
                **_no_special_tokens(d))  # fmt: skip


def _albert(d: Dims) -> dict[str, Any]:
    return _standard(d) | dict(embedding_size=d.hidden // 2)


def _electra(d: Dims) -> dict[str, Any]:
    return _standard(d) | dict(embedding_size=d.hidden // 2)


def _deberta(d: Dims) -> dict[str, Any]:
    return _standard(d) | dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16,
                               norm_rel_ebd="layer_norm", share_att_key=True)  # fmt: skip


def _opt(d: Dims) -> dict[str, Any]:
    return dict(vocab_size=d.vocab, hidden_size=d.hidden, num_hidden_layers=d.layers, num_attention_heads=d.heads,
                ffn_dim=d.ff, max_position_embeddings=max(128, 2 * d.seq), word_embed_proj_dim=d.hidden,
                **_no_special_tokens(d))  # fmt: skip


def _falcon(d: Dims) -> dict[str, Any]:
    return dict(vocab_size=d.vocab, hidden_size=d.hidden, num_hidden_layers=d.layers, num_attention_heads=d.heads,
                alibi=False, new_decoder_architecture=False, **_no_special_tokens(d))  # fmt: skip


def _t5(d: Dims) -> dict[str, Any]:
    return dict(vocab_size=d.vocab, d_model=d.hidden, d_kv=d.hidden // d.heads, d_ff=d.ff, num_layers=d.layers,
                num_heads=d.heads, decoder_start_token_id=0)  # fmt: skip


def _bart(d: Dims) -> dict[str, Any]:
    return dict(vocab_size=d.vocab, d_model=d.hidden, encoder_layers=d.layers, decoder_layers=d.layers,
                encoder_attention_heads=d.heads, decoder_attention_heads=d.heads, encoder_ffn_dim=d.ff,
                decoder_ffn_dim=d.ff, max_position_embeddings=max(128, 2 * d.seq), decoder_start_token_id=2,
                forced_eos_token_id=2, **_no_special_tokens(d))  # fmt: skip


def _vit(d: Dims) -> dict[str, Any]:
    return dict(hidden_size=d.hidden, num_hidden_layers=d.layers, num_attention_heads=d.heads, intermediate_size=d.ff,
                image_size=d.image, patch_size=8)  # fmt: skip


def _deit(d: Dims) -> dict[str, Any]:
    # Two classes are registered for this task, so the configuration names the one that is meant.
    return _vit(d) | dict(architectures=["DeiTForImageClassification"])


def _swin(d: Dims) -> dict[str, Any]:
    return dict(image_size=d.image, patch_size=4, embed_dim=d.hidden // 2, depths=[2, 2], num_heads=[2, 4],
                window_size=4)  # fmt: skip


def _convnext(d: Dims) -> dict[str, Any]:
    c = d.hidden // 2
    return dict(hidden_sizes=[c, c, 2 * c, 2 * c], depths=[1, 1, 2, 1], image_size=d.image)


def _wav2vec2(d: Dims) -> dict[str, Any]:
    return dict(vocab_size=32, hidden_size=d.hidden, num_hidden_layers=d.layers, num_attention_heads=d.heads,
                intermediate_size=d.ff, conv_dim=[d.hidden] * 3, conv_stride=[5, 4, 4], conv_kernel=[10, 4, 4],
                num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, mask_time_length=2)  # fmt: skip


def _whisper(d: Dims) -> dict[str, Any]:
    return _bart(d) | dict(num_mel_bins=16, max_source_positions=d.seq, max_target_positions=2 * d.seq)


def _moe(d: Dims) -> dict[str, Any]:
    return _grouped(d) | dict(num_local_experts=4, num_experts_per_tok=2)


def _qwen2_moe(d: Dims) -> dict[str, Any]:
    return _grouped(d) | dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=d.hidden,
                              shared_expert_intermediate_size=d.hidden)  # fmt: skip


def _mamba(d: Dims) -> dict[str, Any]:
    return dict(vocab_size=d.vocab, hidden_size=d.hidden, state_size=8, num_hidden_layers=d.layers,
                **_no_special_tokens(d))  # fmt: skip


def _rwkv(d: Dims) -> dict[str, Any]:
    return dict(vocab_size=d.vocab, hidden_size=d.hidden, attention_hidden_size=d.hidden, intermediate_size=d.ff,
                num_hidden_layers=d.layers, context_length=max(64, d.seq), bos_token_id=0, eos_token_id=0)  # fmt: skip


# --- inputs ---------------------------------------------------------------------------------------------------------


def _ids(d: Dims, seq: int | None = None, low: int = 3) -> torch.Tensor:
    return torch.randint(low, d.vocab, (d.batch, seq or d.seq))


def _tokens(_: nn.Module, d: Dims) -> Inputs:
    return (), {"input_ids": _ids(d), "attention_mask": torch.ones(d.batch, d.seq, dtype=torch.long)}


def _padded_tokens(_: nn.Module, d: Dims) -> Inputs:
    """The last quarter of every second row is padding, so that the mask is not all ones."""
    mask = torch.ones(d.batch, d.seq, dtype=torch.long)
    mask[1::2, d.seq - d.seq // 4 :] = 0
    return (), {"input_ids": _ids(d), "attention_mask": mask}


def _plain_tokens(_: nn.Module, d: Dims) -> Inputs:
    return (), {"input_ids": _ids(d)}


def _with_cache(use_cache: bool) -> Callable[[nn.Module, Dims], Inputs]:
    def make(_: nn.Module, d: Dims) -> Inputs:
        return (), {"input_ids": _ids(d), "use_cache": use_cache}

    return make


def _decode_step(module: nn.Module, d: Dims) -> Inputs:
    """One token on top of a cache that an eager call has filled; the compiled call extends the cache in place."""
    with torch.no_grad():
        state = module(input_ids=_ids(d), use_cache=True)
    return (), {"input_ids": _ids(d, 1), "past_key_values": state.past_key_values, "use_cache": True}


def _pairs(use_cache: bool) -> Callable[[nn.Module, Dims], Inputs]:
    def make(_: nn.Module, d: Dims) -> Inputs:
        return (), {
            "input_ids": _ids(d),
            "attention_mask": torch.ones(d.batch, d.seq, dtype=torch.long),
            "decoder_input_ids": _ids(d, max(2, d.seq // 2)),
            "use_cache": use_cache,
        }

    return make


def _pixels(_: nn.Module, d: Dims) -> Inputs:
    return (torch.randn(d.batch, 3, d.image, d.image),), {}


def _waveform(_: nn.Module, d: Dims) -> Inputs:
    return (torch.randn(d.batch, 80 * d.seq),), {}


def _mel(_: nn.Module, d: Dims) -> Inputs:
    return (), {
        "input_features": torch.randn(d.batch, 16, 2 * d.seq),
        "decoder_input_ids": _ids(d, max(2, d.seq // 2)),
        "use_cache": False,
    }


# --- the table ------------------------------------------------------------------------------------------------------

_ENCODERS = [
    ("bert", "AutoModel", _standard, _tokens, True),
    ("roberta", "AutoModel", _standard, _tokens, False),
    ("distilbert", "AutoModel", _distilbert, _tokens, False),
    ("albert", "AutoModel", _albert, _tokens, False),
    ("electra", "AutoModel", _electra, _tokens, False),
    ("deberta-v2", "AutoModel", _deberta, _tokens, False),
]

_DECODERS = [
    ("gpt2", _gpt2, True),
    ("gpt_neox", _decoder, False),
    ("llama", _grouped, True),
    ("qwen2", _grouped, False),
    ("mistral", _grouped, False),
    ("opt", _opt, False),
    ("phi", _decoder, False),
    ("gemma", _grouped, False),
    ("falcon", _falcon, False),
]

_PAIRS = [("t5", _t5, True), ("bart", _bart, False), ("pegasus", _bart, False), ("marian", _bart, False)]

_VISION = [
    ("vit", _vit, True),
    ("deit", _deit, False),
    ("swin", _swin, False),
    ("convnext", _convnext, False),
]

_DEEP: dict[str, tuple[str, str, Config, Callable[[nn.Module, Dims], Inputs], int]] = {
    "bert-12": ("bert", "AutoModel", _standard, _tokens, 12),
    "qwen2-24": ("qwen2", "AutoModelForCausalLM", _grouped, _with_cache(False), 24),
}


def _deep_dims(layers: int) -> dict[str, Dims]:
    """Tiny widths, real depth: what is measured is guards and dispatch."""
    return {"tiny": Dims(hidden=32, layers=layers, heads=2, batch=2, seq=8)}


def specs() -> Iterator[ModelSpec]:
    causal = "AutoModelForCausalLM"
    for kind, auto, config, inputs, quick in _ENCODERS:
        yield ModelSpec(kind, "encoder", _builder(kind, auto, config), inputs, quick)
    yield ModelSpec("bert-padded", "encoder", _builder("bert", "AutoModel", _standard), _padded_tokens)
    for kind, config, quick in _DECODERS:
        yield ModelSpec(kind, "decoder", _builder(kind, causal, config), _with_cache(False), quick)
        yield ModelSpec(f"{kind}-cache", "decoder", _builder(kind, causal, config), _with_cache(True))
    for kind, config in (("gpt2", _gpt2), ("llama", _grouped)):
        yield ModelSpec(
            f"{kind}-decode",
            "decoder",
            _builder(kind, causal, config),
            _decode_step,
            kind == "llama",
            consumes_inputs=True,
        )
    for kind, config, quick in _PAIRS:
        build = _builder(kind, "AutoModelForSeq2SeqLM", config)
        yield ModelSpec(kind, "encoder-decoder", build, _pairs(False), quick)
        yield ModelSpec(f"{kind}-cache", "encoder-decoder", build, _pairs(True))
    for kind, config, quick in _VISION:
        yield ModelSpec(
            kind, "vision", _builder(kind, "AutoModelForImageClassification", config), _pixels, quick
        )
    yield ModelSpec("wav2vec2", "speech", _builder("wav2vec2", "AutoModel", _wav2vec2), _waveform)
    yield ModelSpec(
        "whisper", "speech", _builder("whisper", "AutoModelForSpeechSeq2Seq", _whisper), _mel, True
    )
    for kind, config in (("mixtral", _moe), ("qwen2_moe", _qwen2_moe)):
        yield ModelSpec(
            kind, "mixture of experts", _builder(kind, causal, config), _with_cache(False), kind == "mixtral"
        )
    for kind, config in (("mamba", _mamba), ("rwkv", _rwkv)):
        build, first = _builder(kind, causal, config), kind == "rwkv"
        yield ModelSpec(
            kind, "recurrent", build, _with_cache(False), kind == "mamba", initializes_itself=first
        )
        yield ModelSpec(f"{kind}-cache", "recurrent", build, _with_cache(True), initializes_itself=first)
    for name, (kind, auto, config, inputs, layers) in _DEEP.items():
        yield ModelSpec(name, "deep", _builder(kind, auto, config), inputs, True, _deep_dims(layers))
