"""Tensor graphs from text: native code beside each node run through ATen."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from graph_reference import DTYPES, problems, reference

from kintsugi import _C

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fuzz"))

import graphs

FILES = sorted((Path(__file__).resolve().parents[1] / "filetests" / "exec").glob("*.ktir"))


def inputs_of(text: str, seed: int) -> list[torch.Tensor]:
    """As the graph describes them, with infinities, NaN and zeros of both signs among floats."""
    generator = torch.Generator().manual_seed(seed)
    graph = _C._graph_testing.describe(text)
    out = []
    for node in (graph["nodes"][k] for k in graph["inputs"]):
        dtype = DTYPES[node["elem"]]
        value = torch.randn(node["sizes"], generator=generator, dtype=torch.float64) * 3
        if dtype.is_floating_point and seed % 2 and value.numel() > 8:
            value.view(-1)[:5] = torch.tensor(
                [0.0, -0.0, torch.inf, -torch.inf, torch.nan], dtype=torch.float64
            )
        value = value > 0 if dtype is torch.bool else value.abs() if not dtype.is_signed else value
        out.append(torch.empty_strided(node["sizes"], node["strides"], dtype=dtype).copy_(value))
    return out


@pytest.mark.parametrize("simplify", [True, False], ids=["passes", "as-it-is"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file(path: Path, simplify: bool) -> None:
    """`tests/filetests/exec`: a graph and a sentence on what it shows."""
    text = path.read_text()
    native = _C._graph_testing.NativeGraph(text, simplify=simplify)
    for seed in range(4):
        copies = [inputs_of(text, seed) for _ in range(3)]
        actual = native.run(copies[0])
        assert actual is not None, "the run declines"
        expected, exact = reference(text, copies[1]), reference(text, copies[2], wide=True)
        assert problems(actual, expected, exact) == []
        assert problems(*copies) == []  # what is written to


def test_random_graphs() -> None:
    """`python tests/fuzz/graphs.py` runs more of them."""
    refused = 0
    for seed in range(1, 121):
        try:
            text, found = graphs.check(seed)
        except graphs.Refused:
            refused += 1
            continue
        assert not found, f"seed {seed}\n{text}" + "\n".join(found)
    assert refused < 12


def test_a_difference_is_seen() -> None:
    text = (FILES[0]).read_text()
    tensors = inputs_of(text, 0)
    expected, exact = reference(text, tensors), reference(text, tensors, wide=True)
    wrong = [None if e is None else e + 1 for e in expected]
    assert problems(wrong, expected, exact)


def test_inputs_have_to_be_those_of_the_graph() -> None:
    native = _C._graph_testing.NativeGraph(
        "graph {\n inputs %0\n %0 = input f32[4]\n %1 = neg(%0) f32[4]\n outputs %1\n}\n"
    )
    with pytest.raises(ValueError, match="another tensor"):
        native.run([torch.ones(5)])
    with pytest.raises(ValueError, match="number of inputs"):
        native.run([])
    with pytest.raises(TypeError):
        native.run([3])
    with pytest.raises(ValueError, match="KTG0001"):
        _C._graph_testing.NativeGraph("graph {")
    with pytest.raises(ValueError, match="before it is defined"):
        _C._graph_testing.NativeGraph("graph {\n inputs\n %0 = neg(%1) f32[4]\n outputs %0\n}\n")
