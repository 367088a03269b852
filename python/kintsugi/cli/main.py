"""The commands and their options; the work is done in one module a command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="kintsugi",
    help="A tracing JIT for PyTorch that mends graph breaks.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import _requirements

        typer.echo(f"kintsugi {_requirements.VERSION}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """A tracing JIT for PyTorch that mends graph breaks."""


@app.command()
def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show versions and settings, and look for common faults.

    Exit code 1 if something is wrong.
    """
    from .doctor import run

    raise typer.Exit(run(as_json=json))


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    }
)
def explain(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="A Python script that compiles something.")],
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, after the script's own output.")
    ] = False,
    torch_compile: Annotated[
        bool,
        typer.Option("--torch-compile/--no-torch-compile", help="Also take over the script's torch.compile."),
    ] = True,
) -> None:
    """Run a script and say what was captured of each compiled callable, where it was split, and why.

    Arguments after SCRIPT are the script's: kintsugi explain train.py --epochs 1
    """
    from .explain import run

    raise typer.Exit(run(script, context.args, as_json=json, take_torch=torch_compile))


def main() -> None:
    """The console script."""
    app()
