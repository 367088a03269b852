"""The core's paths that read by index and hand memory on, for `make valgrind`: look-ups, explanations, learning of what
varies, side exits and side traces, in one small process."""

from __future__ import annotations

from typing import Any

import torch

import kintsugi


def keywords(x: torch.Tensor, *rest: Any, scale: int = 1, **more: Any) -> Any:
    return x * scale + len(rest), sorted(more)


def branches(x: torch.Tensor, limit: float) -> Any:
    if x.sum() > limit:
        return x - 1
    return [x + limit, "below"]


def main() -> None:
    kintsugi.config.default_backend = "eager"
    torch.set_num_threads(1)
    x = torch.arange(4.0)
    first, second = kintsugi.compile(keywords), kintsugi.compile(branches)
    for n in range(6):
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
            ((x,), {"a": n, "b": n}),
            ((x,), {}),
            ((x, *range(n)), {"scale": n}),
            ((torch.ones(n + 2),), {"b": 1, "a": 2}),
        ]
        for args, named in calls:
            assert str(first(*args, **named)) == str(keywords(*args, **named))
        for limit in (float(n), -1.0, 100.0):
            assert str(second(x, limit)) == str(branches(x, limit))
    print(kintsugi.explain(second)(x, 3.0).graph_count, first.recompiles()[-1]["guard"])
    kintsugi.reset()


if __name__ == "__main__":
    main()
