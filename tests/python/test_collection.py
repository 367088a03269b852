"""What compiled functions hold is collected with them, and goes when the interpreter ends."""

from __future__ import annotations

import gc
import pathlib
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kintsugi

X = torch.ones(2)
Compile = Callable[[Any], Any]


class Held:
    """What is waited for."""


def in_a_closure(compiled: Compile) -> tuple[Any, Any]:
    held = Held()
    held.w = X  # type: ignore[attr-defined]
    held.f = compiled(lambda x: x * held.w)  # type: ignore[attr-defined]
    return held, held.f  # type: ignore[attr-defined]


def in_a_namespace(compiled: Compile) -> tuple[Any, Any]:
    space: dict[str, Any] = {"compiled": compiled, "held": Held()}
    exec("f = compiled(lambda x: x + (one if x.sum() > 0 else two))\none, two = 1, 2", space)
    return space["held"], space["f"]


def in_a_default(compiled: Compile) -> tuple[Any, Any]:
    held = Held()

    def f(x: Any, held: Any = held) -> Any:
        return x + (1 if x.sum() > 0 else len(vars(held)))

    held.f = compiled(f)  # type: ignore[attr-defined]
    return held, held.f  # type: ignore[attr-defined]


def as_a_method(compiled: Compile) -> tuple[Any, Any]:
    class Model(Held):
        def __init__(self) -> None:
            self.net = torch.nn.Linear(2, 2)
            self.step = compiled(self.step)

        def step(self, x: Any) -> Any:
            return self.net(x) if x.sum() > 0 else x

    model = Model()
    return model, model.step


def as_a_module(compiled: Compile) -> tuple[Any, Any]:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if x.sum() > 0 else x

    model = Model()
    model.__dict__["compiled"] = compiled(model)
    return model, model.__dict__["compiled"]


MAKERS = [in_a_closure, in_a_namespace, in_a_default, as_a_method, as_a_module]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_cycles_through_compiled_functions(make: Callable[[Compile], tuple[Any, Any]], backend: str) -> None:
    held, function = make(lambda f: kintsugi.compile(f, backend=backend))
    for k in range(6):
        function(X if k % 2 == 0 else -X)
    kintsugi.wait()
    seen = weakref.ref(held)
    gc.collect()
    assert seen() is not None
    assert torch.equal(function(X), function(X))
    del held, function
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_end_of_the_interpreter(tmp_path: pathlib.Path, backend: str) -> None:
    written = tmp_path / "log.txt"
    program = f"""
import torch, kintsugi
class Noisy:
    def __del__(self):
        print("gone")
noisy = Noisy()
log = open({str(written)!r}, "w")
def f(x):
    return x + 1 if x.sum() > 0 else x
compiled = kintsugi.compile(f, backend={backend!r})
for k in range(4):
    compiled(torch.ones(2) * (-1) ** k)
log.write("written")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout.split(), written.read_text()) == (0, ["gone"], "written"), ran.stderr


def test_what_lru_cache_adds() -> None:
    import functools

    compiled = kintsugi.compile(functools.lru_cache(lambda k: torch.ones(k)), backend="eager")
    assert compiled(2) is compiled(2)
    assert compiled.cache_info().hits == 1
    compiled.cache_clear()
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        compiled.nothing_of_the_kind


def test_anomalies_are_found_where_the_program_called(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sqrt().sum()

    compiled = kintsugi.compile(f, backend="eager")
    for fn in (compiled, compiled, compiled):
        x = torch.tensor([-1.0], requires_grad=True)
        with (
            torch.autograd.set_detect_anomaly(True),
            pytest.warns(UserWarning, match="return x.sqrt") as warned,
        ):
            with pytest.raises(RuntimeError, match="nan values"):
                fn(x).backward()
        assert len([w for w in warned if "return x.sqrt" in str(w.message)]) == 1
        fn(torch.ones(1))
