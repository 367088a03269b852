"""The library sample: classes of `transformers` made small, each compiled and held against eager mode.

    sample_library.py run --count 320        measures what is not in the results yet (a run can be cut at any time)
    sample_library.py run --networks         the networks of diffusers and monai that bench/models/networks.py has
    sample_library.py run --backend native --results FILE     natively, into results of their own
    sample_library.py left-out               how many networks of these two libraries it leaves out
    sample_library.py run --again NAME,...   measures these classes once more (`failing`: those not equal or not whole)
    sample_library.py summary                what the results say
    sample_library.py figures --output FILE  the counts, as `python -m bench.figures --record FILE` takes them
    sample_library.py write                  makes bench/models/library.toml of them

A seeded sample over all classes that the library's automatic classes know. Each is built by bench/models/library.py in
a process of its own, called in eager mode first (what does not run there is excluded, with the error), then compiled:
three calls in evaluation and in training compared, with the breaks' codes: replay in every bit, native code by the rule
of bench/accuracy.py. Results of one file are of one backend.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import random
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch

from bench import environment, measure, observe
from bench.models import library, networks
from bench.models.spec import ModelSpec

ROOT = pathlib.Path(__file__).resolve().parents[1]
SEED = 3
ALLOWED_SECONDS = 180.0
RESULTS = ROOT / "build" / "library.jsonl"

Row = dict[str, Any]


def candidates(count: int) -> list[tuple[str, str]]:
    """(architecture, class): the first `count` of a seeded shuffle."""
    from transformers.models.auto import modeling_auto

    known: dict[str, str] = {}
    for name, mapping in sorted(vars(modeling_auto).items()):
        if name.startswith("MODEL_") and name.endswith("MAPPING_NAMES"):
            for model_type, classes in mapping.items():
                for class_name in [classes] if isinstance(classes, str) else classes:
                    known.setdefault(class_name, model_type)
    rows = sorted((model_type, class_name) for class_name, model_type in known.items())
    random.Random(SEED).shuffle(rows)
    return rows[:count]


def _last_line(value: object) -> str:
    return str(value).strip().splitlines()[-1][:100]


def measured(spec: ModelSpec, backend: str) -> Row:
    """Eager mode first, for both modes; then what the compiled module does."""

    def work() -> Row:
        for train in (False, True):
            try:
                observe.runs_in_eager(spec, train)
            except Exception as error:
                return {"excluded": _last_line(f"{type(error).__name__}: {error}")}
        return {mode: _attempt(spec, mode == "train", backend) for mode in ("eval", "train")}

    kind, value = measure.isolated(work, ALLOWED_SECONDS)
    if kind == "ok":
        return value
    failed = {"failed": f"{kind}: {_last_line(value)}"}
    return {"eval": failed, "train": failed}


def _attempt(spec: ModelSpec, train: bool, backend: str) -> Row:
    try:
        result = observe.outcome(spec, train, backend=backend)
        if result["break_count"] > 0:  # are they there in the first call alone, which changes the module?
            result["initialized"] = observe.outcome(spec, train, initialized=True, backend=backend)
        return result
    except Exception as error:
        return {"failed": _last_line(f"{type(error).__name__}: {error}"), "trace": traceback.format_exc()}


def read(path: pathlib.Path) -> dict[str, Row]:
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {row["name"]: row for row in rows}  # the last of a name counts


def _works(row: Row) -> bool:
    return all(_equal(row[mode]) and _whole(row[mode]) for mode in ("eval", "train"))


def _equal(result: Row) -> bool:
    return "failed" not in result and not result["differences"]


def _whole(result: Row) -> bool:
    return "failed" not in result and result["break_count"] == 0


def _chosen(options: argparse.Namespace, done: dict[str, Row]) -> Iterator[tuple[ModelSpec, str]]:
    """What is to be measured, with the architecture."""
    if options.networks:
        specs = [(spec, "") for spec in networks.specs()]
    else:
        specs = [(library.spec(kind, name), kind) for kind, name in candidates(options.count)]
    again = set(options.again.split(",")) if options.again else set()
    if "failing" in again:
        again |= {name for name, row in done.items() if "excluded" not in row and not _works(row)}
    for spec, kind in specs:
        if spec.name in again if again else spec.name not in done:
            yield spec, kind


def run(options: argparse.Namespace) -> None:
    import transformers.models.bert.modeling_bert  # noqa: F401  what all need: once, before the children are made

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    done = read(options.results)
    if any(row.get("backend", "eager") != options.backend for row in done.values()):
        raise SystemExit(f"{options.results} has rows of another backend: measure into a new file")
    with options.results.open("a") as out:
        for spec, kind in _chosen(options, done):
            origin = {"commit": environment.commit(), "started": environment.started()}
            row = {"name": spec.name, "type": kind, "backend": options.backend, **origin}
            row |= measured(spec, options.backend)
            out.write(json.dumps(row) + "\n")
            out.flush()


def summary(options: argparse.Namespace) -> None:
    rows = read(options.results)
    libraries = sorted({name.split("/")[0] for name in rows})
    for part in libraries:
        here = {name: row for name, row in rows.items() if name.startswith(part + "/")}
        ran = {name: row for name, row in here.items() if "excluded" not in row}
        print(f"{part}: {len(here)} classes, {len(here) - len(ran)} do not run in eager mode, {len(ran)} ran")
        for mode in ("eval", "train"):
            results = [row[mode] for row in ran.values()]
            later = sum(not _whole(r) and _whole(r.get("initialized", r)) for r in results)
            traces = sum(_whole(r) and r["misses"] == 1 for r in results)
            print(
                f"  {mode}: {sum(map(_equal, results))} equal, {sum(map(_whole, results))} whole "
                f"({traces} recorded once), {later} more whole behind their first call"
            )
        for name, row in ran.items():
            if not _works(row):
                print("   ", name, *_reasons(row), sep="\n        ")
    codes = collections.Counter(
        (found["code"], found["at"][-1] if found["at"] else "")
        for row in rows.values()
        for mode in ("eval", "train")
        for found in row.get(mode, {}).get("breaks", ())
    )
    for (code, where), times in codes.most_common(40):
        print(times, code, where)


def figures(options: argparse.Namespace) -> None:
    """Writes the counts of each library. Rows of several commits are no figure of any: that ends with a sentence."""
    rows = read(options.results)
    commits = {row.get("commit", "") for row in rows.values()}
    if len(commits) != 1:
        raise SystemExit(f"{options.results} has rows of {len(commits)} commits: measure into a new file")
    result: Row = {
        "environment": {
            "commit": commits.pop(),
            "started": max(row["started"] for row in rows.values()),
            "command": "scripts/sample_library.py run",
        },
        "classes": {},
    }
    titles, left = {"library": "transformers"}, networks.left_out()
    for part in sorted({name.split("/")[0] for name in rows}):
        here = [row for name, row in rows.items() if name.startswith(part + "/")]
        ran = [row for row in here if "excluded" not in row]
        counts: Row = {"sampled": len(here), "excluded": len(here) - len(ran), "ran": len(ran)}
        if part in left:  # chosen by hand
            counts["excluded"] = "{} of {} left out, by hand".format(*left[part])
        for key, holds in (("equal", _equal), ("whole", _whole)):
            counts[key] = sum(all(holds(row[mode]) for mode in ("eval", "train")) for row in ran)
        result["classes"][titles.get(part, part)] = {"rows": counts}
    options.output.write_text(json.dumps(result, indent=1) + "\n")


def _reasons(row: Row) -> Iterator[str]:
    for mode in ("eval", "train"):
        result = row[mode]
        if "failed" in result:
            yield f"{mode}: {result['failed']}"
            continue
        yield from (f"{mode}: {text}" for text in result["differences"][:2])
        for found in result["breaks"][:4]:
            yield f"{mode}: {found['code']} {found['message']} {' '.join(found['at'])}"


def write(options: argparse.Namespace) -> None:
    rows = {n: row for n, row in sorted(read(options.results).items()) if n.startswith("library/")}
    out = [
        "# Made by scripts/sample_library.py: a seeded sample of the classes of `transformers`.\n",
        "[models]",
    ]
    out += [f'{name.split("/")[1]} = "{row["type"]}"' for name, row in rows.items() if "excluded" not in row]
    out += [
        "\n# Do not run in eager mode with the configuration that library.py makes, or not with its inputs.",
        "[excluded]",
    ]
    for name, row in rows.items():
        if "excluded" in row:
            reason = row["excluded"].strip().replace("\\", "/").replace('"', "'")
            out.append(f'{name.split("/")[1]} = "{reason}"')
    (ROOT / "bench" / "models" / "library.toml").write_text("\n".join(out) + "\n")


def left_out(_: argparse.Namespace) -> None:
    for name, (left, count) in networks.left_out().items():
        print(f"{name}: {left} of {count} public classes of networks are not in bench/models/networks.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=["run", "left-out", "summary", "figures", "write"])
    parser.add_argument("--count", type=int, default=320)
    parser.add_argument("--networks", action="store_true")
    parser.add_argument("--again", default="")
    parser.add_argument("--backend", choices=["eager", "native"], default="eager")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS.with_name("library-figures.json"))
    options = parser.parse_args()
    commands = {"run": run, "left-out": left_out, "summary": summary, "figures": figures, "write": write}
    commands[options.command](options)


if __name__ == "__main__":
    main()
