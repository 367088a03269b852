"""Well-known models under the installed version of `transformers`, each way of calling them held against eager mode.

    model_table.py [NAME ...] [--backends eager,native] [--results FILE]
    model_table.py --table FILE ...              the results of several runs as one table

With and without padding, with and without a cache, and generate() by greedy search, sampling, beam search and with a
static cache: generate() calls the compiled forward, or is compiled itself. Replay has to be equal in every bit, native
code within the tolerance below; generated tokens have to be the same.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
from torch import nn

import kintsugi
from bench import compare, measure
from bench.models import library
from kintsugi._callable import core_of

TOLERANCE = {"eager": 0.0, "native": 1e-4}
ALLOWED_SECONDS = 240.0
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
    "DeBERTa": Architecture("deberta", "DebertaForMaskedLM", "encoder", dict(relative_attention=True, pos_att_type=["c2p", "p2c"])),
    "DeBERTa-v2": Architecture("deberta-v2", "DebertaV2ForMaskedLM", "encoder", dict(relative_attention=True, pos_att_type=["c2p", "p2c"])),
    "Longformer": Architecture("longformer", "LongformerForMaskedLM", "encoder", dict(attention_window=[4, 4])),
    "GPT-2": Architecture("gpt2", "GPT2LMHeadModel", "decoder"),
    "Qwen2": Architecture("qwen2", "Qwen2ForCausalLM", "decoder"),
    "Mixtral": Architecture("mixtral", "MixtralForCausalLM", "decoder"),
    "T5": Architecture("t5", "T5ForConditionalGeneration", "encoder-decoder", dict(decoder_start_token_id=0)),
    "Whisper": Architecture("whisper", "WhisperForConditionalGeneration", "speech", dict(max_source_positions=32, max_target_positions=64, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)),
    "ViT": Architecture("vit", "ViTForImageClassification", "vision"),
    "ResNet": Architecture("resnet", "ResNetForImageClassification", "vision", dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])),
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
        made = dict(input_features=torch.randn(2, module.config.num_mel_bins, 2 * module.config.max_source_positions))
    else:
        made = dict(input_ids=torch.randint(3, 100, (2, length)))
    if padded:
        mask = torch.ones(made.get("input_ids", made.get("input_features"))[..., :].shape[:: (2 if arch.kind == "speech" else 1)], dtype=torch.long)
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
    """The differences from eager mode, and what was captured."""
    compiled: list[Any] = []

    def compile(what: Any) -> Any:
        compiled.append(kintsugi.compile(what, backend=backend))
        return compiled[-1]

    module = build(arch)
    twin = copy.deepcopy(module)
    expected = case(twin, lambda what: what)
    actual = case(module, compile)
    problems = []
    for turn in range(CALLS):
        wanted = expected(turn)
        problems += [
            f"call {turn + 1}: {text}"
            for text in compare.differences(wanted, actual(turn), "out", TOLERANCE[backend])
        ]
        kintsugi.wait()
    stats = compiled[0].stats()
    core = core_of(compiled[0])
    assert core is not None
    return {
        "differences": problems[:3],
        "breaks": [f"{b['code']} {b['message'][:120]} {b['function']}:{b['line']}" for b in core.breaks()][:4],
        "hits": stats.hits,
        "misses": stats.misses,
        "native_runs": stats.native_runs,
    }


def outcome(arch: Architecture, case: Case, backend: str) -> dict[str, Any]:
    def eager() -> bool:
        run = case(build(arch), lambda what: what)
        for turn in range(CALLS):
            run(turn)
        return True

    def work() -> dict[str, Any]:
        try:
            eager()
        except Exception as error:
            return {"excluded": f"{type(error).__name__}: {error}"[:200]}
        return attempt(arch, case, backend)

    kind, value = measure.isolated(work, ALLOWED_SECONDS)
    return value if kind == "ok" else {"failed": f"{kind}: {str(value)[-1500:]}"}


def verdict(row: dict[str, Any]) -> str:
    if "excluded" in row:
        return "not in eager mode"
    if "failed" in row:
        return "fails"
    if row["differences"]:
        return "differs"
    return "equal, whole" if not row["breaks"] else f"equal, {len(row['breaks'])} breaks"


def run(options: argparse.Namespace) -> None:
    import transformers

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in options.names or ARCHITECTURES:
        arch = ARCHITECTURES[name]
        build(arch)  # imports, before the children are made
        for way, case in cases(arch):
            for backend in options.backends.split(","):
                row = {"version": transformers.__version__, "model": name, "way": way, "backend": backend}
                row |= outcome(arch, case, backend)
                print(f"{row['version']} {name}, {way}, {backend}: {verdict(row)}", flush=True)
                for text in [*row.get("differences", ()), row.get("failed", ""), row.get("excluded", "")]:
                    if text:
                        print("    " + text[-options.most :].replace("\n", "\n    "), flush=True)
                if options.results:
                    with options.results.open("a") as out:
                        out.write(json.dumps(row) + "\n")


def table(paths: list[pathlib.Path]) -> None:
    """A row for each model and version: of how many ways of calling it the results are equal, and whole."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            rows[row["model"], row["version"], row["backend"], row["way"]] = row
    print("| model | transformers | backend | ways of calling | equal | without a break | calls that ran a trace |")
    print("|---|---|---|---|---|---|---|")
    for key in dict.fromkeys(k[:3] for k in rows):
        here = [row for k, row in rows.items() if k[:3] == key and "excluded" not in row]
        equal = [row for row in here if "failed" not in row and not row["differences"]]
        whole = [row for row in equal if not row["breaks"]]
        hits = sum(row["hits"] for row in equal)
        calls = hits + sum(row["misses"] for row in equal)
        print("|", " | ".join(map(str, [*key, len(here), len(equal), len(whole), f"{hits} of {calls}"])), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(ARCHITECTURES))
    parser.add_argument("--backends", default="eager,native")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--most", type=int, default=300, help="how many characters of an error are shown")
    parser.add_argument("--table", type=pathlib.Path, nargs="+")
    options = parser.parse_intermixed_args()
    if options.table:
        table(options.table)
    else:
        run(options)


if __name__ == "__main__":
    main()
