"""A generated program as a case of the harness: its text, what it is called with, and the state that it writes to."""

from __future__ import annotations

import dataclasses
import json
import linecache
import random
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for `bench`, which the harness takes from
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import harness
import process_flags
from grammar import templates
from program_generator import Generator
from program_prelude import PRELUDE, STATE

import kintsugi

MARK = "# --- the program ---\n"
SETTINGS = "# settings: "
WAIT_AT = 3  # the call before which `waited` waits for native code
SCALARS: tuple[Any, ...] = (
    *(1, 2, 0, 3, -2, True, False, 0.0, -0.0, 0.5, 2.5, float("inf"), float("nan"), 2**70),
    *(numpy.float64(1.5), numpy.int64(2), numpy.bool_(True), torch.tensor(2.0), torch.tensor(3)),
)
ALIKE: tuple[tuple[Any, ...], ...] = (
    (1, 2, 3, 5, 0, -2),
    (1, 2, 3, 4, 5),
    (0.5, 2.5, -1.5, 3.0, 0.0),
    (True, False),
)


@dataclasses.dataclass(frozen=True)
class Program:
    """`calls` are the numbers of the calls that are made; a call's number decides its arguments."""

    seed: int
    source: str
    prelude: str
    calls: tuple[int, ...]

    @staticmethod
    def generated(seed: int, calls: int) -> Program:
        generator = Generator(seed)
        source = generator.generate()
        return Program(seed, source, PRELUDE + generator.prelude(), tuple(range(calls)))

    @staticmethod
    def singles(seed: int, calls: int) -> list[Program]:
        """One program for each template of the grammar. Its seed is the first one plus its number."""
        found = []
        for family, table, text in templates():
            at = seed + len(found)
            generator = Generator(at, [family])
            source = generator.single(table, text)
            found.append(Program(at, source, PRELUDE + generator.prelude(), tuple(range(calls))))
        return found

    @property
    def name(self) -> str:
        return f"program_{self.seed}"

    def text(self, **settings: Any) -> str:
        """A file that `programs.py --run` takes."""
        head = json.dumps({"seed": self.seed, "calls": self.calls, **settings})
        how = "# PYTHONMALLOC=debug python tests/fuzz/programs.py --run THIS_FILE\n"
        return f"{how}{SETTINGS}{head}\n{self.prelude.strip()}\n{MARK}{self.source}"

    @staticmethod
    def read(text: str) -> tuple[Program, dict[str, Any]]:
        """The same, and the settings."""
        line = next(line for line in text.splitlines() if line.startswith(SETTINGS))
        settings = json.loads(line.removeprefix(SETTINGS))
        prelude, _, source = text.partition(MARK)
        return Program(settings.pop("seed"), source, prelude, tuple(settings.pop("calls"))), settings


# --- what depends on the seed ---


def varies(seed: int) -> bool:
    """Do the tensors of this program have another number of rows in each call?"""
    return seed % 2 == 1


def differentiated(seed: int) -> bool:
    return seed % 3 == 0


def starts_afresh(seed: int) -> bool:
    """Is the state as at the start before each call? Else what a call leaves behind is there in the next one."""
    return seed % 5 != 0


def tensors_of(seed: int, call: int, nudge: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Every eighth program gets infinities, NaN and zeros, every eighth strided tensors, every eighth sometimes
    float64, every sixteenth one tensor twice or two that share memory."""
    generator = torch.Generator().manual_seed(call)
    rows = (3, 5, 2, 6, 1, 4)[(call + seed // 2) % 6] if varies(seed) else 3
    x, y = (torch.randn((rows, 4), generator=generator) * (1 + nudge) for _ in range(2))
    kind = seed // 7 % 16
    if kind in (4, 5):
        x[0] = torch.tensor([float("inf"), float("nan"), -0.0, 0.0]).roll(call)
        y[-1, call % 4] = -0.0
    elif kind in (6, 7):
        x = x.t().contiguous().t()
    elif kind in (8, 9) and call % 3 == 2:
        x, y = x.double(), y.double()
    elif kind == 10:
        y = x if call % 2 else y
    elif kind == 11:
        y = x[:, [0, 1, 2, 3]] if call % 3 else x.view(rows, 4)
    return x, y


def inputs_of(seed: int, nudge: float = 0.0) -> Callable[[int], tuple[Any, ...]]:
    def inputs(call: int) -> tuple[Any, ...]:
        x, y = tensors_of(seed, call, nudge)
        rest = (call, 2)[: 1 + call % 2] if seed // 4 % 6 == 0 and call % 3 else ()
        k = 1 + (call if seed % 16 == 0 else call % 2 if seed % 4 == 0 else seed % 2)
        return (x, y, k, *rest)

    return inputs


def keywords_of(seed: int) -> Callable[[int], dict[str, Any]]:
    """Which come and go from call to call; every third program has none. In every second one the number `s` is mostly
    of one type, so that traces leave it open."""
    alike = seed // 12 % 2 == 1
    pool = random.Random(seed).choice(ALIKE)

    def keywords(call: int) -> dict[str, Any]:
        drawn = random.Random(seed * 31 + call)
        if seed // 4 % 3 == 0:
            return {}
        found: dict[str, Any] = {}
        if drawn.random() < (0.9 if alike else 0.6):
            found["s"] = drawn.choice(pool if alike and drawn.random() < 0.75 else SCALARS)
        if drawn.random() < 0.4:
            x, _ = tensors_of(seed, call, 0.0)
            found["mask"] = (x > 0).float()
        if drawn.random() < 0.3:
            found["extra"] = drawn.randint(0, 3)
        if drawn.random() < 0.3:
            found["scale"] = drawn.choice((2, 0.5))
        return dict(drawn.sample(sorted(found.items(), key=lambda item: item[0]), len(found)))

    return keywords


# --- the state of one side ---

AT_THE_START = process_flags.read()


@dataclasses.dataclass
class State(harness.Watched):
    """The globals of one side, and which call is next."""

    space: dict[str, Any]
    log: list[Any]
    box: Any
    next_calls: list[int]
    afresh: bool
    waits: bool
    call: int = 0

    def prepare(self) -> None:
        """Before each call."""
        if self.afresh:
            self.restore()
        if self.waits and self.call == WAIT_AT:
            kintsugi.wait(60)
        number = self.next_calls[self.call]
        self.call += 1
        try:
            self.space["between"](number, self.log, self.box)
        except Exception as error:
            self.log.append(type(error).__name__)

    def restore(self) -> None:
        """The objects stay the same ones; what is in them is as it was made."""
        space = self.space
        process_flags.restore(AT_THE_START)
        self.log.clear()
        if self.box is not None:
            space["restore_box"](self.box)
        if "squared" in space:
            space["squared"].cache_clear()
        for name, text in STATE.items():
            if name not in space:
                continue
            value = eval(text, space)
            if isinstance(value, int):
                space[name] = value
            else:
                space[name].clear()
                getattr(space[name], "update" if isinstance(value, dict) else "extend")(value)
        for name in [name for name in space if name.startswith("restore_") and name != "restore_box"]:
            space[name]()


def as_case(
    program: Program,
    *,
    grad: bool = True,
    nudge: float = 0.0,
    inner: Callable[[Any], Any] = lambda fn: fn,
    waits: bool = False,
    afresh: bool | None = None,
) -> harness.Case:
    """The program with fresh state a side. `inner` is what functions that it compiles by itself go through."""
    filename = f"<generated {program.name}>"
    text = program.prelude + "\n" + program.source
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    code = compile(text, filename, "exec", dont_inherit=True)
    seed = program.seed
    grad = grad and differentiated(seed)
    fresh = starts_afresh(seed) if afresh is None else afresh
    inputs, keywords, calls = inputs_of(seed, nudge), keywords_of(seed), program.calls

    def start() -> tuple[Any, ...]:
        process_flags.restore(AT_THE_START)
        torch.utils.hooks.RemovableHandle.next_id = 0
        torch.manual_seed(seed)  # for modules that a prelude makes
        module = sys.modules["generated"] = types.ModuleType("generated")
        space = vars(module)
        space["INNER"] = inner
        exec(code, space)
        log: list[Any] = []
        box = space["Box"](1) if "Box" in space else None
        if box is not None:
            box.w.requires_grad_(grad)
            box.net.requires_grad_(grad)

        def look() -> Any:
            counted = [str(space["squared"].cache_info())] if "squared" in space else []
            return [*(space[name] for name in STATE if name in space), *counted]

        state = State(look, space, log, box, list(calls), fresh, waits)
        state.restore()
        return space["entry"](log, box), log, box, state

    start.__name__ = program.name
    return harness.Case(
        start,
        lambda call: inputs(calls[call]),
        lambda call: keywords(calls[call]),
        True,
        len(calls),
        None,
        None,
        grad,
        lambda state: state[2].prepare(),
    )
