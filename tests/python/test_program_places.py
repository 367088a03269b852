"""Logs and reports name the program's own code, say equal things once, and say where there is nothing to compile."""

from __future__ import annotations

import re
import zlib

import pytest
import torch

import kintsugi
from kintsugi import _logs


class Block(torch.nn.Module):
    def forward(self, x):
        return x * (zlib.crc32(b"a") % 3)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x):
        for _ in range(3):
            x = self.block(x)
        return x + 1


def words(path):
    with open(path) as file:
        return len(file.read().split())


def in_order(x):
    return x + sorted([3, 1, 2], key=lambda n: -n * (zlib.crc32(b"b") % 2 + 1))[0]


def branches(n):
    if zlib.crc32(n) % 2:
        return torch.ones(2) + 1
    return "even"


FORWARD = Net.forward.__code__.co_firstlineno


def logged(call) -> list[str]:
    lines: list[str] = []
    with _logs.collecting(lines):
        call()
    return lines


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_a_modules_lines_name_its_forward(backend) -> None:
    compiled = kintsugi.compile(Net(), backend=backend)

    def call() -> None:
        for size in (2, 3, 4):
            assert compiled(torch.ones(size)).shape == (size,)
        kintsugi.wait()

    lines = logged(call)
    heads = [line.splitlines()[0] for line in lines]
    assert not [head for head in heads if "_wrapped_call_impl" in head or "module.py" in head]
    assert any(
        re.search(rf"\[TRACE .*test_program_places\.py:{FORWARD} Net\.forward", head) for head in heads
    )
    assert any(f"test_program_places.py:{FORWARD} (Net.forward) was recorded" in head for head in heads)
    (recompiled,) = compiled.recompiles()[:1]
    assert recompiled["file"] == __file__ and recompiled["line"] == FORWARD


def test_the_module_is_named_whatever_wraps_its_forward() -> None:
    net = Net()
    net.forward = torch.no_grad()(net.forward)  # type: ignore[method-assign]
    lines = logged(lambda: kintsugi.compile(net, backend="eager")(torch.ones(2)))
    assert any(f"test_program_places.py:{FORWARD} Net.forward" in line for line in lines)


def test_breaks_of_a_loop_are_one_line_with_a_count() -> None:
    compiled = kintsugi.compile(Net(), backend="eager")
    lines = logged(lambda: compiled(torch.ones(2)))
    breaks = [line for line in lines if line.startswith("[GRAPH_BREAKS]")]
    assert len(breaks) == 1 and breaks[0].endswith("(forward), 3 times"), breaks
    assert len(compiled.breaks()) == 1
    assert compiled.stats().graph_count == 4


def test_a_callback_is_advised_about_only_where_one_was_given(tmp_path) -> None:
    path = tmp_path / "text"
    path.write_text("a b c")
    compiled = kintsugi.compile(words, backend="eager")
    assert compiled(path) == 3
    assert {row["code"] for row in compiled.breaks()} == {"KTG0101"}
    assert not any("directly" in row["cure"] for row in compiled.breaks())


def test_a_function_without_tensors_runs_in_cpython(tmp_path) -> None:
    path = tmp_path / "text"
    path.write_text("a b c")
    with kintsugi.config.patch(eager_when_faster=True):
        compiled = kintsugi.compile(words)
        lines = logged(lambda: [compiled(path) for _ in range(5)])
        assert any("KTG0116 nothing-to-compile" in line and "(words)" in line for line in lines)
        path.write_text("a b")
        assert compiled(path) == 2
        with kintsugi.EventLog() as log:
            assert [compiled(path) for _ in range(3)] == [2] * 3
        assert [e.name for e in log.events if e.kind == "eager"] == ["there is nothing to compile"] * 3
        with pytest.raises(FileNotFoundError):
            compiled(tmp_path / "missing")
    assert "Nothing to compile" in str(kintsugi.explain(words)(path))


def test_another_path_with_tensors_is_found() -> None:
    even = next(name for name in (b"%d" % n for n in range(99)) if zlib.crc32(name) % 2 == 0)
    odd = next(name for name in (b"%d" % n for n in range(99)) if zlib.crc32(name) % 2)
    with kintsugi.config.patch(eager_when_faster=True):
        compiled = kintsugi.compile(branches)
        for _ in range(3):
            assert compiled(even) == "even"
        for _ in range(300):
            assert torch.equal(compiled(odd), torch.full((2,), 2.0))
        assert compiled(even) == "even"


def test_where_calls_have_to_be_traces_they_are() -> None:
    with kintsugi.config.patch(eager_when_faster=True):
        compiled = kintsugi.compile(lambda n: n + 1, fullgraph=True)
        for n in range(4):
            assert compiled(1) == 2
        assert compiled.stats().hits >= 3


def test_a_bundle_without_a_problem_is_not_written(tmp_path) -> None:
    def fine(x):
        return x + 1

    path = tmp_path / "issue.zip"
    with pytest.raises(ValueError, match="no problem was found with 'fine'.*Nothing was written"):
        kintsugi.issue_bundle(fine, torch.ones(3), path=path)
    assert not path.exists()
