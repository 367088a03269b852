"""`kintsugi kb`: the knowledge base."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .._text import printable
from .common import FAILED, INCOMPLETE, NOTHING, OK, print_json, say, stop
from .common import language as check_language

app = typer.Typer(
    name="kb",
    help="What messages mean, what helps, and what does not: find, show, list, verify, graph.",
    no_args_is_help=True,
)

Language = Annotated[str, typer.Option("--lang", help="en or zh.", metavar="en|zh")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FORMATS = ("terminal", "md", "html", "json")
Format = Annotated[
    str, typer.Option("--format", help="terminal, md, html or json.", metavar="|".join(FORMATS))
]
Folders = Annotated[
    list[Path] | None, typer.Option("--kb", help="A folder with entries of your own (may be repeated).")
]


def _check_format(name: str) -> str:
    name = "md" if name == "markdown" else name
    if name not in FORMATS:
        stop(f"unknown format {name!r}. Known: {', '.join(FORMATS)}.")
    return name


def _base(folders: list[Path] | None) -> Any:
    from ..kb import load

    base = load(folders or ())
    for problem in base.problems:
        say(f"kintsugi kb: left out: {problem}")
    return base


def _status(base: Any, code: int = OK) -> int:
    return INCOMPLETE if base.problems and code == OK else code


def _entry(base: Any, name: str) -> Any:
    try:
        return base.find(name)
    except KeyError as error:
        stop(str(error))


@app.command()
def match(
    file: Annotated[str, typer.Argument(help="A log or traceback; - is stdin.")] = "-",
    lang: Language = "en",
    format: Format = "terminal",
    json: Json = False,
    kb: Folders = None,
) -> None:
    """Find known messages in a log of any size and say what to do.

    Exit codes: 0 found, 3 nothing found, 2 the file can't be read, 4 some entries of --kb could not be used.

    Examples: kintsugi kb match train.log --format md     python train.py 2>&1 | kintsugi kb match - --lang zh
    """
    language = check_language(lang)
    chosen = _check_format("json" if json else format)
    base = _base(kb)
    from ..kb.matching import EntryMatcher, MatcherMissing

    try:
        matcher = EntryMatcher(base)
    except MatcherMissing as error:
        stop(str(error), FAILED)
    for problem in matcher.problems:
        say(f"kintsugi kb: left out: {problem}")
    base.problems += matcher.problems
    found = _match_file(matcher, file)
    if chosen == "json":
        print_json([_match_dict(item) for item in found])
    elif chosen == "md":
        print(matches_to_markdown(found, language), end="")
    elif chosen == "html":
        from ..kb.render import markdown_to_html

        print(markdown_to_html(matches_to_markdown(found, language)), end="")
    else:
        _print_matches(found, language)
    raise typer.Exit(_status(base, OK if found else NOTHING))


def matches_to_markdown(found: list[Any], language: Any) -> str:
    """A document: what was found, each with the line, how often, and its entry."""
    from ..kb.render import occurrence, to_markdown, word

    if not found:
        return word("nothing", language) + "\n"
    parts = []
    for item in found:
        longest = max(map(len, re.findall("`+", item.text)), default=0)
        fence = "`" * max(3, longest + 1)
        quoted = f"{fence}text\n{printable(item.text)}\n{fence}"
        where = occurrence(item.line, item.count, language)
        parts.append(f"{where}\n\n{quoted}\n\n{to_markdown(item.entry, language)}")
    return "\n---\n\n".join(parts)


def _match_file(matcher: Any, file: str) -> list[Any]:
    if file == "-":
        return list(matcher.match_file(sys.stdin.buffer))
    path = Path(file)
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            if size < 50_000_000 or not sys.stderr.isatty():
                return list(matcher.match_file(stream))
            from rich.console import Console
            from rich.progress import Progress

            with Progress(console=Console(stderr=True)) as progress:
                task = progress.add_task("reading", total=size)
                return list(matcher.match_file(stream, lambda read: progress.advance(task, read)))
    except OSError as error:
        stop(f"{file} can't be read: {error.strerror}")


def _match_dict(item: Any) -> dict[str, Any]:
    return {
        "id": item.entry.id,
        "line": item.line,
        "count": item.count,
        "text": item.text,
        "groups": item.groups,
        "signature": {"en": item.entry.signature, "zh": item.entry.signature_zh},
        "root_cause": {"en": item.entry.root_cause, "zh": item.entry.root_cause_zh},
        "workarounds": [
            {"en": work.action, "zh": zh, "success_rate": work.success_rate, "cited": work.cited}
            for work, zh in zip(item.entry.workarounds, item.entry.workarounds_zh, strict=True)
        ],
    }


def _print_matches(found: list[Any], language: Any) -> None:
    from rich.console import Console

    from ..kb.render import occurrence, to_rich, word

    console = Console()
    if not found:
        console.print(word("nothing", language))
    for item in found:
        console.rule(occurrence(item.line, item.count, language))
        console.print(printable(item.text), markup=False, highlight=False, style="dim")
        console.print(to_rich(item.entry, language))


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="An id, an alias or a code: KTG0101, GB0170.")],
    lang: Language = "en",
    json: Json = False,
    format: Format = "terminal",
    kb: Folders = None,
) -> None:
    """Show one entry.

    Examples: kintsugi kb show KTG0101     kintsugi kb show gb0170 --lang zh --format markdown
    """
    language = check_language(lang)
    chosen = _check_format("json" if json else format)
    base = _base(kb)
    entry = _entry(base, name)
    from ..kb import render

    if chosen == "json":
        print_json(render.as_dict(entry))
    elif chosen == "md":
        print(render.to_markdown(entry, language), end="")
    elif chosen == "html":
        print(render.to_html(entry, language), end="")
    else:
        from rich.console import Console

        Console().print(render.to_rich(entry, language))
    raise typer.Exit(_status(base))


@app.command("list")
def list_entries(lang: Language = "en", json: Json = False, kb: Folders = None) -> None:
    """List all entries."""
    language = check_language(lang)
    base = _base(kb)
    from ..kb.render import signature

    if json:
        print_json(
            [
                {"id": e.id, "signature": e.signature, "signature_zh": e.signature_zh, "code": e.error_code}
                | {"tier": e.verification_tier, "fix_success_rate": e.fix_success_rate, "n": e.evidence_count}
                for e in base
            ]
        )
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table("id", "signature" if language == "en" else "消息", "fix", "n", box=None)
        for entry in base:
            fixed = "" if entry.fix_success_rate is None else f"{100 * entry.fix_success_rate:.0f} %"
            table.add_row(entry.id, signature(entry, language), fixed, str(entry.evidence_count))
        Console().print(table)
    raise typer.Exit(_status(base))


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Entries; none: all with a reproducer.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the figures into the entries' files.")
    ] = False,
    json: Json = False,
    kb: Folders = None,
) -> None:
    """Run the reproducers against torch.compile and Kintsugi, and say what each remedy achieved.

    Exit code 1 if a reproducer could not be run, or a problem did not show as described.

    Examples: kintsugi kb verify KTG0101     kintsugi kb verify --write
    """
    base = _base(kb)
    chosen = (
        [_entry(base, name) for name in names] if names else [e for e in base if e.reproducer is not None]
    )
    from rich.console import Console
    from rich.progress import track

    from ..kb import verify as runner

    runner.prepare()
    console = Console(stderr=True)
    failed: list[str] = []
    rows: list[dict[str, Any]] = []
    for entry in track(chosen, "verifying", console=console, disable=not sys.stderr.isatty()):
        if entry.reproducer is None:
            failed.append(f"{entry.id}: it has no reproducer")
            continue
        try:
            fresh = runner.verify_in_child(entry)
        except RuntimeError as error:
            failed.append(str(error))
            continue
        assert fresh.evidence is not None
        if write:
            try:
                base.files[entry.id].write_text(fresh.dumps(), encoding="utf-8")
            except OSError as error:
                failed.append(f"{base.files[entry.id]} can't be written: {error.strerror}")
        missed = [s for s, found in fresh.evidence.problem.items() if found.failures]
        unseen = [m.id for m in fresh.members if m.measured and m.measured["torch.compile"].failures]
        if unseen:
            failed.append(f"{entry.id}: the reason did not show in every run of {', '.join(unseen)}")
        if missed:
            failed.append(f"{entry.id}: the problem did not show in every run of {', '.join(missed)}")
        rows.append(
            {"id": entry.id, "workarounds": [w.success_rate for w in fresh.workarounds]}
            | {"dead_ends": [d.fail_rate for d in fresh.dead_ends], "n": fresh.evidence_count}
            | {"whole": {s: 1 - found.rate for s, found in fresh.evidence.whole.items()}}
        )
    if json:
        print_json({"verified": rows, "failed": failed})
    else:
        _print_verified(rows)
    for text in failed:
        say(f"kintsugi kb verify: {text}")
    raise typer.Exit(FAILED if failed else _status(base))


def _print_verified(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    def shares(values: list[float | None]) -> str:
        return ", ".join("—" if value is None else f"{100 * value:.0f} %" for value in values)

    table = Table(
        "id", "workarounds succeed", "dead ends fail", "whole: torch.compile, kintsugi", "runs", box=None
    )
    for row in rows:
        whole = shares([row["whole"]["torch.compile"], row["whole"]["kintsugi"]])
        table.add_row(row["id"], shares(row["workarounds"]), shares(row["dead_ends"]), whole, str(row["n"]))
    Console().print(table)


@app.command()
def graph(
    format: Annotated[str, typer.Option("--format", help="dot, mermaid or json.")] = "dot",
    json: Json = False,
    kb: Folders = None,
) -> None:
    """Draw which entries lead to which: kintsugi kb graph | dot -Tsvg > kb.svg"""
    base = _base(kb)
    from ..kb import graph as graphs

    made = graphs.graph(base)
    for entry, other in made.unresolved:
        say(f"kintsugi kb: {entry} names {other}, which is no entry")
    if json or format == "json":
        print_json({"nodes": made.nodes, "edges": made.edges})
    elif format in ("dot", "mermaid"):
        print(graphs.to_dot(made) if format == "dot" else graphs.to_mermaid(made), end="")
    else:
        stop(f"unknown format {format!r}. Known: dot, mermaid, json.")
    raise typer.Exit(FAILED if made.unresolved else _status(base))
