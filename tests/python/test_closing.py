"""Files close where the program lets go of them, not later: they are written out then, and warned of."""

from __future__ import annotations

import contextlib
import json
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness
import pytest
import torch

import kintsugi


class Quiet:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass


def dropped(x: torch.Tensor, path: str) -> Any:
    file = open(path, "a")
    file.write("x")
    y = x + 1
    del file
    return y, open(path).read()


def returned(x: torch.Tensor, path: str) -> Any:
    def opened() -> torch.Tensor:
        file = open(path, "a")
        file.write("x")
        return x + 1

    return opened(), open(path).read()


def suspended(x: torch.Tensor, path: str) -> Iterator[torch.Tensor]:
    file = open(path, "a")
    file.write("x")
    yield x + 1


def suspended_inside(x: torch.Tensor, path: str) -> Iterator[torch.Tensor]:
    with Quiet(), open(path + "2", "a"):
        file = open(path, "a")
        file.write("x")
        yield x + 1


def suspended_above(x: torch.Tensor, path: str) -> Iterator[torch.Tensor]:
    with open(path + "2", "a"):
        file = open(path, "a")
        file.write("x")
        yield from (x + k for k in range(3))


def ended(x: torch.Tensor, path: str) -> Any:
    return [*suspended(x, path)], open(path).read()


def closing(make: Callable[[torch.Tensor, str], Iterator[torch.Tensor]]) -> Callable[..., Any]:
    def closed(x: torch.Tensor, path: str) -> Any:
        generator = make(x, path)
        y = next(generator)
        generator.close()  # type: ignore[attr-defined]
        return y, open(path).read()

    return closed


def leaving(make: Callable[[torch.Tensor, str], Iterator[torch.Tensor]]) -> Callable[..., Any]:
    def left(x: torch.Tensor, path: str) -> Any:
        generator = make(x, path)
        y = next(generator)
        del generator
        return y, open(path).read()

    return left


def raising(fail: Callable[[], Any]) -> Callable[..., Any]:
    def raised(x: torch.Tensor, path: str) -> Any:
        def opened() -> None:
            with open(path + "2", "a"):
                file = open(path, "a")
                file.write("x")
                fail()

        try:
            opened()
        except (ValueError, KeyError):
            pass
        return x + 1, open(path).read()

    return raised


def invalid() -> Any:
    raise ValueError("no")


def handled(x: torch.Tensor, path: str) -> Any:
    """The file stays open as long as the exception is handled, whose traceback has the frame."""

    def opened(k: int) -> None:
        file = open(path, "a")
        file.write("x")
        raise ValueError(k)

    found = []
    for k in range(2):
        try:
            opened(k)
        except ValueError as error:
            found.append((error.args, open(path).read()))
            y = x * 2
            found.append(open(path).read())
        found.append(open(path).read())
    return y, found


def weakly(x: torch.Tensor, path: str) -> Any:
    """What a step has given goes with its last name, a part of it too."""

    def made() -> Any:
        one = Quiet()
        return one, weakref.ref(one)

    one, seen = made()
    one = None
    return x + 1, seen() is None


def suppressed(x: torch.Tensor, path: str) -> Any:
    def opened() -> Any:
        file = open(path, "a")
        file.write("x")
        return {}["a"]

    with contextlib.suppress(KeyError):
        opened()
    return x + 1, open(path).read()


def absent(x: torch.Tensor, path: str) -> Any:
    class Asked:
        def __getattr__(self, name: str) -> Any:
            file = open(path, "a")
            file.write("x")
            raise AttributeError(name)

    asked = Asked()
    return getattr(asked, "one", x + 1), open(path).read(), hasattr(asked, "two"), open(path).read()


PROGRAMS: dict[str, Callable[[torch.Tensor, str], Any]] = {
    "dropped": dropped,
    "returned": returned,
    "ended": ended,
    **{f"closed {make.__name__}": closing(make) for make in (suspended, suspended_inside, suspended_above)},
    **{f"left {make.__name__}": leaving(make) for make in (suspended, suspended_inside, suspended_above)},
    "raised": raising(invalid),
    "raised by an operator": raising(lambda: {}["a"]),
    "raised by a step": raising(lambda: json.loads("{bad")),
    "handled": handled,
    "weakly": weakly,
    "suppressed": suppressed,
    "absent": absent,
}


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager_mode(name: str, backend: str, tmp_path: Path) -> None:
    compiled = kintsugi.compile(PROGRAMS[name], backend=backend)

    def seen(function: Callable[[torch.Tensor, str], Any], folder: str) -> Any:
        (tmp_path / folder).mkdir()
        found = []
        for k in range(5):
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                result = function(torch.ones(2) + k, str(tmp_path / folder / "written.txt"))
                warnings.warn("after the call", stacklevel=1)
            if backend == "native":
                kintsugi.wait()
            found.append((harness.describe(result, close=True), [w.category.__name__ for w in warned]))
        return found

    assert seen(compiled, "compiled") == seen(PROGRAMS[name], "eager")
