"""pytest plugin: runs a test suite compiled, or fails tests with too many graph breaks; sums up in the end.

    pytest --kintsugi-compile                        every outermost call of an nn.Module is compiled
    pytest --kintsugi-compile=eager                  the same, replayed: bitwise what eager mode gives
    pytest --kintsugi-compile=fn                     functions given to torch.compile and to torch's decorators too
    pytest --kintsugi-max-breaks=0                   every test
    @pytest.mark.kintsugi(max_breaks=0)              this test, whatever the command line says
    pytest --kintsugi-report=report.json             what was compiled, test by test

Nothing of Kintsugi is imported before a test needs it: sessions that don't ask for the plugin pay nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

_RESULTS = pytest.StashKey[list[dict[str, Any]]]()
_OUTERMOST = pytest.StashKey[Any]()
_MOST_BREAKS_SHOWN = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kintsugi")
    group.addoption(
        "--kintsugi-max-breaks",
        type=int,
        default=None,
        metavar="N",
        help="fail tests whose compiled callables have more graph breaks than this",
    )
    group.addoption(
        "--kintsugi-report", default=None, metavar="FILE", help="write the breaks of each test as JSON"
    )
    group.addoption(
        "--kintsugi-compile",
        nargs="?",
        choices=("native", "eager", "fn"),
        const="native",
        default=None,
        help="compile every outermost call of an nn.Module: to machine code (native, the default), by replay alone "
        "(eager), or to machine code with the functions that torch.compile and torch's decorators are given (fn)",
    )
    group.addoption(
        "--kintsugi-captured",
        default=None,
        metavar="FILE",
        help="write what --kintsugi-compile captured as JSON",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "kintsugi(max_breaks=N): fail if compiled callables of this test have more graph breaks"
    )
    config.stash[_RESULTS] = []
    mode = config.getoption("--kintsugi-compile")
    if mode is not None:
        from kintsugi._options import CompileOptions
        from kintsugi._outermost import OutermostCalls

        backend = "eager" if mode == "eager" else "native"
        calls = OutermostCalls(
            CompileOptions(backend=backend), functions=mode == "fn", wait=backend == "native"
        )
        calls.start()
        config.stash[_OUTERMOST] = calls
        config.add_cleanup(calls.stop)


def _limit(item: pytest.Item) -> int | None:
    marker = item.get_closest_marker("kintsugi")
    if marker is not None:
        wanted = marker.kwargs.get("max_breaks", *marker.args[:1])
        if len(marker.args) > 1 or marker.kwargs.keys() - {"max_breaks"} or not isinstance(wanted, int):
            pytest.fail("write @pytest.mark.kintsugi(max_breaks=N), N a number", pytrace=False)
        return wanted
    limit: int | None = item.config.getoption("--kintsugi-max-breaks")
    return limit


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    limit = _limit(item)
    if limit is None and item.config.getoption("--kintsugi-report") is None:
        return (yield)
    from kintsugi import _public
    from kintsugi._callable import core_of
    from kintsugi._explain import BreakReason

    compiled: list[Any] = []
    _public.observers.append(compiled.append)
    try:
        result = yield
    finally:
        _public.observers.remove(compiled.append)
    cores = [core for core in map(core_of, compiled) if core is not None]
    reasons = [BreakReason.from_core(event) for core in cores for event in core.breaks()]
    found = {"test": item.nodeid, "compiled": len(cores), "breaks": [str(reason) for reason in reasons]}
    item.config.stash[_RESULTS].append(found)
    if limit is not None and len(reasons) > limit:
        text = "\n".join(str(reason) for reason in reasons)
        pytest.fail(f"{len(reasons)} graph breaks, at most {limit} are allowed:\n{text}", pytrace=False)
    return result


def _write_json(option: str, path: str, value: object) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
    except OSError as error:
        print(f"{option}={path}: {error.strerror}", file=sys.stderr)


def _sum_up_outermost(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    calls = config.stash.get(_OUTERMOST, None)
    if calls is None:
        return
    captured = calls.captured()
    path = config.getoption("--kintsugi-captured")
    if path is not None:
        _write_json("--kintsugi-captured", path, captured.as_dict())
    terminalreporter.section("kintsugi: outermost calls")
    terminalreporter.write_line(
        f"{captured.modules} modules and {captured.functions} functions compiled, {captured.whole} of them whole, "
        f"{captured.eager} not at all; {captured.calls} calls, {captured.hits} ran a trace, "
        f"machine code ran {captured.native_runs} times"
    )
    for reason, times in sorted(captured.breaks.items(), key=lambda pair: -pair[1])[:_MOST_BREAKS_SHOWN]:
        terminalreporter.write_line(f"{times} x {reason}")


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    _sum_up_outermost(terminalreporter, config)
    results = config.stash.get(_RESULTS, [])
    path = config.getoption("--kintsugi-report")
    if path is not None:
        _write_json("--kintsugi-report", path, results)
    if not results:
        return
    breaks = sum(len(row["breaks"]) for row in results)
    terminalreporter.section("kintsugi")
    terminalreporter.write_line(
        f"{sum(row['compiled'] for row in results)} compiled callables in {len(results)} tests, {breaks} graph breaks"
    )
    for row in results:
        for text in row["breaks"]:
            terminalreporter.write_line(f"{row['test']}: {text.splitlines()[0]}")
