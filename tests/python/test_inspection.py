"""What inspect, typing, functools, copy and pickle make of compiled callables: what they make of torch.compile's."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import kintsugi


def plain(x: torch.Tensor, k: int = 2, *, flag: bool = False) -> torch.Tensor:
    """What it does."""
    return x * k


class Net(nn.Module):
    """A network."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, k: int = 2, *, flag: bool = False) -> torch.Tensor:
        return self.fc(x) * k


class Holder:
    def method(self, x: torch.Tensor, k: int = 3) -> torch.Tensor:
        return x * k


def of_torch(value: Any) -> Any:
    return torch.compile(value, backend="eager")


def of_ours(value: Any) -> Any:
    return kintsugi.compile(value, backend="eager")


def names(signature: inspect.Signature) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


FUNCTIONS: list[tuple[str, Callable[[Callable[[Any], Any]], Any]]] = [
    ("function", lambda of: of(plain)),
    ("bound method", lambda of: of(Holder().method)),
    ("function.__call__", lambda of: of(plain).__call__),
    ("module", lambda of: of(Net())),
    ("module.__call__", lambda of: of(Net()).__call__),
    ("partial", lambda of: functools.partial(of(plain), torch.ones(1))),
    ("wraps", lambda of: functools.wraps(of(plain))(lambda *a, **k: None)),
    ("wraps module", lambda of: functools.wraps(of(Net()))(lambda *a, **k: None)),
]


@pytest.mark.parametrize(("what", "make"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_signatures_are_those_of_torch_compile(what: str, make: Callable[..., Any]) -> None:
    theirs, ours = make(of_torch), make(of_ours)
    assert names(inspect.signature(ours)) == names(inspect.signature(theirs))


@pytest.mark.parametrize(("what", "make"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_all_are_fully_specified(what: str, make: Callable[..., Any]) -> None:
    """torch.compile's wrapper hides the arguments of a function from getfullargspec; ours shows them."""
    spec = inspect.getfullargspec(make(of_ours))
    theirs = inspect.getfullargspec(make(of_torch))
    if theirs.varargs and not what.startswith(("function", "bound", "partial", "wraps")):
        assert (spec.varargs, spec.varkw) == (theirs.varargs, theirs.varkw)
    elif what == "function":
        assert spec == inspect.getfullargspec(plain)


def test_each_way_to_a_module() -> None:
    module = Net()
    compiled = of_ours(module)
    assert names(inspect.signature(compiled)) == names(inspect.signature(module))
    assert names(inspect.signature(compiled.forward)) == names(inspect.signature(module.forward))
    assert inspect.getfullargspec(compiled.forward).args == ["x", "k"]
    for callable_ in (compiled, compiled.__call__, compiled.forward, type(compiled).__call__):
        inspect.signature(callable_)
        inspect.getfullargspec(callable_)
    inspect.signature(type(compiled))
    inspect.signature(kintsugi.CompiledFunction)


@pytest.mark.parametrize(
    "made", [lambda of: of(plain), lambda of: of(plain).__call__, lambda of: of(Net()).__call__]
)
def test_type_hints(made: Callable[..., Any]) -> None:
    theirs = {k: v for k, v in typing.get_type_hints(made(of_torch)).items() if v is not Any}
    assert typing.get_type_hints(made(of_ours)) == theirs


@pytest.mark.parametrize("attribute", ["__name__", "__qualname__", "__module__", "__doc__"])
def test_names(attribute: str) -> None:
    assert getattr(of_ours(plain), attribute) == getattr(of_torch(plain), attribute)


def test_unwrap_and_source() -> None:
    assert inspect.unwrap(of_ours(plain)) is plain
    assert inspect.getsource(inspect.unwrap(of_ours(plain))) == inspect.getsource(plain)
    assert callable(of_ours(plain)) and callable(of_ours(Net()))


def test_callables_without_a_signature() -> None:
    compiled = of_ours(torch.add)
    for ask in (inspect.signature, inspect.getfullargspec):
        with pytest.raises((ValueError, TypeError)):
            ask(compiled)


def test_copies_of_functions() -> None:
    for of in (of_torch, of_ours):
        compiled = of(plain)
        assert copy.copy(compiled) is compiled
        assert copy.deepcopy(compiled) is compiled


decorated_ours = kintsugi.compile(plain, backend="eager")
decorated_ours.__qualname__ = "decorated_ours"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_functions(protocol: int) -> None:
    assert pickle.loads(pickle.dumps(decorated_ours, protocol)) is decorated_ours
    # Another one of the same original: torch's can't be pickled, ours is made anew.
    again = pickle.loads(pickle.dumps(kintsugi.compile(plain, backend="eager"), protocol))
    assert torch.equal(again(torch.ones(2)), torch.full((2,), 2.0))


@pytest.mark.parametrize("of", [of_torch, of_ours])
@pytest.mark.parametrize("how", ["copy", "deepcopy", *range(pickle.HIGHEST_PROTOCOL + 1)])
def test_copies_of_modules(how: str | int, of: Callable[[Any], Any]) -> None:
    module = Net()
    compiled = of(module)
    x = torch.ones(1, 2)
    wanted = compiled(x)
    if isinstance(how, int):
        again = pickle.loads(pickle.dumps(compiled, how))
    else:
        again = getattr(copy, how)(compiled)
    assert type(again) is type(compiled) and again is not compiled
    assert torch.equal(again(x), wanted)
    assert torch.equal(again(x), wanted)
    shared = how == "copy"
    assert (again._orig_mod.fc.weight is module.fc.weight) == shared
    assert again._orig_mod is not module or of is of_torch


def test_what_is_not_ready_is_no_crash() -> None:
    empty = kintsugi.CompiledFunction.__new__(kintsugi.CompiledFunction)
    with pytest.raises(TypeError, match="not ready to be called"):
        empty()
    repr(type(empty))
    with pytest.raises(AttributeError):
        _ = empty._kintsugi_call


def test_a_subclass_with_a_call_of_its_own() -> None:
    class Counts(kintsugi.CompiledFunction):
        calls = 0

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            type(self).calls += 1
            return super().__call__(*args, **kwargs)

    made = kintsugi.compile(plain, backend="eager")
    counted = Counts(plain, made._options)
    for _ in range(3):
        assert torch.equal(counted(torch.ones(2), k=4), torch.full((2,), 4.0))
    assert Counts.calls == 3


def test_code_is_the_originals() -> None:
    assert of_ours(plain).__code__ is plain.__code__
    assert of_ours(Holder().method).__code__ is Holder.method.__code__
    with pytest.raises(AttributeError):
        _ = of_ours(functools.partial(plain, k=3)).__code__


def test_modules_are_exported() -> None:
    module, x = Net(), torch.ones(2, 2)
    exported = torch.export.export(of_ours(module), (x,), {"flag": True})
    got, expected = exported.module()(x, flag=True), module(x, flag=True)
    assert torch.equal(got, expected)
    assert list(exported.state_dict) == list(module.state_dict())


def test_modules_have_what_compiled_functions_have() -> None:
    compiled = kintsugi.compile(torch.nn.Linear(3, 3), backend="eager")
    for rows in (2, 2, 5):
        compiled(torch.ones(rows, 3))
    assert compiled.breaks() == []
    assert len(compiled.traces()) == 2
    assert compiled.recompiles()[0]["guard"]
    assert {"breaks", "recompiles", "reset", "traces", "stats"} <= set(dir(compiled))
    compiled.reset()
    assert compiled.traces() == []


def test_a_module_s_own_names_come_first() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 5
            self.traces = "mine"

        def reset(self) -> str:
            self.count = 0
            return "reset by the module"

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x + self.count

    compiled = kintsugi.compile(Counter())
    compiled(torch.ones(2))
    assert compiled.reset() == "reset by the module"
    assert compiled.count == 0
    assert compiled.traces == "mine"
    assert compiled.breaks() == []


def scripted(x: torch.Tensor, k: int = 2) -> torch.Tensor:
    if k > 1:
        return x.sin() * k
    return x


def test_torch_jit_scripts_the_original() -> None:
    compiled = kintsugi.compile(scripted, backend="eager")
    x = torch.ones(3)
    assert torch.equal(compiled(x), scripted(x))
    script = torch.jit.script(compiled)
    assert isinstance(script, torch.jit.ScriptFunction) and script.code == torch.jit.script(scripted).code
    for k in (0, 3):
        assert torch.equal(script(x, k), scripted(x, k))
    assert compiled.stats().trace_count == 1
