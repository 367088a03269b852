"""`kintsugi doctor`: what is installed, what is set, what is likely to be wrong."""

from __future__ import annotations

import dataclasses
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import kintsugi

from .. import _C
from .common import FAILED, OK, print_json


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


def _runs() -> Check:
    def work(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ x.T) + 1

    try:
        compiled = kintsugi.compile(work, backend="eager")
        value = torch.linspace(-1, 1, 12).reshape(3, 4)
        same = all(torch.equal(compiled(value), work(value)) for _ in range(3))
    except Exception as error:
        return Check("compile and run", False, f"{type(error).__name__}: {error}")
    return Check(
        "compile and run", same, "equal to eager" if same else "differs from eager: please report this"
    )


def _tracers() -> Check:
    active = [
        name for name, f in (("sys.settrace", sys.gettrace()), ("sys.setprofile", sys.getprofile())) if f
    ]
    return Check(
        "no tracer",
        not active,
        f"{' and '.join(active)} set: nothing is recorded while it is"
        if active
        else "no trace or profile function",
    )


def _cache_dir() -> Check:
    path = Path(kintsugi.config.cache_dir)
    kernels = path / "kernels"
    if kernels.exists() and (kernels.stat().st_uid != os.geteuid() or kernels.stat().st_mode & 0o022):
        return Check(
            "cache directory",
            False,
            f"{kernels} is not used: others own it or may write it; set KINTSUGI_CACHE_DIR",
        )
    parent = next(p for p in (path, *path.parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        return Check(
            "cache directory", False, f"{path} can't be written: {error.strerror}; set KINTSUGI_CACHE_DIR"
        )
    return Check("cache directory", True, str(path))


def _extension() -> Check:
    return Check("extension module", True, str(getattr(_C, "__file__", "built in")))


def _knowledge_base() -> Check:
    from ..kb import load
    from ..kb.matching import EntryMatcher, MatcherMissing

    base = load()
    if base.problems:
        return Check("knowledge base", False, base.problems[0])
    try:
        problems = EntryMatcher(base).problems
    except MatcherMissing as error:
        return Check("knowledge base", True, f"{len(base)} entries; kb match is not there: {error}")
    return Check("knowledge base", not problems, problems[0] if problems else f"{len(base)} entries")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _bytes(count: int) -> str:
    if count == 0:
        return "unknown"
    return f"{count >> 20} MiB" if count % (1 << 20) == 0 else f"{count >> 10} KiB"


def _target() -> str:
    """What machine code is made for, and what of it is known."""
    found = _C.target_info()
    limited = "" if found["level"] == found["machine"] else f" (the machine has {found['machine']})"
    caches = ", ".join(f"L{n} {_bytes(found[f'l{n}'])}" for n in (1, 2, 3))
    return (
        f"{found['level']}{limited}: {found['registers']} registers of {found['register_floats']} floats, "
        f"{'with' if found['fma'] else 'without'} fma; {caches}; pages of {_bytes(found['page'])}; "
        f"{found['cores']} cores"
    )


def collect() -> dict[str, Any]:
    """Everything that doctor knows."""
    checks = [_extension(), _tracers(), _cache_dir(), _knowledge_base(), _runs()]
    return {
        "versions": {
            "kintsugi": kintsugi.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "system": platform.platform(),
        },
        "hardware": {
            "cpu": _cpu(),
            "target": _target(),
            "threads": torch.get_num_threads(),
            "cuda": torch.cuda.is_available(),
        },
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith("KINTSUGI_")
        },
        "config": {
            name: str(value) if isinstance(value, Path) else value for name, value in _changed().items()
        },
        "backends": kintsugi.list_backends(),
        "checks": [dataclasses.asdict(check) for check in checks],
    }


def _changed() -> dict[str, Any]:
    defaults = type(kintsugi.config)().to_dict()
    return {name: value for name, value in kintsugi.config.to_dict().items() if value != defaults[name]}


def run(*, as_json: bool) -> int:
    """Prints the findings; returns the exit code."""
    found = collect()
    if as_json:
        print_json(found)
    else:
        _print(found)
    return OK if all(check["ok"] for check in found["checks"]) else FAILED


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(show_header=False, box=None, pad_edge=False)
    for group in ("versions", "hardware"):
        for name, value in found[group].items():
            table.add_row(name, str(value))
    table.add_row("backends", ", ".join(found["backends"]))
    for name, value in found["environment"].items():
        table.add_row(name, value)
    for name, value in found["config"].items():
        table.add_row(f"config.{name}", f"{value} (changed)")
    console.print(table)
    for check in found["checks"]:
        mark = "[green]ok[/]" if check["ok"] else "[red]fault[/]"
        console.print(f"{mark} {check['name']}: ", end="")
        console.print(check["detail"], markup=False, highlight=False)
