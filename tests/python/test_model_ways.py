"""Well-known models of the installed `transformers`: padding, caches and generate(), in replay and natively."""

from __future__ import annotations

import pytest

import kintsugi

pytest.importorskip("transformers")

from bench.models.ways import ARCHITECTURES, attempt, cases

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore")]

# (architecture, way, backend). scripts/model_table.py runs all of them.
SAMPLE = (
    ("GPT-2", "cache, padded", "eager"),
    ("GPT-2", "static cache", "native"),
    ("Qwen2", "greedy, padded", "native"),
    ("T5", "cache", "eager"),
    ("T5", "beam", "native"),
    ("Whisper", "sampling, padded", "eager"),
    ("Mixtral", "padded", "native"),
    ("Longformer", "padded", "eager"),
)


@pytest.mark.parametrize("model,way,backend", SAMPLE, ids=["-".join(row) for row in SAMPLE])
def test_equal_to_eager(model: str, way: str, backend: str) -> None:
    arch = ARCHITECTURES[model]
    with kintsugi.config.patch(report_compiling=False):
        row = attempt(arch, dict(cases(arch))[way], backend)
    assert not row["differences"], row
    assert row["hits"] > 0, row
