"""Generated Python/torch programs, compiled against eager: `programs.py --help`.

A program is a function over two tensors, optional keywords and some state, made of the templates in grammar/. It is
called several times on both sides, with changes to the world between the calls, and everything that can be observed is
compared (tests/python/harness.py). A failing program is reduced (program_reduction.py) before it is printed; what is
printed is a file that --run takes.

The process is started again under PYTHONMALLOC=debug. `--backend mixed` takes a quarter of the programs by replay,
where every bit has to be equal, a quarter in the configuration that ships (native code comes in the background, when it
comes) and half of them in the same with kintsugi.wait() between the calls. Where there is native code, numbers may
differ by rounding. A program whose results in eager mode change by more than that when its inputs change by as little
decides something by rounding; such ones are counted apart. With --stress each guard of a program's traces is made to
fail in turn, and nothing may change by it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import gc
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from program_case import Program, as_case, harness
from program_reduction import Reduction, kind

import kintsugi

ILL_CONDITIONED = "ill-conditioned"
NO_PROGRAM = "does not run in eager mode either"
BATCH = 20  # programs to a process
MOST_SHOWN = 2000
BACKENDS = ("replay", "native", "shipped", "waited")
CALLS = {"replay": 5, "native": 7, "shipped": 7, "waited": 7}


def backend_of(seed: int) -> str:
    """The backend of a program where they are mixed."""
    return ("replay", "shipped", "waited", "waited")[seed // 30 % 4]


def native(fn: Any) -> Any:
    return kintsugi.compile(fn, backend="native", options={"sync": True})


def wrapper(backend: str) -> Any:
    wrappers = {"replay": harness.compile_for_test, "native": native}
    return wrappers.get(backend, kintsugi.compile)


def ill_conditioned(program: Program) -> bool:
    """Do the program's results in eager mode change by more than rounding when its inputs change by as little?"""
    wanted, _ = harness.run(as_case(program, grad=False), lambda fn: fn, close=True)
    for nudge in (1e-6, -1e-6):
        found, _ = harness.run(as_case(program, grad=False, nudge=nudge), lambda fn: fn, close=True)
        if any(list(a.differences(b)) for a, b in zip(wanted, found, strict=True)):
            return True
    return False


@dataclasses.dataclass(frozen=True)
class Found:
    """What came of a program: the difference, and for exit stress how many guards there were, how many of them a call
    came to when they were forced to fail, and how often."""

    problem: str | None
    guards: int = 0
    met: int = 0
    exits: int = 0


def limit_time(seconds: int) -> None:
    """The process dies after so many seconds of its own work, or five times as many on the clock (0: no limit)."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    signal.alarm(5 * seconds)


class Hung(BaseException):
    """What eager mode gets when it waits for ever."""


@contextlib.contextmanager
def clock_limit(seconds: int) -> Iterator[None]:
    """Raises Hung after so many seconds on the clock (0: no limit); again behind it, where a program has caught it."""
    late = []

    def stop(*_: Any) -> None:
        late.append(True)
        raise Hung(f"{seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0 if seconds else 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if late:
        raise Hung(f"{seconds} seconds")


def compare(
    program: Program,
    backend: str = "replay",
    stress: bool = False,
    seconds: int = 0,
    most_guards: int | None = None,
) -> Found:
    """What is different, if anything. The process dies if it takes longer than `seconds`. Of more guards than
    `most_guards` each so many-th is forced to fail."""
    close = backend != "replay"
    wrap = wrapper(backend)
    settings = {} if backend in ("shipped", "waited") else None
    guard = guards = tried = met = exits = 0
    problem: str | None = None
    if (
        stress
    ):  # the same calls again, from the same state, so that they come to the guards that were recorded
        program = dataclasses.replace(program, calls=program.calls[: harness.Stressed.FREE] * 2)
    afresh = True if stress else None
    try:
        eager = as_case(program, grad=not close, afresh=afresh)
        case = as_case(program, grad=not close, afresh=afresh, inner=wrap, waits=backend == "waited")
        try:
            with clock_limit(seconds):
                expected, _ = harness.run(eager, lambda fn: fn, close)
        except (Exception, Hung) as error:
            return Found(f"{NO_PROGRAM}: {type(error).__name__}: {error}")
        limit_time(seconds)
        harness.check(case, wrap, close, expected, settings)
        while stress and guard < max(guards, 1):
            limit_time(seconds)
            forced = functools.partial(harness.Stressed, guard=guard, wrap=wrap)
            stressed = harness.check(case, forced, close, expected, settings)
            guards, tried = stressed.guards, tried + 1
            guard += 1 if most_guards is None else max(1, -(-guards // most_guards))
            met, exits = met + (stressed.exits > 0), exits + stressed.exits
    except SyntaxError:
        pass
    except AssertionError as error:
        problem = f"guard {guard}: {error}" if stress else str(error)
        if close and ill_conditioned(program):
            problem = ILL_CONDITIONED
    except Exception as error:
        problem = "".join(traceback.format_exception(error))
    limit_time(0)
    return Found(problem, min(guards, tried), met, exits)


def failure(program: Program, backend: str, stress: bool = False, seconds: int = 20) -> Found:
    """The same, found out in a child process: a crash or an endless loop is a difference like any other."""
    return next(failures([(program, backend)], stress, seconds))


def failures(programs: Sequence[tuple[Program, str]], stress: bool, seconds: int) -> Iterator[Found]:
    """The same of several programs, one after another in one child process, or in a new one after each that dies."""
    done = 0
    while done < len(programs):
        receive, send = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.close(receive)
            with os.fdopen(send, "wb") as out:
                for program, backend in programs[done:]:
                    found = compare(program, backend, stress, seconds)
                    kintsugi.reset()  # what the traces own may be what kills the process
                    gc.collect()
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


def report(
    program: Program, backend: str, problem: str, stress: bool, seconds: float, folder: Path | None
) -> None:
    """Prints a program that failed among others: reduced, if it fails alone too."""
    found = failure(program, backend, stress)
    if found.problem and found.problem != ILL_CONDITIONED and not found.problem.startswith(NO_PROGRAM):
        same = kind(found.problem)

        def fails(smaller: Program) -> bool:
            again = failure(smaller, backend, stress, seconds=8)
            return kind(again.problem) == same

        program = Reduction(program, fails, seconds).run()
        problem = failure(program, backend, stress).problem or found.problem
    else:
        problem = f"only after others: {problem}"
    text = program.text(backend=backend, stress=stress)
    print(f"# {program.name}, {backend}: {problem[:MOST_SHOWN]}\n{text}", flush=True)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        comment = "".join(f"# {line}\n" for line in problem[:MOST_SHOWN].splitlines())
        (folder / f"{program.name}_{backend}.py").write_text(comment + text)


def rerun(path: Path) -> int:
    """Runs a program that was printed."""
    program, settings = Program.read(path.read_text())
    found = failure(program, settings["backend"], settings["stress"], seconds=60)
    print(found.problem or "equal to eager")
    return 1 if found.problem else 0


@dataclasses.dataclass
class Tally:
    done: int = 0
    failed: int = 0
    unstable: int = 0
    unrunnable: int = 0
    guards: int = 0
    met: int = 0
    exits: int = 0

    def add(self, found: Found) -> bool:
        """Counts a program; does it differ?"""
        self.done += 1
        self.guards, self.met = self.guards + found.guards, self.met + found.met
        self.exits += found.exits
        self.unstable += found.problem == ILL_CONDITIONED
        unrunnable = (found.problem or "").startswith(NO_PROGRAM)
        self.unrunnable += unrunnable
        differs = found.problem is not None and found.problem != ILL_CONDITIONED and not unrunnable
        self.failed += differs
        return differs


def warm_up() -> None:
    """What is done once in a process: no program shall be the one that does it."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        float(torch.ones((), requires_grad=True))  # torch warns of that
        torch.use_deterministic_algorithms(False)  # torch imports its compiler for that, and others for these
        torch.func.jvp(torch.vmap(torch.sin), (torch.ones(2),), (torch.ones(2),))
        torch.func.functionalize(torch.func.jacrev(torch.sin))(torch.ones(2))
        with torch.random.fork_rng():  # looks up a module of torch and remembers it
            pass


def batches(options: argparse.Namespace) -> Iterator[list[tuple[Program, str]]]:
    """The programs, each with its backend."""
    if options.singles:
        backend = "replay" if options.backend == "mixed" else options.backend
        every = [(program, backend) for program in Program.singles(options.seed, CALLS[backend])]
        for first in range(0, len(every), BATCH):
            yield every[first : first + BATCH]
        return
    stop = options.seed + options.count
    for first in range(options.seed, stop, BATCH):
        programs = []
        for seed in range(first, min(first + BATCH, stop)):
            backend = backend_of(seed) if options.backend == "mixed" else options.backend
            programs.append((Program.generated(seed, CALLS[backend]), backend))
        yield programs


def run(options: argparse.Namespace) -> Tally:
    end = time.monotonic() + options.seconds
    tally = Tally()
    for programs in batches(options):
        if time.monotonic() > end or (tally.failed and not options.keep_going):
            break
        for (program, backend), found in zip(programs, failures(programs, options.stress, 60), strict=True):
            if options.show:
                print(f"# {program.name}\n{program.source}", flush=True)
            if tally.add(found):
                assert found.problem is not None
                report(program, backend, found.problem, options.stress, options.reduce, options.save)
        if tally.done % (100 if options.stress else 500) == 0:
            print(f"{tally.done} programs so far, {tally.failed} differ", file=sys.stderr, flush=True)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failing program")
    parser.add_argument("--stress", action="store_true", help="make each guard fail in turn")
    parser.add_argument("--backend", choices=("mixed", *BACKENDS), default="mixed")
    parser.add_argument(
        "--singles", action="store_true", help="one small program for each template of the grammar, instead"
    )
    parser.add_argument("--show", action="store_true", help="print each program when it has run")
    parser.add_argument("--reduce", type=float, default=60, help="seconds to make a failing program small")
    parser.add_argument("--save", type=Path, help="a folder for programs that fail")
    parser.add_argument("--run", type=Path, help="run a program that was printed")
    options = parser.parse_args()
    if "PYTHONMALLOC" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONMALLOC": "debug"})
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GENERATED_FOLDER"] = folder  # for programs that read and write files
        if options.run:
            return rerun(options.run)
        tally = run(options)
    apart = f", {tally.unstable} decide by rounding" if tally.unstable else ""
    apart += f", {tally.unrunnable} do not run in eager mode" if tally.unrunnable else ""
    forced = (
        f", {tally.guards} guards, {tally.met} of them met and forced to fail, {tally.exits} exits"
        if options.stress
        else ""
    )
    print(f"{tally.done} programs{forced}, {tally.failed} differ from eager{apart}")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
