"""f(*(generator)): the items are taken inside the call's instruction, by whatever is called, in every call."""

from __future__ import annotations

import functools
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


class Asked:
    """Its iterator decides by the tensor, so that a run may leave the trace while the items are taken."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __iter__(self) -> Iterator[torch.Tensor]:
        for k in range(1, 4):
            yield decided(self.x * k)


class Counted:
    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.k = x, 0

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> torch.Tensor:
        self.k += 1
        if self.k > 2:
            raise StopIteration
        return decided(self.x * self.k)


class Measured(Asked):
    def __len__(self) -> int:
        return 3 if self.x.dim() else 0

    def __length_hint__(self) -> int:
        return int(self.x.dim())


def decided(x: torch.Tensor) -> torch.Tensor:
    total = x.sum()
    if total > 40:
        raise ValueError("too large")
    return x - 1 if total > 9 else x + 1


ASKED: dict[str, Callable[[torch.Tensor], Any]] = {
    "iter": Asked,
    "next": Counted,
    "measured": Measured,
    "generator": lambda x: (decided(x * k) for k in (1, 2)),
    "map": lambda x: map(decided, [x, x + 1]),
    "filter": lambda x: filter(lambda t: decided(t).sum() > 0, [x, x + 1]),
    "zip": lambda x: zip(Asked(x), [1, 2]),
}


def caught(x: torch.Tensor, it: Any) -> Any:
    more = {"k": x}
    try:
        return collected(*it, **more)
    except ValueError as error:
        return error.args, more


SHAPES: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "alone": lambda x, it: collected(*it),
    "keyword": lambda x, it: collected(*it, more=x),
    "two keywords": lambda x, it: collected(*it, more=x + 1, less=[x]),
    "mapping": lambda x, it: collected(*it, **{"more": x}),
    "both": lambda x, it: collected(*it, less=2, **{"more": x}),
    "others before": lambda x, it: collected(x, *it, k=x),
    "two": lambda x, it: collected(*it, *it, k=x),
    "builtin": lambda x, it: max(*it, (x,), key=lambda t: sum(v.sum() for v in t) if len(t) < 3 else t.sum()),
    "class": lambda x, it: collected(Pair(*it)),
    "object": lambda x, it: functools.partial(collected, x)(*it, k=3),
    "nested": lambda x, it: collected(*Asked(collected(*it, k=x)[0][0]), more=x),
    "caught": caught,
}


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("iterable", ASKED)
@pytest.mark.parametrize("shape", SHAPES)
def test_python_code_gives_the_arguments(shape: str, iterable: str, backend: str) -> None:
    """Whatever lies above the iterable on the stack: keywords, or (CPython 3.14) the null in their place."""

    def program(x: torch.Tensor) -> Any:
        return SHAPES[shape](x, ASKED[iterable](x))

    def outcome(function: Callable[[torch.Tensor], Any], value: float) -> Any:
        x = torch.full((3,), value)
        try:
            return harness.describe(function(x), x)
        except Exception as error:
            return type(error), str(error)

    for values in ([1, 1, 2, 5, 1, 9, 5, 20, 2], [5, 5, 1, 20, 20, 1, 9, 0.5]):
        compiled = kintsugi.compile(program, backend=backend)
        for value in values:
            assert outcome(compiled, value) == outcome(program, value)
        assert not any(
            split["code"] == "KTG0101" and "unpacked" in split["message"] for split in compiled.breaks()
        )


@pytest.mark.parametrize("shape", ["alone", "keyword", "two keywords", "mapping", "both", "object"])
@pytest.mark.parametrize("iterable", ["iter", "next", "measured", "generator", "map"])
def test_captured_whole(shape: str, iterable: str) -> None:
    def program(x: torch.Tensor) -> Any:
        return SHAPES[shape](x, ASKED[iterable](x))

    compiled = kintsugi.compile(program, backend="eager")
    for _ in range(3):
        compiled(torch.ones(3))
    assert not compiled.breaks()
    assert compiled.stats().misses == 1
