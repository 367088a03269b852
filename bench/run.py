"""Measures Kintsugi beside eager, and beside torch.compile when asked to: `python -m bench.run --help`.

Writes bench/results/<name>.json and prints tables. All systems run in one process per model, in interleaved rounds,
with a fixed number of threads; the figures are medians. Every model runs in a forked child, so that a crash or an
endless call is one row of the result.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import pathlib
import platform
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from bench import breaks, cases, kernels, measure, models, programs, report, shapes, systems, training
from bench.deploy import inference
from bench.deploy import models as deploy_models
from bench.deploy import systems as deploy_systems
from bench.environment import commit, machine, started
from bench.models.spec import ModelSpec
from bench.programs import windows

PARTS = (
    "tiny",
    "guards",
    "breaks",
    "shapes",
    "kernels",
    "kernels_avx2",
    "bandwidth",
    "training",
    "models",
    "inference",
    "programs",
)
RESULTS = pathlib.Path(__file__).parent / "results"
# Variables that keep Kintsugi, ATen, inductor, oneDNN and MKL to AVX2: they are read when torch is loaded.
AVX2 = {
    "KINTSUGI_TARGET": "avx2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}


def _several(known: Iterable[str]) -> Callable[[str], list[str]]:
    """The type of an option that takes some of `known`, separated by commas; `none` is none of them."""

    def parts(text: str) -> list[str]:
        chosen = [part for part in text.split(",") if part not in ("", "none")]
        for part in chosen:
            if part not in known:
                raise argparse.ArgumentTypeError(f"unknown: {part} (known: none, {', '.join(known)})")
        return chosen

    return parts


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.splitlines()[0])
    peers, backends = ", ".join(systems.PEERS), ", ".join(systems.BACKENDS)
    peer_help = (
        f"torch.compile with these backends too: some of {peers} (eager is quick, the others take long)"
    )
    parser.add_argument("--peer", type=_several(systems.PEERS), default=[], help=peer_help)
    backend_help = f"Kintsugi's backends: some of {backends} (default: both; eager is replay alone)"
    parser.add_argument(
        "--backend", type=_several(systems.BACKENDS), default=[*systems.BACKENDS], help=backend_help
    )
    parser.add_argument(
        "--models",
        help="only models, kernels and steps whose name contains one of these comma-separated parts",
    )
    parser.add_argument(
        "--systems",
        type=_several(deploy_systems.SYSTEMS),
        help=f"of --only inference: some of {', '.join(deploy_systems.SYSTEMS)}",
    )
    parser.add_argument("--only", choices=PARTS, help="only this part")
    parser.add_argument("--size", choices=models.SIZES, help="only this size")
    parser.add_argument("--quick", action="store_true", help="few models and few rounds: about two minutes")
    parser.add_argument("--rounds", type=int, default=0, help="interleaved rounds (default 21, quick 7)")
    parser.add_argument("--threads", type=int, default=1, help="torch.set_num_threads (default 1)")
    parser.add_argument(
        "--timeout", type=float, default=300, help="seconds allowed for a model (default 300)"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, help="where the JSON goes (default bench/results/latest.json)"
    )
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (7 if options.quick else 21)
    options.target = 0.03 if options.quick else 0.06
    return options


def chosen_systems(options: argparse.Namespace) -> list[systems.System]:
    ours = [systems.kintsugi(backend) for backend in options.backend]
    return [systems.EAGER, *ours, *map(systems.peer, options.peer)]


@contextlib.contextmanager
def empty_caches() -> Iterator[None]:
    """What compilers keep on disk goes into an empty folder, so that a first call of this run is a first call."""
    import kintsugi

    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
        with kintsugi.config.patch(cache_dir=f"{folder}/kintsugi"):
            yield


def environment(options: argparse.Namespace) -> dict[str, Any]:
    return machine() | {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": options.threads,
        "commit": commit(),
        "command": shlex.join(["python", "-m", "bench.run", *sys.argv[1:]]),
        "started": started(),
        "report_compiling": _report_compiling(),
    }


def _report_compiling() -> bool:
    import kintsugi

    return bool(kintsugi.config.report_compiling)


def in_child(work: Callable[[], Any], options: argparse.Namespace) -> dict[str, Any]:
    def body() -> Any:
        torch.set_num_threads(options.threads)
        torch.manual_seed(0)
        with torch.no_grad():
            return work()

    kind, value = measure.isolated(body, options.timeout)
    return {"rows": value} if kind == "ok" else {"failed": kind, "why": value}


def model_cases(spec: ModelSpec, size: str, options: argparse.Namespace) -> dict[str, Any]:
    """The first call, with empty caches, then the steady state, each in a child of its own."""
    chosen = chosen_systems(options)
    steady = functools.partial(cases.steady_state, spec, size, chosen, options.rounds, options.target)
    first = functools.partial(cases.first_call, spec, size, chosen, 3 if options.quick else 7)
    with empty_caches():
        return {
            "kind": spec.kind,
            "size": size,
            "first": in_child(first, options),
            "steady": in_child(steady, options),
        }


def inference_cases(options: argparse.Namespace) -> dict[str, Any]:
    """Of every model: the systems in processes of their own. Those that compile for long are left out with --quick."""
    names = options.systems or [
        name for name, system in deploy_systems.SYSTEMS.items() if not (options.quick and system.slow)
    ]
    parts = (options.models or "").split(",")
    result = {}
    for name in deploy_models.MODELS:
        if any(part in name for part in parts):
            print(name, file=sys.stderr, flush=True)
            result[name] = inference.measure(
                name, names, options.rounds, options.threads, 4 * options.target, options.timeout
            )
    return result


def program_cases(options: argparse.Namespace) -> dict[str, Any]:
    """Programs in which tensors are the smaller part, with gradients: they train where they want to."""
    parts = (options.models or "").split(",")
    calls, repeats = (60, 3) if options.quick else (100, 5)
    result = {}

    def child(work: Callable[[], Any]) -> dict[str, Any]:
        with empty_caches():
            return in_child(torch.enable_grad()(work), options)

    for name in programs.load():
        if any(part in name for part in parts):
            print(name, file=sys.stderr, flush=True)
            result[name] = windows.measure_program(name, chosen_systems(options), calls, repeats, child)
    return result


def break_cases(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The first call for each system in a child of its own, then the steady state of all in one; empty caches."""
    chosen = chosen_systems(options)
    with empty_caches():
        first = {
            each.name: in_child(lambda each=each: breaks.first_call(name, each), options) for each in chosen
        }
        steady = in_child(lambda: breaks.measure_program(name, chosen, options.rounds), options)
    for system, row in steady.get("rows", {}).items():
        if "rows" in first[system]:
            row["first_s"] = first[system]["rows"]
    return steady


def kernel_cases(options: argparse.Namespace, part: str) -> dict[str, Any]:
    part = part.removesuffix("_avx2")
    measured = in_child(kernels.peaks, options)
    result: dict[str, Any] = {"peaks": measured}
    for name in kernels.select(options.models, part) if "rows" in measured else ():
        print(name, file=sys.stderr, flush=True)
        peak = kernels.Peaks(**measured["rows"])
        work = functools.partial(
            kernels.measure_kernel, name, chosen_systems(options), options.rounds, peak, part
        )
        with empty_caches():
            result[name] = in_child(work, options)
    return result


def each_model(options: argparse.Namespace) -> Iterator[tuple[ModelSpec, str]]:
    for spec in models.select(options.models, quick=options.quick):
        for size in spec.sizes:
            if options.size in (None, size):
                yield spec, size


def run(options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"environment": environment(options)}
    tell = functools.partial(print, file=sys.stderr, flush=True)
    if options.only in (None, "tiny"):
        tell("tiny function")
        result["tiny"] = in_child(
            lambda: cases.tiny_call(chosen_systems(options), 3 * options.rounds), options
        )
        tell("small kernels")
        result["executor"] = in_child(
            lambda: cases.kernel_cost(chosen_systems(options), options.rounds), options
        )
    if options.only in (None, "guards"):
        result["guards"] = {}
        for name in ("bert-12", "qwen2-24"):
            tell(f"guards of {name}")
            work = functools.partial(
                cases.guard_cost, models.REGISTRY[name], chosen_systems(options), options.rounds
            )
            result["guards"][name] = in_child(work, options)
    if options.only in (None, "breaks"):
        result["breaks"] = {}
        for name in breaks.PROGRAMS:
            tell(name)
            result["breaks"][name] = break_cases(name, options)
    if options.only in (None, "shapes"):
        result["shapes"] = {}
        for case in shapes.cases():
            tell(case.name)
            work = functools.partial(shapes.measure_case, case, chosen_systems(options))
            with empty_caches():
                result["shapes"][case.name] = in_child(work, options)
    for part in ("kernels", "bandwidth"):
        if options.only in (None, part):
            result[part] = kernel_cases(options, part)
    if options.only == "kernels_avx2":  # in a process of its own: see main()
        result["kernels_avx2"] = kernel_cases(options, "kernels_avx2")
    if options.only in (None, "training"):
        result["training"] = {}
        for case in training.select(options.models):
            tell(case.name)
            work = functools.partial(training.measure_case, case, chosen_systems(options), options.rounds)
            with empty_caches():
                result["training"][case.name] = in_child(work, options)
    if options.only in (None, "models"):
        result["models"] = {}
        for spec, size in each_model(options):
            tell(f"{spec.name} ({size})")
            result["models"][f"{spec.name}/{size}"] = model_cases(spec, size, options)
    if options.only == "inference":  # long, so only where it is asked for
        result["inference"] = inference_cases(options)
    if options.only == "programs":  # they need packages of their own
        result["programs"] = program_cases(options)
    result["summary"] = report.summary(result)
    return result


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.only == "kernels_avx2" and AVX2.items() - os.environ.items():
        os.execve(sys.executable, [sys.executable, "-m", "bench.run", *sys.argv[1:]], os.environ | AVX2)
    import transformers  # noqa: F401  (imported before the forks, so that no child pays for it)

    result = run(options)
    path = options.output or RESULTS / "latest.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    report.show(result)
    print(f"\nwritten to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
