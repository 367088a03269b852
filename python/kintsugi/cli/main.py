"""The commands and their options; the work is done in one module a command."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from .kb import app as kb

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
    under: Annotated[
        str,
        typer.Option("--under", help="kintsugi, or torch: run under torch.compile and explain its breaks."),
    ] = "kintsugi",
    lang: Annotated[str, typer.Option("--lang", help="Language of advice: en or zh.")] = "en",
    html: Annotated[Path | None, typer.Option(help="Write a report, one HTML file.")] = None,
    perfetto: Annotated[Path | None, typer.Option(help="Write a trace for ui.perfetto.dev.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF 2.1.0, for code review.")] = None,
    structured: Annotated[Path | None, typer.Option(help="Write a structured trace, for tlparse.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the run, for kintsugi report.")] = None,
    max_breaks: Annotated[
        int | None, typer.Option(help="Exit code 1 with more graph breaks than this.")
    ] = None,
) -> None:
    """Run a script and say what was captured of each compiled callable, where it was split, and why.

    Arguments after SCRIPT are the script's. The exit code is the script's.

    Examples: kintsugi explain train.py --epochs 1     kintsugi explain --html report.html train.py
    """
    from .common import language, stop
    from .explain import Outputs, run, run_under_torch

    chosen = language(lang)
    if under == "torch":
        raise typer.Exit(run_under_torch(script, context.args, as_json=json, language=chosen))
    if under != "kintsugi":
        stop(f"--under is kintsugi or torch, not {under!r}")
    outputs = Outputs(html, perfetto, sarif, structured, save)
    raise typer.Exit(
        run(
            script,
            context.args,
            as_json=json,
            take_torch=torch_compile,
            outputs=outputs,
            most_breaks=max_breaks,
            language=chosen,
        )
    )


@app.command()
def report(
    run_file: Annotated[Path, typer.Argument(metavar="RUN.json", help="What explain --save wrote.")],
    html: Annotated[Path | None, typer.Option(help="Write the report here.")] = None,
    perfetto: Annotated[Path | None, typer.Option(help="Write a trace for ui.perfetto.dev.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF 2.1.0, for code review.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the run's figures.")] = False,
) -> None:
    """Render a saved run.

    Example: kintsugi explain --save run.json train.py && kintsugi report run.json --html report.html
    """
    from .common import print_json
    from .explain import Outputs
    from .report import read, run

    if json:
        print_json(read(run_file)["profile"])
        raise typer.Exit(0)
    if html is None and perfetto is None and sarif is None:
        html = run_file.with_suffix(".html")
    raise typer.Exit(run(run_file, Outputs(html=html, perfetto=perfetto, sarif=sarif)))


@app.command()
def bench(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[FILE[:NAME]]", help="A script and a callable in it; none: a small network."),
    ] = None,
    inputs: Annotated[str, typer.Option(help="The arguments, or a function that returns them.")] = "inputs",
    backend: Annotated[list[str] | None, typer.Option(help="Backends of Kintsugi (may be repeated).")] = None,
    peer: Annotated[bool, typer.Option("--peer/--no-peer", help="Also torch.compile.")] = False,
    warmup: Annotated[int, typer.Option(min=0)] = 50,
    runs: Annotated[int, typer.Option(min=1)] = 200,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure eager beside compiled: medians of interleaved calls.

    Example: kintsugi bench model.py:net --inputs example --peer
    """
    from .bench import run

    chosen = backend or ["eager", "native"]
    raise typer.Exit(
        run(target, inputs=inputs, backends=chosen, peer=peer, warmup=warmup, runs=runs, as_json=json)
    )


@app.command()
def advise(
    target: Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A script and a function in it.")],
    inputs: Annotated[str, typer.Option(help="The arguments, or a function that returns them.")] = "inputs",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say where to compile, and which rewrites were tried and keep the results.

    Example: kintsugi advise train.py:main --inputs example
    """
    from .advise import run

    raise typer.Exit(run(target, inputs=inputs, as_json=json))


app.add_typer(kb)


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):  # a file's name may be no text that can be encoded
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
