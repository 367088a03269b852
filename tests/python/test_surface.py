"""What torch.compile's surface has besides: each name beside torch's own, where torch has it."""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import kintsugi
import kintsugi.as_torch
import kintsugi.torchdynamo as dynamo

ROOT = Path(__file__).resolve().parents[2]
X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.fixture(autouse=True)
def _torch_state() -> Iterator[None]:
    torch._dynamo.reset()
    default = kintsugi.config.default_backend
    yield
    kintsugi.config.default_backend = default


def compile(fn, **options):
    return kintsugi.compile(fn, **{"backend": "eager", **options})


class Counter:
    def __init__(self) -> None:
        self.graphs = []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        return gm.forward


# --- names ---


def test_dir_shows_everything() -> None:
    assert set(kintsugi.__all__) <= set(dir(kintsugi))
    for name in kintsugi.__all__:
        assert getattr(kintsugi, name) is not None


def test_the_table_of_the_guide_is_true() -> None:
    """docs/howto/from-torch-compile.md: each name of ours exists, and each test that it names."""
    text = (ROOT / "docs" / "howto" / "from-torch-compile.md").read_text()
    rows = [
        line.split(" | ") for line in text.splitlines() if line.startswith("| `") and line.count(" | ") == 3
    ]
    assert len(rows) > 40
    for _name, _torch, ours, test in rows:
        for path in re.findall(r"`kintsugi\.([a-z_.A-Z]+)", ours):
            if path.split(".")[0] in ("as_torch", "torchdynamo"):
                continue
            found = kintsugi
            for part in path.rstrip(".").split("."):
                found = getattr(found, part)
        for file, function in re.findall(r"`(test_\w+\.py)::(\w+)`", test):
            assert f"def {function}(" in (ROOT / "tests" / "python" / file).read_text(), (file, function)


def test_every_name_of_torch_compiler_is_in_the_guide() -> None:
    text = (ROOT / "docs" / "howto" / "from-torch-compile.md").read_text()
    for name in torch.compiler.__all__:
        if name != "config":
            assert f"`{name}" in text or f".{name}" in text, name
        assert hasattr(kintsugi.as_torch.compiler, name)


# --- arguments of compile ---


def test_recompile_limit() -> None:
    compiled = compile(lambda x, s: x + len(s), recompile_limit=2)
    for name in ("a", "bb", "ccc"):
        assert torch.equal(compiled(X, name), X + len(name))
    assert compiled.stats().trace_count == 2


def test_name_is_in_logs_and_graphs(capsys) -> None:
    counter = Counter()
    compiled = compile(lambda x: x + 1, name="encoder", backend=counter)
    kintsugi.set_logs("trace")
    try:
        compiled(X)
    finally:
        kintsugi.set_logs()
    assert "(encoder)" in capsys.readouterr().err
    assert "as 'encoder'" in repr(compiled)
    named = []

    def backend(gm, inputs):
        named.append(1)
        return gm.forward

    described = []
    original = kintsugi.backends.fx.backend_compile

    def spy(segment, *args, **kwargs):
        described.append(segment["name"])
        return original(segment, *args, **kwargs)

    kintsugi.backends.fx.backend_compile = spy
    try:
        compile(lambda x: x + 1, name="decoder", backend=backend)(X)
    finally:
        kintsugi.backends.fx.backend_compile = original
    assert described == ["decoder_0"]


def test_calls_of_compile_are_isolated_from_each_other() -> None:
    def f(x, n):
        return x + len(n)

    one, two = (compile(f, recompile_limit=1, isolate_recompiles=isolate) for isolate in (False, True))
    for name in ("a", "bb"):
        one(X, name)
    two(X, "a")
    two(X, "a")
    assert two.stats().hits == 1 and two.stats().recompiles == 0 and one.stats().recompiles == 1


def test_audit_as_an_argument() -> None:
    compiled = compile(lambda x: x + 1, audit=1)
    for _ in range(3):
        assert torch.equal(compiled(X), X + 1)
    assert compiled.breaks() == []


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"name": 3}, TypeError, "name must be a string"),
        ({"recompile_limit": 0}, ValueError, "argument 'recompile_limit' must be an int from 1"),
        ({"audit": True}, ValueError, "argument 'audit' must be an int"),
        ({"isolate_recompiles": 1}, TypeError, "isolate_recompiles must be True or False"),
        ({"audit": 1, "options": {"audit": 2}}, ValueError, "given twice"),
    ],
)
def test_wrong_arguments(options, error, text) -> None:
    with pytest.raises(error, match=text):
        compile(lambda x: x, **options)


# --- compiled modules ---


def test_modules_have_what_functions_have() -> None:
    net = nn.Linear(4, 3)
    compiled = compile(net)
    compiled(X)
    compiled(X.double().float()[:1])
    assert compiled.stats().trace_count == 2 and compiled.breaks() == []
    assert len(compiled.traces()) == 2 and len(compiled.recompiles()) == 1
    dumped = compiled.dump(X)
    assert "aten.linear.default" in dumped.ir[0] and "linear" in dumped.fx[0] and dumped.backward is not None
    assert {"breaks", "dump", "recompiles", "reset", "stats", "traces"} <= set(dir(compiled))
    compiled.reset()
    assert compiled.stats().trace_count == 0
    assert "aten.mul.Tensor" in compile(lambda x: x * 2).dump(X).ir[0]


def test_module_compile_with_our_backend() -> None:
    from kintsugi.backends.torch_backend import register_with_torch

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(x).relu()

    register_with_torch()
    net = Net()
    expected = net(X)
    net.compile(backend="kintsugi", fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(net(X), expected)

    class Breaking(nn.Module):
        def forward(self, x):
            torch._dynamo.graph_break()
            return x + 1

    broken = Breaking()
    broken.compile(backend="kintsugi", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        broken(X)


# --- what the program asks ---


def test_is_exporting_and_is_dynamo_compiling() -> None:
    seen = []

    def f(x):
        seen.append((kintsugi.is_exporting(), kintsugi.is_dynamo_compiling(), torch.compiler.is_exporting()))
        return x + 1

    assert not kintsugi.is_exporting() and not kintsugi.is_dynamo_compiling()
    compile(f)(X)
    assert seen == [(False, True, False)]
    assert not kintsugi.is_dynamo_compiling()
    exported = []

    class Module(nn.Module):
        def forward(self, x):
            exported.append((kintsugi.is_exporting(), kintsugi.is_dynamo_compiling()))
            return x + 1

    torch.export.export(Module(), (X,), strict=False)
    assert (True, False) in exported


# --- breaks ---


def test_graph_break_breaks_ours_and_torchs() -> None:
    for call in (kintsugi.graph_break, torch._dynamo.graph_break):

        def f(x, call=call):
            y = x + 1
            call("here it is")
            return y * 2

        counter = Counter()
        compiled = compile(f, backend=counter)
        for _ in range(3):
            assert torch.equal(compiled(X), (X + 1) * 2)
        assert len(counter.graphs) == 2
        (found,) = compiled.breaks()
        assert found["code"] == "KTG0115" and "here it is" in found["message"]
        with pytest.raises(kintsugi.GraphBreakError, match="KTG0115.*here it is"):
            compile(f, fullgraph=True)(X)
        assert torch.equal(f(X), (X + 1) * 2)


def test_breaks_that_torch_asks_its_own_compiler_for_are_none() -> None:
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def step():
        weight.grad = torch.ones(4)
        optimizer.step()

    compiled = compile(step, fullgraph=True)
    for _ in range(3):
        compiled()
    assert compiled.breaks() == [] and torch.equal(weight.detach(), torch.full((4,), -0.5))


def test_torchs_error_on_graph_break_counts_in_and_around_compiled_code() -> None:
    def breaking(x):
        torch._dynamo.graph_break()
        return x + 1

    def inside(x):
        with torch._dynamo.error_on_graph_break(True):
            return breaking(x)

    def allowed(x):
        with torch._dynamo.error_on_graph_break(True):
            x = x * 2
            with torch._dynamo.error_on_graph_break(False):
                return breaking(x)

    @torch._dynamo.error_on_graph_break(True)
    def decorated(x):
        return breaking(x)

    for compiler, error in (
        (compile, kintsugi.GraphBreakError),
        (torch.compile, torch._dynamo.exc.Unsupported),
    ):
        torch._dynamo.reset()
        with pytest.raises(error):
            compiler(inside, backend="eager")(X)
        torch._dynamo.reset()
        with pytest.raises(error), torch._dynamo.error_on_graph_break(True):
            compiler(breaking, backend="eager")(X)
        torch._dynamo.reset()
    with pytest.raises(kintsugi.GraphBreakError):
        compile(decorated)(X)
    assert torch.equal(compile(allowed)(X), X * 2 + 1)
    assert torch.equal(compile(breaking)(X), X + 1)
    # Our own switch is the stronger one.
    with torch._dynamo.error_on_graph_break(True), kintsugi.error_on_graph_break(False):
        assert torch.equal(compile(breaking)(X), X + 1)


def test_forbidden_functions_are_errors_in_compiled_code_alone() -> None:
    for forbid, compiler in (
        (kintsugi.forbid_in_graph, compile),
        (torch._dynamo.forbid_in_graph, compile),
        (torch._dynamo.forbid_in_graph, torch.compile),
    ):

        @forbid
        def secret(x):
            return x + 1

        def f(x, secret=secret):
            return secret(x * 2)

        assert torch.equal(f(X), X * 2 + 1)
        torch._dynamo.reset()
        with pytest.raises(AssertionError, match="(?i)forbid"):
            compiler(f, backend="eager")(X)
        with kintsugi.set_stance("force_eager"):
            assert torch.equal(compile(f)(X), X * 2 + 1)
    kintsugi.set_stance("default")
    with pytest.raises(TypeError, match="forbid_in_graph"):
        kintsugi.forbid_in_graph(3)


def test_a_program_that_catches_the_error_of_a_forbidden_call() -> None:
    @kintsugi.forbid_in_graph
    def secret(x):
        return x + 1

    def f(x):
        try:
            return secret(x)
        except AssertionError:
            return x - 1

    for compiler in (compile, torch.compile):  # it is no error of the program's to handle
        compiled = compiler(f, backend="eager")
        for _ in range(3):
            with pytest.raises(AssertionError, match="(?i)forbid"):
                compiled(X)


def test_disallowed_functions_are_steps() -> None:
    @kintsugi.torchdynamo.disallow_in_graph
    def apart(x):
        return x.sum()

    compiled = compile(lambda x: x * apart(x))
    for _ in range(3):
        assert torch.equal(compiled(X), X * X.sum())
    assert compiled.breaks()[0]["code"] == "KTG0107"


# --- substitutes ---


def test_substitute_in_graph() -> None:
    calls = []

    @kintsugi.substitute_in_graph(operator.countOf)
    def count_of(a, b, /):
        calls.append(1)
        return sum(item is b or item == b for item in a)

    def f(x):
        return x + operator.countOf([1, 2, 2], 2)

    assert torch.equal(f(X), X + 2) and not calls
    compiled = compile(f, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X), X + 2)
    assert calls and compiled.breaks() == []
    assert count_of([1, 1], 1) == 2  # in eager mode it is the original
    number = len(calls)
    assert count_of([3], 3) == 1 and len(calls) == number
    assert compile(lambda a, b: count_of(a, b), fullgraph=True)([5, 5], 5) == 2
    assert kintsugi.compile(operator.countOf, fullgraph=True)([1, 2], 2) == 1
    with pytest.raises(ValueError, match="has a substitute already"):
        kintsugi.substitute_in_graph(operator.countOf)(lambda a, b, /: 0)


def test_substitutes_may_leave_the_trace_in_their_middle() -> None:
    @kintsugi.substitute_in_graph(operator.concat)
    def concat(a, b, /):
        return a + b if a.sum() > 0 else b + a * 2

    operator_concat = operator.concat

    def f(x):
        return operator_concat(x, x + 1)

    compiled = compile(f)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3), -torch.ones(3)):
        expected = x + (x + 1) if x.sum() > 0 else (x + 1) + x * 2
        assert torch.equal(compiled(x), expected)


def test_wrong_substitutes_are_refused_as_torch_refuses_them() -> None:
    for substitute in (kintsugi.substitute_in_graph, torch.compiler.substitute_in_graph):
        with pytest.raises(TypeError):
            substitute(3)
        with pytest.raises(TypeError):
            substitute(operator.length_hint)(lambda other: 1)
        with pytest.raises(TypeError):
            substitute(operator.length_hint)(operator.add)


# --- functions that are not looked into ---


def test_nonstrict_trace() -> None:
    table = {"scale": torch.tensor(2.0)}

    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    def apart(pair, layer):
        torch._dynamo.graph_break()
        return layer(pair.a) + pair.b * table["scale"]

    traced = kintsugi.nonstrict_trace(apart)
    assert not hasattr(apart, "_kintsugi_allow_in_graph")
    layer = nn.Linear(4, 4)

    def f(x):
        return traced(Pair(x, x + 1), layer).relu()

    compiled = compile(f, fullgraph=True)
    for _ in range(3):
        x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
        compiled(x).sum().backward()
        f(y).sum().backward()
        assert torch.equal(x.grad, y.grad)
    table["scale"] = torch.tensor(5.0)
    assert torch.equal(compiled(X), f(X))
    assert compiled.breaks() == []
    with pytest.raises(TypeError, match="nonstrict_trace"):
        kintsugi.nonstrict_trace(3)


def test_wrap_numpy() -> None:
    numpy = pytest.importorskip("numpy")

    def f(a, b=None):
        return {"sum": numpy.sum(a * a), "both": [a + 1, b]}

    wrapped, torchs = kintsugi.wrap_numpy(f), torch.compiler.wrap_numpy(f)
    for call in (wrapped, compile(wrapped), compile(wrapped, fullgraph=True)):
        for _ in range(2):
            ours, theirs = call(X, b=X), torchs(X, b=X)
            assert torch.equal(ours["both"][0], theirs["both"][0]) and torch.equal(ours["both"][1], X)
            assert float(ours["sum"]) == float(theirs["sum"])


def test_nested_compile_region_is_the_function() -> None:
    @torch.compiler.nested_compile_region
    def block(x, layer):
        return layer(x).relu()

    layers = [nn.Linear(4, 4) for _ in range(3)]

    def f(x):
        for layer in layers:
            x = block(x, layer)
        return x

    compiled = compile(f, fullgraph=True)
    for _ in range(3):
        x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
        compiled(x).sum().backward()
        f(y).sum().backward()
        assert torch.equal(x.grad, y.grad)
    assert compiled.breaks() == []


# --- comptime ---


def test_comptime_runs_while_recording_alone(capsys) -> None:
    seen = []

    def f(x, n):
        y = x + n
        kintsugi.comptime(lambda ctx: seen.append((ctx.get_local("y").size(), ctx.operations())))
        kintsugi.comptime.print(y)
        kintsugi.comptime.print_locals()
        return y * 2

    f(X, 1)
    assert not seen and capsys.readouterr().out == ""
    compiled = compile(f, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X, 1), (X + 1) * 2)
    assert seen == [(torch.Size([2, 4]), ["aten.add.Tensor"])]
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "float32[2, 4]"
    assert "y = Tensor(float32[2, 4]; value %" in out and "n = int(1; " in out
    assert compiled.breaks() == [] and compiled.stats().op_count == 2


def test_comptime_sees_frames_and_guards(capsys) -> None:
    def inner(x):
        kintsugi.comptime.print_bt()
        kintsugi.comptime.print_guards()
        kintsugi.comptime.print_graph()
        kintsugi.comptime.print_disas()
        kintsugi.comptime.print_value_stack()
        kintsugi.comptime(lambda ctx: print("parent has", ctx.parent().get_local("z").python_type().__name__))
        return x * 2

    def outer(x, z):
        return inner(x + z)

    assert torch.equal(compile(outer)(X, 3), (X + 3) * 2)
    out = capsys.readouterr().out
    assert re.search(r'line \d+, in outer\n  File ".*", line \d+, in inner\n', out)
    assert "tensor" in out and "aten.add.Tensor" in out and "parent has int" in out and "RESUME" in out


def test_comptime_fallback_and_errors() -> None:
    done = []

    def f(x):
        kintsugi.comptime(lambda ctx: done.append("recording"), lambda: done.append("eager"))
        return x + 1

    f(X)
    compiled = compile(f)
    compiled(X)
    compiled(X)
    assert done == ["eager", "recording"]

    def failing(x):
        kintsugi.comptime(lambda ctx: ctx.get_local("nothing"))
        return x + 1

    with pytest.raises(KeyError):
        compile(failing)(X)

    def raised(ctx):
        raise LookupError("seen")

    def caught(x):
        try:
            kintsugi.comptime(raised)
        except LookupError:
            x = x * 3
        return x + 1

    assert torch.equal(compile(caught)(X), X * 3 + 1)


def test_comptime_static_numbers() -> None:
    def checked(x, n):
        kintsugi.comptime.assert_static(n)
        return x * n

    compiled = compile(checked)
    assert torch.equal(compiled(X, 2), X * 2)
    with pytest.raises(AssertionError, match="assert_static"):
        compile(checked, dynamic=True)(X, 2)

    def forced(x, n):
        kintsugi.comptime.force_static(n)
        return x * n

    compiled = compile(forced, dynamic=True)
    for n in (2, 3, 2, 3):
        assert torch.equal(compiled(X, n), X * n)


def test_comptime_graph_break() -> None:
    def f(x):
        kintsugi.comptime.graph_break()
        return x + 1

    with pytest.raises(kintsugi.GraphBreakError, match="KTG0115"):
        compile(f, fullgraph=True)(X)


# --- the default backend ---


def test_default_backend() -> None:
    counter = Counter()
    kintsugi.set_default_backend(counter)
    assert kintsugi.get_default_backend() is counter
    assert torch.equal(kintsugi._public.compile(lambda x: x + 1)(X), X + 1)
    assert len(counter.graphs) == 1
    kintsugi.set_default_backend("aot_eager")
    assert kintsugi.get_default_backend() == "aot_eager"
    assert torch.equal(kintsugi.compile(lambda x: x + 1)(X), X + 1)
    kintsugi.set_default_backend(None)
    assert kintsugi.get_default_backend() == "native"
    for set_default in (kintsugi.set_default_backend, torch.compiler.set_default_backend):
        with pytest.raises(TypeError):
            set_default(3)
    with pytest.raises(ValueError, match="Did you mean 'inductor'"):
        kintsugi.set_default_backend("inductr")


def test_list_backends_with_tags() -> None:
    assert set(torch.compiler.list_backends()) <= set(kintsugi.list_backends(())) | {"kintsugi"}
    assert set(kintsugi.list_backends()) < set(kintsugi.list_backends(None))
    assert "eager_noexcept" in kintsugi.list_backends(None)


# --- explain ---


def breaks_once(x):
    y = x + 1
    torch._dynamo.graph_break("once")
    return y * 2


def test_explain_has_torchs_fields() -> None:
    ours = kintsugi.explain(breaks_once)(X)
    theirs = torch._dynamo.explain(breaks_once)(X)
    for name in vars(theirs):
        assert hasattr(ours, name), name
    assert (ours.graph_count, ours.graph_break_count, ours.op_count) == (2, 1, 2)
    assert (theirs.graph_count, theirs.graph_break_count, theirs.op_count) == (2, 1, 2)
    assert len(ours.graphs) == len(theirs.graphs) == 2
    for graph, operation in zip(ours.graphs, ("add", "mul"), strict=True):
        assert isinstance(graph, torch.fx.GraphModule)
        assert [operation in str(n.target) for n in graph.graph.nodes if n.op == "call_function"] == [True]
    (reason,) = ours.break_reasons
    assert reason.graph_break and "once" in reason.reason
    frame, other = reason.user_stack[-1], theirs.break_reasons[0].user_stack[-1]
    assert (frame.filename, frame.lineno, frame.name) == (other.filename, other.lineno, other.name)
    assert ours.out_guards == ours.guards and "ms" in ours.compile_times
    assert torch.equal(ours.graphs[0](X)[0], X + 1)


def test_explain_with_the_arguments_at_once() -> None:
    for explain in (kintsugi.explain, torch._dynamo.explain, dynamo.explain):
        with pytest.warns(FutureWarning, match="explain"):
            output = explain(breaks_once, X)
        assert output.graph_break_count == 1
    with pytest.warns(FutureWarning):
        assert torch.equal(kintsugi.explain(breaks_once, x=X).result, (X + 1) * 2)


# --- settings ---


def test_verbose_log_lines_carry_the_stack(capsys) -> None:
    def caller(compiled, *args):
        return compiled(*args)

    kintsugi.set_logs("graph_breaks", "recompiles")
    try:
        for verbose in (False, True):
            with kintsugi.config.patch(verbose=verbose):
                compiled = compile(lambda x, n: breaks_once(x))
                caller(compiled, X, "a")
                caller(compiled, X.double(), "a")
                err = capsys.readouterr().err
                assert ("in caller" in err) == verbose and (
                    "in breaks_once\n  " in err or "in <lambda>" in err
                ) == verbose
                assert "KTG0115" in err and "KTG0201" in err
    finally:
        kintsugi.set_logs()


# --- the shim ---


def test_as_torch_leads_here() -> None:
    shim = kintsugi.as_torch
    assert shim.compile is kintsugi._public.compile and shim.nn is torch.nn
    for name in (
        "set_stance",
        "is_exporting",
        "is_dynamo_compiling",
        "substitute_in_graph",
        "set_default_backend",
    ):
        assert getattr(shim.compiler, name) is getattr(kintsugi, name)
    for name in ("wrap_numpy", "disable", "reset", "list_backends", "get_default_backend", "allow_in_graph"):
        assert getattr(shim.compiler, name) is getattr(kintsugi, name)
    for name in ("mark_dynamic", "mark_static", "maybe_mark_dynamic", "graph_break", "error_on_graph_break"):
        assert getattr(shim._dynamo, name) is getattr(kintsugi, name)
    for name in (
        "nonstrict_trace",
        "forbid_in_graph",
        "substitute_in_graph",
        "set_stance",
        "explain",
        "comptime",
    ):
        assert getattr(shim._dynamo, name) is getattr(kintsugi, name)
    assert shim._dynamo.utils.counters is torch._dynamo.utils.counters
    assert shim._dynamo.exc is torch._dynamo.exc
    with pytest.raises(AttributeError, match="no counterpart in Kintsugi"):
        _ = shim._dynamo.step_unsupported
    with pytest.raises(AttributeError):
        _ = shim._dynamo.no_such_name


def test_config_patch_of_the_shim_acts_on_our_settings() -> None:
    config = kintsugi.as_torch._dynamo.config
    with config.patch(recompile_limit=3, capture_scalar_outputs=True):
        assert kintsugi.config.recompile_limit == 3 and config.capture_scalar_outputs is True
    assert kintsugi.config.recompile_limit == 8 and not config.capture_scalar_outputs
    with config.patch("verbose", True):
        assert kintsugi.config.verbose
    with pytest.raises(KeyError), config.patch({"suppress_errors": False}):
        assert not kintsugi.config.suppress_errors
        raise KeyError
    assert kintsugi.config.suppress_errors and not kintsugi.config.verbose

    @config.patch(cache_size_limit=5)
    def inside():
        return kintsugi.config.recompile_limit

    assert inside() == 5 and kintsugi.config.recompile_limit == 8
    with pytest.raises(AttributeError), config.patch(nothing_of_the_kind=1):
        pass


def test_marks_of_the_shim_count() -> None:
    compiled = compile(lambda x: x * 2)
    for size in (3, 4, 5):
        x = torch.ones(size)
        kintsugi.as_torch._dynamo.mark_dynamic(x, 0)
        compiled(x)
    assert compiled.stats().trace_count == 1


def test_run_uses_what_was_compiled() -> None:
    compiled = compile(lambda x: x + 1)
    compiled(X)
    only = dynamo.run(compiled)
    assert torch.equal(only(X.double()), X.double() + 1) and torch.equal(only(X), X + 1)
    with dynamo.run():
        compiled(X.half())
    assert compiled.stats().trace_count == 1
    compiled(X.double())
    assert compiled.stats().trace_count == 2


def test_optimize_assert_is_fullgraph() -> None:
    with pytest.raises(kintsugi.GraphBreakError):
        dynamo.optimize_assert("eager")(breaks_once)(X)
    assert dynamo.OptimizedModule is kintsugi.CompiledModule


def test_reset_of_the_shim_drops_our_traces() -> None:
    compiled = compile(lambda x: x + 1)
    for reset in (kintsugi.as_torch.compiler.reset, kintsugi.as_torch._dynamo.reset):
        compiled(X)
        assert compiled.stats().trace_count == 1
        reset()
        assert compiled.stats().trace_count == 0


def test_names_that_are_not_needed_are_not_imported() -> None:
    import subprocess

    late = ("_stance", "_comptime", "_substitutes")
    code = f"import sys, kintsugi; print([m for m in {late} if 'kintsugi.' + m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
