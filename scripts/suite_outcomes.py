"""A pytest plugin for scripts/library_suites.py: seeds each test by its name, and writes down how it ended.

One line of JSON for each test when it begins and when it is done, so that a run that dies or is stopped says which test
it was in, and what came before. With a list of tests, only these run; without, each
n-th, from an offset on.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import zlib
from typing import Any

import numpy
import pytest
import torch

_OUTCOMES = os.environ["KINTSUGI_SUITE_OUTCOMES"]
_SELECTED = pathlib.Path(os.environ["KINTSUGI_SUITE_SELECTED"])
_EVERY = int(os.environ["KINTSUGI_SUITE_EVERY"])
_OFFSET = int(os.environ["KINTSUGI_SUITE_OFFSET"])

# Operators of extensions that are not there: whoever registers something for them can be imported, none can be called.
_DECLARED = []
for _schema in filter(None, os.environ.get("KINTSUGI_SUITE_DECLARES", "").splitlines()):
    _DECLARED.append(torch.library.Library(_schema.partition("::")[0], "FRAGMENT"))
    _DECLARED[-1].define(_schema.partition("::")[2])


def _write(row: dict[str, Any]) -> None:
    with open(_OUTCOMES, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selected = json.loads(_SELECTED.read_text())
    names = {item.nodeid for item in items[_OFFSET % _EVERY :: _EVERY]} if selected is None else set(selected)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
    items[:] = [item for item in items if item.nodeid in names]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    seed = zlib.crc32(item.nodeid.encode())
    torch.manual_seed(seed)
    numpy.random.seed(seed)
    random.seed(seed)
    _write({"test": item.nodeid, "outcome": "began"})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        row = {"test": report.nodeid, "outcome": report.outcome, "when": report.when}
        row["seconds"] = round(report.duration, 2)
        if report.failed:
            row["error"] = report.longreprtext[-4000:]
        _write(row)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write({"test": report.nodeid, "outcome": "not collected", "error": str(report.longrepr)[-2000:]})
