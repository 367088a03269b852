"""Exits inside handlers: a guard that fails there is a side trace like any other, and what is handled is as in eager.

Each program runs over inputs that take both ways, eager beside compiled: results, log output, and what can be seen of
the exceptions (arguments, cause, context, lines of the traceback) have to agree in every call.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from harness import guards_inside

import kintsugi

PROGRAMS: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {}
STREAM = io.StringIO()
LOG = logging.getLogger("kintsugi.test.exception_exits")
LOG.addHandler(logging.StreamHandler(STREAM))
LOG.propagate = False


def program(breaks: int = 0) -> Callable[[Callable[[torch.Tensor], Any]], Callable[[torch.Tensor], Any]]:
    """A program and how many graph breaks its recordings may have; -1: it may run without a trace."""

    def add(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        PROGRAMS[function.__name__] = (function, breaks)
        return function

    return add


def lines(error: BaseException | None) -> list[tuple[str, int]]:
    """The functions and lines of a traceback."""
    if error is None:
        return []
    return [(entry.name, entry.lineno or 0) for entry in traceback.extract_tb(error.__traceback__)]


def told(error: BaseException | None) -> Any:
    """What an exception says, with those that it names."""
    if error is None:
        return None
    return (
        type(error).__name__,
        repr(error),
        dict(vars(error)),
        lines(error),
        error.__suppress_context__,
        told(error.__cause__),
        told(error.__context__),
    )


class Refused(Exception):
    def __init__(self, reason: str, code: int = 2) -> None:
        super().__init__(f"refused: {reason}")
        self.reason = reason
        self.code = code


class Plain(ValueError):
    pass


def fails(key: str) -> int:
    if key:
        raise KeyError(key)
    return 1


@program()
def branch(x: torch.Tensor) -> Any:
    try:
        fails("a")
    except KeyError:
        return x + 1 if x.sum() > 0 else x - 1


@program()
def after_the_handler(x: torch.Tensor) -> Any:
    try:
        fails("a")
    except KeyError as e:
        y = x + 1 if x.sum() > 0 else x - 1
        name = e.args[0]
    return y * 2, name, sys.exc_info() == (None, None, None)


@program()
def raised_again(x: torch.Tensor) -> Any:
    try:
        try:
            fails("a")
        except KeyError:
            if x.sum() > 0:
                raise
            return x - 1
    except KeyError as e:
        return x + 1, e


@program()
def raised_from(x: torch.Tensor) -> Any:
    try:
        try:
            raise Refused("all")
        except Refused as e:
            if x.sum() > 0:
                raise ValueError("v") from e
            raise TypeError("t") from None
    except (ValueError, TypeError) as v:
        return x + 1 if x.mean() > 0 else x - 1, v


@program()
def nested(x: torch.Tensor) -> Any:
    try:
        fails("a")
    except KeyError as first:
        try:
            raise Plain("inner")
        except Plain as second:
            y = x * 2 if x.sum() > 0 else x * 3
            kept = second
        z = y + 1 if x.max() > 0 else y - 1
        return z, first, kept


def handles(x: torch.Tensor) -> Any:
    try:
        raise Refused("inside", code=7)
    except Refused as e:
        return (x * 2 if x.sum() > 0 else x * 3), e


@program()
def in_a_callee(x: torch.Tensor) -> Any:
    try:
        fails("a")
    except KeyError as e:
        y, inner = handles(x)
        return y, e, inner


@program()
def finally_by_exception(x: torch.Tensor) -> Any:
    out = []
    try:
        try:
            fails("a")
        finally:
            out.append("positive" if x.sum() > 0 else "negative")
    except KeyError as e:
        out.append(e)
    return x, out


class Manager:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.seen.append((kind, error, trace.tb_lineno))
        return True


@program()
def with_manager(x: torch.Tensor) -> Any:
    manager = Manager()
    with manager:
        fails("a")
    return (x + 1 if x.sum() > 0 else x - 1), manager.seen


class Deciding:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return bool(self.x.sum() > 0)


@program()
def manager_decides(x: torch.Tensor) -> Any:
    try:
        with Deciding(x):
            fails("a")
    except KeyError as e:
        return x - 1, e
    return x + 1


@contextlib.contextmanager
def translating(x: torch.Tensor) -> Iterator[int]:
    try:
        yield 1
    except KeyError as e:
        if x.sum() > 0:
            raise Plain("translated") from e
        raise


@program()
def context_manager(x: torch.Tensor) -> Any:
    try:
        with translating(x):
            fails("a")
    except Exception as e:
        return x + 1, e


def items(x: torch.Tensor) -> Iterator[torch.Tensor]:
    for i in range(3):
        try:
            if i == 1:
                fails("a")
            yield x + i
        except KeyError:
            y = x * 2 if x.sum() > 0 else x * 3
        else:
            y = x
        yield y


@program()
def in_a_generator(x: torch.Tensor) -> Any:
    return list(items(x))


@program()
def in_a_loop(x: torch.Tensor) -> Any:
    out = []
    for i in range(3):
        try:
            if i:
                raise Refused(str(i), i)
            out.append(x)
        except Refused as e:
            out.append(x * e.code if x.sum() > i else x - e.code)
    return out


@program()
def scalar_raised(x: torch.Tensor) -> Any:
    try:
        total = x.sum().item()
        if total > 0:
            raise ValueError("positive")
        raise TypeError("negative")
    except ValueError as e:
        return x + 1, str(e)
    except TypeError as e:
        return (x - 1 if x.mean() < 0 else x), str(e)


@program()
def asked_for(x: torch.Tensor) -> Any:
    try:
        fails("a")
    except KeyError:
        kind, error, trace = sys.exc_info()
        y = x + 1 if x.sum() > 0 else x - 1
        assert kind is not None and trace is not None
        return y, kind, error, trace.tb_lineno, sys.exc_info()[1] is error


@program()
def operation_raises(x: torch.Tensor) -> Any:
    try:
        fails("a")
    except KeyError:
        try:
            y = x @ x
        except RuntimeError as e:
            y = x + 1 if x.sum() > 0 else x - 1
            return y, e
    return y


@program()
def operation_raises_in_a_callee(x: torch.Tensor) -> Any:
    def product(v: torch.Tensor) -> torch.Tensor:
        return v @ v

    try:
        product(x)
    except RuntimeError as e:
        return x + 1 if x.sum() > 0 else x - 1, e


@program()
def attribute_error(x: torch.Tensor) -> Any:
    manager = Manager()
    try:
        manager.nothing  # type: ignore[attr-defined]
    except AttributeError as e:
        return x + 1 if x.sum() > 0 else x - 1, e.name, e.obj is manager


@program(breaks=-1)
def logged(x: torch.Tensor) -> Any:
    try:
        fails("a")
    except KeyError:
        LOG.exception("failed")
        return x + 1 if x.sum() > 0 else x - 1


@program(breaks=-1)
def formatted(x: torch.Tensor) -> Any:
    try:
        try:
            fails("a")
        except KeyError as e:
            raise Refused("b") from e
    except Refused:
        text = traceback.format_exc()
        return x + 1 if x.sum() > 0 else x - 1, text


@program()
def new_attributes(x: torch.Tensor) -> Any:
    try:
        error = Plain("p")
        error.tensor = x * 2  # type: ignore[attr-defined]
        raise error
    except Plain as e:
        y = x + 1 if x.sum() > 0 else x - 1
        return y + e.tensor, vars(e)["tensor"]  # type: ignore[attr-defined]


def comparable(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, BaseException):
        return told(value)
    if isinstance(value, tuple | list):
        return [comparable(v) for v in value]
    return value


def outcome(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    STREAM.seek(0)
    STREAM.truncate()
    try:
        result = comparable(function(x))
    except Exception as e:
        result = repr(e)
    assert sys.exc_info() == (None, None, None)
    return result, STREAM.getvalue()


def inputs() -> Iterator[torch.Tensor]:
    for i in range(8):
        yield torch.full((2, 3), 1.5 if i in (0, 3, 4, 7) else -0.5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_path(name: str) -> None:
    function, breaks = PROGRAMS[name]
    compiled = kintsugi.compile(function)
    for x in inputs():
        assert outcome(function, x) == outcome(compiled, x)
    if breaks < 0:
        return
    stats = compiled.stats()
    assert len(compiled.breaks()) <= breaks, compiled.breaks()
    exits = stats.side_exits
    assert stats.trace_count > 0
    for x in inputs():
        outcome(compiled, x)
    assert compiled.stats().side_exits == exits, "paths that were seen do not leave the compiled code"


@pytest.mark.parametrize("name", PROGRAMS)
def test_called_in_a_handler(name: str) -> None:
    """What the caller handles is the context of what the program raises, whatever that was during the recording."""
    function, _ = PROGRAMS[name]

    def handled(call: Callable[[torch.Tensor], Any], x: torch.Tensor, i: int) -> Any:
        if i % 3 == 0:
            return call(x)
        try:
            raise OSError(i, f"outside {i}")
        except OSError as e:
            result = call(x)
            assert sys.exc_info()[1] is e
            return result

    compiled = kintsugi.compile(function)
    for i, x in enumerate(inputs()):
        assert outcome(lambda v, i=i: handled(function, v, i), x) == outcome(
            lambda v, i=i: handled(compiled, v, i), x
        )


def test_what_the_caller_handles_is_raised_again() -> None:
    def again(x: torch.Tensor) -> Any:
        try:
            raise
        except ValueError as e:
            return x + 1, e.args

    compiled = kintsugi.compile(again)
    for i in range(4):
        try:
            raise ValueError(i)
        except ValueError:
            result = compiled(torch.ones(2))
        assert result[1] == (i,)


def test_exception_classes_are_no_constants() -> None:
    def raises(x: torch.Tensor, kind: type[Exception]) -> Any:
        try:
            raise kind
        except ValueError:
            return x + 1
        except KeyError:
            return x + 2

    compiled = kintsugi.compile(raises)
    x = torch.zeros(2)
    for kind, expected in ((ValueError, 1), (KeyError, 2), (ValueError, 1), (Plain, 1)):
        assert compiled(x, kind).tolist() == [expected, expected]


@pytest.mark.parametrize("limit", [0, 64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_guard_may_fail(name: str, limit: int) -> None:
    """Each guard in turn is forced to leave: CPython goes on in rebuilt frames, or a side trace is recorded."""
    function, _ = PROGRAMS[name]
    with kintsugi.config.patch(side_trace_limit=limit):
        number, count = 0, 1
        while number < count:
            compiled = kintsugi.compile(function)
            for x in list(inputs())[:3]:
                outcome(compiled, x)
            core = compiled._kintsugi_compiled  # type: ignore[attr-defined]
            guards = guards_inside(core)
            if not guards:
                return
            core._force_exit(*guards[number])
            number, count = number + 1, len(guards)
            for x in list(inputs())[:5]:
                assert outcome(compiled, x) == outcome(function, x)
