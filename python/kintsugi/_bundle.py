"""Issue bundles: a zip file with a minimized reproducer, the inputs, the error, versions, settings, logs and events."""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import io
import json
import platform
import textwrap
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from ._events import EventLog

REPRODUCER = '''"""Made by kintsugi.issue_bundle: exits with 1 while the problem is there."""

import sys
from pathlib import Path

import torch

import kintsugi

{imports}
{source}


def outcome(fn):
    inputs = torch.load(Path(__file__).parent / "inputs.pt", weights_only=False)
    torch.manual_seed(0)
    try:
        return fn(*inputs), None
    except Exception as error:
        return None, f"{{type(error).__name__}}: {{error}}"


eager, eager_error = outcome({name})
compiled = kintsugi.compile({name}, backend={backend!r})
for call in range(3):
    result, error = outcome(compiled)
    if error != eager_error:
        print(f"call {{call}}: eager: {{eager_error}}, compiled: {{error}}")
        sys.exit(1)
    try:
        torch.testing.assert_close(result, eager, equal_nan=True)
    except (AssertionError, TypeError, ValueError) as difference:
        # Values that are no tensors can only be asked whether they are equal.
        if isinstance(eager, torch.Tensor) or (result is not eager and result != eager):
            print(f"call {{call}}: the results differ: {{difference}}")
            sys.exit(1)
reasons = compiled.breaks()
for reason in reasons:
    print(reason["code"], reason["message"], f"{{reason['file']}}:{{reason['line']}}")
sys.exit(1 if reasons else 0)
'''

Check = Callable[[Callable[..., Any]], bool]


def _source_tree(fn: Callable[..., Any]) -> ast.Module:
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(fn))))
    if not isinstance(tree.body[0], ast.FunctionDef):
        raise ValueError(f"{fn!r} is not defined by a def statement")
    tree.body[0].decorator_list = []
    return tree


def _function(tree: ast.Module, fn: Callable[..., Any]) -> Callable[..., Any]:
    namespace = dict(inspect.unwrap(fn).__globals__)
    namespace.update(inspect.getclosurevars(fn).nonlocals)
    exec(compile(ast.fix_missing_locations(tree), f"<reduced {fn.__name__}>", "exec"), namespace)
    made: Callable[..., Any] = namespace[fn.__name__]
    return made


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def minimize(fn: Callable[..., Any], check: Check, most_runs: int = 300) -> ast.Module:
    """The smallest function, by leaving out statements, for which `check` still holds."""
    tree = _source_tree(fn)
    runs = 0
    again = True
    while again:
        again = False
        count = sum(len(block) for block in _bodies(tree.body[0]))
        for position in reversed(range(count)):
            if runs >= most_runs:
                return tree
            candidate = copy.deepcopy(tree)
            at = position
            for block in _bodies(candidate.body[0]):
                if at < len(block):
                    block[at : at + 1] = [] if len(block) > 1 else [ast.Pass()]
                    break
                at -= len(block)
            if ast.dump(candidate) == ast.dump(tree):
                continue
            runs += 1
            with contextlib.suppress(Exception):
                if check(_function(candidate, fn)):
                    tree, again = candidate, True
                    break
    return tree


def _problem_of(fn: Callable[..., Any], args: tuple[Any, ...], backend: str) -> tuple[Any, ...]:
    """What is wrong, so that the same can be looked for in a smaller program; empty: nothing."""
    from ._public import compile

    def attempt(call: Callable[..., Any]) -> tuple[Any, str]:
        torch.manual_seed(0)
        try:
            return call(*copy.deepcopy(args)), ""
        except Exception as error:
            return None, type(error).__name__

    eager, eager_error = attempt(fn)
    compiled = compile(fn, backend=backend)
    for _ in range(3):
        result, error = attempt(compiled)
        if error != eager_error:
            return ("error", error)
        if not eager_error:
            try:
                torch.testing.assert_close(result, eager, equal_nan=True)
            except (AssertionError, TypeError, ValueError):
                if not isinstance(eager, torch.Tensor) and result == eager:
                    continue
                return ("result",)
    codes = sorted({event["code"] for event in compiled.breaks()})  # type: ignore[attr-defined]
    return ("breaks", *codes) if codes else ()


class NoProblemError(ValueError):
    """issue_bundle() found nothing to report."""


def issue_bundle(
    fn: Callable[..., Any], *args: Any, path: str | Path = "kintsugi-issue.zip", backend: str = "eager"
) -> Path:
    """Writes a zip file with all that a report needs; returns its path. `python repro.py` in it shows the problem.

    The problem is looked for: an exception that eager mode does not raise, another result, or graph breaks. The
    function is made smaller as long as the same problem stays. NoProblemError: there is none, and nothing is written.
    """
    from . import _logs
    from ._config import current

    if isinstance(fn, torch.nn.Module):
        raise ValueError(
            "issue_bundle takes a function; for a module, write a function that makes and calls it"
        )
    fn = getattr(fn, "__wrapped__", fn)
    problem = _problem_of(fn, args, backend)
    if not problem:
        raise NoProblemError(
            f"kintsugi.issue_bundle: no problem was found with {getattr(fn, '__name__', fn)!r} and backend "
            f"{backend!r}: three calls did what eager mode does, without a graph break. Nothing was written."
        )
    tree = minimize(fn, lambda smaller: _problem_of(smaller, args, backend) == problem)
    lines: list[str] = []
    error_text = ""
    with EventLog() as log, _logs.collecting(lines):
        try:
            _problem_of(fn, args, backend)
        except Exception:
            error_text = traceback.format_exc()
    settings = current()
    assert settings is not None
    inputs = io.BytesIO()
    torch.save(args, inputs)
    path = Path(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        source = ast.unparse(ast.fix_missing_locations(tree))
        bundle.writestr(
            "repro.py",
            REPRODUCER.format(imports=_imports(tree, fn), source=source, name=fn.__name__, backend=backend),
        )
        bundle.writestr("inputs.pt", inputs.getvalue())
        bundle.writestr("original.py", textwrap.dedent(inspect.getsource(inspect.unwrap(fn))))
        bundle.writestr("problem.json", json.dumps({"problem": problem, "error": error_text}, indent=2))
        bundle.writestr("versions.json", json.dumps(_versions(), indent=2))
        bundle.writestr("config.json", json.dumps(settings.to_dict(), indent=2, default=str))
        bundle.writestr("log.txt", "\n".join(lines))
        bundle.writestr("events.json", json.dumps([event.to_dict() for event in log.events]))
    return path


def _imports(tree: ast.Module, fn: Callable[..., Any]) -> str:
    """Import statements for the modules that the function names, and the source of functions that it calls."""
    import types

    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    known = {**inspect.unwrap(fn).__globals__, **inspect.getclosurevars(fn).nonlocals}
    lines: list[str] = []
    for name in sorted(names):
        value = known.get(name)
        if isinstance(value, types.ModuleType) and name not in ("torch", "kintsugi"):
            lines.append(f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}")
        elif isinstance(value, types.FunctionType) and name != fn.__name__:
            with contextlib.suppress(OSError):
                lines.append("\n\n" + textwrap.dedent(inspect.getsource(value)))
        elif isinstance(value, (int, float, str, bool)):
            lines.append(f"{name} = {value!r}")
    return "\n".join(lines)


def _versions() -> dict[str, str]:
    from . import _requirements

    return {
        "kintsugi": _requirements.VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
