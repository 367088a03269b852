"""Minutes of many programs in one process: compile, call, reset, native code that arrives: memory must not grow.

A round takes one of --programs generated programs (programs.py), compiles it anew, by replay, natively before the first
call returns or natively in the background, calls it a few times beside eager mode, and drops it; every tenth one calls
functions from several threads while their code arrives and resets in between. The first third of the time is for what
stays once it is there: kernels, torch's own tables, the allocator's arenas.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import functools
import gc
import linecache
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from program_case import Program, as_case, harness
from programs import ill_conditioned, native, warm_up

import kintsugi

MEBIBYTE = 1 << 20
CALLS = 7
WRAPS: tuple[Callable[..., Any], ...] = (
    harness.compile_for_test,
    native,
    functools.partial(kintsugi.compile, backend="native"),
)


@dataclasses.dataclass(frozen=True)
class Reading:
    seconds: float
    rounds: int
    memory: int
    objects: int


def resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@functools.cache
def program(seed: int) -> Program:
    return Program.generated(seed, CALLS)


def one_program(seed: int, wrap: Callable[..., Any]) -> str | None:
    """What differs from eager mode."""
    close = wrap is not harness.compile_for_test
    try:
        harness.check(as_case(program(seed), grad=not close), wrap, close=close)
    except SyntaxError:
        pass
    except AssertionError as error:
        if not close or not ill_conditioned(program(seed)):
            return f"program {seed}: {error}"
    finally:
        linecache.cache.pop(f"<generated {program(seed).name}>", None)
    return None


def threads_and_swaps(seed: int) -> None:
    """Code arrives, and is dropped, while eight threads call."""
    functions = [
        lambda x, n=n: torch.nn.functional.gelu(x) * n + torch.softmax(x, -1)
        for n in range(seed % 5, seed % 5 + 4)
    ]
    x = torch.randn(3, 8)
    wanted = [fn(x) for fn in functions]
    compiled = [kintsugi.compile(fn, backend="native") for fn in functions]

    def work(k: int) -> None:
        with torch.no_grad():
            for turn in range(40):
                at = (k + turn) % len(functions)
                torch.testing.assert_close(compiled[at](x), wanted[at], rtol=1e-5, atol=1e-5)
                if k == 0 and turn == 30:
                    kintsugi.reset()

    harness.in_threads(8, work)


def soak(seconds: float, programs: int, seed: int) -> tuple[list[Reading], list[str]]:
    start = time.monotonic()
    readings: list[Reading] = []
    problems: list[str] = []
    rounds = 0
    while (passed := time.monotonic() - start) < seconds or len(readings) < 6:
        at = seed + rounds // len(WRAPS) % programs
        if problem := one_program(at, WRAPS[rounds % len(WRAPS)]):
            problems.append(problem)
            print(problem[:2000], flush=True)
        if rounds % 10 == 9:
            threads_and_swaps(rounds)
        kintsugi.wait(60)
        kintsugi.reset()
        rounds += 1
        if passed >= len(readings) * seconds / 30:
            readings.append(Reading(passed, rounds, resident(), len(gc.get_objects())))
            last = readings[-1]
            memory = f"{last.memory / MEBIBYTE:8.1f} MiB"
            print(f"{last.seconds:6.0f} s {rounds:7} rounds {memory} {last.objects:8} objects", flush=True)
    return readings, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--most", type=float, default=8, help="MiB by which memory may grow after the first third"
    )
    options = parser.parse_args()
    warm_up()
    warnings.simplefilter("ignore")
    readings, problems = soak(options.seconds, options.programs, options.seed)
    settled = readings[len(readings) // 3 :]
    half = len(settled) // 2
    # The least of each half: what a half never gave back.
    grown = min(r.memory for r in settled[half:]) - min(r.memory for r in settled[:half])
    objects = min(r.objects for r in settled[half:]) - min(r.objects for r in settled[:half])
    print(
        f"{readings[-1].rounds} rounds, {len(problems)} differ from eager; "
        f"memory {grown / MEBIBYTE:+.1f} MiB, objects {objects:+}"
    )
    return 1 if problems or grown > options.most * MEBIBYTE or objects > 2000 else 0


if __name__ == "__main__":
    sys.exit(main())
