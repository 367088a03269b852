"""The console script. What only the command needs is not installed with the library: this says which extra has it."""

from __future__ import annotations

import sys

# The extra that installs a package: `import kintsugi` needs none of them (pyproject.toml).
EXTRAS = {
    "jinja2": "report",
    "markdown_it": "cli",
    "markupsafe": "report",
    "pydantic": "cli",
    "rich": "cli",
    "typer": "cli",
}


def advice(error: ModuleNotFoundError) -> str | None:
    """One sentence about a package that an extra has; None for others."""
    extra = EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None:
        return None
    return f"this needs the package {error.name}: pip install 'kintsugi-torch[{extra}]'"


def main() -> None:
    """Runs the command. Exit code 1 if a package is missing."""
    try:
        from .cli import main as run

        run()
    except ModuleNotFoundError as error:
        text = advice(error)
        if text is None:
            raise
        sys.exit(f"kintsugi: {text}")
