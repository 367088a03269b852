"""What this tree measures beside another built tree of the project: `python -m bench.beside OTHER`.

For each group of cases, each tree has a process of its own that has warmed up all of the group; then the two take
turns, round by round, so that what else the machine does meets both. Both run this tree's benches: only the package
that is imported is another. Times are processor time of all threads. A ratio is this tree's time by the other's, the
median of the rounds' pairs, with the quartiles beside it: where 1 lies between them, no difference was seen.
`make figures` takes what `--output` writes (`ARGS="--record FILE"`). The other tree has to lie where it was built: its
module loads the rest of it from there.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.machinery
import io
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
Row = dict[str, Any]
Cases = dict[str, Callable[[], Any]]
BACKENDS = {"replay": "eager", "native": "native"}
SECONDS = 0.05  # of processor time in a turn, about


def _warmed_up(call: Callable[[], Any]) -> Callable[[], Any]:
    from bench import systems

    systems.kintsugi("native").warm_up(call)
    return call


def _calls() -> Cases:
    """Calls that do little, and whole calls of deep models of tiny widths, where guards weigh most."""
    import torch

    import kintsugi
    from bench import models

    made: Cases = {}
    for title, backend in BACKENDS.items():
        add = kintsugi.compile(lambda x: x + 1, backend=backend)
        made[f"x + 1 on four numbers, {title}"] = functools.partial(add, torch.zeros(4))
        for name in ("bert-12", "qwen2-24"):
            model = models.REGISTRY[name].build()
            args, kwargs = models.REGISTRY[name].inputs(model)
            compiled = kintsugi.compile(model, backend=backend)
            made[f"{name} of tiny width, {title}"] = functools.partial(compiled, *args, **kwargs)
    return made


def _first() -> Cases:
    """First calls of functions that were not compiled before, in a warm process."""
    import kintsugi
    from bench import models

    made: Cases = {}
    for name in ("bert-12", "gpt2", "t5"):
        model = models.REGISTRY[name].build()
        args, kwargs = models.REGISTRY[name].inputs(model)

        def first(model: Any = model, args: Any = args, kwargs: Any = kwargs) -> None:
            kintsugi.reset()
            kintsugi.compile(model, backend="eager")(*args, **kwargs)

        made[f"{name} of tiny width, first call"] = first
    return made


def _programs() -> Cases:
    """The programs that break graphs: eight inputs each."""
    import torch

    import kintsugi
    from bench import breaks

    def eight(call: Callable[..., Any], xs: list[Any]) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            for x in xs:
                call(x)

    made: Cases = {}
    xs = [breaks.inputs(i) for i in range(8)]
    for title, backend in BACKENDS.items():
        for name, make in breaks.PROGRAMS.items():
            torch.manual_seed(0)
            made[f"{name}, {title}"] = functools.partial(eight, kintsugi.compile(make(), backend=backend), xs)
    return made


def _kernels() -> Cases:
    import kintsugi
    from bench import kernels

    return {
        f"{kernel.name}, native": functools.partial(kintsugi.compile(kernel.function), *kernel.inputs)
        for kernel in kernels.suite()
    }


def _training() -> Cases:
    import torch

    import kintsugi
    from bench import training

    torch.set_grad_enabled(True)
    return {f"{case.name}, native": kintsugi.compile(case.make()[1]) for case in training.cases()}


def _inference(name: str) -> Cases:
    import kintsugi
    from bench.deploy import models

    with tempfile.TemporaryDirectory() as folder:
        weights = pathlib.Path(folder) / "weights.pt"
        models.write(name, weights)
        module, inputs = models.make(name, weights)
    return {
        f"{name}, {title}": functools.partial(kintsugi.compile(module, backend=backend), *inputs)
        for title, backend in BACKENDS.items()
    }


MODELS = ("bert-12", "minilm", "vit", "resnet-50", "convnext-t", "mobilenet-v2")
GROUPS: dict[str, Callable[[], Cases]] = {
    "calls": _calls,
    "first": _first,
    "programs": _programs,
    "kernels": _kernels,
    "training": _training,
    **{f"inference {name}": functools.partial(_inference, name) for name in MODELS},
}


def work(group: str) -> None:
    """The other side of Tree: prepares a group and answers each line (a case and a number of calls) by seconds."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # The tree's own package, also where another tree is installed so that it can be edited.
    sys.meta_path.insert(0, importlib.machinery.PathFinder)
    import torch

    import kintsugi
    from bench import measure, systems

    root = os.environ["PYTHONPATH"].split(os.pathsep)[0]
    if not (kintsugi.__file__ or "").startswith(root):
        raise SystemExit(f"kintsugi was imported from {kintsugi.__file__}, not from {root}")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    cases = GROUPS[group]()
    if group != "first":
        for _ in range(2):  # compiling one case changes classes that another has guarded
            for call in cases.values():
                systems.kintsugi("native").warm_up(call)
    print(json.dumps(list(cases)), file=answers)
    for line in sys.stdin:
        name, calls = json.loads(line)
        with measure.no_collection():
            begun = time.process_time()
            for _ in range(calls):
                cases[name]()
            print(json.dumps((time.process_time() - begun) / calls), file=answers)


class Tree:
    """A built tree that has prepared a group, in a process of its own."""

    def __init__(self, root: pathlib.Path, group: str, folder: str) -> None:
        paths = [str(root / "python"), str(ROOT)]
        variables = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.beside", "--work", group],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | variables | {"KINTSUGI_CACHE_DIR": folder},
            cwd=folder,
            text=True,
            bufsize=1,
        )

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended with {self.process.wait()}")
        return json.loads(line)

    def time(self, name: str, calls: int) -> float:
        assert self.process.stdin is not None
        print(json.dumps([name, calls]), file=self.process.stdin)
        return float(self.answer())


def compare(other: pathlib.Path, group: str, rounds: int) -> dict[str, Row]:
    """Medians of a group's cases in both trees, and the ratios of the rounds' pairs."""
    rows: dict[str, Row] = {}
    with contextlib.ExitStack() as stack:
        trees = []
        for root in (ROOT, other):
            tree = Tree(root, group, stack.enter_context(tempfile.TemporaryDirectory()))
            stack.callback(tree.process.kill)
            names = tree.answer()  # one after the other: what prepares disturbs nobody
            trees.append(tree)
        for name in names:
            calls = max(1, round(SECONDS / max(1e-7, trees[0].time(name, 1))))
            pairs = []
            for turn in range(rounds):
                order = trees if turn % 2 else trees[::-1]
                seen = {id(tree): tree.time(name, calls) for tree in order}
                pairs.append((seen[id(trees[0])], seen[id(trees[1])]))
            ratios = statistics.quantiles([here / there for here, there in pairs], n=4)
            here, there = (statistics.median(pair[k] for pair in pairs) for k in (0, 1))
            rows[name] = {"here_s": here, "there_s": there, "quartiles": ratios}
            low, middle, high = ratios
            print(
                f"| {name} | {1e6 * there:.4g} | {1e6 * here:.4g} | {middle:.3f} | {low:.3f} to {high:.3f} |",
                flush=True,
            )
    return rows


def result(rows: dict[str, dict[str, Row]], other: pathlib.Path) -> Row:
    """As bench.run writes it down."""
    from bench import environment

    run = {"commit": environment.commit(), "started": environment.started(), "threads": 1}
    arguments = ["OTHER" if pathlib.Path(each) == other else each for each in sys.argv[1:]]
    run["command"] = shlex.join(["python", "-m", "bench.beside", *arguments])
    there = environment.commit(other)
    beside = {group: {"rows": {"there": there, "cases": cases}} for group, cases in rows.items()}
    return {"environment": environment.machine() | run, "beside": beside}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.beside", description=__doc__.splitlines()[0])
    parser.add_argument("other", type=pathlib.Path, nargs="?", help="the root of the other tree, built")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds (default 15)")
    parser.add_argument("--only", default=",".join(GROUPS), help=f"some of {','.join(GROUPS)}")
    parser.add_argument("--output", type=pathlib.Path, help="where the JSON goes")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work(options.work)
        return 0
    if options.other is None or not (options.other / "python" / "kintsugi").is_dir():
        parser.error("OTHER is the root of another tree of the project, built by `make build`")
    print("| case | there, µs | here, µs | here by there | quartiles |\n|---|---|---|---|---|")
    groups = options.only.split(",")
    rows = {group: compare(options.other.resolve(), group, options.rounds) for group in groups}
    if options.output:
        options.output.write_text(json.dumps(result(rows, options.other), indent=1) + "\n")
    for group, cases in rows.items():
        middles = [row["quartiles"][1] for row in cases.values()]
        mean = statistics.geometric_mean(middles)
        print(f"{group}: {len(middles)} cases, geometric mean {mean:.3f}, worst {max(middles):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
