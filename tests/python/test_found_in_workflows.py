"""Classes of programs that cut graphs, or raised, in workflows of libraries: keras, pyro, transformers' Trainer."""

from __future__ import annotations

import functools
import inspect
import types
from collections import OrderedDict
from typing import Any, TypedDict

import pytest
import torch
from harness import describe
from torch import nn

import kintsugi
from kintsugi._callable import core_of

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def calls(call: int) -> torch.Tensor:
    return X * (-1) ** call * (call + 1)


def follow(f: Any, *, breaks: int | None = 0, misses: int | None = 1, n: int = 6) -> Any:
    """The same as eager, values and exact types, in replay and natively."""
    for backend in ("eager", "native"):
        compiled = kintsugi.compile(f, backend=backend)
        for call in range(n):
            got, wanted = compiled(calls(call)), f(calls(call))
            assert describe(got, close=backend == "native") == describe(wanted, close=backend == "native")
            kintsugi.wait()
        core = core_of(compiled)
        assert core is not None
        assert breaks is None or compiled.stats().graph_break_count == breaks, core.breaks()
        assert misses is None or compiled.stats().misses == misses, core.recompiles()
    return compiled


# --- `__call__` of a class that is no function ---


class Message(TypedDict, total=False):
    name: str
    value: torch.Tensor


class MadeByDict:
    __call__ = dict


class CallsPartial:
    __call__ = functools.partial(torch.add, alpha=2)


class CallsOperator:
    __call__ = torch.relu


class CallsModule:
    __call__ = nn.ReLU()


class CallsStatic:
    @staticmethod
    def __call__(x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return x * 5


class MetaOfModule(type):
    __call__ = nn.Softplus()  # type: ignore[assignment]


class MadeByModule(metaclass=MetaOfModule):
    pass


def typed_dict(x: torch.Tensor) -> Any:
    made = Message(name="site", value=x)
    made["value"] = made["value"] * 2
    return made, made["name"]


@pytest.mark.parametrize(
    "f",
    [
        typed_dict,
        lambda x: MadeByDict()(a=x.sin(), b=1),
        lambda x: CallsPartial()(x, x),
        lambda x: CallsOperator()(x) + 1,
        lambda x: CallsModule()(x) + 1,
        lambda x: CallsStatic()(x) + 1,
        lambda x: MadeByModule(x) + 1,
    ],
    ids=["typed-dict", "class", "partial", "operator", "module", "static", "metaclass"],
)
def test_call_is_no_function(f: Any) -> None:
    follow(f)


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_call_becomes_another_one(backend: str) -> None:
    class Caller:
        __call__ = torch.relu

    caller = Caller()
    compiled = kintsugi.compile(lambda x: caller(x) + 1, backend=backend)
    for made in (
        torch.relu,
        functools.partial(torch.mul, other=3),
        staticmethod(torch.sin),
        lambda self, x: x + 7,
    ):
        Caller.__call__ = made  # type: ignore[method-assign, assignment]
        for _ in range(3):
            torch.testing.assert_close(compiled(X), caller(X) + 1)
            kintsugi.wait()


# --- read-only mappings ---

SIGNATURE = inspect.signature(lambda a, b=2.0, *c, d=3.0: None)


def through_parameters(x: torch.Tensor) -> Any:
    for parameter in SIGNATURE.parameters.values():
        if parameter.default is not parameter.empty:
            x = x * parameter.default
    kinds = [name for name, p in SIGNATURE.parameters.items() if p.kind is p.VAR_POSITIONAL]
    return x, kinds, list(SIGNATURE.parameters.keys())


def bound_arguments(x: torch.Tensor) -> Any:
    bound = SIGNATURE.bind(x, 4.0)
    bound.apply_defaults()
    return bound.arguments["a"] * bound.arguments["b"] + bound.arguments["d"]


@pytest.mark.parametrize("f", [through_parameters, bound_arguments])
def test_parameters_of_a_signature(f: Any) -> None:
    follow(f)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_the_mapping_behind_a_proxy_changes(kind: type, backend: str) -> None:
    behind = kind(a=2.0, b=3.0)
    proxy = types.MappingProxyType(behind)

    def f(x: torch.Tensor) -> Any:
        for value in proxy.values():
            x = x * value
        kept = proxy.copy() if type(behind) is dict else {}
        kept["more"] = 1
        return x + proxy.get("c", 0.5), list(proxy.keys()), list(proxy.items()), kept

    compiled = kintsugi.compile(f, backend=backend)

    def check() -> None:
        for _ in range(3):
            close = backend == "native"
            assert describe(compiled(X), close=close) == describe(f(X), close=close)
            kintsugi.wait()

    check()
    assert compiled.stats().graph_break_count == 0 and compiled.stats().misses == 1
    behind["a"] = 7.0
    check()
    behind["c"] = 1.5
    check()
    del behind["b"]
    check()
    behind["b"] = 1.0
    check()
    proxy = types.MappingProxyType({"a": 0.25})
    check()


# --- sets that are older than the call ---


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_an_older_set_is_cleared(backend: str) -> None:
    state: dict[str, set[Any]] = {}

    def f(x: torch.Tensor) -> Any:
        state["seen"].clear()
        state["seen"].add("a")
        return x * 2

    compiled = kintsugi.compile(f, backend=backend)
    for members in ({1, 2}, set(), {"b"}, {"a", "c"}):
        state["seen"] = kept = set(members)
        torch.testing.assert_close(compiled(X), X * 2)
        kintsugi.wait()
        assert state["seen"] is kept == {"a"}
    assert compiled.stats().graph_break_count == 0 and compiled.stats().misses == 1


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_a_cleared_set_is_read(backend: str) -> None:
    seen: set[Any] = set()

    def f(x: torch.Tensor) -> Any:
        before = len(seen), 2 in seen
        seen.clear()
        empty = len(seen), 1 in seen, sorted(seen)
        seen.add(1)
        return x * len(seen), before, empty, sorted(seen), 1 in seen, 2 in seen

    compiled = kintsugi.compile(f, backend=backend)
    for members in ({1}, {1}, {1, 2}, set(), {3}, {1}, {1, 2}):
        shown = []
        for run in (f, compiled):
            seen.clear()
            seen.update(members)
            shown.append(describe(run(X), seen, close=backend == "native"))
        kintsugi.wait()
        assert shown[0] == shown[1]


# --- getattr() with a default, hasattr() ---


class Computes:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    @property
    def positive(self) -> Any:
        total = self.value.max()
        return total * 2 if total > 1.5 else total - 1

    @property
    def sometimes(self) -> Any:
        if self.value.max() > 1.5:
            raise AttributeError("not now")
        return self.value * 3

    @property
    def wrong(self) -> Any:
        raise KeyError("key")


def with_other_error(x: torch.Tensor) -> Any:
    try:
        return getattr(Computes(x), "wrong", 3)
    except KeyError as error:
        return x * 2, str(error), error.__context__


@pytest.mark.parametrize(
    "f",
    [
        lambda x: getattr(Computes(x), "positive", 7) + 1,
        lambda x: getattr(Computes(x), "sometimes", 7) + 1,
        lambda x: x * hasattr(Computes(x), "sometimes") + hasattr(Computes(x), "none"),
        lambda x: [getattr(o, n, None) for o in (Computes(x), Computes(x + 1)) for n in ("positive", "none")],
        with_other_error,
    ],
    ids=["branch", "raises", "hasattr", "in-a-list", "another-error"],
)
def test_a_computed_attribute_with_a_default(f: Any) -> None:
    """The property's code branches on data, so that it is left in the middle."""
    compiled = follow(f, n=8)
    assert compiled.stats().side_exits <= 2


# --- compiled modules ---


class Labelled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, labels: Any = None) -> torch.Tensor:
        return self.layer(x) if labels is None else self.layer(x) - labels


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_the_class_of_a_compiled_module_has_the_forward_of_the_original(backend: str) -> None:
    model = Labelled()
    compiled = kintsugi.compile(model, backend=backend)
    cls = type(compiled)
    assert cls.forward is Labelled.forward
    assert inspect.signature(cls.forward) == inspect.signature(Labelled.forward)
    assert inspect.signature(kintsugi.CompiledModule.forward) == inspect.signature(nn.Module.forward)
    assert torch.equal(cls.forward(compiled, X, 1), model(X, 1))
    for _ in range(3):
        torch.testing.assert_close(compiled.forward(X), model(X))
        kintsugi.wait()
    compiled.forward = lambda x: x * 0
    assert torch.equal(compiled(X), X * 0)
    del compiled.forward
    torch.testing.assert_close(compiled(X), model(X))
    whole = kintsugi.compile(lambda x: compiled.forward(x) + compiled(x), backend=backend)
    for _ in range(3):
        torch.testing.assert_close(whole(X), model(X) * 2)
    assert whole.stats().graph_break_count == 0
