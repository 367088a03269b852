"""The tables of a benchmark's result, and its summary against the figures to reach."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.measure import geometric_mean
from bench.programs.table import programs_table, summarize_programs

Result = dict[str, Any]

# An eager call above this is not dominated by overhead, and its first call is held to a multiple of it.
LONG_CALL_S = 0.005


def _rows(part: Result | None) -> Result:
    return (part or {}).get("rows") or {}


def _why(part: Result) -> str:
    if "failed" in part:
        text = str(part["why"]).strip().splitlines()
        return f"{part['failed']}: {text[-1] if text else ''}"
    return ""


def _entries(result: Result, size: str | None = None) -> Iterator[tuple[str, Result]]:
    for key, entry in result.get("models", {}).items():
        if size in (None, entry["size"]):
            yield key, entry


def _ours(entry: Result, part: str = "steady") -> Result:
    return _rows(entry[part]).get("kintsugi") or {}


def whole(entry: Result) -> bool:
    counts = _ours(entry).get("counts", {})
    return (counts.get("graph_count"), counts.get("graph_break_count")) == (1, 0)


def _median(values: list[float]) -> float:
    values = sorted(values)
    return values[len(values) // 2] if values else math.nan


def summary(result: Result) -> Result:
    """Each figure: what was measured, the figure to reach, whether it is reached, and what falls short."""
    figures: Result = {}

    def add(name: str, value: float, goal: float, at_most: bool, short: list[str] | None = None) -> None:
        reached = not math.isnan(value) and (value <= goal if at_most else value >= goal)
        figures[name] = {
            "value": value,
            "goal": goal,
            "at_most": at_most,
            "reached": reached,
            "short": short or [],
        }

    if "tiny" in result:
        add(
            "tiny call, us above eager",
            _rows(result["tiny"]).get("kintsugi", {}).get("excess_us", math.nan),
            2,
            True,
        )
    if NATIVE in _rows(result.get("executor")):
        add(
            "native, one of 100 small kernels in a row, us",
            _rows(result["executor"])[NATIVE]["us"],
            0.2,
            True,
        )
    for name, goal in (("bert-12", 20), ("qwen2-24", 30)):
        if "guards" in result:
            for row, cost in _rows(result["guards"][name]).items():
                if row.startswith("kintsugi"):
                    add(f"{name}, {row}, us", cost.get("us", math.nan), goal, True)
    if result.get("breaks"):
        _summarize_breaks(result, add)
    for name, part in result.get("shapes", {}).items():
        traces = _rows(part).get("kintsugi", {}).get("counts", {}).get("trace_count", math.nan)
        add(f"{name}, traces", traces, 2, True)
    if result.get("models"):
        _summarize_models(result, add)
        _summarize_native(result, add)
    if result.get("kernels"):
        _summarize_kernels(result, add)
    if result.get("bandwidth"):
        _summarize_bandwidth(result, add)
    if result.get("programs"):
        summarize_programs(result, add)
    return figures


def _summarize_models(result: Result, add: Any) -> None:
    speed = {key: _ours(entry).get("speedup", math.nan) for key, entry in _entries(result)}
    ratio = {key: _ours(entry, "first").get("ratio", math.nan) for key, entry in _entries(result)}
    length = {
        key: _rows(entry["steady"]).get("eager", {}).get("seconds", 0.0) for key, entry in _entries(result)
    }
    tiny = [key for key, entry in _entries(result, "tiny") if not math.isnan(speed[key])]
    long = [key for key in ratio if length[key] > LONG_CALL_S and not math.isnan(ratio[key])]
    known = [value for value in speed.values() if not math.isnan(value)]
    slow = [f"{key} {ratio[key]:.2f}" for key in long if ratio[key] > 1.5]
    add("first call above 5 ms, x eager (median)", _median([ratio[key] for key in long]), 1.5, True)
    add(
        "first call above 5 ms, x eager (worst)",
        max([ratio[key] for key in long], default=math.nan),
        1.5,
        True,
        slow,
    )
    add("steady state, worst speed-up over eager", min(known, default=math.nan), 0.98, False,
        [f"{key} {value:.3f}" for key, value in speed.items() if value < 0.98])  # fmt: skip
    add(
        "steady state of tiny widths, speed-up (geometric mean)",
        geometric_mean([speed[key] for key in tiny]),
        1.2,
        False,
    )
    entries = dict(_entries(result))
    broken = [key for key, entry in entries.items() if not whole(entry)]
    add("captured as one trace with no break, share", 1 - len(broken) / len(entries), 0.95, False, broken)
    failed = [key for key, entry in entries.items() if not _ours(entry) or "error" in _ours(entry)]
    add("models that failed", len(failed), 0, True, failed)
    wrong = [f"{key} {_ours(entry)['difference']:.2g}" for key, entry in entries.items()
             if _ours(entry).get("difference", 0) != 0]  # fmt: skip
    add("models with a difference to eager", len(wrong), 0, True, wrong)


NATIVE, INDUCTOR = "kintsugi native", "torch.compile(inductor)"


def _summarize_native(result: Result, add: Any) -> None:
    """Native code against eager mode, and against inductor where that ran too."""
    steady = {key: _rows(entry["steady"]) for key, entry in _entries(result)}
    speed = {
        key: rows[NATIVE]["speedup"] for key, rows in steady.items() if "speedup" in rows.get(NATIVE, {})
    }
    if not speed:
        return
    slow = [f"{key} {value:.2f}" for key, value in speed.items() if value < 1]
    add("native, worst speed-up over eager", min(speed.values()), 1, False, slow)
    both = {key: rows for key, rows in steady.items() if key in speed and "seconds" in rows.get(INDUCTOR, {})}
    if not both:
        return
    ratio = {key: rows[INDUCTOR]["seconds"] / rows[NATIVE]["seconds"] for key, rows in both.items()}
    add("native over inductor, models (geometric mean)", geometric_mean([*ratio.values()]), 1.2, False)
    behind = [f"{key} {value:.2f}" for key, value in ratio.items() if value < 0.97]
    add("native over inductor, worst model", min(ratio.values()), 0.97, False, behind)
    first = {key: _rows(entry["first"]) for key, entry in _entries(result)}
    ready = [
        rows[NATIVE]["ready_s"] / rows[INDUCTOR]["ready_s"]
        for rows in first.values()
        if "ready_s" in rows.get(NATIVE, {}) and "ready_s" in rows.get(INDUCTOR, {})
    ]
    add("time until native, share of inductor's (median)", _median(ready), 1 / 20, True)
    memory = {
        key: rows[NATIVE]["peak_mb"] / max(rows[INDUCTOR]["peak_mb"], 1e-3) for key, rows in both.items()
    }
    over = [f"{key} {value:.2f}" for key, value in memory.items() if value > 1]
    add("peak memory of a call, x inductor's (worst)", max(memory.values()), 1, True, over)


def _summarize_kernels(result: Result, add: Any) -> None:
    rows = {name: _rows(part) for name, part in result["kernels"].items() if name != "peaks"}
    failed = [name for name, row in rows.items() if not row]
    add("kernels that failed", len(failed), 0, True, failed)
    native = {name: row for name, row in rows.items() if NATIVE in row}
    if not native:
        return
    speed = {name: row[NATIVE]["speedup"] for name, row in native.items()}
    slow = [f"{name} {value:.2f}" for name, value in speed.items() if value < 1]
    add("native kernels, worst speed-up over eager", min(speed.values()), 1, False, slow)
    ratio = {
        name: row[INDUCTOR]["seconds"] / row[NATIVE]["seconds"]
        for name, row in native.items()
        if INDUCTOR in row
    }
    behind = [f"{name} {value:.2f}" for name, value in ratio.items() if value < 1]
    if ratio:
        add(
            "native over inductor, kernels (geometric mean)",
            geometric_mean([*ratio.values()]),
            1.3,
            False,
            behind,
        )


def _summarize_bandwidth(result: Result, add: Any) -> None:
    rows = {name: _rows(part) for name, part in result["bandwidth"].items() if name != "peaks"}
    share = {name: row[NATIVE]["share"] for name, row in rows.items() if NATIVE in row}
    low = [f"{name} {value:.0%}" for name, value in share.items() if value < 0.85]
    add(
        "arrays beyond the cache, share of the bandwidth (median)",
        _median([*share.values()]),
        0.85,
        False,
        low,
    )


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{1e3 * value:.3f}"


def _systems(result: Result) -> list[str]:
    """Every system but eager, in the order of the run."""
    found: dict[str, None] = {}
    for _, entry in _entries(result):
        for part in ("first", "steady"):
            found |= dict.fromkeys(name for name in _rows(entry[part]) if name != "eager")
    return list(found)


def _table(title: str, left: list[str], names: list[str], columns: tuple[str, ...]) -> Table:
    table = Table(title=title)
    for column in left:
        table.add_column(column, justify="left" if column == left[0] else "right")
    for name in names:
        for column in columns:
            table.add_column(f"{name}\n{column}", justify="right")
    return table


def _number(row: Result, key: str, form: str = ".2f", factor: float = 1) -> str:
    return f"{factor * row[key]:{form}}" if key in row else ""


def capture_table(result: Result) -> Table:
    names = _systems(result)
    title = (
        "Models: first call (x eager), seconds until compiled code runs, graphs/breaks, largest difference"
    )
    table = _table(title, ["model"], names, ("first", "ready", "g/b", "diff"))
    for key, entry in _entries(result):
        cells = []
        for name in names:
            first, steady = _rows(entry["first"]).get(name, {}), _rows(entry["steady"]).get(name, {})
            counts = steady.get("counts", {})
            shape = f"{counts['graph_count']}/{counts['graph_break_count']}" if counts else ""
            ready = first.get("never", "")[:30] or _number(first, "ready_s")
            cells += [_number(first, "ratio"), ready, shape]
            cells.append(steady.get("error", "")[:30] or _number(steady, "difference", ".1g"))
        table.add_row(key, *cells)
        for part in ("first", "steady"):
            if "failed" in entry[part]:
                table.add_row("", _why(entry[part]))
    return table


def models_table(result: Result) -> Table:
    names = _systems(result)
    title = "Models: steady state (ms), speed-up over eager, peak memory of a call (MB)"
    table = _table(title, ["model", "eager ms", "MB"], names, ("ms", "x", "MB"))
    for key, entry in _entries(result):
        rows = _rows(entry["steady"])
        cells = []
        for name in names:
            row = rows.get(name, {})
            cells += [
                _milliseconds(row.get("seconds")),
                _number(row, "speedup"),
                _number(row, "peak_mb", ".1f"),
            ]
        eager = rows.get("eager", {})
        table.add_row(key, _milliseconds(eager.get("seconds")), _number(eager, "peak_mb", ".1f"), *cells)
    return table


def inference_table(result: Result) -> Table:
    title = "Inference, a process each: cold first call (from compile(); from the process's start), memory"
    table = Table(title=title)
    for column in (
        "model",
        "system",
        "cpu ms",
        "ms",
        "x",
        "first s",
        "start s",
        "ready s",
        "MB",
        "peak MB",
        "beyond",
        "diff",
    ):
        table.add_column(column, justify="left" if column in ("model", "system") else "right")
    columns = (
        ("cpu_s", ".2f", 1e3),
        ("seconds", ".2f", 1e3),
        ("speedup", ".2f", 1.0),
        ("first_s", ".2f", 1.0),
        ("start_s", ".2f", 1.0),
        ("ready_s", ".2f", 1.0),
        ("resident_mb", ".0f", 1.0),
        ("peak_mb", ".0f", 1.0),
        ("beyond_mb", ".1f", 1.0),
        ("difference", ".1g", 1.0),
    )
    for model, rows in result["inference"].items():
        for system, row in rows.items():
            cells = [_number(row, key, form, factor) for key, form, factor in columns]
            table.add_row(model, system, *([row["error"]] if "error" in row else cells))
    return table


def kernels_table(result: Result, part: str = "kernels") -> Table:
    measured = result[part]
    peaks = _rows(measured["peaks"])
    rows = {name: _rows(part) for name, part in measured.items() if name != "peaks"}
    names = list(dict.fromkeys(name for row in rows.values() for name in row if name != "eager"))
    limits = f"{peaks['bandwidth'] / 1e9:.1f} GB/s, {peaks['flops'] / 1e9:.0f} GFLOP/s" if peaks else "failed"
    what = "Kernels" if part == "kernels" else "Arrays larger than the last cache"
    title = f"{what}: microseconds, speed-up over eager, share of what the machine allows ({limits})"
    table = _table(title, ["kernel", "bound by", "eager us", "share"], names, ("us", "x", "share"))
    for name, row in rows.items():
        if not row:
            table.add_row(name, _why(measured[name]))
            continue
        eager = row["eager"]
        cells = [eager["bound"], _number(eager, "seconds", ".1f", 1e6), _number(eager, "share", ".0%")]
        for system in names:
            seen = row.get(system, {})
            cells += [
                _number(seen, "seconds", ".1f", 1e6),
                _number(seen, "speedup"),
                _number(seen, "share", ".0%"),
            ]
        table.add_row(name, *cells)
    return table


def overhead_table(result: Result) -> Table:
    table = Table(title="Overhead")
    for column in ("what", "system", "us"):
        table.add_column(column, justify="right" if column == "us" else "left")
    for name, row in _rows(result.get("tiny")).items():
        what = "x + 1 on four numbers" if name == "eager" else "x + 1, above eager"
        table.add_row(what, name, f"{1e6 * row['seconds'] if name == 'eager' else row['excess_us']:.2f}")
    for name, row in _rows(result.get("executor")).items():
        table.add_row("one of 100 small kernels in a row", name, f"{row['us']:.2f}")
    for model, part in result.get("guards", {}).items():
        for name, row in _rows(part).items():
            table.add_row(f"guards and dispatch, {model}", name, row.get("error") or f"{row['us']:.1f}")
    for part in [result.get("tiny", {}), result.get("executor", {}), *result.get("guards", {}).values()]:
        if _why(part):
            table.add_row("failed", "", _why(part))
    return table


def breaks_table(result: Result) -> Table:
    table = Table(
        title="Programs that break graphs: graphs/breaks, first call (ms), ms a call, speed-up over eager"
    )
    for column in ("program", "system", "g/b", "first ms", "ms", "x"):
        table.add_column(column, justify="left" if column in ("program", "system") else "right")
    for name, part in result["breaks"].items():
        for system, row in _rows(part).items():
            counts = row["counts"]
            shape = f"{counts['graph_count']}/{counts['graph_break_count']}" if counts else ""
            first, each = _milliseconds(row.get("first_s")), _milliseconds(row.get("seconds"))
            table.add_row(name, system, shape, first, each, f"{row['speedup']:.2f}")
        if _why(part):
            table.add_row(name, "", _why(part))
    return table


def _summarize_breaks(result: Result, add: Any) -> None:
    rows = {name: _rows(part) for name, part in result["breaks"].items()}
    speed = {name: row["kintsugi"]["speedup"] for name, row in rows.items() if "kintsugi" in row}
    slow = [f"{name} {value:.2f}" for name, value in speed.items() if value < 0.95]
    add(
        "programs with breaks, worst speed-up over eager",
        min(speed.values(), default=math.nan),
        0.95,
        False,
        slow,
    )
    add("programs with breaks, failed", len(rows) - len(speed), 0, True, [n for n in rows if n not in speed])
    behind = []
    for name, row in rows.items():
        for peer in row:
            if peer.startswith("torch.compile") and name in speed and row[peer]["speedup"] >= speed[name]:
                behind.append(f"{name} {speed[name]:.2f} / {row[peer]['speedup']:.2f}")
    if any(peer.startswith("torch.compile") for row in rows.values() for peer in row):
        add("programs with breaks, slower than the peer", len(behind), 0, True, behind)


def shapes_table(result: Result) -> Table:
    table = Table(title="Sizes that vary: a pass over 20 of them")
    for column in ("what", "system", "first pass s", "later pass s", "lost s", "traces", "diff"):
        table.add_column(column, justify="left" if column in ("what", "system") else "right")
    for name, part in result["shapes"].items():
        for system, row in _rows(part).items():
            counts = row["counts"]
            traces = counts.get("trace_count", counts.get("graph_count", ""))
            figures = [f"{row[key]:.3f}" for key in ("first_s", "steady_s", "lost_s")]
            table.add_row(name, system, *figures, str(traces), f"{row['difference']:.1g}")
        if _why(part):
            table.add_row(name, "", _why(part))
    return table


def training_table(result: Result) -> Table:
    table = Table(title="Steps of training")
    for column in ("what", "system", "ms", "speed-up", "diff"):
        table.add_column(column, justify="left" if column in ("what", "system") else "right")
    for name, part in result["training"].items():
        for system, row in _rows(part).items():
            gap = (
                f"{row['difference']:.1g}" if "difference" in row else ""
            )  # none of the same with our allocator
            table.add_row(name, system, f"{1e3 * row['seconds']:.3f}", f"{row['speedup']:.2f}", gap)
        if _why(part):
            table.add_row(name, "", _why(part))
    return table


def summary_table(result: Result) -> Table:
    table = Table(title="Against the figures to reach")
    for column in ("figure", "measured", "to reach", "reached", "falls short"):
        table.add_column(column, justify="right" if column in ("measured", "to reach") else "left")
    for name, row in result["summary"].items():
        goal = f"{'≤' if row['at_most'] else '≥'} {row['goal']:g}"
        short = ", ".join(row["short"][:8]) + (
            f" … {len(row['short']) - 8} more" if len(row["short"]) > 8 else ""
        )
        absent = math.isnan(row["value"])  # nothing in this run that it is about
        reached = "" if absent else "yes" if row["reached"] else "NO"
        table.add_row(name, "none" if absent else f"{row['value']:.3g}", goal, reached, short)
    return table


def show(result: Result) -> None:
    console = Console(width=None if Console().is_terminal else 170)
    if "tiny" in result or "guards" in result:
        console.print(overhead_table(result))
    if result.get("breaks"):
        console.print(breaks_table(result))
    if result.get("shapes"):
        console.print(shapes_table(result))
    for part in ("kernels", "bandwidth"):
        if result.get(part):
            console.print(kernels_table(result, part))
    if result.get("inference"):
        console.print(inference_table(result))
    if result.get("training"):
        console.print(training_table(result))
    if result.get("programs"):
        console.print(programs_table(result))
    if result.get("models"):
        console.print(capture_table(result))
        console.print(models_table(result))
    if result["summary"]:
        console.print(summary_table(result))
