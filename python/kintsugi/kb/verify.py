"""Runs the reproducers of entries against torch.compile and Kintsugi, and writes the figures into the entries.

A reproducer is a file with `problem(*inputs)` and one function for each remedy that is one; `inputs(k)` makes the
k-th inputs (without it: a 4 × 5 tensor). It may have CONFIG (settings of kintsugi.config), DYNAMO_CONFIG, DYNAMO (by
function, settings of torch._dynamo.config), BACKEND, KINTSUGI_BACKEND (for one side alone), and `around(run)`, which
makes Kintsugi's calls; `reproducer.function` of an entry names another problem. Each program is run in eager mode
first, which decides what is right; then it is compiled by each system, for each of three inputs and for dynamic=None,
True and False (a member's for None alone). torch.compile uses its backend `eager`, unless the backend is the problem:
breaks are made by the capture, which comes before the backend. Each entry has a forked child of its own.

What counts: a program is *whole* when its result is eager's and no break was reported. A workaround fails when it is
not whole or its result is not the problem's. A dead end fails in just the same way, which is what makes it one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib.util
import io
import os
import pickle
import platform
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from .model import Apply, DeadEnd, Entry, Evidence, Measured, Member, Workaround
from .statistics import measured
from .store import REPRODUCERS

SYSTEMS = ("torch.compile", "kintsugi")
INPUTS = 3
DYNAMIC = (None, True, False)
NOT_RUN = "not run"
SYSTEM_NAMES = {"Linux": "Linux", "Darwin": "macOS", "Windows": "Windows"}


@dataclasses.dataclass
class Outcome:
    """One run of one program."""

    reasons: list[str]
    """First lines of break reasons."""
    error: str = ""
    """That eager mode does not raise."""
    message: str = ""
    """Of any error."""
    same: bool = True
    """As in eager mode."""
    like_problem: bool = True
    """As the problem in eager mode."""

    @property
    def whole(self) -> bool:
        return not self.reasons and not self.error and self.same


def load_program(path: Path) -> ModuleType:
    """The module of a reproducer's file."""
    spec = importlib.util.spec_from_file_location(f"kintsugi_kb_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs_of(module: ModuleType, k: int) -> tuple[Any, ...]:
    import torch

    torch.manual_seed(k)
    if hasattr(module, "inputs"):
        made: tuple[Any, ...] = module.inputs(k)
        return made
    return (torch.randn(4, 5) + (1 if k % 2 == 0 else -1),)


def _equal(a: Any, b: Any) -> bool:
    import torch

    if type(a) is not type(b) and not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return False
    if isinstance(a, torch.Tensor):
        try:
            torch.testing.assert_close(a, b, equal_nan=True)
        except (AssertionError, RuntimeError, TypeError, ValueError, NotImplementedError):
            return bool(a.layout != torch.strided and a.shape == b.shape)
        return True
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if type(a).__module__ == "numpy":
        return _equal(torch.as_tensor(a), torch.as_tensor(b)) if a.dtype.kind in "biufc" else str(a) == str(b)
    try:
        return bool(a == b) or type(a).__module__.split(".")[0] not in ("builtins", "torch")
    except (RuntimeError, TypeError, ValueError):  # it holds tensors: all that is known is its type
        return True


def _eager(program: Callable[..., Any], module: ModuleType, k: int) -> tuple[Any, str]:
    try:
        return program(*inputs_of(module, k)), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


@contextlib.contextmanager
def dynamo_config(settings: dict[str, Any]) -> Iterator[None]:
    import torch._dynamo

    with torch._dynamo.config.patch(settings) if settings else contextlib.nullcontext():
        yield


def _run_torch(
    program: Callable[..., Any], module: ModuleType, k: int, dynamic: bool | None, apply: Apply
) -> tuple[Any, list[str], str, list[str]]:
    import torch._dynamo
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    own = getattr(module, "DYNAMO", {}).get(getattr(program, "__name__", ""), {})
    with dynamo_config({**getattr(module, "DYNAMO_CONFIG", {}), **own, **apply.config}):
        options = {"backend": getattr(module, "BACKEND", "eager"), "dynamic": dynamic, **apply.options}
        compiled = torch.compile(program, **options)
        result, error = None, ""
        try:
            for call in range(2):
                result = compiled(*inputs_of(module, k if call == 1 else (k + 1) % INPUTS))
        except Exception as caught:
            error = f"{type(caught).__name__}: {_first_line(caught)}"
    found = [*counters["graph_break"], *counters["unimplemented"]]
    return (
        result,
        list(dict.fromkeys(text.strip().splitlines()[0] for text in found if text.strip())),
        error,
        [],
    )


def backend_of(module: ModuleType) -> Any:
    """What Kintsugi compiles a reproducer with."""
    return getattr(module, "KINTSUGI_BACKEND", getattr(module, "BACKEND", "eager"))


def _run_kintsugi(
    program: Callable[..., Any], module: ModuleType, k: int, dynamic: bool | None, apply: Apply
) -> tuple[Any, list[str], str, list[str]]:
    import kintsugi

    from .. import _logs

    kintsugi.reset()
    settings = {**getattr(module, "CONFIG", {}), **apply.kintsugi}
    backend = apply.options.get("backend", backend_of(module))
    lines: list[str] = []
    with kintsugi.config.patch(settings) if settings else contextlib.nullcontext(), _logs.collecting(lines):
        mode = apply.options.get("mode")
        compiled: Any = kintsugi.compile(program, backend=backend, dynamic=dynamic, mode=mode)
        result, error = None, ""
        around = getattr(module, "around", lambda run: run())
        # All inputs in turn, the wanted ones last: events such as a recompilation need different ones.
        for call in (*range(k + 1, k + INPUTS), k):
            inputs = inputs_of(module, call % INPUTS)
            result, error = None, ""
            try:
                result = around(lambda inputs=inputs: compiled(*inputs))
            except Exception as caught:
                error = f"{type(caught).__name__}: {_first_line(caught)}"
        reasons = [f"{event['code']} {event['message']}" for event in compiled.breaks()]
    return result, reasons, error, [line for line in lines if "KTG" in line]


RUNNERS = {"torch.compile": _run_torch, "kintsugi": _run_kintsugi}


def _kind(error: str) -> str:
    """`ValueError` of `ValueError: text`."""
    return error.partition(":")[0]


def _outcomes(
    module: ModuleType,
    problem_name: str,
    function: str,
    apply: Apply,
    dynamic_settings: tuple[bool | None, ...] = DYNAMIC,
) -> dict[str, list[Outcome]]:
    program, problem = getattr(module, function), getattr(module, problem_name)
    found: dict[str, list[Outcome]] = {}
    for system in SYSTEMS:
        found[system] = []
        for k in range(INPUTS):
            right, right_error = _eager(program, module, k)
            wanted, wanted_error = _eager(problem, module, k)
            for dynamic in dynamic_settings:
                result, reasons, error, lines = RUNNERS[system](program, module, k, dynamic, apply)
                raised_alike = bool(error) and _kind(error) == _kind(right_error)
                found[system].append(
                    Outcome(
                        reasons,
                        "" if raised_alike else error,
                        "\n".join((error, *lines)),
                        raised_alike or (not right_error and _equal(result, right)),
                        bool(wanted_error) or _equal(result, wanted),
                    )
                )
    return found


def _problem_shows(outcome: Outcome, pattern: str | None) -> bool:
    if pattern is None:
        return outcome.whole
    return any(re.search(pattern, text) for text in (*outcome.reasons, outcome.message))


def _judge(outcomes: list[Outcome], goal: str, pattern: str | None) -> Measured:
    def works(o: Outcome) -> bool:
        shows = goal == "gone" and pattern is not None and _problem_shows(o, pattern)
        return o.like_problem and not o.error and (goal == "same" or o.whole) and not shows

    good = sum(map(works, outcomes))
    return measured(len(outcomes) - good, len(outcomes))


def verify_entry(entry: Entry, folder: Path = REPRODUCERS) -> Entry:
    """The entry with the figures of a run made now, in this process."""
    if entry.reproducer is None:
        return entry
    module = load_program(folder / entry.reproducer.file)
    expect = entry.reproducer.expect
    base = Apply(options=entry.reproducer.options)
    name = entry.reproducer.function
    problem = _outcomes(module, name, name, base)
    patterns = {"torch.compile": expect.torch_compile, "kintsugi": expect.kintsugi}
    shown = {
        system: measured(sum(not _problem_shows(o, patterns[system]) for o in runs), len(runs))
        for system, runs in problem.items()
        if patterns[system] is not None
    }
    whole = {system: measured(sum(not o.whole for o in runs), len(runs)) for system, runs in problem.items()}
    today = datetime.date.today()
    subject = "kintsugi" if entry.domain == "kintsugi" else "torch.compile"

    def run(remedy: Workaround | DeadEnd) -> dict[str, Measured]:
        assert remedy.apply is not None
        apply = remedy.apply.model_copy(update={"options": {**base.options, **remedy.apply.options}})
        outcomes = _outcomes(module, name, apply.function or name, apply)
        return {system: _judge(runs, apply.goal, patterns[system]) for system, runs in outcomes.items()}

    works, ends = [], []
    for work in entry.workarounds:
        if work.apply is not None:
            found = run(work)
            rate = round(1 - found[subject].rate, 4)
            work = work.model_copy(update={"measured": found, "success_rate": rate, "cited": False})
        works.append(work)
    for end in entry.dead_ends:
        if end.apply is not None:
            found = run(end)
            end = end.model_copy(update={"measured": found, "fail_rate": found[subject].rate, "cited": False})
        ends.append(end)
    changes = {
        "workarounds": works,
        "dead_ends": ends,
        "members": [_verify_member(module, member) for member in entry.members],
        "os_specific": _systems(entry, shown[subject]),
        "evidence": Evidence(date=today, versions=versions(), problem=shown, whole=whole),
        "verification_tier": "executed",
        "last_confirmed": today,
        "last_updated": today,
    }
    return _summarized(entry.model_copy(update=changes), subject)


def _verify_member(module: ModuleType, member: Member) -> Member:
    """Runs the program of one of torch's reasons, on each of the inputs."""
    if member.function is None:
        return member
    shown = re.escape(member.message)
    outcomes = _outcomes(module, member.function, member.function, Apply(), (None,))
    torch_runs, our_runs = (outcomes[system] for system in SYSTEMS)
    _, eager_error = _eager(getattr(module, member.function), module, 0)
    found = {
        "torch.compile": measured(sum(not _problem_shows(o, shown) for o in torch_runs), len(torch_runs)),
        "kintsugi": measured(sum(not o.whole for o in our_runs), len(our_runs)),
    }
    return member.model_copy(update={"measured": found, "eager": _kind(eager_error)})


def _systems(entry: Entry, shown: Measured) -> dict[str, str]:
    """What is known by system: here it was run."""
    known = {name: text for name, text in entry.os_specific.items() if text != NOT_RUN}
    here = f"shows as described in {shown.n - shown.failures} of {shown.n} runs"
    return {
        **dict.fromkeys(("Linux", "macOS", "Windows"), NOT_RUN),
        **known,
        SYSTEM_NAMES[platform.system()]: here,
    }


def _summarized(entry: Entry, subject: str) -> Entry:
    """With the figures that follow from the others."""
    assert entry.evidence is not None
    parts = [r.measured[subject] for r in entry.workarounds if r.measured]
    n = sum(m.n for m in parts)
    fixed = None if n == 0 else round(1 - sum(m.failures for m in parts) / n, 4)
    # How sure the entry is of itself: the problem showed as described, at least this often.
    confidence = round(1 - entry.evidence.problem[subject].interval[1], 4)
    best = max((r.success_rate or 0.0 for r in entry.workarounds if r.measured), default=None)
    if best is None:
        resolvable = entry.resolvable
    else:
        resolvable = "yes" if best == 1 else "partial" if best > 0 else "no"
    every = [*entry.evidence.problem.values()]
    every += [m for r in (*entry.workarounds, *entry.dead_ends) for m in r.measured.values()]
    every += [m for member in entry.members for m in member.measured.values()]
    return entry.model_copy(
        update={
            "fix_success_rate": fixed,
            "confidence": confidence,
            "resolvable": resolvable,
            "evidence_count": sum(m.n for m in every),
        }
    )


def versions() -> dict[str, str]:
    import torch

    import kintsugi

    return {
        "kintsugi": kintsugi.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
    }


def verify_in_child(entry: Entry) -> Entry:
    """The same in a forked child: no entry sees what another one did. Raises RuntimeError when the child dies."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        status = 1
        with contextlib.suppress(BaseException), os.fdopen(send, "wb") as out:
            answer: tuple[bool, str] = (False, "")
            try:
                with warnings.catch_warnings(), _quiet():
                    warnings.simplefilter("ignore")
                    answer = (True, verify_entry(entry).dumps())
            except Exception as error:
                answer = (False, f"{type(error).__name__}: {error}")
            pickle.dump(answer, out)
            status = 0
        os._exit(status)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    if not data:
        raise RuntimeError(f"{entry.id}: the process that ran its reproducer died")
    ok, text = pickle.loads(data)
    if not ok:
        raise RuntimeError(f"{entry.id}: {text}")
    return Entry.model_validate_json(text)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Reproducers print, and compilers log."""
    import logging

    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def prepare() -> None:
    """What all children need is imported once, before they are forked."""
    import torch._dynamo

    torch.set_num_threads(1)
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    torch._dynamo.reset()
