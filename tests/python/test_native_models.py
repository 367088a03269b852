"""backend="native" on the models of the registry, in evaluation and in training steps.

What native code may be off by follows from what eager mode is off by: bench/accuracy.py has the rule, and
docs/internals/verification.md the figures.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench import accuracy
from bench.models import select
from bench.models.spec import ModelSpec

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "spec" not in metafunc.fixturenames:
        return
    everything = metafunc.config.getoption("--all-models")
    specs = select(metafunc.config.getoption("--model"), quick=not everything)
    metafunc.parametrize("spec", specs, ids=[spec.name for spec in specs])


def test_evaluation(spec: ModelSpec) -> None:
    found = accuracy.measure(spec, train=False, backward=False).failures()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_training(spec: ModelSpec, mode: str) -> None:
    if not any(p.requires_grad for p in spec.build("tiny").parameters()):
        pytest.skip("nothing to train")
    try:
        measured = accuracy.measure(spec, train=mode == "train", backward=True)
    except accuracy.Refused as error:
        pytest.skip(f"eager mode refuses: {error}")
    found = measured.failures()
    assert not found, "\n".join(found)


def test_the_rule() -> None:
    """Further from float64 than eager mode is little enough; nothing but the numbers of floats has a tolerance."""
    weight = torch.linspace(-1, 1, 64).reshape(8, 8)
    x = torch.linspace(-3, 3, 8)
    exact = (weight.double() @ x.double()).tanh()
    expected = exact.float() * (1 + 4e-6)  # what an eager mode of its own would be off by

    def found(actual: torch.Tensor, **more: Any) -> list[str]:
        mine = {"out": actual, "ids": more.get("ids", torch.tensor([1, 70000])), "n": more.get("n", 2)}
        eager = {"out": expected, "ids": torch.tensor([1, 70000]), "n": 2}
        wide = {"out": exact, "ids": torch.tensor([1, 70000]), "n": 2}
        return accuracy.far(eager, mine, lambda: wide, "call")

    assert not found(expected.clone()) and not found(exact.float())
    assert not found(exact.float() * (1 - 6e-6))
    assert found(exact.float() * (1 - 1.2e-5))
    assert found(expected.clone(), ids=torch.tensor([1, 70001])) and found(expected.clone(), n=3)
    assert found(expected.double()) and found(expected[None])
    for special in (torch.nan, torch.inf, 0.0):
        wrong = expected.clone()
        wrong[3] = special
        assert found(wrong), special
    zeros = {"out": torch.zeros(3)}
    assert accuracy.far(zeros, {"out": -torch.zeros(3)}, lambda: zeros, "call")
    assert not accuracy.far(zeros, {"out": torch.zeros(3)}, lambda: zeros, "call")
    other = {"out": exact + 1}  # float64 went another way: nothing follows from that
    assert accuracy.far({"out": expected}, {"out": exact.float()}, lambda: other, "call")
