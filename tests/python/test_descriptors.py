"""Descriptors written in Python: what sets and deletes attributes is part of the trace."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from harness import describe

import kintsugi


class Doubling:
    """A data descriptor that writes through the dict of the object, as validating fields do."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else instance._kept

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__["_kept"] = value * 2

    def __delete__(self, instance: Any) -> None:
        instance._kept = instance._kept * 0


class Described:
    field = Doubling()

    def __init__(self) -> None:
        self._kept = torch.zeros(2)


class SettingModule(torch.nn.Module):
    """Its property is reached by object.__setattr__, which torch's own __setattr__ calls."""

    def __init__(self) -> None:
        super().__init__()
        self._factor = 1
        self.changes = 0

    @property
    def factor(self) -> Any:
        return self._factor

    @factor.setter
    def factor(self, value: Any) -> None:
        self.changes += 1
        self._factor = value

    @factor.deleter
    def factor(self) -> None:
        self._factor = 0


def set_and_read(kept: Any, x: torch.Tensor) -> Any:
    kept.field = x
    return kept._kept + 1, kept.field


def set_and_delete(kept: Any, x: torch.Tensor) -> Any:
    setattr(kept, "field", x)
    before = kept._kept + 1
    del kept.field
    return before, kept.field


def set_in_module(module: Any, x: torch.Tensor) -> Any:
    module.factor = x
    read = module._factor + 1
    changes = module.changes
    if x.sum() > 4:
        del module.factor
    return read, changes, module._factor


@pytest.mark.parametrize(
    ("function", "kind"),
    [(set_and_read, Described), (set_and_delete, Described), (set_in_module, SettingModule)],
)
def test_setters_of_descriptors_are_part_of_the_trace(function: Any, kind: Any) -> None:
    compiled = kintsugi.compile(function)
    ours, eager = kind(), kind()
    for turn in range(8):
        x = torch.full((2,), float(turn))
        assert describe(compiled(ours, x)) == describe(function(eager, x))
    assert compiled.stats().graph_break_count <= (function is set_in_module)
    assert compiled.stats().hits >= 6


def test_a_descriptor_whose_methods_are_replaced() -> None:
    class Own(Doubling):
        pass

    class Holder(Described):
        field = Own()

    compiled = kintsugi.compile(set_and_read)
    x = torch.ones(2)
    for _ in range(2):
        assert describe(compiled(Holder(), x)) == describe(set_and_read(Holder(), x))
    Own.__set__ = lambda self, instance, value: instance.__dict__.update(_kept=value * 5)  # type: ignore[method-assign]
    assert describe(compiled(Holder(), x)) == describe(set_and_read(Holder(), x))
    Own.__get__ = lambda self, instance, owner=None: instance._kept + 100  # type: ignore[method-assign]
    assert describe(compiled(Holder(), x)) == describe(set_and_read(Holder(), x))


class Counting(type):
    made = 0

    @property
    def label(cls) -> str:
        Counting.made += 1
        return f"{cls.__name__}-{Counting.made}"


class Labelled(metaclass=Counting):
    pass


class Own(property):
    """Gets and sets as properties do."""


class Judged:
    def __init__(self) -> None:
        self.reads = 0

    @Own
    def level(self) -> int:
        self.reads += 1
        return self.reads


def property_of_a_subclass(judged: Any, x: torch.Tensor) -> Any:
    before = judged.reads
    return x * judged.level, before, judged.reads


def test_properties_of_a_subclass_are_part_of_the_trace() -> None:
    compiled = kintsugi.compile(property_of_a_subclass)
    ours, eager = Judged(), Judged()
    for _ in range(8):
        x = torch.randn(2)
        assert describe(compiled(ours, x)) == describe(property_of_a_subclass(eager, x))
    assert compiled.stats().graph_break_count == 0
    assert compiled.stats().hits >= 6


def property_of_a_metaclass(x: torch.Tensor) -> Any:
    before = Counting.made
    return x, Labelled.label, Counting.made - before


def test_properties_of_a_metaclass() -> None:
    compiled = kintsugi.compile(property_of_a_metaclass)
    for turn in range(6):
        Counting.made = turn
        expected = describe(property_of_a_metaclass(torch.ones(2)))
        Counting.made = turn
        assert describe(compiled(torch.ones(2))) == expected


class Deferred(types.ModuleType):
    """As torch._VF is: a module whose class looks names up."""

    def __getattr__(self, name: str) -> int:
        if not name.startswith("v"):
            raise AttributeError(name)
        self.__dict__["asked"] = self.__dict__.get("asked", 0) + 1
        return int(name[1:])


def ask_module(module: Any, x: torch.Tensor) -> Any:
    return x * module.v3, hasattr(module, "w"), module.asked


def test_modules_whose_class_looks_names_up() -> None:
    compiled = kintsugi.compile(ask_module)
    ours, eager = Deferred("ours"), Deferred("eager")
    for _ in range(8):
        x = torch.randn(2)
        assert describe(compiled(ours, x)) == describe(ask_module(eager, x))
    assert compiled.stats().hits >= 4
    ours.__dict__["__getattr__"] = eager.__dict__["__getattr__"] = lambda name: 9
    assert describe(compiled(ours, x)) == describe(ask_module(eager, x))


class Telling:
    """Answers whatever it is asked in Python, and notes it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        raise AttributeError(name)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class NamedInPython(type):
    asked: list[str] = []

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__"):
            NamedInPython.asked.append(name)
        return super().__getattribute__(name)


class Named(metaclass=NamedInPython):
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


def call_it(kept: Any, x: torch.Tensor) -> Any:
    return kept(x) * 2


def sort_by_it(kept: Any, x: torch.Tensor) -> Any:
    return [int(item.sum()) for item in sorted([x, -x], key=kept)], x.apply_(kept)


def make_it(kept: Any, x: torch.Tensor) -> Any:
    return Named(x).x, list(map(Named, [x]))[0].x


def call_packet(kept: Any, x: torch.Tensor) -> Any:
    return torch.ops.aten.slice(x, 0, 0, -1, 2), torch.ops.aten.amax(x, 0)


@pytest.mark.parametrize("function", [call_it, sort_by_it, make_it, call_packet])
def test_naming_what_is_called_runs_no_code_of_the_program(function: Any) -> None:
    asked = []
    for call in (function, kintsugi.compile(function, backend="eager")):
        NamedInPython.asked.clear()
        kept, answers = Telling(), []
        for _ in range(3):
            try:
                answers.append(describe(call(kept, torch.arange(4.0))))
            except (TypeError, RuntimeError) as error:
                answers.append(describe(str(error)))
        asked.append((answers, kept.asked, list(NamedInPython.asked)))
    assert asked[0] == asked[1]


def test_operator_packets_are_known() -> None:
    compiled = kintsugi.compile(call_packet, backend="eager", fullgraph=True)
    for _ in range(3):
        compiled(None, torch.arange(4.0))
    assert compiled.stats().hits == 2
