"""kintsugi.config: types, checks, patch() and the environment."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import kintsugi
from kintsugi import _config

config = kintsugi.config


def test_defaults() -> None:
    fresh = _config.Config()
    assert fresh.to_dict() == {
        "recompile_limit": 8,
        "cache_size_limit": 8,
        "trace_length_limit": 200_000,
        "side_trace_limit": 64,
        "eager_when_faster": True,
        "report_compiling": False,
        "verify": "off",
        "suppress_errors": True,
        "verbose": False,
        "assume_static_by_default": True,
        "error_on_graph_break": False,
        "cache_dir": Path("~/.cache/kintsugi").expanduser(),
        "audit": 0,
        "disk_cache_limit": 256 * 1024 * 1024,
        "target": "native",
        "memory_pool_limit": 512 * 1024 * 1024,
        "default_backend": "native",
    }


def test_every_setting_is_documented_and_shown() -> None:
    for name in config.to_dict():
        assert len(getattr(type(config), name).__doc__) > 20
        assert name in dir(config)
        assert f"{name}=" in repr(config)


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("recompile_limit", 0, ValueError, "recompile_limit: expected a number of at least 1, got 0"),
        ("recompile_limit", "8", TypeError, "expected an int, got '8'"),
        ("recompile_limit", True, TypeError, "expected an int"),
        ("verbose", 1, TypeError, "expected True or False, got 1"),
        ("cache_dir", 3, TypeError, "expected a path"),
    ],
)
def test_wrong_values_are_refused_and_change_nothing(name, value, error, text) -> None:
    before = config.to_dict()
    with pytest.raises(error, match=text):
        setattr(config, name, value)
    assert config.to_dict() == before


def test_unknown_names_are_refused_with_a_hint() -> None:
    with pytest.raises(AttributeError, match="Did you mean recompile_limit"):
        config.recompile_limt = 3
    with pytest.raises(AttributeError, match="has no setting 'debug'"):
        _ = config.debug
    with pytest.raises(AttributeError, match="has no setting"), config.patch(nothing_like_it=1):
        pass
    with pytest.raises(AttributeError, match="can't be deleted"):
        del config.verbose


def test_alias_is_the_same_setting() -> None:
    with config.patch(cache_size_limit=3):
        assert config.recompile_limit == 3
        config.recompile_limit = 4
        assert config.cache_size_limit == 4
    assert config.cache_size_limit == config.recompile_limit == 8


def test_patch_restores_after_an_exception() -> None:
    with pytest.raises(KeyError), config.patch({"verbose": True}, recompile_limit=1):
        assert config.verbose and config.recompile_limit == 1
        raise KeyError
    assert not config.verbose and config.recompile_limit == 8


def test_patch_restores_when_a_later_value_is_wrong() -> None:
    with pytest.raises(TypeError), config.patch(recompile_limit=1, verbose="yes"):
        pass
    assert config.recompile_limit == 8


def test_patch_nests_and_decorates() -> None:
    @config.patch(recompile_limit=2)
    def inside():
        with config.patch(recompile_limit=3):
            assert config.recompile_limit == 3
        return config.recompile_limit

    assert inside() == 2
    assert inside() == 2
    assert config.recompile_limit == 8


def test_patch_undoes_what_was_written_inside_it() -> None:
    with config.patch(verbose=True):
        config.verbose = False
        config.verbose = True
    assert config.verbose is False


def test_settings_reach_the_core() -> None:
    def f(x, name):
        return x + len(name)

    with config.patch(recompile_limit=2):
        compiled = kintsugi.compile(f, backend="eager")
        for name in ("a", "bb", "ccc"):
            compiled(torch.ones(2), name)
        assert compiled.stats().trace_count == 2


def test_trace_length_limit() -> None:
    def long(x):
        for _ in range(200):
            x = x + 1
        return x

    with config.patch(trace_length_limit=50):
        compiled = kintsugi.compile(long, backend="eager")
        for _ in range(2):
            assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), 200.0))
        assert any(b["code"] == "KTG0104" for b in compiled.breaks())


@pytest.mark.parametrize("kind", ["dict", "list", "text"])
def test_snapshots_that_grow(kind: str) -> None:
    """What grows in a loop is part of each turn's snapshot: a long loop is given up before memory is."""
    seen: list[int] = []

    def grows(x, turns):
        made: dict[int, int] = {}
        items: list[int] = []
        text = ""
        for k in range(turns):
            if kind == "dict":
                made[k] = k
            elif kind == "list":
                items.append(k)
            else:
                text += "x"
            seen.append(k)
        return x + len(made) + len(items) + len(text)

    compiled = kintsugi.compile(grows, backend="eager")
    for turns in (30, 20_000):
        seen.clear()
        assert torch.equal(compiled(torch.zeros(2), turns), torch.full((2,), float(turns)))
        assert seen == list(range(turns))


def test_side_trace_limit() -> None:
    def branches(x):
        for i in range(3):
            x = x + 1 if x[i] > 0 else x - 2
        return x

    inputs = [torch.tensor([a, b, c]) for a in (-9.0, 9.0) for b in (-9.0, 9.0) for c in (-9.0, 9.0)]
    for limit in (0, 2, 64):
        with config.patch(side_trace_limit=limit):
            compiled = kintsugi.compile(branches, backend="eager")
            for x in inputs * 3:
                assert torch.equal(compiled(x), branches(x))
            assert compiled.stats().side_traces <= limit
            assert (compiled.stats().side_traces > 0) == (limit > 0)


def test_settings_are_process_wide() -> None:
    seen = []
    with config.patch(recompile_limit=5):
        thread = threading.Thread(target=lambda: seen.append(config.recompile_limit))
        thread.start()
        thread.join()
    assert seen == [5]


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def test_environment() -> None:
    code = "import kintsugi; c = kintsugi.config; print(c.recompile_limit, c.verbose, c.report_compiling, c.cache_dir)"
    done = run_python(
        code,
        KINTSUGI_RECOMPILE_LIMIT="3",
        KINTSUGI_VERBOSE="1",
        KINTSUGI_REPORT_COMPILING="false",
        KINTSUGI_CACHE_DIR="/tmp/elsewhere",
    )
    assert done.stdout.split() == ["3", "True", "False", "/tmp/elsewhere"], done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [("KINTSUGI_RECOMPILE_LIMIT", "many"), ("KINTSUGI_VERBOSE", "maybe"), ("KINTSUGI_LOGS", "trce")],
)
def test_wrong_environment_is_one_clear_line(name: str, value: str) -> None:
    done = run_python("import kintsugi", **{name: value})
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError") and f"{name}={value}" in last
