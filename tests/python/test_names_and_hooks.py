"""What the program says of its own names, imports and lengths while a call is recorded holds in each run."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import kintsugi


class Named:
    pass


class Hinted:
    """What C code asks of an iterable, in order."""

    def __init__(self, log: list[str], raises: bool) -> None:
        self.log, self.raises = log, raises

    def __iter__(self) -> Iterator[int]:
        self.log.append("iter")
        return iter([1, 2])

    def __length_hint__(self) -> int:
        self.log.append("hint")
        if self.raises:
            raise ValueError("no hint")
        return 2


class Sized(Hinted):
    def __len__(self) -> int:
        self.log.append("len")
        if self.raises:
            raise ValueError("no length")
        return 2


STATE = {"number": 0}


def module_name(x: torch.Tensor) -> Any:
    Named.__module__ = "m%d" % STATE["number"]
    return Named.__module__, x + 1


def all_names(x: torch.Tensor) -> Any:
    Named.__name__ = "N%d" % STATE["number"]
    Named.__module__ = "m%d" % STATE["number"]
    return Named.__name__, Named.__module__, x + 1


def replaced_import(x: torch.Tensor) -> Any:
    own = builtins.__import__
    builtins.__import__ = lambda name, *rest, **more: STATE["number"]  # type: ignore[assignment]
    try:
        import colorsys
    finally:
        builtins.__import__ = own
    return colorsys, x + 1


def plain_import(x: torch.Tensor) -> Any:
    import colorsys

    return str(colorsys)[:10], x + 1


@pytest.mark.parametrize(
    "program", [module_name, all_names, replaced_import], ids=lambda program: program.__name__
)
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_names_and_imports_of_the_program(program: Any, backend: str) -> None:
    compiled = kintsugi.compile(program, backend=backend)
    before = Named.__name__, Named.__module__
    try:
        for STATE["number"] in (0, 1, 2, 2, 3, 4):
            got, wanted = compiled(torch.ones(2)), program(torch.ones(2))
            assert got[:-1] == wanted[:-1] and torch.equal(got[-1], wanted[-1])
    finally:
        Named.__name__, Named.__module__ = before


def test_an_import_hook_between_calls() -> None:
    compiled = kintsugi.compile(plain_import, backend="eager")
    assert compiled(torch.ones(2))[0] == plain_import(torch.ones(2))[0]
    assert compiled(torch.ones(2))[0] == plain_import(torch.ones(2))[0]
    own = builtins.__import__
    builtins.__import__ = lambda name, *rest, **more: "hooked by us"  # type: ignore[assignment]
    try:
        assert compiled(torch.ones(2))[0] == "hooked by "
    finally:
        builtins.__import__ = own
    assert compiled(torch.ones(2))[0] == plain_import(torch.ones(2))[0]


@pytest.mark.parametrize("kind", [Hinted, Sized])
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_lengths_are_asked_for(kind: type[Hinted], raises: bool, backend: str) -> None:
    def starred(x: torch.Tensor) -> Any:
        log: list[str] = []
        try:
            return log, [*kind(log, raises)], x + 1
        except ValueError as error:
            return log, str(error), x + 1

    def called(x: torch.Tensor) -> Any:
        log: list[str] = []

        def count(*numbers: int) -> int:
            return len(numbers)

        try:
            return log, count(*kind(log, raises)), x + 1
        except ValueError as error:
            return log, str(error), x + 1

    for f in (starred, called):
        compiled = kintsugi.compile(f, backend=backend)
        for _ in range(4):
            got, wanted = compiled(torch.ones(2)), f(torch.ones(2))
            assert got[:2] == wanted[:2] and torch.equal(got[2], wanted[2])


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_numbers_beyond_64_bits(backend: str) -> None:
    def f(x: torch.Tensor) -> Any:
        k = int(x)
        try:
            return torch.tensor(k * 4)
        except (ValueError, OverflowError) as error:
            return type(error).__name__, str(error)

    compiled = kintsugi.compile(f, backend=backend)
    for number in (3, 2**62, 5, 2**62, -(2**62), 2**61):
        x = torch.tensor(number)
        assert compiled(x) == f(x), number


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_how_many_digits_an_int_may_have(backend: str) -> None:
    texts = [
        lambda x: len(str(10**800)),
        lambda x: int("1" * 800) % 7,
        lambda x: len(f"{10**800}"),
        lambda x: len("%d" % 10**800),
        lambda x: len(repr([10**800])),
    ]
    before = sys.get_int_max_str_digits()
    try:
        for text in texts:
            compiled = kintsugi.compile(text, backend=backend)
            for limit in (4300, 700, 4300, 0, 700, 4300):
                sys.set_int_max_str_digits(limit)
                outcomes = []
                for f in (text, compiled):
                    try:
                        outcomes.append(f(torch.ones(1)))
                    except ValueError as error:
                        outcomes.append(str(error))
                assert outcomes[0] == outcomes[1], limit
    finally:
        sys.set_int_max_str_digits(before)


def named(**numbers: int) -> int:
    return sum(numbers.values())


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_a_keyword_that_is_repeated(backend: str) -> None:
    """Up to CPython 3.11 it is another error inside a handler."""

    def f(x: torch.Tensor) -> Any:
        errors = []
        more = {"a": 2}
        try:
            named(a=1, **more)
        except (KeyError, TypeError) as error:
            errors.append((type(error), error.args))
            try:
                named(a=1, **more)
            except (KeyError, TypeError) as inner:
                errors.append((type(inner), inner.args))
        return errors, x + 1

    compiled = kintsugi.compile(f, backend=backend)
    for _ in range(4):
        got, wanted = compiled(torch.ones(2)), f(torch.ones(2))
        assert got[0] == wanted[0] and torch.equal(got[1], wanted[1])


def signed(a: int, *, k: int = 1) -> None:
    pass


@pytest.mark.parametrize("field", ["__annotations__", "__kwdefaults__", "__defaults__"])
@pytest.mark.parametrize("replaced", [True, False])
def test_signatures_of_functions_that_change(field: str, replaced: bool) -> None:
    def f(x: torch.Tensor) -> Any:
        return str(inspect.signature(signed)), x + 1

    before = {name: getattr(signed, name) for name in ("__annotations__", "__kwdefaults__", "__defaults__")}
    values = {
        "__annotations__": lambda k: {"a": f"T{k}"},
        "__kwdefaults__": lambda k: {"k": k},
        "__defaults__": lambda k: (k,),
    }
    compiled = kintsugi.compile(f, backend="eager")
    try:
        for k in (0, 0, 0, 1, 2, 2, 3):
            value = values[field](k)
            if replaced or field == "__defaults__":
                setattr(signed, field, value)
            else:
                getattr(signed, field).update(value)
            assert compiled(torch.ones(2))[0] == f(torch.ones(2))[0]
    finally:
        for name, old in before.items():
            setattr(signed, name, old)
