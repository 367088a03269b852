"""options={"guard_filter_fn": ...}: entries and helpers beside torch's, and that what is dropped is not checked."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

import kintsugi
from kintsugi import _guard_filter

X = torch.linspace(-1, 1, 8).reshape(2, 4)
SCALE = 3
NUMBERS = [1, 2]


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.n = 2

    def forward(self, x):
        return self.fc(x) * self.n


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.k = 5

    def forward(self, x, table, items):
        return self.inner(x) * SCALE + self.k + table["a"] + items[0]


def entries_of(compile, fn, *args):
    """The entries that a filter gets which keeps all guards."""
    seen = []

    def keep(entries):
        seen.extend(entries)
        return [True] * len(entries)

    torch._dynamo.reset()
    compile(fn, backend="eager", options={"guard_filter_fn": keep})(*args)
    return seen


def compiled_with(fn, keep, **options):
    return kintsugi.compile(fn, backend="eager", options={"guard_filter_fn": keep}, **options)


# --- the entries ---


def test_the_fields_are_torchs() -> None:
    ours = entries_of(kintsugi.compile, Net(), X, {"a": 1.5}, [2])[0]
    torchs = entries_of(torch.compile, Net(), X, {"a": 1.5}, [2])[0]
    assert isinstance(ours, kintsugi.GuardFilterEntry)
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(torchs)]
    assert ours.orig_guard.create_fn_name() == ours.guard_type and ours.orig_guard.name == ours.name


def test_what_the_program_reads_is_guarded_under_the_names_that_torch_gives() -> None:
    net = Net()
    found = {}
    for compile in (kintsugi.compile, torch.compile):
        for entry in entries_of(compile, net, X, {"a": 1.5}, [2]):
            key = (entry.name.removeprefix("self.").removeprefix("self"), entry.guard_type)
            found.setdefault(compile, {})[key] = entry
    # (name, type) of guards that both have; a value where it is plain.
    for key, value in (
        (("x", "TENSOR_MATCH"), None),
        (("table['a']", "CONSTANT_MATCH"), 1.5),
        (("items[0]", "CONSTANT_MATCH"), 2),
        (("G['SCALE']", "CONSTANT_MATCH"), 3),
        (("", "GLOBAL_STATE"), None),
    ):
        for compile in (kintsugi.compile, torch.compile):
            entry = found[compile][key]
            assert entry.is_global == key[0].startswith("G["), (compile, key)
            assert value is None or (entry.has_value and entry.value == value)
    assert ("k", "CONSTANT_MATCH") in found[torch.compile]
    ours = {entry.name: entry for entry in found[kintsugi.compile].values()}
    k = next(entry for name, entry in ours.items() if name.endswith(".k"))
    assert k.value == 5 and k.guard_type == "CONSTANT_MATCH" and not k.is_global


def test_sources_say_which_guards_are_about_modules() -> None:
    source_of = {}
    for entry in entries_of(kintsugi.compile, Net(), X, {"a": 1.5}, [2]):
        source_of.setdefault(entry.name, entry.orig_guard.source)
    weight = next(source for name, source in source_of.items() if name.endswith("['weight']"))
    assert weight.is_unspecialized_builtin_nn_module() and weight.is_unspecialized_nn_module()
    number = next(source for name, source in source_of.items() if name.endswith(".n"))
    assert number.is_unspecialized_nn_module() and not number.is_unspecialized_builtin_nn_module()
    assert not source_of["x"].is_unspecialized_nn_module()


def test_a_class_of_the_program_is_none_of_torchs_whatever_it_says() -> None:
    class Linear(nn.Linear):
        def forward(self, x):
            return super().forward(x) * self.scale

    Linear.__module__, Linear.__qualname__ = nn.Linear.__module__, nn.Linear.__qualname__
    layer = Linear(4, 4)
    layer.scale = 2
    parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    classes = {Linear: False, Inner: False, nn.Linear: True, nn.Sequential: True, type(parametrized): True}
    for cls, builtin in classes.items():
        assert _guard_filter._is_builtin(cls) == builtin, cls
    filtered = compiled_with(nn.Sequential(layer), kintsugi.skip_guard_on_inbuilt_nn_modules_unsafe)
    for layer.scale in (2, 2, 3):
        assert torch.equal(filtered(X), layer(X))


def test_closures_are_not_global() -> None:
    factor = 4
    found = [
        e for e in entries_of(kintsugi.compile, lambda x: x * factor, X) if e.guard_type == "CONSTANT_MATCH"
    ]
    assert [(e.value, e.is_global) for e in found] == [(4, False)]


# --- what is dropped is not checked ---


def scaled(x):
    return x * SCALE


def test_globals(monkeypatch) -> None:
    for compile, skip in (
        (kintsugi.compile, kintsugi.skip_guard_on_globals_unsafe),
        (torch.compile, torch.compiler.skip_guard_on_globals_unsafe),
    ):
        torch._dynamo.reset()
        monkeypatch.setitem(globals(), "SCALE", 3)
        compiled = compile(scaled, backend="eager", options={"guard_filter_fn": skip})
        assert torch.equal(compiled(X), X * 3)
        monkeypatch.setitem(globals(), "SCALE", 10)
        assert torch.equal(compiled(X), X * 3)  # stale, as asked for
    ours = compiled_with(scaled, lambda entries: [True] * len(entries))
    ours(X)
    monkeypatch.setitem(globals(), "SCALE", 11)
    assert torch.equal(ours(X), X * 11)


def test_modules(monkeypatch) -> None:
    """Attributes of modules are not looked at again; what is read as a tensor is read anew in each run."""
    for compile, skip in (
        (kintsugi.compile, kintsugi.skip_guard_on_all_nn_modules_unsafe),
        (torch.compile, torch.compiler.skip_guard_on_all_nn_modules_unsafe),
    ):
        torch._dynamo.reset()
        net = Inner()
        compiled = compile(net, backend="eager", options={"guard_filter_fn": skip})
        assert torch.equal(compiled(X), net(X))
        net.n = 7
        assert torch.equal(compiled(X), net.fc(X) * 2)
        net.fc.weight = nn.Parameter(torch.zeros(4, 4))
        assert torch.equal(compiled(X), net.fc(X) * 2)


def test_builtin_modules_only() -> None:
    for compile, skip in (
        (kintsugi.compile, kintsugi.skip_guard_on_inbuilt_nn_modules_unsafe),
        (torch.compile, torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe),
    ):
        torch._dynamo.reset()
        net = nn.Sequential(nn.LeakyReLU(0.5))
        compiled = compile(net, backend="eager", options={"guard_filter_fn": skip})
        compiled(X)
        net[0].negative_slope = 0.25
        assert torch.equal(compiled(X), torch.nn.functional.leaky_relu(X, 0.5))
        inner = Inner()
        compiled = compile(inner, backend="eager", options={"guard_filter_fn": skip})
        compiled(X)
        inner.n = 9  # of a class of the program's: still guarded
        assert torch.equal(compiled(X), inner(X))


def test_all_guards() -> None:
    for compile in (kintsugi.compile, torch.compile):
        torch._dynamo.reset()
        skip = torch.compiler.skip_all_guards_unsafe
        compiled = compile(lambda x, n: x * n, backend="eager", options={"guard_filter_fn": skip})
        compiled(X, 2)
        assert torch.equal(compiled(X, 3), X * 2)
        assert torch.equal(compiled(torch.ones(7), 3), torch.full((7,), 2.0))


def test_tensor_guards_alone() -> None:
    net = Inner()
    compiled = compiled_with(net, kintsugi.keep_tensor_guards_unsafe)
    compiled(X)
    net.n = 8
    assert torch.equal(compiled(X), net.fc(X) * 2)
    assert torch.equal(compiled(X[:1]), net(X[:1]))  # another size: recorded anew
    assert compiled.stats().trace_count == 2


def test_portable_guards_alone(monkeypatch) -> None:
    monkeypatch.setitem(globals(), "SCALE", 3)
    compiled = compiled_with(scaled, kintsugi.keep_portable_guards_unsafe)
    compiled(X)
    monkeypatch.setitem(globals(), "SCALE", 4)
    assert torch.equal(compiled(X), X * 3)
    with torch.no_grad():
        assert torch.equal(compiled(X), X * 4)  # the state of the process is guarded


def test_the_classes_of_modules_go_with_their_guards() -> None:
    class Own(nn.Module):
        factor = 2

        def forward(self, x):
            return x * self.factor

    net = Own()
    compiled = compiled_with(net, kintsugi.skip_guard_on_all_nn_modules_unsafe)
    compiled(X)
    Own.factor = 3
    assert torch.equal(compiled(X), X * 2)
    checked = kintsugi.compile(Own(), backend="eager")
    checked(X)
    Own.factor = 4
    assert torch.equal(checked(X), X * 4)


def test_guards_behind_steps_are_filtered() -> None:
    table = {"n": 2}

    @kintsugi.disable
    def step(x):
        return x + 1

    def f(x):
        return step(x) * table["n"]

    assert any(e.guard_type == "CONSTANT_MATCH" and e.value == 2 for e in entries_of(kintsugi.compile, f, X))
    compiled = compiled_with(f, kintsugi.skip_all_guards_unsafe)
    compiled(X)
    table["n"] = 5
    assert torch.equal(compiled(X), (X + 1) * 2)


def test_guards_of_side_traces_are_filtered() -> None:
    table = {"n": 2}

    def f(x):
        if x.sum() > 0:
            return x + 1
        return x * table["n"]

    asked = []

    def skip(entries):
        asked.append(len(entries))
        return [False] * len(entries)

    compiled = compiled_with(f, skip)
    compiled(torch.ones(3))
    compiled(-torch.ones(3))
    assert compiled.stats().side_traces == 1 and len(asked) == 2
    table["n"] = 5
    assert torch.equal(compiled(-torch.ones(3)), torch.full((3,), -2.0))
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))


@pytest.mark.parametrize("strided", [False, True])
def test_machine_code_runs_for_the_tensors_that_it_was_made_for_alone(strided) -> None:
    def f(x, y):
        return ((x + y) * 2).tanh().sum(-1)

    options = {"guard_filter_fn": kintsugi.skip_all_guards_unsafe, "sync": True, "strict": True}
    compiled = kintsugi.compile(f, backend="native", options=options)
    for _ in range(3):
        compiled(torch.ones(32, 32), torch.ones(32, 32))
    for shape in ((1, 1), (3, 5), (32, 32), (64, 64), (2, 3, 4)):
        x, y = torch.randn(shape), torch.randn(shape)
        if strided:
            x = x.transpose(-1, -2).contiguous().transpose(-1, -2)
        assert torch.equal(compiled(x, y), f(x, y))
    assert compiled.stats().trace_count == 1


def test_a_step_gives_a_tensor_without_guards_other_memory() -> None:
    grown = []

    @kintsugi.disable
    def step(x):
        if grown:
            x.data = grown[0]

    def f(x):
        y = x + 1
        step(x)
        return (x * 2 + 1).relu().sum(), y

    options = {"guard_filter_fn": kintsugi.skip_all_guards_unsafe, "sync": True, "strict": True}
    compiled = kintsugi.compile(f, backend="native", options=options)
    for _ in range(3):
        compiled(torch.ones(64, 64))
    for size in (1, 3, 100):
        grown[:] = [torch.full((size,), 2.0)]
        total, y = compiled(torch.ones(64, 64))
        assert torch.equal(total, torch.tensor(5.0 * size)) and torch.equal(y, torch.full((64, 64), 2.0))


def test_what_is_no_tensor_is_recorded_anew() -> None:
    compiled = compiled_with(lambda x: x * 2, kintsugi.skip_all_guards_unsafe)
    compiled(X)
    assert compiled(4) == 8
    assert compiled.recompiles()[0]["expected"] == "inputs of the kinds that were recorded"
    assert torch.equal(compiled(X), X * 2)


def test_gradients_flow_through_a_filtered_trace() -> None:
    net = nn.Linear(4, 3)
    compiled = compiled_with(net, kintsugi.skip_guard_on_all_nn_modules_unsafe)
    for _ in range(3):
        x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
        compiled(x).sum().backward()
        net(y).sum().backward()
        assert torch.equal(x.grad, y.grad)


# --- wrong use ---


def test_wrong_answers() -> None:
    with pytest.raises(ValueError, match="returned 1 answers"):
        compiled_with(lambda x: x + SCALE, lambda entries: [True])(X)
    with pytest.raises(TypeError, match="True and False"):
        compiled_with(lambda x: x + 1, lambda entries: [1] * len(entries))(X)
    with pytest.raises(KeyError):
        compiled_with(lambda x: x + 1, lambda entries: {}["no"])(X)
    with pytest.raises(TypeError, match="must be a function"):
        kintsugi.compile(lambda x: x, options={"guard_filter_fn": 3})


def test_backends_do_not_get_it_as_an_option() -> None:
    given = []

    def backend(gm, inputs, **more):
        given.append(more)
        return gm.forward

    keep = kintsugi.skip_guard_on_globals_unsafe
    kintsugi.compile(lambda x: x + 1, backend=backend, options={"guard_filter_fn": keep})(X)
    kintsugi.compile(lambda x: x + 2, backend=backend, options={"guard_filter_fn": keep, "own": 1})(X)
    assert given == [{}, {"options": {"own": 1}}]
