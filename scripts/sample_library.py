"""Which architectures of `transformers` run when they are made small: `sample_library.py [count] > library.toml`.

A seeded sample over the whole library. Each is built by bench/models/library.py and called in eager mode, in a process
of its own; what does not run goes into the list of excluded ones with the error.
"""

from __future__ import annotations

import pathlib
import random
import sys
import warnings
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch

from bench import measure
from bench.models import library

SEED = 3
ALLOWED_SECONDS = 60.0


def candidates(count: int) -> list[tuple[str, str]]:
    import transformers  # noqa: F401
    from transformers.models.auto import modeling_auto

    rows = sorted(modeling_auto.MODEL_MAPPING_NAMES.items())
    random.Random(SEED).shuffle(rows)
    return [(kind, name if isinstance(name, str) else name[0]) for kind, name in rows[:count]]


def runs(model_type: str, class_name: str) -> Any:
    spec = library.spec(model_type, class_name)

    def work() -> None:
        module = spec.build()
        args, kwargs = spec.inputs(module)
        with torch.no_grad():
            module(*args, **kwargs)
            module(*args, **kwargs)

    return work


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    models: list[tuple[str, str]] = []
    excluded: list[tuple[str, str]] = []
    for model_type, class_name in candidates(int(sys.argv[1]) if len(sys.argv) > 1 else 260):
        kind, value = measure.isolated(runs(model_type, class_name), ALLOWED_SECONDS)
        if kind == "ok":
            models.append((model_type, class_name))
        else:
            excluded.append((model_type, str(value).strip().splitlines()[-1][:100]))
    write(models, excluded)


def write(models: list[tuple[str, str]], excluded: list[tuple[str, str]]) -> None:
    print("# Made by scripts/sample_library.py: a seeded sample of the architectures of `transformers`.\n")
    print("[models]")
    for model_type, class_name in sorted(models):
        print(f'"{model_type}" = "{class_name}"')
    print(
        "\n# Do not run in eager mode with the configuration that library.py makes, or not with its inputs."
    )
    print("[excluded]")
    for model_type, reason in sorted(excluded):
        text = reason.strip().replace("\\", "/").replace('"', "'")
        print(f'"{model_type}" = "{text}"')


if __name__ == "__main__":
    main()
