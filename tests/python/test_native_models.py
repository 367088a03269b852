"""backend="native" on the models of the registry, in evaluation and in training steps.

What native code may be off by follows from what eager mode is off by: bench/accuracy.py has the rule, and
docs/internals/verification.md the figures.
"""

from __future__ import annotations

import pytest

from bench import accuracy
from bench.models import select
from bench.models.spec import ModelSpec

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
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
