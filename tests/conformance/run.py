"""Conformance: CPython's own tests, once as usual and once with every frame run by kintsugi's interpreter.

Each module runs twice in processes of their own; the outcomes are compared test case by test case. A test that fails
in both runs is no difference. Usage: run.py [--subset] [--jobs N] [--extension FILE] [MODULE ...]
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
MARKER = "@@outcomes@@"
MISSING = "missing"


def default_extension():
    """The module that `make build` makes for this, without torch; else kintsugi's own, which needs torch."""
    built = HERE.parent.parent / "build" / "release" / "conformance"
    files = sorted(built.glob("_interpreter*.so"))
    return os.environ.get("KINTSUGI_CONFORMANCE_EXTENSION") or (str(files[0]) if files else "kintsugi._C")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "modules", nargs="*", help="modules below CPython's `test` (default: those in modules.toml)"
    )
    parser.add_argument("--subset", action="store_true", help="only the quick ones, for `make test`")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for one module")
    parser.add_argument("--verbose", action="store_true", help="print the tracebacks of differing tests")
    parser.add_argument(
        "--extension",
        default=default_extension(),
        help="file of an extension module with the interpreter, or kintsugi._C",
    )
    return parser.parse_args()


def selected_modules(arguments):
    if arguments.modules:
        return arguments.modules
    lists = tomllib.loads((HERE / "modules.toml").read_text())
    return lists["subset"] if arguments.subset else sorted(lists["subset"] + lists["full"])


def load_expected():
    document = tomllib.loads((HERE / "expected_differences.toml").read_text())
    return {entry["test"]: entry["reason"] for entry in document.get("difference", [])}


def run_worker(module, mode, arguments):
    """The worker's report; a crash or a timeout is a report with a `crash` text and no outcomes."""
    environment = dict(os.environ, PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1")
    environment.pop("KINTSUGI_INTERPRET_ALL", None)
    command = [sys.executable, str(HERE / "worker.py"), module, mode, arguments.extension]
    empty = {"outcomes": {}, "details": {}, "seconds": 0.0, "frames": 0}
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=arguments.timeout, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return empty | {"crash": f"no end after {arguments.timeout} s"}
    for line in reversed(done.stdout.decode(errors="replace").splitlines()):
        if line.startswith(MARKER):
            return json.loads(line[len(MARKER) :])
    return empty | {"crash": f"exit status {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}"}


def compare(module, arguments):
    plain = run_worker(module, "plain", arguments)
    interpreted = run_worker(module, "interpreted", arguments)
    names = sorted(set(plain["outcomes"]) | set(interpreted["outcomes"]))
    differences = {}
    for name in names:
        before = plain["outcomes"].get(name, MISSING)
        after = interpreted["outcomes"].get(name, MISSING)
        if before != after:
            differences[name] = (before, after)
    return {
        "module": module,
        "names": names,
        "differences": differences,
        "plain": plain,
        "interpreted": interpreted,
    }


def is_expected(name, expected):
    return any(fnmatch.fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in expected)


def report_module(result, expected, verbose):
    """Prints a module's line and its differences; returns how many test cases passed and failed."""
    unexpected = {
        name: pair for name, pair in result["differences"].items() if not is_expected(name, expected)
    }
    plain, interpreted = result["plain"], result["interpreted"]
    crashes = [
        f"{mode}: {run['crash']}"
        for mode, run in (("plain", plain), ("interpreted", interpreted))
        if "crash" in run
    ]
    known = len(result["differences"]) - len(unexpected)
    seconds = f"{plain['seconds']:7.2f} {interpreted['seconds']:7.2f}"
    frames = interpreted["frames"]
    print(
        f"{result['module']:40} {len(result['names']):6} {len(unexpected):6} {known:6} {seconds} {frames:10}"
    )
    for name, (before, after) in unexpected.items():
        print(f"    {name}: {before} -> {after}")
        if verbose and name in interpreted["details"]:
            print("        " + interpreted["details"][name].replace("\n", "\n        "))
    for crash in crashes:
        print(f"    {crash}")
    sys.stdout.flush()
    failed = len(unexpected) + len(crashes)
    return len(result["names"]) - len(unexpected), failed


def main():
    arguments = parse_arguments()
    modules = selected_modules(arguments)
    expected = load_expected()
    started = time.perf_counter()
    print(f"{'module':40} {'tests':>6} {'differ':>6} {'known':>6} {'plain':>7} {'interp':>7} {'frames':>10}")
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(lambda module: compare(module, arguments), modules):
            module_passed, module_failed = report_module(result, expected, arguments.verbose)
            passed += module_passed
            failed += module_failed
    print(f"{len(modules)} modules in {time.perf_counter() - started:.0f} s")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
