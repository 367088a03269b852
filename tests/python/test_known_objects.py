"""What the recorder knows of other libraries it knows by identity: every row is found, and names alone fool nobody."""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib.util
import inspect
import pathlib
import re
import subprocess
import sys
import textwrap
import traceback
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from children import in_fork

import kintsugi
from kintsugi import (
    _C,
    _comptime,
    _polyfill_autograd,
    _polyfill_checkpoint,
    _polyfill_higher_order,
    _polyfill_iterators,
    _polyfill_modes,
    _polyfills,
)


def test_every_row_is_found() -> None:
    import torch._dynamo.external_utils
    import torch._dynamo.mutation_guard
    import torch.distributed._functional_collectives
    import torch.distributed.fsdp
    import torch.func
    import torch.nn.attention.flex_attention  # noqa: F401

    assert _comptime.comptime is kintsugi.comptime  # imported when it is asked for
    rows = _C.known_objects()
    assert len({path for path, *_ in rows}) == len(rows) > 60
    assert {path: state for path, state, *_ in rows if state} == {}
    assert [path for path, *_, codes in rows if path.endswith("*") and codes < 5] == []


@pytest.mark.parametrize(
    "module",
    [
        _polyfills,
        _polyfill_autograd,
        _polyfill_checkpoint,
        _polyfill_higher_order,
        _polyfill_iterators,
        _polyfill_modes,
    ],
    ids=lambda module: module.__name__,
)
def test_all_code_of_a_module_is_found(module: types.ModuleType) -> None:
    def codes(code: types.CodeType) -> int:
        inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
        return (code.co_flags & inspect.CO_OPTIMIZED != 0) + sum(map(codes, inner))

    expected = codes(compile(inspect.getsource(module), "polyfills", "exec"))
    assert {path: n for path, *_, n in _C.known_objects()}[f"{module.__name__}:*"] >= expected


@dataclasses.dataclass
class Attack:
    """A function, and what changes something that it reads."""

    program: Callable[[torch.Tensor], Any]
    change: Callable[[], None]
    seen: Callable[[], Any] = lambda: None  # effects


ATTACKS: list[Callable[..., Attack]] = []
SOFTSIGN = torch.nn.functional.softsign.__code__


def attack(make: Callable[..., Attack]) -> Callable[..., Attack]:
    ATTACKS.append(make)
    return make


def outcome(attack: Attack, function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    try:
        result = function(x)
    except Exception as error:
        entries = [entry.name for entry in traceback.extract_tb(error.__traceback__)]
        result = (type(error), str(error), entries[entries.index(attack.program.__name__) :])
    if isinstance(result, torch.Tensor):
        return type(result), result.tolist(), attack.seen()
    return type(result), result, attack.seen()


def history(attack: Attack, function: Callable[[torch.Tensor], Any]) -> list[Any]:
    x = torch.ones(3)
    made = [outcome(attack, function, x) for _ in range(3)]
    attack.change()
    return made + [outcome(attack, function, x) for _ in range(3)]


def named(name: str, bases: tuple[type, ...], **members: Any) -> Any:
    """A class whose `tp_name` is the name, dots and all."""
    return type(name, bases, members)


def program_at(folder: pathlib.Path, path: str, source: str) -> types.ModuleType:
    """A module of the program's own in a file of a well-known path."""
    file = folder / "lib" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(source))
    spec = importlib.util.spec_from_file_location(f"own_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@attack
def class_called_generation_tracker() -> Attack:
    class GenerationTracker:
        scale = 1.0

    g = GenerationTracker()
    return Attack(lambda x: x * g.scale, lambda: setattr(GenerationTracker, "scale", 2.0))


def _callable_class(name: str, **members: Any) -> Attack:
    state = [1.0]
    calls: list[float] = []

    def call(self: Any, x: Any) -> Any:
        calls.append(state[0])
        return x * state[0]

    thing = named(name, (), __call__=call, **members)()
    return Attack(lambda x: thing(x) + 1, lambda: state.__setitem__(0, 3.0), lambda: list(calls))


@attack
def class_called_op_overload() -> Attack:
    return _callable_class("OpOverload")


@attack
def class_called_op_overload_packet() -> Attack:
    return _callable_class("OpOverloadPacket", _qualified_op_name="profiler::_record_function_enter_new")


@attack
def class_called_torch_bind_op_overload() -> Attack:
    return _callable_class("TorchBindOpOverload", __qualname__="profiler::_record_function_exit")


@attack
def class_called_lru_cache_wrapper() -> Attack:
    return _callable_class("functools._lru_cache_wrapper")


@attack
def class_called_numpy_ufunc() -> Attack:
    return _callable_class("numpy.ufunc", types=["f->f"])


@attack
def class_called_array_function_dispatcher() -> Attack:
    return _callable_class("numpy._ArrayFunctionDispatcher")


@attack
def class_called_cython_function() -> Attack:
    return _callable_class("_cython_3.cython_function_or_method", __module__="numpy.random.mtrand")


def _attribute_class(name: str) -> Attack:
    thing = named(name, ())()
    thing.index = 1
    thing.max = 1.0
    return Attack(lambda x: x * thing.index + thing.max, lambda: thing.__dict__.update(index=5, max=7.0))


for _name in (
    "torch.dtype",
    "torch.device",
    "torch.layout",
    "torch.memory_format",
    "torch.finfo",
    "torch.iinfo",
):

    def _make(name: str = _name) -> Attack:
        return _attribute_class(name)

    _make.__name__ = "attributes_of_a_" + _name.replace(".", "_")
    attack(_make)


def _compared_class(name: str) -> Attack:
    state = [True]
    cls = named(name, (), __eq__=lambda self, other: state[0], __hash__=lambda self: 1)
    a, b = cls(), cls()
    return Attack(lambda x: x + 1 if a == b else x - 1, lambda: state.__setitem__(0, False))


for _name in ("torch.dtype", "torch.device", "re.Pattern", "types.UnionType", "torch._C.Generator"):

    def _make(name: str = _name) -> Attack:
        return _compared_class(name)

    _make.__name__ = "comparison_of_a_" + _name.replace(".", "_")
    attack(_make)


def _truth_class(name: str, *bases: type) -> Attack:
    state = [True]
    thing = named(name, bases, __bool__=lambda self: state[0])()
    return Attack(lambda x: x + 1 if thing else x - 1, lambda: state.__setitem__(0, False))


for _name in ("numpy.bool", "numpy.bool_", "torch.device", "collections.deque", "odict_keys"):

    def _make(name: str = _name) -> Attack:
        return _truth_class(name)

    _make.__name__ = "truth_of_a_" + _name.replace(".", "_")
    attack(_make)


@attack
def tuple_called_size() -> Attack:
    state = [2.0]
    Size = named("torch.Size", (tuple,), __add__=lambda self, other: (state[0],))
    sizes = Size((1, 2))
    return Attack(lambda x: x * (sizes + (3,))[0], lambda: state.__setitem__(0, 5.0))


@attack
def tuple_called_size_is_a_key() -> Attack:
    state = [1]
    Size = named("torch.Size", (tuple,), __hash__=lambda self: state[0], __eq__=lambda s, o: state[0] == 1)
    table = {Size((1, 2)): 2.0}
    return Attack(lambda x: x * table.get(Size((3, 4)), 9.0), lambda: state.__setitem__(0, 5))


@attack
def dict_called_default_dict() -> Attack:
    state = [2.0]
    Default = named("collections.defaultdict", (dict,), __missing__=lambda self, key: state[0])
    table = Default()
    table.default_factory = None
    return Attack(lambda x: x * table["a"], lambda: state.__setitem__(0, 5.0), lambda: dict(table))


@attack
def default_dict_of_a_class_of_its_own() -> Attack:
    state = [2.0]

    class Table(collections.defaultdict):  # type: ignore[type-arg]
        def __missing__(self, key: str) -> float:
            return state[0]

    table = Table(int)
    return Attack(lambda x: x * table["a"], lambda: state.__setitem__(0, 5.0), lambda: dict(table))


@attack
def deque_of_a_class_of_its_own() -> Attack:
    state = [1]

    class MyDeque(collections.deque):  # type: ignore[type-arg]
        def append(self, item: float) -> None:
            for _ in range(state[0]):
                super().append(item)

    kept = MyDeque([0.0])

    def program(x: torch.Tensor) -> torch.Tensor:
        kept.append(1.0)
        return x * len(kept) + sum(kept)

    return Attack(program, lambda: state.__setitem__(0, 3), lambda: list(kept))


@attack
def list_called_deque() -> Attack:
    state = [1]
    Deque = named(
        "collections.deque", (list,), append=lambda self, item: list.extend(self, [item] * state[0])
    )
    kept = Deque()

    def program(x: torch.Tensor) -> torch.Tensor:
        kept.append(1.0)
        return x * len(kept)

    return Attack(program, lambda: state.__setitem__(0, 3), lambda: list(kept))


@attack
def parameter_of_a_class_of_its_own() -> Attack:
    state = [2.0]

    class MyParameter(torch.nn.Parameter):
        @property
        def gain(self) -> float:
            return state[0]

    weight = MyParameter(torch.ones(3), requires_grad=False)
    return Attack(lambda x: x * weight.gain, lambda: state.__setitem__(0, 5.0))


@attack
def descriptor_called_tuple_getter() -> Attack:
    state = [2.0]
    getter = named(
        "_collections._tuplegetter",
        (),
        __get__=lambda self, obj, cls: state[0],
        __reduce__=lambda self: (None, (0, "")),
    )()
    Pair = type("Pair", (tuple,), {"first": getter})
    pair = Pair((1.0, 3.0))
    return Attack(lambda x: x * pair.first, lambda: state.__setitem__(0, 5.0))


@attack
def function_that_says_it_is_of_enum() -> Attack:
    state = [1]

    def __hash__(self: Any) -> int:
        return state[0]

    __hash__.__module__ = "enum"
    Key = type("Key", (), {"__hash__": __hash__})
    key = Key()
    key._name_ = "a"
    table = {key: 2.0}
    return Attack(lambda x: x * table.get(key, 9.0), lambda: state.__setitem__(0, 5))


@attack
def method_under_another_name() -> Attack:
    class Twice(list):  # type: ignore[type-arg]
        append = list.remove  # type: ignore[assignment]

    kept = Twice([1.0])
    add = list.append.__get__(kept)

    def program(x: torch.Tensor) -> torch.Tensor:
        add(1.0)
        return x * len(kept)

    return Attack(program, lambda: kept.clear(), lambda: list(kept))


@attack
def function_called_like_a_comprehension() -> Attack:
    state = [2.0]

    def total(items: Any) -> float:
        return sum(items) * state[0]

    total.__code__ = total.__code__.replace(co_name="<listcomp>")
    items = [1.0]
    return Attack(lambda x: x * total(iter(items)), lambda: state.__setitem__(0, 5.0))


def _key_function(name: str, folder: pathlib.Path | None = None, path: str = "") -> Attack:
    """C code calls the function back."""
    source = f"""
        state = [1.0]
        calls = []
        def {name}(x):
            calls.append(x)
            return x * state[0]
    """
    if folder is not None:
        module: Any = program_at(folder, path, source)
    else:
        module = types.SimpleNamespace()
        exec(textwrap.dedent(source), module.__dict__)
    key = getattr(module, name)
    scores = {1.0: "a", 2.0: "b", 3.0: "c"}

    def program(x: torch.Tensor) -> torch.Tensor:
        found = re.sub("[0-9]", lambda match: str(int(key(float(match[0])))), "1 2 3")
        best = functools.reduce(lambda a, b: a + key(b), scores, 0.0)
        return x * best + len(found) + np.frompyfunc(key, 1, 1)(2.0)

    return Attack(program, lambda: module.state.__setitem__(0, -1.0), lambda: list(module.calls))


@attack
def function_called_del() -> Attack:
    return _key_function("__del__")


@attack
def function_called_on_remove(tmp_path: pathlib.Path) -> Attack:
    return _key_function("on_remove", tmp_path, "torch/_dynamo/utils.py")


@attack
def function_in_a_file_called_weakref(tmp_path: pathlib.Path) -> Attack:
    return _key_function("order", tmp_path, "weakref.py")


@attack
def finalizer_that_is_called() -> Attack:
    state = [1.0]
    calls: list[float] = []

    class Thing:
        def __del__(self) -> None:
            calls.append(state[0])

    things = [Thing(), Thing()]

    def program(x: torch.Tensor) -> torch.Tensor:
        for thing in things:
            thing.__del__()
        list(map(Thing.__del__, things))
        return x * len(calls)

    return Attack(program, lambda: state.__setitem__(0, 2.0), lambda: list(calls))


@attack
def finalizer_of_what_a_call_drops() -> Attack:
    state = [1.0]
    calls: list[float] = []

    class Thing:
        def __init__(self) -> None:
            self.me = self if state[0] > 1 else None

        def __del__(self) -> None:
            calls.append(state[0])

    def program(x: torch.Tensor) -> torch.Tensor:
        Thing()
        return x * 2

    return Attack(program, lambda: state.__setitem__(0, 1.0), lambda: list(calls))


def _function_at(folder: pathlib.Path, path: str, name: str, result: str = "x * state[0]") -> Attack:
    module = program_at(
        folder,
        path,
        f"""
        import torch
        state = [2.0]
        calls = []
        def {name}(x):
            calls.append(state[0])
            return {result}
        """,
    )
    function = getattr(module, name)
    return Attack(
        lambda x: function(x) + 1, lambda: module.state.__setitem__(0, 5.0), lambda: list(module.calls)
    )


PLACES = (
    ("torch/nn/functional.py", "relu"),
    ("torch/functional.py", "norm"),
    ("torch/_jit_internal.py", "is_scripting"),
    ("torch/_tensor.py", "norm"),
    ("torch/_tensor.py", "wrapped"),
    ("torch/_dynamo/mutation_guard.py", "tag"),
    ("torch/_functorch/eager_transforms.py", "vjp"),
    ("torch/_functorch/eager_transforms.py", "grad_impl"),
    ("torch/optim/optimizer.py", "step"),
    ("torch/compiler/__init__.py", "is_compiling"),
    ("torch/_dynamo/external_utils.py", "is_dynamo_compiling"),
    ("kintsugi/_marks.py", "is_compiling"),
    ("kintsugi/_polyfills.py", "list_"),
    ("contextlib.py", "contextmanager"),
)

for _place, _function in PLACES:

    def _make_at(tmp_path: pathlib.Path, place: str = _place, function: str = _function) -> Attack:
        return _function_at(tmp_path, place, function)

    _make_at.__name__ = f"{_function}_in_{re.sub('[^a-z]', '_', _place)}"
    attack(_make_at)

    def _make_raising(tmp_path: pathlib.Path, place: str = _place, function: str = _function) -> Attack:
        return _function_at(tmp_path, place, function, "x * (1 / (state[0] - 2))")

    _make_raising.__name__ = f"error_of_{_function}_in_{re.sub('[^a-z]', '_', _place)}"
    attack(_make_raising)


@attack
def disabled_function_in_a_file_called_optimizer(tmp_path: pathlib.Path) -> Attack:
    module = program_at(
        tmp_path,
        "torch/optim/optimizer.py",
        """
        import kintsugi, torch
        state = [2.0]
        calls = []
        @torch._dynamo.disable
        def step(x):
            calls.append(state[0])
            return x * state[0]
        """,
    )
    return Attack(
        lambda x: module.step(x) + 1, lambda: module.state.__setitem__(0, 5.0), lambda: list(module.calls)
    )


@attack
def hook_in_a_file_of_torch_inside_a_torch_step(tmp_path: pathlib.Path) -> Attack:
    """torch's Python function is one step, and calls this back."""
    module = program_at(
        tmp_path,
        "torch/nn/loss.py",
        """
        import torch
        state = [2.0]
        calls = []
        class Distance:
            def __call__(self, a, b):
                calls.append(state[0])
                return (a - b).abs().sum(-1) * state[0]
        distance = Distance()
        """,
    )
    loss = torch.nn.functional.triplet_margin_with_distance_loss

    def program(x: torch.Tensor) -> torch.Tensor:
        return loss(x[None], x[None] + 1, x[None] - 2, distance_function=module.distance)

    return Attack(program, lambda: module.state.__setitem__(0, 5.0), lambda: list(module.calls))


@attack
def code_of_a_function_of_torch_is_replaced() -> Attack:
    def softsign(input: torch.Tensor) -> torch.Tensor:
        return input * 3

    def change() -> None:
        torch.nn.functional.softsign.__code__ = softsign.__code__

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softsign(x)

    torch.nn.functional.softsign.__code__ = SOFTSIGN
    return Attack(program, change)


def _made(make: Callable[..., Attack], folder: pathlib.Path) -> Attack:
    return make(folder) if "tmp_path" in inspect.signature(make).parameters else make()


@pytest.mark.parametrize("report", [False, True], ids=["shipped", "reports_compiling"])
@pytest.mark.parametrize("make", ATTACKS, ids=lambda make: make.__name__)
def test_names_fool_nobody(make: Callable[..., Attack], report: bool, tmp_path: pathlib.Path) -> None:
    def work() -> list[Any]:
        kintsugi.config.report_compiling = report
        eager = _made(make, tmp_path / "eager")
        expected = history(eager, eager.program)
        compiled = _made(make, tmp_path / "compiled")
        return [expected, history(compiled, kintsugi.compile(compiled.program))]

    (tmp_path / "eager").mkdir()
    (tmp_path / "compiled").mkdir()
    expected, actual = in_fork(lambda: [repr(side) for side in work()])
    assert actual == expected


PATCHED = """
    import math, operator, random, time, types
    import torch
    {before}
    import kintsugi
    {after}
    state, calls = [2.0], []
    f = kintsugi.compile(lambda x: x * {call})
    x = torch.ones(2)
    for _ in range(3):
        assert f(x).tolist() == [2.0, 2.0], f(x)
    state[0] = 5.0
    assert f(x).tolist() == [5.0, 5.0], f(x)
    assert len(calls) >= 4, calls
"""
OWN = "def own(*args): calls.append(args); return state[0]"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("target", "call"),
    [
        ("math.floor", "math.floor(1.5)"),
        ("operator.mul", "operator.mul(1.5, 2)"),
        ("torch.relu", "torch.relu(x)"),
        ("torch.nn.functional.relu", "torch.nn.functional.relu(x)"),
        ("torch.compiler.is_compiling", "torch.compiler.is_compiling()"),
        ("torch.Tensor.norm", "x.norm()"),
        ("builtins.abs", "abs(1.5)"),
        ("itertools.islice", "itertools.islice([1.5], 1)"),
    ],
    ids=lambda value: value if "(" not in value else "",
)
def test_what_a_program_puts_in_their_place(target: str, call: str, when: str) -> None:
    patch = f"import builtins, itertools; exec({OWN!r}, globals()); {target} = own"
    source = textwrap.dedent(PATCHED).format(
        before=patch if when == "before" else "", after=patch if when == "after" else "", call=call
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
