"""Generated Python/torch programs, compiled against eager: `programs.py --help`.

A program is a function over two tensors and some state that mixes loops, branches on Python values and on tensor data,
try/finally, context managers, closures, generators, printing, mutation and exceptions. It is called several times on
both sides, and everything that can be observed is compared (tests/python/harness.py). A failing program is reduced,
statement by statement, before it is printed with its seed.

Every second program gets tensors with another number of rows in each call. With --stress each guard of a program's
traces is made to fail in turn, and nothing may change by it.
"""

from __future__ import annotations

import argparse
import ast
import linecache
import os
import random
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import harness

PRELUDE = """
import contextlib, math
import torch
COUNT = 0
TABLE = {"k": 2}

class Box:
    scale = 2
    def __init__(self, n):
        self.n = n
    def apply(self, v):
        return v * self.scale + self.n
    @property
    def twice(self):
        return self.n * 2

@contextlib.contextmanager
def section(log, name):
    log.append(("in", name))
    try:
        yield len(name)
    finally:
        log.append(("out", name))

def numbers(n):
    for i in range(n):
        yield i * 2

"""


class Generator:
    """Writes one program. Tensors all have the same shape (rows, 4), so that any two fit."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.varying = varies(seed)
        self.lines: list[str] = []
        self.tensors = ["x", "y"]
        self.ints = ["k"]
        self.fresh = 0
        self.loops = 0

    def generate(self) -> str:
        self.line(0, "def program(x, y, k, log, box):")
        self.line(1, "global COUNT")
        self.block(1, depth=0, most=7)
        tensors = ", ".join(self.pick(self.tensors) for _ in range(2))
        self.line(1, f"return [{tensors}, {self.pick(self.ints)}, len(log)]")
        return "\n".join(self.lines) + "\n"

    def line(self, level: int, text: str) -> None:
        self.lines.append("    " * level + text)

    def pick(self, items: list[str]) -> str:
        return self.random.choice(items)

    def name(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    # --- expressions ---

    def tensor(self, depth: int = 0) -> str:
        r = self.random
        if depth > 1 or r.random() < 0.25:
            return self.pick(self.tensors)
        a = self.tensor(depth + 1)
        choices = [
            lambda: f"({a} {r.choice('+-*')} {self.tensor(depth + 1)})",
            lambda: f"({a} {r.choice('+-*')} {self.integer()})",
            lambda: f"{a}.{r.choice(['sin', 'relu', 'tanh', 'abs', 'neg', 'clone', 'sigmoid'])}()",
            lambda: f"torch.where({a} > 0, {a}, {self.tensor(depth + 1)})",
            lambda: f"({a}.t() * 0.5).t()",
            lambda: f"box.apply({a})",
            lambda: f"({a} - {a}.mean(dim=1, keepdim=True))",
            lambda: f"torch.stack([{a}, {self.tensor(depth + 1)}]).sum(0)",
            lambda: f"{a}.clamp(-2, 2)",
            lambda: f"torch.cat([{a}[:1], {a}[1:]])",
            lambda: f"({a} @ torch.eye(4))",
        ]
        if self.varying:
            b = self.tensor(depth + 1)
            choices += [
                lambda: f"{a}.view(x.shape[0], 2, 2).transpose(1, 2).reshape(x.size(0), 4)",
                lambda: f"({a}[:, :3].sum(1, keepdim=True) + {b})",
                lambda: f"({a}[:2, 1:].sum() + {b})",
                lambda: f"(torch.arange(x.size(0)).unsqueeze(1) * {a})",
                lambda: f"({a} + torch.zeros({b}.shape))",
                lambda: f"{a}.contiguous()",
                lambda: f"{a}.t().contiguous().t()",
                lambda: f"({a}[: x.shape[0] // 2].sum(0) + {b})",
                lambda: f"{a}.flatten().view(*y.shape)",
                lambda: f"torch.cat([{a}, {b}])[: len(x)]",
            ]
        return r.choice(choices)()

    def integer(self) -> str:
        r = self.random
        return r.choice(
            [
                str(r.randint(-3, 4)),
                self.pick(self.ints),
                f"({self.pick(self.ints)} % 3)",
                "len(log)",
                "box.n",
                "box.twice",
                "x.shape[0]",
                'TABLE["k"]',
                *(["y.numel()", "max(len(x), 3)", "x.size(-1)"] if self.varying else []),
                f"min({self.pick(self.ints)}, 5)",
            ]
        )

    def condition(self) -> str:
        r = self.random
        return r.choice(
            [
                f"{self.integer()} > {self.integer()}",
                f"{self.integer()} % 2 == 0",
                f"{self.pick(self.tensors)}.sum() > {r.choice(['0', '1.5', '-2'])}",
                f"bool(({self.pick(self.tensors)} > 1).any())",
                f"{self.pick(self.tensors)}.dim() == 2 and {self.integer()} < 3",
                f"not ({self.integer()} == 1)",
                *(["x.shape[0] > 3", "x.shape == y.shape", "x.size(0) % 2 == 1"] if self.varying else []),
            ]
        )

    # --- statements ---

    def block(self, level: int, depth: int, most: int = 3) -> None:
        tensors, ints = list(self.tensors), list(self.ints)
        before = len(self.lines)
        for _ in range(self.random.randint(1, most)):
            self.statement(level, depth)
        if len(self.lines) == before:
            self.line(level, "pass")
        if depth:  # what a block makes may not exist after it
            self.tensors, self.ints = tensors, ints

    def statement(self, level: int, depth: int) -> None:
        simple: list[Callable[[int], None]] = [
            self.assign_tensor,
            self.assign_tensor,
            self.reassign,
            self.assign_int,
            self.effect,
            self.in_place,
            self.output,
            self.comprehension,
            self.scalar,
        ]
        nested: list[Callable[[int, int], None]] = [
            self.branch,
            self.loop,
            self.while_loop,
            self.attempt,
            self.context,
            self.function,
            self.generator_loop,
        ]
        if depth < 4 and self.random.random() < 0.4:
            self.random.choice(nested)(level, depth)
        else:
            self.random.choice(simple)(level)

    def assign_tensor(self, level: int) -> None:
        value = self.tensor()
        name = self.name("t")
        self.line(level, f"{name} = {value}")
        self.tensors.append(name)

    def reassign(self, level: int) -> None:
        self.line(level, f"{self.pick(self.tensors)} = {self.tensor()}")

    def assign_int(self, level: int) -> None:
        value = self.integer()
        name = self.name("n")
        self.line(level, f"{name} = {value} + {self.random.randint(0, 3)}")
        self.ints.append(name)

    def scalar(self, level: int) -> None:
        name = self.name("n")
        self.line(level, f"{name} = int({self.pick(self.tensors)}.sum().item()) % 4")
        self.ints.append(name)

    def effect(self, level: int) -> None:
        r = self.random
        self.line(
            level,
            r.choice(
                [
                    f"log.append({self.integer()})",
                    f"log.append({self.pick(self.tensors)})",
                    f"box.n = {self.integer()}",
                    "COUNT += 1",
                    f'TABLE["k"] = {self.integer()}',
                    f"box.last = {self.pick(self.tensors)}",
                    "log.reverse()",
                    "log and log.pop()",
                ]
            ),
        )

    def in_place(self, level: int) -> None:
        r = self.random
        target = self.pick(self.tensors)
        self.line(
            level,
            r.choice(
                [
                    f"{target}.add_({self.integer()})",
                    f"{target}.mul_(0.5)",
                    f"{target}[{r.randint(0, 2)}] = {self.integer()}",
                    f"{target}[:, {r.randint(0, 3)}].neg_()",
                    f"{target} += 1",
                    f"{target}[{target} > 1] = 0.25",
                ]
            ),
        )

    def output(self, level: int) -> None:
        r = self.random
        self.line(
            level,
            r.choice(
                [
                    f"print({self.integer()}, 'text', sep='|')",
                    f"print(f'{{{self.pick(self.tensors)}.sum():.3f}}', end=';')",
                    f"print({self.pick(self.tensors)}[0])",
                    "print(box.n, COUNT)",
                ]
            ),
        )

    def comprehension(self, level: int) -> None:
        name = self.name("t")
        source = self.pick(self.tensors)
        self.line(level, f"{name} = torch.stack([row * {self.integer()} for row in {source}])")
        self.tensors.append(name)

    def branch(self, level: int, depth: int) -> None:
        self.line(level, f"if {self.condition()}:")
        self.block(level + 1, depth + 1)
        if self.random.random() < 0.6:
            self.line(level, "else:")
            self.block(level + 1, depth + 1)

    def loop(self, level: int, depth: int) -> None:
        name = self.name("i")
        bound = self.random.choice(["2", "3", f"{self.pick(self.ints)} % 3"])
        self.line(level, f"for {name} in range({bound}):")
        self.ints.append(name)
        self.loops += 1
        self.block(level + 1, depth + 1)
        if self.random.random() < 0.3:
            self.line(level + 1, f"if {self.condition()}:")
            self.line(level + 2, self.random.choice(["break", "continue"]))
        self.loops -= 1
        self.ints.remove(name)

    def while_loop(self, level: int, depth: int) -> None:
        name = self.name("w")
        self.line(level, f"{name} = 0")
        self.line(level, f"while {name} < 3 and ({self.condition()}):")
        self.line(level + 1, f"{name} += 1")
        self.block(level + 1, depth + 1)

    def attempt(self, level: int, depth: int) -> None:
        self.line(level, "try:")
        self.block(level + 1, depth + 1)
        if self.random.random() < 0.6:
            self.line(level + 1, f"if {self.condition()}:")
            error = self.random.choice(["ValueError('v')", "KeyError('k')", "RuntimeError(str(k))"])
            self.line(level + 2, f"raise {error}")
        self.line(
            level, f"except {self.random.choice(['ValueError', '(KeyError, ValueError)', 'Exception'])} as e:"
        )
        self.line(level + 1, "log.append(type(e).__name__)")
        self.block(level + 1, depth + 1, most=1)
        if self.random.random() < 0.5:
            self.line(level, "finally:")
            self.block(level + 1, depth + 1, most=2)

    def context(self, level: int, depth: int) -> None:
        manager = self.random.choice(
            ["torch.no_grad()", "section(log, 'a')", "contextlib.suppress(ValueError)"]
        )
        self.line(level, f"with {manager}:")
        self.block(level + 1, depth + 1)

    def function(self, level: int, depth: int) -> None:
        name = self.name("f")
        captured = self.pick(self.tensors)
        self.line(level, f"def {name}(v, n={self.integer()}):")
        if self.random.random() < 0.4:
            self.line(level + 1, f"if {self.random.choice(['n > 1', 'v.sum() > 0'])}:")
            self.line(level + 2, f"return v + {captured}")
        outer = self.tensors, self.ints
        self.tensors, self.ints = ["v", captured], ["n", *self.ints]
        value = self.tensor()
        self.tensors, self.ints = outer
        self.line(level + 1, f"return {value}")
        result = self.name("t")
        self.line(level, f"{result} = {name}({self.pick(self.tensors)})")
        self.tensors.append(result)

    def generator_loop(self, level: int, depth: int) -> None:
        name = self.name("i")
        self.line(
            level,
            f"for {name} in {self.random.choice(['numbers(3)', '(v for v in (1, 2))', 'map(abs, (-1, 2))'])}:",
        )
        self.ints.append(name)
        self.block(level + 1, depth + 1, most=2)
        self.ints.remove(name)


def varies(seed: int) -> bool:
    """Do the tensors of this program have another number of rows in each call?"""
    return seed % 2 == 1


def inputs_of(seed: int) -> harness.Inputs:
    def inputs(call: int) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(call)
        rows = (3, 5, 2, 6, 1, 4)[(call + seed // 2) % 6] if varies(seed) else 3
        shape = (rows, 4)
        return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator), 1 + call % 2

    return inputs


def as_case(source: str, name: str, calls: int) -> harness.Case:
    """The program as a case of the harness, with fresh state a side."""
    filename = f"<generated {name}>"
    text = PRELUDE + source
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    code = compile(text, filename, "exec")

    def start() -> tuple[Any, ...]:
        space: dict[str, Any] = {"__name__": "generated"}
        exec(code, space)
        program, log, box = space["program"], [], space["Box"](1)

        def counters() -> Any:
            return types.SimpleNamespace(count=space["COUNT"], table=space["TABLE"])

        state = harness.Watched(counters)
        return (lambda x, y, k: program(x, y, k, log, box)), log, box, state

    start.__name__ = name
    seed = int(name.rpartition("_")[2])
    return harness.Case(start, inputs_of(seed), lambda call: {}, True, calls, None, None, False)


def compare(source: str, name: str, calls: int, stress: bool = False) -> str | None:
    """What is different, or None. `name` ends with the program's seed."""
    try:
        case = as_case(source, name, calls)
    except SyntaxError:
        return None
    try:
        harness.check(case)
        guard = count = 0
        while stress and guard <= count:
            stressed = harness.check(case, lambda fn: harness.Stressed(fn, guard))
            guard, count = guard + 1, stressed.guards
    except AssertionError as error:
        return f"guard {guard}: {error}" if stress else str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def failure(source: str, name: str, calls: int = 5, seconds: int = 20, stress: bool = False) -> str | None:
    """The same, found out in a child process: a crash or an endless loop is a difference like any other."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        signal.alarm(seconds)
        with os.fdopen(send, "w") as out:
            out.write(compare(source, name, calls, stress) or "")
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"the process died: {signal.Signals(os.WTERMSIG(status)).name}"
    return text or None


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


def reduce(source: str, name: str, seconds: float = 30, stress: bool = False) -> str:
    """The smallest program found in that time that still fails in the same way."""
    kind = (failure(source, name, stress=stress) or "")[:6]

    def fails(text: str) -> bool:
        return (failure(text, name, seconds=5, stress=stress) or "")[:6] == kind

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failing program")
    parser.add_argument("--stress", action="store_true", help="make each guard fail in turn")
    parser.add_argument("--show", action="store_true", help="print each program before it runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    end, failed, done = time.monotonic() + options.seconds, 0, 0
    for seed in range(options.seed, options.seed + options.count):
        if time.monotonic() > end:
            break
        source = Generator(seed).generate()
        if options.show:
            print(f"# seed {seed}\n{source}", flush=True)
        done += 1
        name = f"program_{seed}"
        if failure(source, name, seconds=60, stress=options.stress):
            failed += 1
            source = reduce(source, name, stress=options.stress)
            print(f"seed {seed}: {failure(source, name, stress=options.stress)}\n{source}", flush=True)
            if not options.keep_going:
                break
    print(f"{done} programs, {failed} differ from eager")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
