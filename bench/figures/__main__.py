"""`python -m bench.figures`: runs the benches, writes down what they measured, and puts the figures into the documents.

Each part is a run of `bench.run`; its rows replace those of before, all others keep their commit and date. `--quick`
takes some kernels, steps and rounds less, and leaves out what compiles for minutes (max-autotune). The programs with
breaks and the sizes that vary are compiled by inductor too, with empty caches, so they take longest then.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys

from bench.figures import blocks, book, tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOOK = ROOT / "docs" / "internals" / "figures.json"
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "internals" / "figures.md")
RESULTS = ROOT / "bench" / "results"
RUNS: dict[str, list[str]] = {
    "inference": [],
    "tiny": ["--peer", "eager,inductor"],
    "guards": ["--peer", "eager"],
    "breaks": ["--peer", "eager,inductor"],
    "shapes": ["--peer", "eager,inductor"],
    "kernels": ["--peer", "eager,inductor"],
    "kernels_avx2": ["--peer", "eager,inductor"],
    "bandwidth": ["--peer", "eager,inductor"],
    "training": ["--peer", "eager,inductor"],
    "programs": ["--backend", "native", "--peer", "eager"],
    "classes": [],
}
NOT_QUICK = ("classes",)
PACKAGES = {"programs": ROOT / "build" / "programs"}  # of what a part needs beside .venv: `make programs`
QUICK = {
    "kernels": ["--models", "bias_gelu,chain,residual_norm,masked_softmax,rotary,index_add"],
    "kernels_avx2": ["--models", "bias_gelu,chain,residual_norm,masked_softmax,rotary,index_add"],
    "bandwidth": ["--models", "bias_gelu,residual_norm,softmax,sum_last"],
    "training": ["--models", "adamw,"],
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.figures", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer rounds, kernels and steps, no system that compiles for minutes",
    )
    parser.add_argument("--only", help=f"some of {','.join(RUNS)}; the other rows stay as they are")
    parser.add_argument(
        "--models", help="only models, kernels and steps whose name contains one of these parts"
    )
    parser.add_argument("--systems", help="of inference: only these systems")
    parser.add_argument("--rounds", help="interleaved rounds")
    parser.add_argument("--timeout", help="seconds allowed for a step")
    parser.add_argument(
        "--write", action="store_true", help="measure nothing: write the figures that there are"
    )
    parser.add_argument(
        "--record", type=pathlib.Path, action="append", default=[], help="a JSON file of bench.run, too"
    )
    return parser.parse_args(arguments)


def _command(part: str, options: argparse.Namespace) -> list[str]:
    made = ["--only", part, *(["--quick"] if options.quick else []), *RUNS[part]]
    if options.models:
        made += ["--models", options.models]
    elif options.quick:
        made += QUICK.get(part, [])
    if options.systems and part == "inference":
        made += ["--systems", options.systems]
    for name in ("rounds", "timeout"):
        if getattr(options, name):
            made += [f"--{name}", getattr(options, name)]
    return made


def _head() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def record(path: pathlib.Path) -> list[str]:
    """Writes a result of `bench.run` down; names the rows. Raises book.Refused."""
    known = book.load(BOOK)
    changed = book.record(known, json.loads(path.read_text()), _head())
    book.save(known, BOOK)
    return changed


def write() -> None:
    """Puts the figures of the book into the documents. Raises blocks.NoBlock, book.Refused."""
    made = tables.bodies(book.load(BOOK))
    for document in DOCUMENTS:
        document.write_text(blocks.write(document.read_text(), made))


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    chosen = [part for part in RUNS if not (options.quick and part in NOT_QUICK)]
    parts = [] if options.write or options.record else (options.only or ",".join(chosen)).split(",")
    unknown = [part for part in parts if part not in RUNS]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)} (known: {', '.join(RUNS)})")
    RESULTS.mkdir(exist_ok=True)
    failed = []
    for part in parts:
        path = RESULTS / f"{part}.json"
        path.unlink(missing_ok=True)
        if not _measure(part, options, path):
            failed.append(part)
        else:
            _keep(path, failed)  # at once, so that a run that is cut has written what it has
    for path in options.record:
        _keep(path, failed)
    write()
    if failed:
        print("failed: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


def _measure(part: str, options: argparse.Namespace, path: pathlib.Path) -> bool:
    """Runs a part, which leaves its result at `path`."""
    commands = [["-m", "bench.run", *_command(part, options), "--output", str(path)]]
    if part == "classes":
        lines = path.with_suffix(".jsonl")
        lines.unlink(missing_ok=True)
        script, results = str(ROOT / "scripts" / "sample_library.py"), ["--results", str(lines)]
        # The sample that bench/models/library.toml was made of has some classes more than the script's default.
        commands = [[script, "run", "--count", "340", *results], [script, "run", "--networks", *results]]
        commands.append([script, "figures", *results, "--output", str(path)])
    variables = dict(os.environ, PYTHONPATH=str(PACKAGES[part])) if part in PACKAGES else None
    done = [
        subprocess.run([sys.executable, *each], cwd=ROOT, check=False, env=variables).returncode
        for each in commands
    ]
    return not any(done) and path.exists()


def _keep(path: pathlib.Path, failed: list[str]) -> None:
    try:
        record(path)
    except book.Refused as error:
        print(f"{path.name}: {error}", file=sys.stderr)
        failed.append(path.stem)


if __name__ == "__main__":
    sys.exit(main())
