"""The library imports only what it depends on; what the command and its reports import is in extras."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import kintsugi
from kintsugi._command import EXTRAS, advice

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(kintsugi.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What a package is called on an index where that is not the name it is imported by.
DISTRIBUTIONS = {"markdown_it": "markdown-it-py"}
# Imported by what pytest loads, by programs of the knowledge base, and by what takes functions of numpy.
OTHERS = {"pytest", "_pytest", "torch", "numpy"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def without_extras(code: str) -> subprocess.CompletedProcess[str]:
    """Runs code where no package of an extra can be imported."""
    head = f"import sys\nsys.modules.update(dict.fromkeys({sorted(EXTRAS)!r}))\n"
    return subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=240)


def test_every_import_is_a_dependency_or_in_an_extra() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if "reproducers" not in path.parts]
    roots = {name.split(".")[0] for path in files for name in imported(ast.parse(path.read_text()))}
    foreign = {root for root in roots if root not in sys.stdlib_module_names and root != "kintsugi"}
    assert foreign - OTHERS == set(EXTRAS)


def test_the_extras_are_those_of_the_project() -> None:
    for extra, requirements in PROJECT["optional-dependencies"].items():
        names = {re.split(r"[<>=; ]", text)[0] for text in requirements}
        assert names == {DISTRIBUTIONS.get(name, name) for name, of in EXTRAS.items() if of == extra}
    assert set(EXTRAS.values()) == set(PROJECT["optional-dependencies"])
    assert all(text.startswith("torch>") for text in PROJECT["dependencies"])


def test_the_library_needs_no_extra() -> None:
    done = without_extras(
        "import kintsugi, torch\n"
        "fast = kintsugi.compile(torch.nn.Linear(2, 2))\n"
        "x = torch.ones(1, 2)\n"
        "assert torch.equal(fast(x), fast(x))\n"
        "print(fast.stats(), kintsugi.explain(lambda x: x + 1)(x))\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [[], ["doctor"], ["--version"]])
def test_the_command_names_the_extra(arguments: list[str]) -> None:
    done = without_extras(
        f"sys.argv = ['kintsugi', *{arguments!r}]\nfrom kintsugi._command import main\nmain()\n"
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "kintsugi: this needs the package typer: pip install 'kintsugi-torch[cli]'\n", (
        done.stderr
    )


def test_a_report_names_its_extra_before_the_script_runs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('ran')\n")
    code = (
        f"sys.argv = ['kintsugi', 'explain', '--html', {str(tmp_path / 'r.html')!r}, {str(script)!r}]\n"
        "for name in ('typer', 'rich', 'pydantic', 'markdown_it'):\n"
        "    del sys.modules[name]\n"
        "from kintsugi._command import main\nmain()\n"
    )
    done = without_extras(code)
    assert done.returncode == 1 and "ran" not in done.stdout
    assert done.stderr.endswith("pip install 'kintsugi-torch[report]'\n")


def test_other_missing_modules_are_not_ours_to_explain() -> None:
    assert advice(ModuleNotFoundError("no", name="rich.table")) is not None
    assert advice(ModuleNotFoundError("no", name="richer")) is None
