"""Tables of the book's rows, as Markdown: a body for each block. Every row ends with its commit and date."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench.deploy.models import MODELS
from bench.deploy.systems import SYSTEMS
from bench.figures.book import Book, Row
from bench.measure import geometric_mean
from bench.programs.table import WORST_WINDOW

REPLAY, NATIVE = "kintsugi", "kintsugi native"
PEER, INDUCTOR = "torch.compile(eager)", "torch.compile(inductor)"
NONE = ""
# Columns, like beside like: replay beside the backend that compiles nothing, native code beside inductor.
LIKE = (("eager", "eager"), (PEER, "torch.compile, backend eager"), (REPLAY, "replay"), (INDUCTOR, "inductor"),
        (NATIVE, "native"))  # fmt: skip
OURS = ", our allocator"
COMPILED = (("eager", "eager"), (f"eager{OURS}", f"eager{OURS}"), (PEER, "torch.compile, backend eager"),
            (REPLAY, "replay"), (INDUCTOR, "inductor"), (f"{INDUCTOR}{OURS}", f"inductor{OURS}"),
            (NATIVE, "native"))  # fmt: skip


def _of(book: Book, part: str) -> dict[str, Row]:
    """Rows of a part, by the name behind it."""
    return {key.split("/", 1)[1]: row for key, row in book.items() if key.startswith(part + "/")}


def _origin(rows: Iterable[Row]) -> str:
    """Commits and dates; several commits of a day share it."""
    days: dict[str, list[str]] = {}
    for row in rows:
        commits = days.setdefault(row["date"], [])
        commits += [row["commit"]] if row["commit"] not in commits else []
    return "; ".join(f"{' '.join(f'`{each}`' for each in days[date])}, {date}" for date in sorted(days))


_SOME_MODELS = re.compile(r"(?<= --models )[^ \"]+")


def _merged(commands: Iterable[str]) -> list[str]:
    """Commands that differ in their --models alone are one, with all of these."""
    found: dict[str, list[str]] = {}
    for command in commands:
        match = _SOME_MODELS.search(command)
        chosen = found.setdefault(_SOME_MODELS.sub("{}", command), [])
        chosen += [name for name in (match[0].split(",") if match else ()) if name not in chosen]
    return [command.format(",".join(chosen)) for command, chosen in found.items()]


def _commands(rows: Iterable[Row]) -> str:
    """The commands, and how much else the machine did when they began."""
    rows = list(rows)
    commands = _merged(row["command"] for row in rows)
    said = "Measured by " + ", ".join(f"`{command}`" for command in commands)
    machines = [row["machine"] for row in rows if "load" in row.get("machine", {})]
    if machines:
        cores = max(machine["cpus"] for machine in machines)
        loads = [machine["load"][0] for machine in machines]
        span = f"{min(loads):g}" if min(loads) == max(loads) else f"{min(loads):g} to {max(loads):g}"
        said += f"; the machine has {cores} cores, its load from other work was {span} when these began"
    return said + "."


def _table(head: Sequence[str], lines: Iterable[Sequence[str]], rows: Sequence[Row]) -> str:
    """A table whose last column is where the figures are from, and the commands below it."""
    made = ["| " + " | ".join([*head, "commit, date"]) + " |", "|" + "---|" * (len(head) + 1)]
    made += ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(made) + "\n\n" + _commands(rows) + "\n"


def _number(value: float | None, factor: float = 1.0, form: str = ".3g") -> str:
    if value is None:
        return NONE
    text = f"{factor * value:{form}}"
    return f"{float(text):.0f}" if "e" in text else text


def _failed(row: Row, columns: int) -> list[str]:
    return [row["figures"]["error"], *[NONE] * (columns - 1)]


def _deployed(row: Row) -> str:
    if "error" in row:
        return "fails"
    text = _number(row["cpu_s"], 1e3)
    return f"{text} (replayed)" if row.get("native_segments") == 0 else text


def _deployments(book: Book) -> dict[str, Row]:
    return {name: row for name, row in _of(book, "inference").items() if name in MODELS}


def inference(book: Book) -> str:
    """Milliseconds of processor time a call, of each model and system."""
    rows = _deployments(book)
    names = [name for name in SYSTEMS if any(name in row["figures"] for row in rows.values())]
    lines = []
    for name, model in MODELS.items():
        if name in rows:
            figures = rows[name]["figures"]
            cells = [_deployed(figures[system]) if system in figures else NONE for system in names]
            lines.append([model.title, *cells, _origin([rows[name]])])
    head = ["ms of processor time a call", *(SYSTEMS[name].title for name in names)]
    failures = [
        f"* {MODELS[name].title}, {SYSTEMS[system].title}: {figures['error']}"
        for name, row in rows.items()
        for system, figures in row["figures"].items()
        if "error" in figures
    ]
    return _table(head, lines, list(rows.values())) + ("\n" + "\n".join(failures) + "\n" if failures else "")


PROCESS: tuple[tuple[str, str, float], ...] = (
    ("first_s", "first call, s", 1),
    ("start_s", "with the process's start and imports, s", 1),
    ("ready_s", "until compiled code runs, s", 1),
    ("resident_mb", "resident, MB", 1),
    ("peak_mb", "peak while running, MB", 1),
    ("compile_peak_mb", "peak while compiling, MB", 1),
    ("beyond_mb", "a call's tensors beyond inputs, MB", 1),
)
# What a second process on the first one's caches has no cold figure of.
WARM = ("inductor-pool",)
COLD = ("first_s", "start_s", "ready_s", "compile_peak_mb")


def _process_cells(system: str, figures: Sequence[Row]) -> list[str]:
    cells = []
    for key, _, factor in PROCESS:
        values = [row[key] for row in figures if key in row]
        warm = system in WARM and key in COLD
        cells.append(NONE if warm or not values else _number(statistics.median(values), factor))
    return cells


def process(book: Book) -> str:
    """Medians over the models: a cold first call, and the memory of a process of one's own."""
    rows = _deployments(book)
    lines = []
    for system in SYSTEMS:
        having = [
            row for row in rows.values() if system in row["figures"] and "error" not in row["figures"][system]
        ]
        if having:
            cells = _process_cells(system, [row["figures"][system] for row in having])
            lines.append([SYSTEMS[system].title, str(len(having)), *cells, _origin(having)])
    head = ["median of the models", "models", *(title for _, title, _ in PROCESS)]
    return _table(head, lines, list(rows.values()))


def processes(book: Book) -> str:
    """The same for each model and system, with the difference from eager mode."""
    lines = []
    rows = _deployments(book)
    for name, row in rows.items():
        for system, figures in row["figures"].items():
            title = [MODELS[name].title, SYSTEMS[system].title]
            if "error" in figures:
                cells = _failed({"figures": figures}, len(PROCESS) + 4)
            else:
                cells = [
                    _number(figures["cpu_s"], 1e3),
                    _number(figures["seconds"], 1e3),
                    _number(figures.get("speedup")),
                    *_process_cells(system, [figures]),
                    f"{figures['difference']:.1g}",
                ]
            lines.append([*title, *cells, _origin([row])])
    head = [
        "model",
        "system",
        "ms of processor time",
        "ms by the clock",
        "× eager",
        *(title for _, title, _ in PROCESS),
        "difference, relative",
    ]
    return _table(head, lines, list(rows.values()))


def overhead(book: Book) -> str:
    """Microseconds of calls that do little: backends that compile nothing side by side, compilers side by side."""
    lines, used = [], []

    def add(title: str, row: Row, cells: Sequence[str]) -> None:
        used.append(row)
        cells = _failed(row, len(LIKE)) if "error" in row["figures"] else cells
        lines.append([title, *cells, _origin([row])])

    for key, title, field in (
        ("tiny", "`x + 1` on four numbers: above (eager's call)", "excess_us"),
        ("executor", "one of a hundred small kernels in a row", "us"),
    ):
        if key in book:
            figures = book[key]["figures"]
            eager = figures.get("eager", {})
            first = f"({_number(eager['seconds'], 1e6)})" if "seconds" in eager else _number(eager.get("us"))
            form = ".1f" if field == "excess_us" else ".3g"  # a difference of two times is no better
            rest = [_number(figures.get(name, {}).get(field), form=form) for name, _ in LIKE[1:]]
            add(title, book[key], [first, *rest])
    for name, row in _of(book, "guards").items():
        less = {own: _less_work(row["figures"], own) for own in (REPLAY, NATIVE)}
        title = f"{name}: a call less its operators (replay) or native segments"
        add(title, row, [less.get(system, NONE) for system, _ in LIKE])
    return _table(["µs", *(title for _, title in LIKE)], lines, used)


def _less_work(figures: Row, system: str) -> str:
    found = (row["us"] for key, row in figures.items() if key.startswith(f"{system}, call less"))
    return _number(next(found, None))


def kept_results(book: Book) -> str:
    """One FX backend, which returns what it has kept, under torch.compile and under Kintsugi."""
    rows = _of(book, "guards")
    lines = []
    for name, row in rows.items():
        figures = row["figures"]
        calls = [_number(figures.get(f"{system}, kept results", {}).get("us")) for system in (PEER, REPLAY)]
        lines.append([name, *(_failed(row, 2) if "error" in figures else calls), _origin([row])])
    head = ["µs a call, FX backend that returns kept results", "torch.compile", "Kintsugi"]
    return _table(head, lines, list(rows.values()))


def _mean_and_worst(values: Sequence[float]) -> str:
    return f"{geometric_mean(values):.2f}; {min(values):.2f}" if values else NONE


def programs(book: Book) -> str:
    """Programs that break graphs, and sizes that vary: like beside like, and native code beside inductor."""
    lines = []
    systems = [name for name, _ in LIKE[1:]]
    rows = _of(book, "breaks")
    good = [row["figures"] for row in rows.values() if "error" not in row["figures"]]
    if good:
        speed = [
            _mean_and_worst([f[n]["speedup"] for f in good if "speedup" in f.get(n, {})]) for n in systems
        ]
        title = f"{len(good)} of {len(rows)} programs that break graphs, × eager: geometric mean; worst"
        lines.append([title, *speed, _origin(rows.values())])
        first = [[1e3 * f[n]["first_s"] for f in good if "first_s" in f.get(n, {})] for n in systems]
        spans = [f"{min(times):.0f}–{max(times):.0f}" if times else NONE for times in first]
        lines.append(
            [
                "their first calls, each in a process of its own that has imported everything, ms",
                *spans,
                _origin(rows.values()),
            ]
        )
    shapes = _of(book, "shapes")
    for name, row in shapes.items():
        figures = row["figures"]
        if "error" in figures:
            lines.append([name, *_failed(row, len(systems)), _origin([row])])
            continue
        cells = []
        for system in systems:
            counts = figures.get(system, {}).get("counts", {})
            traces = counts.get("trace_count", counts.get("graph_count"))
            cells.append(NONE if traces is None else f"{traces}; {figures[system]['lost_s']:.2f} s")
        lines.append([f"{name}: traces; time lost to recording", *cells, _origin([row])])
    head = ["what", *(title for _, title in LIKE[1:])]
    return _table(head, lines, [*rows.values(), *shapes.values()])


def windows(book: Book) -> str:
    """Programs in which tensors are the smaller part, all of them together: multiples of eager mode's speed."""
    rows = _of(book, "programs")
    lines = []
    for system, title in LIKE[1:]:
        having = [row for row in rows.values() if system in row["figures"]]
        good = [row["figures"][system] for row in having if "windows" in row["figures"][system]]
        if not good:
            continue
        worst, steady, first = ([figures[key] for figures in good] for key in ("worst", "steady", "first"))
        cells = [
            f"{len(good)} of {len(having)}",
            str(sum(figures["differs"] is None for figures in good)),
            str(sum(window >= WORST_WINDOW for window in worst)),
            str(sum(share >= WORST_WINDOW for share in steady)),
            f"{statistics.median(steady):.2f}; {min(steady):.2f}",
            f"{statistics.median(first):.1f}; {max(first):.0f}",
        ]
        lines.append([title, *cells, _origin(having)])
    head = [
        "system",
        "programs",
        "equal results",
        f"no ten calls behind the tenth below {WORST_WINDOW} × eager",
        f"{WORST_WINDOW} × eager or more in the last calls",
        "last calls, × eager: median; worst",
        "first call by eager's: median; worst",
    ]
    return _table(head, lines, list(rows.values()))


def classes(book: Book) -> str:
    """Libraries' classes: how many there are in the sample, how many don't run in eager mode, and how the rest does."""
    rows = _of(book, "classes")
    lines = []
    for name, row in rows.items():
        figures = row["figures"]
        names = ("sampled", "excluded", "ran", "equal", "whole")
        lines.append([name, *(str(figures.get(key, NONE)) for key in names), _origin([row])])
    head = ["library", "classes", "excluded: no eager run this way", "ran", "equal in every bit", "no break"]
    return _table(head, lines, list(rows.values()))


def _timed(book: Book, part: str, head: str, names: Sequence[tuple[str, str]], factor: float) -> str:
    rows = _of(book, part)
    lines = []
    for name, row in rows.items():
        if "error" in row["figures"]:
            lines.append([name, *_failed(row, len(names)), _origin([row])])
            continue
        cells = [_number(row["figures"].get(key, {}).get("seconds"), factor) for key, _ in names]
        lines.append([name, *cells, _origin([row])])
    return _table([head, *(title for _, title in names)], lines, list(rows.values()))


def kernels(book: Book, part: str = "kernels") -> str:
    return _timed({k: r for k, r in book.items() if k != f"{part}/peaks"}, part, "µs", COMPILED, 1e6)


def kernels_avx2(book: Book) -> str:
    return kernels(book, "kernels_avx2")


def training(book: Book) -> str:
    return _timed(book, "training", "ms a step", COMPILED, 1e3)


def beside(book: Book) -> str:
    """This tree by an earlier one, group by group: the geometric mean of the cases' ratios, and the worst case."""
    lines = []
    rows = _of(book, "beside")
    for group, row in rows.items():
        cases = row["figures"]["cases"]
        middles = {name: case["quartiles"][1] for name, case in cases.items()}
        worst = max(middles, key=lambda name: middles[name])
        low, middle, high = cases[worst]["quartiles"]
        mean = geometric_mean(list(middles.values()))
        said = f"{worst}: {middle:.2f} ({low:.2f} to {high:.2f})"
        lines.append(
            [group, str(len(cases)), f"{mean:.3f}", said, f"`{row['figures']['there']}`", _origin([row])]
        )
    head = [
        "processor time, by that of the earlier tree",
        "cases",
        "geometric mean",
        "worst (quartiles)",
        "earlier",
    ]
    return _table(head, lines, list(rows.values()))


def bandwidth(book: Book) -> str:
    """The share of a copy's bandwidth, like beside like."""
    rows = {name: row for name, row in _of(book, "bandwidth").items() if name != "peaks"}
    lines = []
    for name, row in rows.items():
        if "error" in row["figures"]:
            lines.append([name, *_failed(row, len(LIKE) + 1), _origin([row])])
            continue
        moved = _number(row["figures"]["eager"]["bytes"], 1e-6, ".0f")
        shares = [row["figures"].get(key, {}).get("share") for key, _ in LIKE]
        cells = [NONE if share is None else f"{share:.0%}" for share in shares]
        lines.append([name.removesuffix(", large"), moved, *cells, _origin([row])])
    head = ["share of a copy's bandwidth", "MB", *(title for _, title in LIKE)]
    return _table(head, lines, list(rows.values()))


BLOCKS: dict[str, Callable[[Book], str]] = {
    table.__name__: table
    for table in (
        inference,
        process,
        processes,
        overhead,
        kept_results,
        programs,
        windows,
        classes,
        kernels,
        kernels_avx2,
        bandwidth,
        training,
        beside,
    )  # fmt: skip
}


def bodies(book: Book) -> dict[str, str]:
    """What each block says. A block of which nothing was measured says so."""
    made: dict[str, Any] = {}
    for name, table in BLOCKS.items():
        parts = {
            "inference": ("inference",), "process": ("inference",), "processes": ("inference",),
            "overhead": ("tiny", "executor", "guards"), "kept_results": ("guards",), "programs": ("breaks", "shapes"),
            "windows": ("programs",),
        }.get(name, (name,))  # fmt: skip
        known = any(key.split("/")[0] in parts for key in book)
        made[name] = table(book) if known else "Not measured yet.\n"
    return made
