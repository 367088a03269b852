"""KINTSUGI_LOGS and set_logs: which events are printed, and how.

The C++ core makes the lines; a channel that is off costs it one load. The lines go to the logger
`kintsugi.<channel>`, which writes them to the stderr of the moment unless the program has its own handlers.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping

from . import _C

CHANNELS: dict[str, str] = {
    "trace": "one line a trace: where it starts, how it ended",
    "guards": "the guards of each new trace",
    "graph_breaks": "each place where a trace is split: code, reason, file, line",
    "recompiles": "which guard made a new recording necessary: expected and seen value",
    "graph_code": "the IR of each new trace",
    "effects": "the writes, prints and other effects that a trace replays",
    "perf": "times: recording, compiling, calls",
    "dynamic": "which sizes and numbers are dynamic, and why",
    "graph_passes": "the tensor graph of each segment that is compiled, and what each pass makes of it",
}

_enabled: tuple[str, ...] = ()
_collected: list[str] | None = None
"""Where lines go instead of the loggers."""


class _StderrHandler(logging.Handler):
    """Looks sys.stderr up for each line: programs and test runners replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def _sink(channel: str, text: str) -> None:
    line = text if text.startswith("[") else f"[{channel.upper()}] {text}"
    if _collected is not None:
        _collected.append(line)
        return
    logging.getLogger(f"kintsugi.{channel}").info("%s", line)


def _prepare_logger() -> None:
    logger = logging.getLogger("kintsugi")
    if not logger.handlers:
        logger.addHandler(_StderrHandler())
        logger.propagate = False
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


def _unknown(name: str) -> ValueError:
    close = difflib.get_close_matches(name, CHANNELS, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return ValueError(f"unknown log channel {name!r}.{hint} Known: {', '.join(CHANNELS)}, all.")


def parse_channels(names: Iterable[str]) -> tuple[str, ...]:
    """The channels that `names` mean: `+trace` and `trace` are the same, `-trace` takes it out, `all` is all."""
    chosen: dict[str, None] = {}
    for name in names:
        bare = name.lstrip("+-")
        if bare != "all" and bare not in CHANNELS:
            raise _unknown(bare)
        for channel in CHANNELS if bare == "all" else (bare,):
            if name.startswith("-"):
                chosen.pop(channel, None)
            else:
                chosen[channel] = None
    return tuple(chosen)


def set_logs(*channels: str, **switches: bool) -> tuple[str, ...]:
    """Prints the named channels to stderr from now on, and no others; returns the ones that are on.

        kintsugi.set_logs("graph_breaks", "recompiles")
        kintsugi.set_logs(graph_breaks=True)
        kintsugi.set_logs()                             # off

    Channels: trace, guards, graph_breaks, recompiles, graph_code, effects, perf, dynamic,
    graph_passes, or all. The environment variable KINTSUGI_LOGS takes the same names, separated by
    commas.
    """
    for name in switches:
        if name != "all" and name not in CHANNELS:
            raise _unknown(name)
    names = [*channels, *(("" if on else "-") + name for name, on in switches.items())]
    chosen = parse_channels(names)
    _apply(chosen)
    return chosen


def _apply(channels: tuple[str, ...]) -> None:
    global _enabled
    if channels:
        _prepare_logger()
    _C.set_log_sink(_sink if channels else None)
    _C.set_log_channels(list(channels))
    _enabled = channels


@contextlib.contextmanager
def collecting(lines: list[str]) -> Iterator[None]:
    """All channels, and warnings, go to `lines` instead of the loggers."""
    global _collected
    before, outer = _enabled, _collected
    _collected = lines
    _apply(tuple(CHANNELS))
    try:
        yield
    finally:
        _collected = outer
        _apply(before)


def enabled() -> tuple[str, ...]:
    """The channels that are on."""
    return _enabled


def emit(channel: str, text: str) -> None:
    """Logs a line from Python code, if the channel is on."""
    if channel in _enabled:
        _sink(channel, text)


def warn(text: str) -> None:
    """A line that the user should see whatever channels are on."""
    if _collected is not None:
        _collected.append(f"[kintsugi] {text}")
        return
    _prepare_logger()
    logging.getLogger("kintsugi").warning("%s", f"[kintsugi] {text}")


def load_environment(environment: Mapping[str, str]) -> None:
    """Takes KINTSUGI_LOGS. An unknown name is an error at once: a typo must not look like silence."""
    text = environment.get("KINTSUGI_LOGS", "")
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        return
    try:
        channels = parse_channels(names)
    except ValueError as error:
        raise ValueError(f"KINTSUGI_LOGS={text} in the environment: {error}") from None
    _apply(channels)
