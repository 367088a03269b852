"""Generated Python/torch programs, compiled against eager: `programs.py --help`.

A program is a function over two tensors and some state that mixes loops, branches on Python values and on tensor data,
try/finally, context managers, closures, generators, containers, printing, mutation, views and exceptions
(program_templates.py says of what). It is called several times on both sides, and everything that can be
observed is compared (tests/python/harness.py). A failing program is reduced, statement by statement, before it is
printed with its seed.

Every second program gets tensors with another number of rows in each call, and every third is differentiated. With
--stress each guard of a program's traces is made to fail in turn, and nothing may change by it. With --backend native
numbers may differ by rounding. A program whose results in eager mode change by more than that when its inputs change
by as little decides something by rounding; such ones are counted apart.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import functools
import linecache
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for `bench`, which the harness takes from
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import harness
from program_generator import Generator
from program_prelude import PRELUDE, STATE

import kintsugi


def varies(seed: int) -> bool:
    """Do the tensors of this program have another number of rows in each call?"""
    return seed % 2 == 1


def differentiated(seed: int) -> bool:
    return seed % 3 == 0


def starts_afresh(seed: int) -> bool:
    """Is the state as at the start before each call? Else what a call leaves behind is there in the next one."""
    return seed % 5 != 0


def inputs_of(seed: int, nudge: float = 0.0) -> harness.Inputs:
    def inputs(call: int) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(call)
        rows = (3, 5, 2, 6, 1, 4)[(call + seed // 2) % 6] if varies(seed) else 3
        x, y = (torch.randn((rows, 4), generator=generator) * (1 + nudge) for _ in range(2))
        return x, y, 1 + (call % 2 if seed % 4 == 0 else seed % 2)

    return inputs


@dataclasses.dataclass
class State(harness.Watched):
    """The globals of one side."""

    space: dict[str, Any]


def as_case(source: str, name: str, calls: int, *, grad: bool = True, nudge: float = 0.0) -> harness.Case:
    """The program as a case of the harness, with fresh state a side."""
    filename = f"<generated {name}>"
    text = PRELUDE + source
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    code = compile(text, filename, "exec")
    seed = int(name.rpartition("_")[2])
    grad = grad and differentiated(seed)

    def start() -> tuple[Any, ...]:
        space: dict[str, Any] = {"__name__": "generated"}
        exec(code, space)
        program, log, box = space["program"], [], space["Box"](1)
        box.w.requires_grad_(grad)
        box.net.requires_grad_(grad)

        def state() -> Any:
            return [*(space[name] for name in STATE), str(space["squared"].cache_info())]

        return (lambda x, y, k: program(x, y, k, log, box)), log, box, State(state, space)

    start.__name__ = name
    afresh = as_at_the_start if starts_afresh(seed) else lambda state: None
    return harness.Case(start, inputs_of(seed, nudge), lambda call: {}, True, calls, None, None, grad, afresh)


def as_at_the_start(state: tuple[Any, ...]) -> None:
    """The objects stay the same ones; what is in them is as it was made."""
    log, box, space = state[0], state[1], state[2].space
    log.clear()
    box.n = 1
    vars(box).pop("last", None)
    space["squared"].cache_clear()
    for name, text in STATE.items():
        value = eval(text, space)
        if isinstance(value, int):
            space[name] = value
        else:
            space[name].clear()
            getattr(space[name], "update" if isinstance(value, dict) else "extend")(value)


def native(fn: Any) -> Any:
    return kintsugi.compile(fn, backend="native", options={"sync": True})


def ill_conditioned(source: str, name: str, calls: int) -> bool:
    """Do the program's results in eager mode change by more than rounding when its inputs change by as little?"""
    wanted, _ = harness.run(as_case(source, name, calls, grad=False), lambda fn: fn, close=True)
    for nudge in (1e-6, -1e-6):
        case = as_case(source, name, calls, grad=False, nudge=nudge)
        found, _ = harness.run(case, lambda fn: fn, close=True)
        if any(list(a.differences(b)) for a, b in zip(wanted, found, strict=True)):
            return True
    return False


ILL_CONDITIONED = "ill-conditioned"
BATCH = 20  # programs to a process
MOST_SHOWN = 2000


@dataclasses.dataclass(frozen=True)
class Found:
    """What came of a program: the difference, and for exit stress how many guards there were, how many of them a call
    came to when they were forced to fail, and how often."""

    problem: str | None
    guards: int = 0
    met: int = 0
    exits: int = 0


def repeated(case: harness.Case) -> harness.Case:
    """The same calls again, from the same state, so that they come to the guards that were recorded."""
    inputs = case.inputs
    return dataclasses.replace(
        case, inputs=lambda call: inputs(call % harness.Stressed.FREE), prepare=as_at_the_start
    )


def compare(
    source: str, name: str, calls: int, stress: bool = False, backend: str = "eager", seconds: int = 0
) -> Found:
    """What is different, if anything. `name` ends with the program's seed. The process dies when one comparison takes
    more than `seconds`, if any are given."""
    close = backend == "native"
    wrap = native if close else harness.compile_for_test
    guard = guards = met = exits = 0
    problem: str | None = None
    try:
        case = as_case(source, name, calls, grad=not close)
        if stress:
            case = repeated(case)
        signal.alarm(seconds)
        expected, _ = harness.run(case, lambda fn: fn, close)
        harness.check(case, wrap, close, expected)
        while stress and guard < max(guards, 1):
            signal.alarm(seconds)
            forced = functools.partial(harness.Stressed, guard=guard, wrap=wrap)
            stressed = harness.check(case, forced, close, expected)
            guard, guards = guard + 1, stressed.guards
            met, exits = met + (stressed.exits > 0), exits + stressed.exits
    except SyntaxError:
        pass
    except AssertionError as error:
        problem = f"guard {guard}: {error}" if stress else str(error)
        if close and ill_conditioned(source, name, calls):
            problem = ILL_CONDITIONED
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    return Found(problem, guards, met, exits)


def failure(
    source: str, name: str, calls: int = 4, seconds: int = 20, stress: bool = False, backend: str = "eager"
) -> Found:
    """The same, found out in a child process: a crash or an endless loop is a difference like any other."""
    how = {"calls": calls, "seconds": seconds, "stress": stress, "backend": backend}
    return next(failures([(source, name)], **how))


def failures(programs: list[tuple[str, str]], seconds: int, **how: Any) -> Iterator[Found]:
    """The same of several programs, one after another in one child process, or in a new one after each that dies."""
    done = 0
    while done < len(programs):
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(receive)
            with os.fdopen(send, "wb") as out:
                for source, name in programs[done:]:
                    found = compare(source, name, seconds=seconds, **how)
                    kintsugi.reset()  # what the traces own may be what kills the process
                    pickle.dump(found, out)
                    out.flush()
            os._exit(0)
        os.close(send)
        with os.fdopen(receive, "rb") as answers:
            with contextlib.suppress(EOFError, pickle.UnpicklingError):
                while done < len(programs):
                    found = pickle.load(answers)
                    done += 1
                    yield found
        _, status = os.waitpid(child, 0)
        if done < len(programs):
            why = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"status {status}"
            done += 1
            yield Found(f"the process died: {why}")


def without(tree: ast.Module, number: int) -> ast.Module | None:
    """The program without its `number`-th statement; None past the end."""
    seen = 0

    class Cut(ast.NodeTransformer):
        def generic_visit(self, node: ast.AST) -> Any:
            nonlocal seen
            super().generic_visit(node)
            for field in ("body", "orelse", "finalbody"):
                body = getattr(node, field, None)
                if not isinstance(body, list) or isinstance(node, ast.Module):
                    continue
                kept = []
                for statement in body:
                    if seen != number:
                        kept.append(statement)
                    seen += 1
                setattr(node, field, kept or ([ast.Pass()] if field == "body" else []))
            return node

    cut = Cut().visit(tree)
    return ast.fix_missing_locations(cut) if seen > number else None


def hoisted(tree: ast.Module) -> Iterator[ast.Module]:
    """The program with one compound statement replaced by its body."""
    total = sum(isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try)) for node in ast.walk(tree))
    for wanted in range(total):
        copy = ast.parse(ast.unparse(tree))
        found = 0
        for node in ast.walk(copy):
            for field in ("body", "orelse", "finalbody"):
                body = getattr(node, field, None)
                if not isinstance(body, list):
                    continue
                for index, statement in enumerate(body):
                    if isinstance(statement, (ast.If, ast.For, ast.While, ast.With, ast.Try)):
                        if found == wanted:
                            body[index : index + 1] = statement.body
                            break
                        found += 1
        yield ast.fix_missing_locations(copy)


def reduce(source: str, name: str, seconds: float = 30, **how: Any) -> str:
    """The smallest program found in that time that still fails in the same way."""
    kind = (failure(source, name, **how).problem or "")[:6]

    def fails(text: str) -> bool:
        return (failure(text, name, seconds=5, **how).problem or "")[:6] == kind

    progress, end = True, time.monotonic() + seconds
    while progress and time.monotonic() < end:
        progress = False
        number = 0
        while (tree := without(ast.parse(source), number)) is not None and time.monotonic() < end:
            smaller = ast.unparse(tree) + "\n"
            if smaller != source and fails(smaller):
                source, progress = smaller, True
            else:
                number += 1
        for tree in hoisted(ast.parse(source)):
            smaller = ast.unparse(tree) + "\n"
            if len(smaller) < len(source) and fails(smaller):
                source, progress = smaller, True
                break
    return source


def report(source: str, name: str, problem: str, how: dict[str, Any]) -> None:
    """Prints a program that failed among others: reduced, if it fails alone too."""
    if not failure(source, name, **how).problem:
        print(f"{name}, only after others: {problem[:MOST_SHOWN]}\n{source}", flush=True)
        return
    source = reduce(source, name, **how)
    print(f"{name}: {(failure(source, name, **how).problem or problem)[:MOST_SHOWN]}\n{source}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failing program")
    parser.add_argument("--stress", action="store_true", help="make each guard fail in turn")
    parser.add_argument("--backend", choices=("eager", "native"), default="eager")
    parser.add_argument("--show", action="store_true", help="print each program before it runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        float(torch.ones((), requires_grad=True))  # torch warns of that once in a process
    how = {
        "stress": options.stress,
        "backend": options.backend,
        "calls": 6 if options.stress else 4 if options.backend == "eager" else 7,
    }
    end = time.monotonic() + options.seconds
    failed = done = unstable = guards = met = exits = 0
    stop = options.seed + options.count
    for first in range(options.seed, stop, BATCH):
        if time.monotonic() > end:
            break
        names = [f"program_{seed}" for seed in range(first, min(first + BATCH, stop))]
        programs = [(Generator(first + index).generate(), name) for index, name in enumerate(names)]
        for (source, name), found in zip(programs, failures(programs, 60, **how), strict=True):
            if options.show:
                print(f"# {name}\n{source}", flush=True)
            done, guards, met, exits = (done + 1, guards + found.guards, met + found.met, exits + found.exits)
            if found.problem == ILL_CONDITIONED:
                unstable += 1
            elif found.problem:
                failed += 1
                report(source, name, found.problem, how)
        if done % (100 if options.stress else 500) == 0:
            print(f"{done} programs so far, {failed} differ", file=sys.stderr, flush=True)
        if failed and not options.keep_going:
            break
    apart = f", {unstable} decide by rounding" if unstable else ""
    forced = (
        f", {guards} guards, {met} of them met and forced to fail, {exits} exits" if options.stress else ""
    )
    print(f"{done} programs{forced}, {failed} differ from eager{apart}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
