"""Options and fixtures of all Python tests."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import random
import signal
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Most tests compare bits with eager mode, so the backend that they get unasked is replay; so do processes that they
# start. (This process may have read its settings already: pytest's plug-ins are loaded first.)
os.environ.setdefault("KINTSUGI_DEFAULT_BACKEND", "eager")
# All that is made is verified, and a failed check of ours fails the test, which would pass in eager mode otherwise.
os.environ.setdefault("KINTSUGI_VERIFY", "1")
sys.path.insert(
    0, str(pathlib.Path(__file__).resolve().parents[2])
)  # for `bench`, whose models the tests share

# One thread: the kernels here are tiny, and threads that spin for work cost more than they do on a busy machine.
torch.set_num_threads(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of known gaps (known_gaps.toml) have to fail: one that passes has to leave the list. Tests that are marked
    as long are for `make test-long`, before a release."""
    part, parts = map(int, config.getoption("--part").split("/"))
    files = sorted({item.path for item in items})
    items[:] = [item for item in items if files.index(item.path) % parts == part - 1]
    if not config.getoption("--long"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    with (pathlib.Path(__file__).parent / "known_gaps.toml").open("rb") as file:
        gaps = tomllib.load(file)["gap"]
    reasons = {test: gap for gap in gaps for test in gap["tests"]}
    for item in items:
        gap = reasons.get(f"{item.path.name}::{item.nodeid.partition('::')[2]}")
        if gap is not None:
            item.add_marker(pytest.mark.xfail(reason=gap["reason"], strict=gap.get("strict", True)))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kintsugi")
    group.addoption("--all-models", action="store_true", help="all models in both sizes, not the quick ones")
    group.addoption(
        "--libraries",
        action="store_true",
        help="instead, the sample of transformers' architectures, diffusers and monai",
    )
    group.addoption(
        "--all-floats", action="store_true", help="every float32 in the tests of accuracy, not a sample"
    )
    group.addoption("--float-seed", type=int, default=0, help="which sample of them")
    group.addoption("--all-ops", action="store_true", help="all operators of op_db with all their samples")
    group.addoption("--model", help="only models whose name contains one of these comma-separated parts")
    group.addoption("--part", default="1/1", help="K/N: every N-th file of tests, from the K-th on")
    rounds = int(os.environ.get("KINTSUGI_LEAK_ROUNDS", "200"))
    group.addoption(
        "--leak-rounds", type=int, default=rounds, help="rounds of the leak tests (full check: 10000)"
    )
    calls = int(os.environ.get("KINTSUGI_THREAD_CALLS", "100"))
    group.addoption("--thread-calls", type=int, default=calls, help="calls a thread (full check: 1000)")
    group.addoption(
        "--world",
        action="store_true",
        default=os.environ.get("KINTSUGI_WORLD") == "1",
        help="signals, forks and interrupts while something compiles or runs in their full counts",
    )
    group.addoption(
        "--native",
        action="store_true",
        help="native code wherever a test replays (those that compare every bit may fail by rounding)",
    )
    group.addoption("--long", action="store_true", help="the tests that are marked as long as well")
    group.addoption(
        "--shipped",
        action="store_true",
        help="the settings of a user who has touched none: where a test replays, native code takes over in the "
        "background; rounding is allowed for",
    )
    group.addoption(
        "--isolate", action="store_true", help="a forked child for each test: a crash fails one test only"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--native") or config.getoption("--shipped"):
        import harness

        harness.use_native(shipped=config.getoption("--shipped"))
    if config.getoption("--shipped"):
        os.environ.pop("KINTSUGI_DEFAULT_BACKEND", None)


@pytest.fixture(autouse=True)
def _fresh_state(pytestconfig: pytest.Config) -> Iterator[None]:
    """No test sees the traces, the seeds or the modes of another.

    Calls keep to their traces, which is what most tests are about; as it ships, with --shipped, they run in eager mode
    where that is faster.
    """
    import kintsugi

    kintsugi.config.eager_when_faster = pytestconfig.getoption("--shipped")

    kintsugi.config.default_backend = os.environ.get("KINTSUGI_DEFAULT_BACKEND", "native")
    kintsugi.config.verify = "off" if os.environ["KINTSUGI_VERIFY"] == "0" else "on"
    before, _ = kintsugi._C._failed_checks()
    torch.manual_seed(0)
    random.seed(0)
    yield
    kintsugi.reset()
    count, text = kintsugi._C._failed_checks()
    assert count == before, f"{count - before} checks of the core have failed, at last {text}"


@contextlib.contextmanager
def _pipe_to_parent(pipe: int) -> Iterator[list[Any]]:
    answers: list[Any] = []
    yield answers
    with os.fdopen(pipe, "wb") as out:
        pickle.dump(answers, out)


def _run_in_child(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    from _pytest.runner import runtestprotocol

    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        # Torch makes its thread pool anew in a forked child at the first use, and two threads that do so at once fail
        # ("Invalid thread pool!"): this is the first use.
        torch.set_num_threads(torch.get_num_threads())
        with _pipe_to_parent(send) as answers:
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            answers.extend(
                item.config.hook.pytest_report_to_serializable(config=item.config, report=r) for r in reports
            )
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if data and not os.WIFSIGNALED(status):
        hook = item.config.hook
        return [
            hook.pytest_report_from_serializable(config=item.config, data=answer)
            for answer in pickle.loads(data)
        ]
    why = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit status {status}"
    return [_crash_report(item, why)]


def _crash_report(item: pytest.Item, why: str) -> pytest.TestReport:
    text = f"the test process died: {why}"
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call", [], 0.0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not item.config.getoption("--isolate"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _run_in_child(item, nextitem):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture
def calls_of_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are torch's own: its test helpers put a profiler, in Python, around them when they are imported."""
    helpers = sys.modules.get("torch.testing._internal.common_utils")
    if helpers is not None:
        monkeypatch.setattr(torch._C.ScriptFunction, "__call__", helpers.func_call)
        monkeypatch.setattr(torch._C.ScriptMethod, "__call__", helpers.meth_call)
