"""f(*(generator)): the items are taken inside the call's instruction, by whatever is called, in every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import harness
import pytest
import torch

import kintsugi


def times(x: torch.Tensor, fails_at: int = 9) -> Iterator[torch.Tensor]:
    for k in range(1, 4):
        if k == fails_at:
            raise ValueError("at", k)
        yield x * k


def collected(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return (*args, *kwargs.items())


class Pair(tuple):  # type: ignore[type-arg]
    def __new__(cls, *args: Any) -> Pair:
        return super().__new__(cls, args)


# Of each kind of callable: C functions with a model and without, torch's, methods, classes, Python functions.
CALLED: dict[str, Callable[[torch.Tensor], Any]] = {
    "torch function": lambda x: torch.add(*(t * 2 for t in (x, x))),
    "nested": lambda x: torch.add(*(torch.mul(*(q for q in (t, t))) for t in (x, x))),
    "method": lambda x: x.reshape(*(s for s in (1, 9))),
    "torch function in Python": lambda x: torch.broadcast_shapes(*(t.shape for t in (x, x))),
    "several results": lambda x: torch.broadcast_tensors(*(t * 2 for t in (x, x[:1]))),
    "keyword": lambda x: torch.meshgrid(*(t[0] for t in (x, x)), indexing="ij"),
    "metadata": lambda x: torch.is_same_size(*(t for t in (x, x))),
    "builtin": lambda x: getattr(*(q for q in (x, "shape"))),
    "max of tensors": lambda x: max(*(t.sum() for t in times(x))),
    "opaque": lambda x: repr(*(len(t) for t in (x,))),
    "class": lambda x: Pair(*(t for t in times(x))),
    "Python function": lambda x: collected(*times(x), more=1),
    "print": lambda x: print(*(t.sum().item() for t in times(x))),
    "formatted": lambda x: "{} {} {}".format(*(t.sum() for t in times(x))),
    "raises": lambda x: torch.add(*times(x, 3)),
    "raises at once": lambda x: torch.add(*times(x, 1), alpha=2),
    "raises for a Python function": lambda x: collected(*times(x, 2), more=1),
    "caught": lambda x: _caught(x),
    "too many": lambda x: torch.neg(*times(x)),
}


def _caught(x: torch.Tensor) -> Any:
    seen = []
    try:
        torch.add(*(seen.append(k) or t for k, t in enumerate(times(x, 3))))
    except ValueError as error:
        return seen, error.args, x + 1
    return None


@pytest.mark.parametrize("name", CALLED)
def test_as_in_eager_mode(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = CALLED[name]
    compiled = kintsugi.compile(program, backend="eager")

    def outcome(function: Callable[[torch.Tensor], Any], k: int) -> Any:
        try:
            result = function(torch.arange(9.0).reshape(3, 3) + k)
        except Exception as error:
            return type(error), str(error)
        return harness.describe(result), capsys.readouterr().out

    for k in range(4):
        assert outcome(compiled, k) == outcome(program, k)
