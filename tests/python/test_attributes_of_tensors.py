"""Attributes that a program gives a tensor between calls, sets inside, or takes away: they hide the class's methods.

Each program runs in eager mode and compiled, on fresh tensors, with the same changes before its calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import kintsugi

Change = Callable[[Any], None]
BACKENDS = ["eager", "native"]


class Holder:
    def __init__(self) -> None:
        self.a, self.b = torch.ones(3), torch.full((3,), 2.0)


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return type(value).__name__, value.detach().as_subclass(torch.Tensor).tolist()
    if isinstance(value, tuple):
        return [shown(item) for item in value]
    return type(value).__name__, value


def outcomes(program: Callable[..., Any], given: Any, changes: list[Change]) -> list[Any]:
    seen = []
    for change in changes:
        change(given)
        try:
            seen.append(shown(program(given)))
        except (TypeError, AttributeError) as error:
            seen.append((type(error).__name__, str(error)))
    return seen


def compare(program: Callable[..., Any], make: Callable[[], Any], changes: list[Change], backend: str) -> Any:
    compiled = kintsugi.compile(program, backend=backend)
    expected = outcomes(program, make(), changes)
    assert outcomes(compiled, make(), changes) == expected
    assert compiled.stats().hits > 0
    return compiled


def nothing(given: Any) -> None: ...


def changes_of(tensor: Callable[[Any], Any], name: str) -> list[Change]:
    """The attribute comes, goes, and comes again, each with a call behind the next."""

    def set_it(given: Any) -> None:
        setattr(tensor(given), name, lambda *args: 7)

    def delete_it(given: Any) -> None:
        delattr(tensor(given), name)

    def set_another(given: Any) -> None:
        tensor(given).tag = 1

    steps = [set_another, nothing, set_it, nothing, delete_it, nothing, set_it, delete_it, nothing]
    return [nothing, nothing, set_it, nothing, delete_it, nothing, *steps]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("buffer", torch.ones(3))
        self.items = [torch.ones(3)]
        self.named = {"k": torch.ones(3)}


PLACES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "argument": (lambda: torch.ones(3), lambda given: given),
    "parameter": (lambda: nn.Parameter(torch.ones(3)), lambda given: given),
    "list": (lambda: [torch.ones(3)], lambda given: given[0]),
    "object": (Holder, lambda given: given.a),
    "weight": (Net, lambda given: given.weight),
    "buffer": (Net, lambda given: given.buffer),
    "items": (Net, lambda given: given.items[0]),
    "named": (Net, lambda given: given.named["k"]),
}
CALLS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "method": ("relu", lambda t: t.relu() + 1),
    "bound": ("relu", lambda t: (lambda f: f() + 1)(t.relu)),
    "in_python": ("norm", lambda t: t.norm() + 1),
    "getattr": ("sum", lambda t: getattr(t, "sum")() + 1),
    "default": ("sum", lambda t: getattr(t, "sum", None)() + 1),
    "size": ("size", lambda t: t + t.size(0)),
    "view": ("view", lambda t: t.view(3, 1) if callable(t.view) else 0),
    "property": ("shape_", lambda t: t + t.shape[0] + t.ndim),
    "through_class": ("relu", lambda t: torch.Tensor.relu(t) + 1),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("place", PLACES)
def test_an_attribute_hides_a_method(place: str, call: str, backend: str) -> None:
    make, tensor = PLACES[place]
    name, ask = CALLS[call]
    compare(lambda given: ask(tensor(given)), make, changes_of(tensor, name), backend)


GLOBAL = torch.ones(3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_globals_and_closures(backend: str) -> None:
    closed = torch.ones(3)
    for program, tensor in ((lambda _: GLOBAL.relu() + 1, GLOBAL), (lambda _: closed.relu() + 1, closed)):
        compare(program, lambda: None, changes_of(lambda _, t=tensor: t, "relu"), backend)
        tensor.__dict__.clear()


def test_an_entry_in_the_dict_hides_no_property() -> None:
    def change(given: Any) -> None:
        given.__dict__["shape"] = given.__dict__["ndim"] = 5

    compiled = compare(
        lambda t: t + t.shape[0] + t.ndim, lambda: torch.ones(3), [nothing, change, nothing], "eager"
    )
    assert compiled.stats().trace_count == 1


def test_other_attributes_make_no_difference() -> None:
    def change(given: Any) -> None:
        given.tag = 1

    compiled = compare(lambda t: t.relu() + 1, lambda: torch.ones(3), [nothing, change, nothing], "eager")
    assert compiled.stats().trace_count == 1


def share(given: Holder) -> None:
    given.a.__dict__.clear()
    given.b = given.a


def split(given: Holder) -> None:
    given.a.__dict__.clear()
    given.b = torch.full((3,), 2.0)


def by_statement(t: Any) -> None:
    t.relu = lambda: 5


def by_function(t: Any) -> None:
    setattr(t, "relu", lambda: 5)


def by_object(t: Any) -> None:
    object.__setattr__(t, "relu", lambda: 5)


def by_dict(t: Any) -> None:
    t.__dict__["relu"] = lambda: 5


def by_vars(t: Any) -> None:
    vars(t).update(relu=lambda: 5)


def by_new_dict(t: Any) -> None:
    t.__dict__ = {"relu": lambda: 5}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("write", [by_statement, by_function, by_object, by_dict, by_vars, by_new_dict])
def test_a_write_inside_to_what_may_be_the_same_tensor(write: Any, backend: str) -> None:
    def program(given: Holder) -> Any:
        before = given.b.relu() + 1
        write(given.a)
        return before, given.b.relu() + 1, given.a.relu() + 1

    compare(program, Holder, [split, split, share, split, share, split], backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensors_of_the_trace(backend: str) -> None:
    def program(t: Any) -> Any:
        made = t + 1
        made.relu = lambda: t * 3
        return made.relu() + made.sigmoid(), hasattr(made, "relu"), hasattr(t + 1, "foo")

    compare(program, lambda: torch.ones(3), [nothing] * 4, backend)


def hide(given: Holder) -> None:
    given.a.relu = lambda: 9


def show(given: Holder) -> None:
    given.a.__dict__.clear()


def delete_by_function(given: Holder) -> Any:
    try:
        delattr(given.a, "relu")
    except AttributeError:
        pass
    return given.a.relu() + 1


def delete_by_dict(given: Holder) -> Any:
    given.a.__dict__.pop("relu", None)
    return given.a.relu() + 1


def clear_dict(given: Holder) -> Any:
    given.a.__dict__.clear()
    return given.a.relu() + 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [delete_by_function, delete_by_dict, clear_dict])
def test_deletions_inside(program: Any, backend: str) -> None:
    compiled = kintsugi.compile(program, backend=backend)
    changes = [nothing, hide, hide, nothing, hide, nothing]
    assert outcomes(compiled, Holder(), changes) == outcomes(program, Holder(), changes)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_in_the_middle(backend: str) -> None:
    @torch.compiler.disable
    def count(given: Holder) -> None:
        calls.append(1)
        if len(calls) == 3:
            hide(given)
        if len(calls) == 5:
            show(given)

    def program(given: Holder) -> Any:
        before = given.a.relu()
        count(given)
        return before, given.a.relu()

    calls: list[int] = []
    expected = outcomes(program, Holder(), [nothing] * 7)
    calls.clear()
    assert outcomes(kintsugi.compile(program, backend=backend), Holder(), [nothing] * 7) == expected


class Count:
    """Counts calls, and gives a tensor an attribute in the third."""

    def __init__(self, name: str) -> None:
        self.name, self.calls = name, 0
        self.held: Any = None

    def note(self, t: Any) -> None:
        self.calls += 1
        if self.calls == 3:
            setattr(t, self.name, lambda: 11)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def tell(self, t: Any) -> None:
        self.note(t)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def tell_of_held(self) -> None:
        self.note(self.held)


def told(count: Count) -> Any:
    made = torch.ones(3) + 1
    count.tell(made)
    return made.relu() + 1, hasattr(made, "extra")


def told_before_sizes(count: Count) -> Any:
    made = torch.ones(3) + 1
    count.tell(made)
    size = made.shape[0]
    return made.relu() + size, hasattr(made, "extra"), getattr(made, "extra", None) is None


def held(count: Count) -> Any:
    made = torch.ones(3) + 1
    count.held = made
    count.tell_of_held()
    return made + 1, hasattr(made, "extra")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("program", "name"),
    [
        (told, "relu"),
        (told, "extra"),
        (told_before_sizes, "relu"),
        (told_before_sizes, "extra"),
        (held, "extra"),
    ],
)
def test_a_step_gives_a_tensor_of_the_trace_an_attribute(program: Any, name: str, backend: str) -> None:
    compare(program, lambda: Count(name), [nothing] * 7, backend)


class Bare:
    pass


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [Bare, lambda: lambda: None], ids=["plain", "function"])
def test_an_attribute_that_is_deleted_appears(make: Any, backend: str) -> None:
    def program(given: Any) -> Any:
        try:
            del given.x
        except AttributeError as error:
            return torch.ones(3) + 1, str(error)
        return torch.ones(3) + 2

    def set_it(given: Any) -> None:
        given.x = 1

    compare(program, make, [nothing, nothing, set_it, nothing, set_it, set_it, nothing, nothing], backend)


def test_a_guard_says_so() -> None:
    compiled = kintsugi.compile(lambda t: t.relu() + 1)
    given = torch.ones(3)
    compiled(given)
    given.relu = lambda: 7  # type: ignore[method-assign]
    assert compiled(given) == 8
    assert any("relu" in str(reason) for reason in compiled.recompiles()), compiled.recompiles()


# -- Tensors of subclasses, whose attributes the program's own code may decide


class Plain(torch.Tensor):
    pass


class WithProperty(torch.Tensor):
    @property
    def x(self) -> Any:
        if "h_x" in self.__dict__:
            return self.__dict__["h_x"]
        raise AttributeError("x")


class WithGetattr(torch.Tensor):
    def __getattr__(self, name: str) -> Any:
        kept = object.__getattribute__(self, "__dict__")
        if "h_" + name in kept:
            return kept["h_" + name]
        raise AttributeError(name)


class WithGetattribute(torch.Tensor):
    def __getattribute__(self, name: str) -> Any:
        kept = object.__getattribute__(self, "__dict__")
        return kept["h_" + name] if "h_" + name in kept else object.__getattribute__(self, name)


def has(given: tuple[Any, Any]) -> Any:
    return given[1] * 2 + 1, hasattr(given[0], "x"), hasattr(given[0], "relu")


def has_or(given: tuple[Any, Any]) -> Any:
    return given[1] * 2 + 1 if hasattr(given[0], "x") else given[1] * 3


def get(given: tuple[Any, Any]) -> Any:
    return given[1] * 2 + 1, getattr(given[0], "x", 7), getattr(given[0], "relu", 7) == 5


def call(given: tuple[Any, Any]) -> Any:
    found = given[0].relu
    return given[1] * 2 + 1, found if found == 5 else found()


def delete(given: tuple[Any, Any]) -> Any:
    try:
        del given[0].x
    except AttributeError as error:
        return given[1] * 2 + 1, str(error), hasattr(given[0], "x")
    return given[1] * 3 + 1, hasattr(given[0], "x")


def store(given: tuple[Any, Any]) -> Any:
    before = hasattr(given[0], "y")
    given[0].y = 3
    return given[1] * 2 + 1, before, hasattr(given[0], "y"), given[0].y


def of_result(given: tuple[Any, Any]) -> Any:
    made = given[0] * 2
    return given[1] * 2 + 1, hasattr(made, "x"), getattr(made, "x", 7), hasattr(made, "relu")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [has, has_or, get, call, delete, store, of_result])
@pytest.mark.parametrize("name", ["x", "h_x", "relu", "h_relu", "y"])
@pytest.mark.parametrize(
    "cls", [Plain, WithProperty, WithGetattr, WithGetattribute, nn.Parameter, torch.Tensor]
)
def test_attributes_of_subclasses(cls: Any, name: str, program: Any, backend: str) -> None:
    def set_it(given: Any) -> None:
        given[0].__dict__[name] = 5

    def delete_it(given: Any) -> None:
        given[0].__dict__.pop(name, None)

    def make() -> Any:
        return torch.ones(3).as_subclass(cls), torch.ones(2)

    changes = [nothing, nothing, set_it, nothing, delete_it, nothing, set_it]
    compiled = kintsugi.compile(program, backend=backend)
    assert outcomes(compiled, make(), changes) == outcomes(program, make(), changes)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_class_of_tensors_changes(backend: str) -> None:
    class Changing(torch.Tensor):
        pass

    def found(self: Any, name: str) -> Any:
        return (lambda: 11) if name == "relu" else object.__getattribute__(self, name)

    def program(given: Any) -> Any:
        return given[1] * 2 + 1, given[0].relu(), hasattr(given[0], "x"), getattr(given[0], "x", 3)

    names = {"relu": lambda self: 4, "x": 5, "__getattribute__": found, "__getattr__": lambda self, name: 6}
    changes: list[Change] = [nothing]
    for name, value in names.items():
        changes += [lambda _, n=name, v=value: setattr(Changing, n, v), nothing]
        changes += [lambda _, n=name: delattr(Changing, n), nothing]

    def make() -> Any:
        return torch.ones(3).as_subclass(Changing), torch.ones(2)

    expected = outcomes(program, make(), changes)
    assert outcomes(kintsugi.compile(program, backend=backend), make(), changes) == expected


def test_plain_subclasses_break_no_graph() -> None:
    compiled = kintsugi.compile(has)
    given = torch.ones(3).as_subclass(Plain), torch.ones(2)
    for _call in range(3):
        assert compiled(given)[1:] == (False, True)
    given[0].x = 1  # type: ignore[attr-defined]
    assert compiled(given)[1:] == (True, True)
    assert compiled.stats().graph_break_count == 0
    assert compiled.stats().trace_count == 1
