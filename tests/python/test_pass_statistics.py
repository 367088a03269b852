"""kintsugi.pass_statistics() and KINTSUGI_LOGS=graph_passes: what the compiler's passes did."""

from __future__ import annotations

import re

import pytest
import torch

import kintsugi


def compiled_once(f, *inputs: torch.Tensor) -> None:
    compiled = kintsugi.compile(f, backend="native", options={"sync": True})
    for _ in range(3):
        compiled(*inputs)
    assert compiled.stats().native_runs > 0


def test_each_kind_of_pass_is_counted() -> None:
    kintsugi.pass_statistics(clear=True)
    kintsugi.clear_cache()
    x = torch.rand(8, 8)
    with torch.no_grad():
        compiled_once(lambda x: torch.einsum("ij,jk->ik", x, x).exp() + x * 1.0, x)
    rows = {(row.kind, row.name): row for row in kintsugi.pass_statistics()}
    for wanted in (
        ("trace", "segments"),
        ("segment", "expand-einsums"),
        ("segment", "gather-own-writes"),
        ("graph", "build-graph"),
        ("graph", "drop-unused"),
        ("groups", "group-nodes"),
        ("groups", "merge-groups"),
        ("groups", "last-groups"),
        ("program", "schedule"),
        ("program", "order-steps"),
        ("program", "make-plan"),
    ):
        assert rows[wanted].runs >= 1 and rows[wanted].seconds > 0, wanted
    expanded = rows["segment", "expand-einsums"]
    assert expanded.after > expanded.before > 0
    assert rows["trace", "segments"].after > rows["trace", "segments"].before
    assert rows["groups", "group-nodes"].after >= rows["program", "schedule"].runs


def test_training_has_passes_of_its_own() -> None:
    kintsugi.pass_statistics(clear=True)
    weight = torch.rand(8, 8, requires_grad=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight).tanh().sum()

    compiled = kintsugi.compile(loss, backend="native", options={"sync": True})
    for _ in range(3):
        compiled(torch.rand(4, 8)).backward()
    rows = {row.name: row for row in kintsugi.pass_statistics() if row.kind == "segment"}
    assert rows["differentiate"].after > rows["differentiate"].before > 0
    assert rows["split-gradients"].after > 0


def test_clear_begins_anew() -> None:
    with torch.no_grad():
        compiled_once(lambda x: (x + 1).exp() * 2, torch.rand(16))
    assert kintsugi.pass_statistics(clear=True)
    assert kintsugi.pass_statistics() == []


def test_the_log_shows_what_each_pass_has_changed(capfd: pytest.CaptureFixture[str]) -> None:
    kintsugi.set_logs(graph_passes=True)
    try:
        with torch.no_grad():
            compiled_once(lambda x: torch.einsum("ij,jk->ik", x, x).exp() + 3, torch.rand(8, 8))
    finally:
        kintsugi.set_logs()
    shown = capfd.readouterr().err
    for title in ("trace of ", "after segments", "segment of ", "after expand-einsums", "tensor graph of "):
        assert title in shown, title
    assert "after gather-own-writes" not in shown  # there was nothing to gather
    for name in ("group-nodes", "schedule", "make-plan"):
        (where,) = re.findall(rf"after {name} of (.*):\d+:", shown)
        assert where == __file__, name
    for line in (r"^\d+: over \[8,8\].*: %\d+", "^kernel ", "^plan slots="):
        assert re.search(line, shown, re.MULTILINE), line


def test_the_log_shows_the_derivative(capfd: pytest.CaptureFixture[str]) -> None:
    weight = torch.rand(8, 8, requires_grad=True)
    compiled = kintsugi.compile(lambda x: (x @ weight).tanh().sum(), backend="native", options={"sync": True})
    kintsugi.set_logs(graph_passes=True)
    try:
        for _ in range(3):
            compiled(torch.rand(4, 8)).backward()
    finally:
        kintsugi.set_logs()
    shown = capfd.readouterr().err
    joint = shown.split("after differentiate of ")[1].split("after ")[0]
    assert "aten.tanh.default" in joint and "aten.rsub.Scalar" in joint  # 1 - tanh * tanh
    split = shown.split("after split-gradients of ")[1].split("after ")[0]
    forward, backward = split.split("backward\n")
    assert "aten.tanh.default" in forward and "aten.tanh.default" not in backward
    assert "aten.rsub.Scalar" in backward and "aten.rsub.Scalar" not in forward
