"""Modules of packages that nobody here has tried: found by their signatures, compiled and held against eager mode.

    unseen_modules.py find PACKAGE...        looks for module classes that can be made and called, one process a class
    unseen_modules.py run --count 300        measures a seeded choice of them: replay beside eager mode in every bit, an
                                             FX backend (graphs handed over), native code (segments refused)
    unseen_modules.py run --again NAME,...   measures these once more (`failing`: those not equal or not whole)
    unseen_modules.py summary                what the results say

The packages are to be importable (`pip install --target FOLDER` and PYTHONPATH); none of them is needed otherwise.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import dataclasses
import json
import logging
import pathlib
import re
import sys
import traceback
import warnings
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
from sample_library import read

import kintsugi
from bench import compare, environment, measure, observe
from bench.models import unseen
from bench.models.spec import ModelSpec

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOUND = ROOT / "build" / "unseen-found.jsonl"
RESULTS = ROOT / "build" / "unseen.jsonl"
SEED = 5
FIND_SECONDS = 40.0
RUN_SECONDS = 180.0

Row = dict[str, Any]


def _runs(spec: ModelSpec) -> None:
    for train in (False, True):
        observe.runs_in_eager(spec, train)


def find(options: argparse.Namespace) -> None:
    """Appends what can be called of each package to `build/unseen-found.jsonl`."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    FOUND.parent.mkdir(parents=True, exist_ok=True)
    with FOUND.open("a") as out:
        for package in options.packages:
            before = set(sys.modules)
            every = list(unseen.classes(package))
            rows = [_try(cls) for cls in every]
            for row in rows:
                if row is not None:
                    out.write(json.dumps({"package": package, **dataclasses.asdict(row)}) + "\n")
            out.flush()
            print(
                f"{package}: {len(every)} classes, {sum(row is not None for row in rows)} can be called",
                flush=True,
            )
            for name in set(sys.modules) - before:
                if name == package or name.startswith(package + "."):
                    del sys.modules[name]


def _try(cls: type) -> unseen.Recipe | None:
    kind, value = measure.isolated(lambda: unseen.found(cls, _runs), FIND_SECONDS)
    return value if kind == "ok" else None


def _replay(spec: ModelSpec, train: bool) -> Row:
    try:
        return observe.outcome(spec, train)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:200], "trace": traceback.format_exc()}


def _fx(spec: ModelSpec) -> Row:
    """Graphs that an FX backend gets in the first call and in all, without gradients."""
    sizes: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        sizes.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
        return graph

    try:
        module = spec.build().eval()
        compiled = kintsugi.compile(module, backend=backend)
        with torch.no_grad():
            args, kwargs = spec.inputs(module)
            observe.seed(0)
            compiled(*args, **kwargs)
            first = len(sizes)
            compiled(*args, **kwargs)
        return {"first": first, "graphs": len(sizes), "said": compiled.stats().graph_count}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:200]}


class _Reasons(logging.Handler):
    """Why graphs are left to replay (KTG0113), each reason with how often it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: collections.Counter[str] = collections.Counter()

    def emit(self, record: logging.LogRecord) -> None:
        found = re.search(r"KTG0113 [^:]*: [^:]*: (.*) at \S+:\d+ \(", record.getMessage())
        if found:
            self.counts[re.sub(r"\d+ us", "N us", found[1])] += 1


def _noisy(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each element another one, by as much as the rounding of one operation may change it."""
    if not tensor.is_floating_point():
        return tensor
    signs = torch.randint(0, 2, tensor.shape, generator=generator, dtype=tensor.dtype) * 2 - 1
    return tensor * (1 + signs * torch.finfo(tensor.dtype).eps / 2)


def _rounded_otherwise(module: Any, inputs: Any, seed: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    twin = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.copy_(_noisy(parameter, generator))
    return twin, torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: _noisy(t, generator), inputs)


def _amplification(spec: ModelSpec, module: Any, inputs: Any, turn: int, expected: Any) -> float:
    """How far eager mode is from itself, in the norm of all gradients: in doubles, and when inputs and parameters are
    rounded otherwise."""
    worst = 0.0
    with contextlib.suppress(RuntimeError, TypeError):  # what works in one type alone
        exact = copy.deepcopy(module).double()
        doubles = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, inputs
        )
        observe.seed(turn)
        worst = _distance(expected, observe.after_call(exact, exact, doubles, True)["gradients"])
    for trial in range(3):
        twin, noisy = _rounded_otherwise(module, inputs, trial)
        observe.seed(turn)
        worst = max(worst, _distance(expected, observe.after_call(twin, twin, noisy, True)["gradients"]))
    return worst


def _distance(expected: dict[str, Any], actual: dict[str, Any]) -> float:
    """Of all gradients, as a share of what is expected."""
    pairs = [(g.double(), actual[name].double()) for name, g in expected.items() if g is not None]
    size = sum(float(g.pow(2).sum()) for g, _ in pairs)
    return (sum(float((g - other).pow(2).sum()) for g, other in pairs) / max(size, 1e-300)) ** 0.5


def _native(spec: ModelSpec, train: bool) -> Row:
    """What native code makes of it, within a tolerance; segments refused with their reasons.

    `amplified`: gradients beyond the tolerance, no farther from eager mode's than a few times what eager mode's own are
    from those in doubles, or when inputs and parameters are rounded otherwise.
    """
    reasons = _Reasons()
    logging.getLogger("kintsugi").addHandler(reasons)
    kintsugi.set_logs("perf")
    try:
        reference, module = spec.build().train(train), spec.build().train(train)
        compiled = kintsugi.compile(module, backend="native")
        found: list[str] = []
        amplified: list[str] = []
        with torch.set_grad_enabled(train):
            for turn in range(4):
                inputs = spec.inputs(reference, "tiny", turn)
                observe.seed(turn)
                expected = observe.after_call(reference, reference, inputs, train)
                observe.seed(turn)
                actual = observe.after_call(compiled, module, inputs, train)
                kintsugi.wait()
                far = compare.differences(expected["out"], actual["out"], f"call {turn + 1}", 1e-4)
                if train:
                    far += compare.differences(
                        expected["gradients"], actual["gradients"], f"call {turn + 1} gradients", 1e-3
                    )
                # A native segment is one node of autograd's.
                far = [text for text in far if "grad_fn is CppFunction" not in text]
                if far and train and all("values differ" in text for text in far):
                    own = _amplification(spec, reference, inputs, turn, expected["gradients"])
                    seen = _distance(expected["gradients"], actual["gradients"])
                    if seen <= 4 * own:
                        amplified.append(f"call {turn + 1}: {seen:.2g}, eager mode's own {own:.2g}")
                        continue
                found += far
        stats = compiled.stats()
        return {
            "differences": found[:4],
            "amplified": amplified,
            "segments": stats.native_segments,
            "plain": stats.native_plain,
            "refused": stats.native_refused,
            "reasons": dict(reasons.counts),
        }
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:200], "trace": traceback.format_exc()}


def measured(spec: ModelSpec) -> Row:
    """Each part in a process of its own."""
    row: Row = {}
    parts = {
        "eval": lambda: _replay(spec, False),
        "train": lambda: _replay(spec, True),
        "fx": lambda: _fx(spec),
        "native": lambda: _native(spec, False),
        "native_train": lambda: _native(spec, True),
    }
    for part, work in parts.items():
        kind, value = measure.isolated(work, RUN_SECONDS)
        row[part] = value if kind == "ok" else {"failed": f"{kind}: {str(value).strip()[-200:]}"}
    return row


def _recipes() -> dict[str, list[unseen.Recipe]]:
    found: dict[str, dict[str, unseen.Recipe]] = collections.defaultdict(dict)
    for line in FOUND.read_text().splitlines():
        row = json.loads(line)
        package = row.pop("package")
        recipe = unseen.Recipe(**row)
        found[package][recipe.label] = recipe
    return {package: list(rows.values()) for package, rows in found.items()}


def _problems(row: Row) -> list[str]:
    said: list[str] = []
    for part in ("eval", "train", "fx", "native", "native_train"):
        result = row[part]
        if "failed" in result:
            said.append(f"{part}: failed: {result['failed']}")
            continue
        said += [f"{part}: {text}" for text in result.get("differences", ())]
        if result.get("break_count"):
            said += [f"{part}: {b['code']} {b['message']} {' '.join(b['at'])}" for b in result["breaks"][:3]]
        if part == "fx" and not result["graphs"] == result["said"] <= 1:
            said.append(f"fx: {result}")
        if result.get("refused"):
            said.append(f"{part}: refused {result['refused']} {result.get('reasons', '')}")
    return said


def run(options: argparse.Namespace) -> None:
    """Measures what is not in the results yet."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    done = read(RESULTS)
    again = set(options.again.split(",")) if options.again else set()
    if "failing" in again:
        again |= {name for name, row in done.items() if _problems(row)}
    with RESULTS.open("a") as out:
        for recipe in unseen.chosen(_recipes(), options.count, SEED):
            if recipe.label not in again if again else recipe.label in done:
                continue
            origin = {"commit": environment.commit(), "started": environment.started()}
            out.write(json.dumps({"name": recipe.label, **origin, **measured(unseen.spec(recipe))}) + "\n")
            out.flush()


def summary(_: argparse.Namespace) -> None:
    """Counts, then each module with what is wrong with it."""
    rows = read(RESULTS)
    print(f"{len(rows)} modules of {len({name.split('/')[1].split('.')[0] for name in rows})} packages")
    for part in ("eval", "train"):
        results = [row[part] for row in rows.values()]
        whole = sum("failed" not in r and not r["break_count"] for r in results)
        equal = sum("failed" not in r and not r["differences"] for r in results)
        print(f"{part}: {equal} equal in every bit, {whole} whole ({100 * whole / len(rows):.1f} %)")
    graphs = [row["fx"] for row in rows.values()]
    one = [g for g in graphs if "failed" not in g and g["graphs"] == g["said"] <= 1]
    first = sum(g["first"] == g["graphs"] for g in one)
    print(f"fx: {len(one)} hand over one graph at most, {first} of them in the first call")
    for part in ("native", "native_train"):
        results = [row[part] for row in rows.values() if "failed" not in row[part]]
        refused = sum(r["refused"] for r in results)
        segments = sum(r["segments"] for r in results)
        plain = sum(r["plain"] for r in results)
        equal = sum(not r["differences"] for r in results)
        loud = sum(bool(r.get("amplified")) for r in results)
        print(
            f"{part}: {equal} of {len(rows)} equal within the tolerance ({loud} of them amplify the rounding), "
            f"{refused} of {segments} segments refused, "
            f"{plain} are plain calls"
        )
        reasons: collections.Counter[str] = collections.Counter()
        for result in results:
            reasons.update(result.get("reasons", {}))
        for reason, count in reasons.most_common():
            print(f"    {count} {reason}")
    for name, row in rows.items():
        if problems := _problems(row):
            print(name, *problems, sep="\n    ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=["find", "run", "summary"])
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--again", default="")
    options = parser.parse_args()
    {"find": find, "run": run, "summary": summary}[options.command](options)


if __name__ == "__main__":
    main()
