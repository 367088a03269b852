"""Well-known models of `transformers`, and the ways of calling them: padding, caches, generate().

Written for several versions of the library. Each way gives a function of the turn, made of the module and of
compile(): scripts/model_table.py and tests/python/test_model_ways.py hold the compiled one against eager mode.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import kintsugi
from bench import accuracy, compare
from bench.models import library
from kintsugi._callable import core_of

CALLS = 5
LENGTH, NEW_TOKENS = 8, 6
GENERATE = {
    "greedy": dict(do_sample=False),
    "sampling": dict(do_sample=True, temperature=0.9, top_k=20, top_p=0.9),
    "beam": dict(num_beams=3, do_sample=False),
    "static cache": dict(do_sample=False, cache_implementation="static"),
}

Inputs = dict[str, Any]
Case = Callable[[nn.Module, Callable[[Any], Any]], Callable[[int], Any]]


@dataclasses.dataclass(frozen=True)
class Architecture:
    model_type: str
    class_name: str
    kind: str  # encoder, decoder, encoder-decoder, speech, vision
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)


ARCHITECTURES = {
    "BERT": Architecture("bert", "BertForMaskedLM", "encoder"),
    "DeBERTa": Architecture(
        "deberta", "DebertaForMaskedLM", "encoder", dict(relative_attention=True, pos_att_type=["c2p", "p2c"])
    ),
    "DeBERTa-v2": Architecture(
        "deberta-v2",
        "DebertaV2ForMaskedLM",
        "encoder",
        dict(relative_attention=True, pos_att_type=["c2p", "p2c"]),
    ),
    "Longformer": Architecture(
        "longformer", "LongformerForMaskedLM", "encoder", dict(attention_window=[4, 4])
    ),
    "GPT-2": Architecture("gpt2", "GPT2LMHeadModel", "decoder"),
    "Qwen2": Architecture("qwen2", "Qwen2ForCausalLM", "decoder"),
    "Mixtral": Architecture("mixtral", "MixtralForCausalLM", "decoder"),
    "T5": Architecture("t5", "T5ForConditionalGeneration", "encoder-decoder", dict(decoder_start_token_id=0)),
    "Whisper": Architecture(
        "whisper",
        "WhisperForConditionalGeneration",
        "speech",
        dict(
            max_source_positions=32,
            max_target_positions=64,
            decoder_start_token_id=1,
            suppress_tokens=None,
            begin_suppress_tokens=None,
        ),
    ),
    "ViT": Architecture("vit", "ViTForImageClassification", "vision"),
    "ResNet": Architecture(
        "resnet",
        "ResNetForImageClassification",
        "vision",
        dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
    ),
}


def build(arch: Architecture) -> nn.Module:
    import transformers

    transformers.logging.set_verbosity_error()
    kind = type(transformers.AutoConfig.for_model(arch.model_type))
    settings = {**library._small(kind()), **arch.settings}
    torch.manual_seed(0)
    return getattr(transformers, arch.class_name)(kind(**settings)).eval()


def inputs(arch: Architecture, module: Any, turn: int, padded: bool) -> Inputs:
    """Fresh ones for each call; lengths change in the fourth."""
    torch.manual_seed(100 + turn)
    length = LENGTH if turn < 3 else LENGTH + 2
    if arch.kind == "vision":
        return dict(pixel_values=torch.randn(2, 3, 32, 32))
    if arch.kind == "speech":
        made = dict(
            input_features=torch.randn(2, module.config.num_mel_bins, 2 * module.config.max_source_positions)
        )
    else:
        made = dict(input_ids=torch.randint(3, 100, (2, length)))
    if padded:
        batch, *_, steps = next(iter(made.values())).shape
        mask = torch.ones((batch, steps), dtype=torch.long)
        size = turn % 3 + 1
        if arch.kind == "decoder":
            mask[0, :size] = 0  # as generation wants it
        else:
            mask[0, -size:] = 0
        made["attention_mask"] = mask
    return made


def _decoder_tokens(arch: Architecture, turn: int) -> Inputs:
    torch.manual_seed(200 + turn)
    if arch.kind in ("encoder-decoder", "speech"):
        return dict(decoder_input_ids=torch.randint(3, 100, (2, 4)))
    return {}


# --- ways of calling a model: each gives a function of the turn, made of the module and of compile() ---


def forward(arch: Architecture, padded: bool) -> Case:
    def case(module: nn.Module, compile: Callable[[Any], Any]) -> Callable[[int], Any]:
        call = compile(module)

        def run(turn: int) -> Any:
            with torch.no_grad():
                return call(**inputs(arch, module, turn, padded), **_decoder_tokens(arch, turn))

        return run

    return case


def cached(arch: Architecture, padded: bool) -> Case:
    """A prompt, then three tokens one by one with the cache that the calls before made."""

    def case(module: nn.Module, compile: Callable[[Any], Any]) -> Callable[[int], Any]:
        call = compile(module)

        def run(turn: int) -> Any:
            given = {**inputs(arch, module, turn, padded), **_decoder_tokens(arch, turn)}
            tokens = "decoder_input_ids" if "decoder_input_ids" in given else "input_ids"
            logits = []
            with torch.no_grad():
                out = call(**given, use_cache=True)
                logits.append(out.logits)
                for _ in range(3):
                    following = out.logits[:, -1:].argmax(-1)
                    if tokens == "input_ids" and padded:
                        ones = torch.ones_like(following)
                        given["attention_mask"] = torch.cat([given["attention_mask"], ones], 1)
                    given = {**given, tokens: following, "past_key_values": out.past_key_values}
                    out = call(**given, use_cache=True)
                    logits.append(out.logits)
            return logits

        return run

    return case


def generation(arch: Architecture, padded: bool, how: Inputs, whole: bool) -> Case:
    def case(module: nn.Module, compile: Callable[[Any], Any]) -> Callable[[int], Any]:
        if whole:
            generate = compile(module.generate)
        else:
            module.forward = compile(module.forward)
            generate = module.generate

        def run(turn: int) -> Any:
            given = inputs(arch, module, turn, padded)
            torch.manual_seed(300 + turn)
            return generate(**given, max_new_tokens=NEW_TOKENS, **how)

        return run

    return case


def cases(arch: Architecture) -> Iterator[tuple[str, Case]]:
    yield "plain", forward(arch, False)
    if arch.kind == "vision":
        return
    yield "padded", forward(arch, True)
    if arch.kind == "encoder":
        return
    yield "cache", cached(arch, False)
    yield "cache, padded", cached(arch, True)
    for name, how in GENERATE.items():
        for padded in (False, True):
            suffix = ", padded" if padded else ""
            yield f"{name}{suffix}", generation(arch, padded, how, False)
            yield f"generate() {name}{suffix}", generation(arch, padded, how, True)


# --- measuring ---


def attempt(arch: Architecture, case: Case, backend: str) -> dict[str, Any]:
    """The differences from eager mode, and what was captured. Replay is equal in every bit, native code as close to
    float64 as bench/accuracy.py asks for."""
    compiled: list[Any] = []

    def compile(what: Any) -> Any:
        compiled.append(kintsugi.compile(what, backend=backend))
        return compiled[-1]

    module = build(arch)
    expected = case(copy.deepcopy(module), lambda what: what)
    exact = case(copy.deepcopy(module).double(), accuracy.widened)
    actual = case(module, compile)
    problems = []
    for turn in range(CALLS):
        wanted, found, path = expected(turn), actual(turn), f"call {turn + 1}"
        if backend == "native":
            problems += accuracy.far(wanted, found, functools.partial(exact, turn), path)
        else:
            problems += compare.differences(wanted, found, path)
        kintsugi.wait()
    stats = compiled[0].stats()
    core = core_of(compiled[0])
    assert core is not None
    return {
        "differences": problems[:3],
        "breaks": [f"{b['code']} {b['message'][:120]} {b['function']}:{b['line']}" for b in core.breaks()][
            :4
        ],
        "hits": stats.hits,
        "misses": stats.misses,
        "native_runs": stats.native_runs,
    }
