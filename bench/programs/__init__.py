"""Programs in which tensors are the smaller part: `python -m bench.run --only programs`.

A program is a function `make(compile)` that prepares what it works on, compiles what a user would compile with
`compile`, and returns `step(k)`, which makes the k-th call. All of its state is made anew by `make`, from fixed seeds,
so two instances give the same results call by call, whatever `compile` does.

    @program
    def word_lengths(compile):
        lines = [...]

        @compile
        def features(line, x):
            return x * len(line.split())

        return lambda k: features(lines[k % len(lines)], torch.ones(3))
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from typing import Any

Compile = Callable[[Any], Any]
Step = Callable[[int], Any]
Make = Callable[[Compile], Step]


@dataclasses.dataclass(frozen=True)
class Program:
    """`needs`: packages beyond torch and numpy. `group`: the module that it stands in."""

    name: str
    group: str
    make: Make
    needs: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


PROGRAMS: dict[str, Program] = {}


def program(make: Make | None = None, *, needs: tuple[str, ...] = ()) -> Any:
    """Registers a program under the name of its function."""
    if make is None:
        return lambda made: program(made, needs=needs)
    name = make.__name__.strip("_").replace("_", "-")
    if name in PROGRAMS:
        raise ValueError(f"two programs are called {name}")
    PROGRAMS[name] = Program(name, make.__module__.rpartition(".")[2], make, needs)
    return make


def load() -> dict[str, Program]:
    """All programs; the modules are imported when they are asked for."""
    from bench.programs import arrays, files, objects, probability, text, training

    assert arrays and files and objects and probability and text and training
    return PROGRAMS
