"""The public API: what compile() takes and returns, compiled modules as modules, reset, stats, disable, bad input."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import pickle
import subprocess
import sys
import types

import pytest
import torch
from torch import nn

import kintsugi


def add_one(x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
    """Adds one."""
    return x * scale + 1


@kintsugi.compile(backend="eager")
def decorated(x):
    return x * 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("steps", torch.zeros(()))
        self.name = "net"

    def forward(self, x):
        return torch.relu(self.fc(x))

    def describe(self):
        return f"{self.name}:{self.training}"


def compile(model, **options):
    return kintsugi.compile(model, **{"backend": "eager", **options})


X = torch.linspace(-1, 1, 8).reshape(2, 4)


# --- functions ---


def test_function_keeps_its_name_and_signature() -> None:
    compiled = compile(add_one)
    assert torch.equal(compiled(X, scale=2.0), add_one(X, scale=2.0))
    assert compiled.__name__ == "add_one"
    assert compiled.__doc__ == "Adds one."
    assert compiled.__wrapped__ is add_one
    assert inspect.signature(compiled) == inspect.signature(add_one)
    assert "add_one" in repr(compiled)


def test_decorator_without_and_with_arguments() -> None:
    @kintsugi.compile
    def f(x):
        return x + 1

    @kintsugi.compile(fullgraph=True, dynamic=False)
    def g(x):
        return x + 2

    assert torch.equal(f(X), X + 1)
    assert torch.equal(g(X), X + 2)


def test_methods_bind() -> None:
    class A:
        k = 3

        @kintsugi.compile
        def method(self, x):
            return x * self.k

        @staticmethod
        @kintsugi.compile
        def static(x):
            return x + 1

        @kintsugi.compile
        @staticmethod
        def static_outside(x):
            return x + 2

        @classmethod
        @kintsugi.compile
        def klass(cls, x):
            return x * cls.k

        @kintsugi.compile
        @classmethod
        def klass_outside(cls, x):
            return x * cls.k

    a = A()
    assert torch.equal(a.method(X), X * 3)
    assert torch.equal(A.method(a, X), X * 3)
    assert torch.equal(a.static(X), X + 1)
    assert torch.equal(A.static_outside(X), X + 2)
    assert torch.equal(A.klass(X), X * 3)
    assert torch.equal(a.klass_outside(X), X * 3)
    assert inspect.ismethod(a.method)


def test_bound_method_is_compiled() -> None:
    net = Net()
    compiled = compile(net.describe)
    assert compiled() == "net:True"
    net.eval()
    assert compiled() == "net:False"


def test_callable_instances_partials_and_builtins() -> None:
    class Scale:
        def __call__(self, x, k=2):
            return x * k

    for target in (Scale(), functools.partial(add_one, scale=3.0), torch.relu, lambda x: x - 1):
        compiled = compile(target)
        for _ in range(3):
            assert torch.equal(compiled(X), target(X))


def test_compiled_class_compiles_the_calls_of_its_instances() -> None:
    @kintsugi.compile
    class Scale:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return x * self.k

    assert isinstance(Scale, type)
    assert torch.equal(Scale(3)(X), X * 3)

    @kintsugi.compile
    class Sub(Net):
        pass

    net = Sub()
    assert isinstance(net, Net)
    assert torch.equal(net(X), torch.relu(net.fc(X)))


def test_compiling_twice_is_compiling_once() -> None:
    once = compile(add_one)
    assert compile(once) is once
    other = compile(once, fullgraph=True)
    assert other is not once and other.__wrapped__ is add_one
    net = compile(Net())
    assert compile(net) is net
    assert compile(net, dynamic=True)._orig_mod is net._orig_mod


def test_disable_argument_returns_the_original() -> None:
    net = Net()
    assert kintsugi.compile(net, disable=True) is net
    assert kintsugi.compile(disable=True)(add_one) is add_one


def test_attributes_can_be_set_on_a_compiled_function() -> None:
    compiled = compile(lambda x: x)
    compiled.note = 3
    assert compiled.note == 3


def test_compiled_function_pickles_like_a_function() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    other = pickle.loads(pickle.dumps(compile(add_one)))
    assert torch.equal(other(X), add_one(X))
    assert copy.deepcopy(decorated) is decorated


def test_no_frame_of_ours_between_caller_and_function() -> None:
    def who():
        return sys._getframe(1).f_code.co_name, sys._getframe(0).f_code.co_name

    class Watcher(nn.Module):
        def __call__(self):
            return sys._getframe(1).f_code.co_name

    me = inspect.currentframe().f_code.co_name
    for _ in range(3):
        assert compile(who)() == (me, "who")
        assert compile(Watcher())() == me


# --- modules ---


def test_module_result_and_gradients() -> None:
    net = Net()
    compiled = compile(net)
    for _ in range(3):
        x = X.clone().requires_grad_()
        y = X.clone().requires_grad_()
        compiled(x).sum().backward()
        grads = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        net(y).sum().backward()
        assert torch.equal(x.grad, y.grad)
        assert all(torch.equal(a, p.grad) for a, p in zip(grads, net.parameters(), strict=True))
        net.zero_grad()


def test_module_is_a_module_with_the_originals_state() -> None:
    net = Net()
    compiled = compile(net)
    assert isinstance(compiled, nn.Module)
    assert compiled._orig_mod is net
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert [n for n, _ in compiled.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert [n for n, _ in compiled.named_modules()] == ["", "fc"]
    assert dict(compiled.named_buffers())["steps"] is net.steps
    assert next(compiled.parameters()) is net.fc.weight
    assert compiled.get_submodule("fc") is net.fc
    assert "Linear" in repr(compiled) and "_orig_mod" in repr(compiled)
    assert "describe" in dir(compiled)
    compiled.load_state_dict(Net().state_dict())


def test_module_attributes_are_read_set_and_deleted_on_the_original() -> None:
    net = Net()
    compiled = compile(net)
    assert compiled.name == "net" and compiled.fc is net.fc
    compiled.name = "other"
    compiled.extra = 5
    compiled.head = nn.Linear(2, 2)
    assert net.name == "other" and net.extra == 5 and "head.weight" in net.state_dict()
    del compiled.extra
    del compiled.head
    assert not hasattr(net, "extra") and not hasattr(compiled, "head")
    assert compiled.describe() == "other:True"
    with pytest.raises(AttributeError, match="Net"):
        _ = compiled.nothing_like_this


def test_train_eval_to_and_apply() -> None:
    net = Net()
    compiled = compile(net)
    assert compiled.eval() is compiled and not net.training and not compiled.training
    assert compiled.train() is compiled and net.fc.training
    compiled.training = False
    assert not net.training
    assert compiled.double() is compiled and net.fc.weight.dtype is torch.float64
    assert compiled.to(torch.float32) is compiled
    assert compiled.requires_grad_(False) is compiled and not net.fc.weight.requires_grad
    seen = []
    compiled.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Net"]
    compiled.zero_grad()


def test_hooks_fire_once_and_are_the_originals() -> None:
    net = Net()
    compiled = compile(net)
    calls = []
    handle = compiled.register_forward_hook(lambda m, a, out: calls.append(m is net))
    net.register_forward_pre_hook(lambda m, a: calls.append("pre"))
    for _ in range(2):
        compiled(X)
    assert calls == ["pre", True] * 2
    handle.remove()
    compiled(X)
    assert calls == ["pre", True] * 2 + ["pre"]


def test_module_as_child_of_another() -> None:
    inner = Net()
    parent = nn.Sequential(compile(inner), nn.ReLU())
    assert list(parent.state_dict()) == ["0.steps", "0.fc.weight", "0.fc.bias"]
    parent.load_state_dict(parent.state_dict())
    parent.eval()
    assert not inner.training
    assert len(list(parent.parameters())) == 2
    assert torch.equal(parent(X), torch.relu(inner(X)))
    parent.double()
    assert inner.steps.dtype is torch.float64


def test_module_containers_keep_their_special_methods() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = compile(net)
    assert len(compiled) == 2 and compiled[0] is net[0] and list(compiled) == list(net)
    assert isinstance(compiled[0:1], nn.Sequential)
    assert bool(compile(Net())) and not hasattr(type(compile(Net())), "__len__")
    with pytest.raises(TypeError):
        len(compile(Net()))


def test_module_copy_pickle_and_save() -> None:
    net = Net()
    compiled = compile(net)
    twin = copy.deepcopy(compiled)
    assert twin._orig_mod is not net and torch.equal(twin(X), net(X))
    twin._orig_mod.fc.weight.data.zero_()
    assert not torch.equal(twin(X), net(X))
    again = pickle.loads(pickle.dumps(compiled))
    assert torch.equal(again(X), net(X)) and again.stats() is not None
    buffer = io.BytesIO()
    torch.save(compiled.state_dict(), buffer)
    buffer.seek(0)
    Net().load_state_dict(torch.load(buffer))
    pickle.dumps(net)


def test_forward_of_a_compiled_module() -> None:
    net = Net()
    compiled = compile(net)
    assert torch.equal(compiled.forward(X), net.forward(X))
    assert inspect.signature(compiled.forward) == inspect.signature(net.forward)
    compiled.forward = lambda x: x + 100
    assert torch.equal(net(X), X + 100) and torch.equal(compiled(X), X + 100)


def test_lazy_module() -> None:
    net = nn.Sequential(nn.LazyLinear(3))
    compiled = compile(net)
    for _ in range(3):
        assert torch.equal(compiled(X), net(X))


def test_optimizer_and_functional_call_on_a_compiled_module() -> None:
    net = Net()
    compiled = compile(net)
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        compiled(X).sum().backward()
        optimizer.step()
    assert torch.equal(compiled(X), net(X))
    params = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    assert torch.equal(torch.func.functional_call(compiled, params, (X,)), torch.zeros(2, 3))


# --- stats, reset, explain, wait ---


def test_stats_count_hits_and_misses() -> None:
    compiled = compile(add_one)
    for _ in range(4):
        compiled(X)
    stats = compiled.stats()
    assert isinstance(stats, kintsugi.Stats)
    assert (stats.misses, stats.hits, stats.trace_count) == (1, 3, 1)
    assert stats.graph_count == 1 and stats.graph_break_count == 0 and stats.op_count == 2
    assert stats.guard_count >= 1
    compiled(X.double())
    assert compiled.stats().trace_count == 2
    assert compiled.stats().recompiles == 1


def test_reset_of_what_is_never_recorded() -> None:
    def generator(x):
        yield x + 1

    compiled = kintsugi.compile(generator)
    for _ in range(2):
        assert [t.item() for t in compiled(torch.ones(()))] == [2.0]
        assert compiled.breaks()[0]["code"] == "KTG0110" and compiled.stats().trace_count == 0
        compiled.reset()


def test_reset_drops_the_traces() -> None:
    compiled, module = compile(add_one), compile(Net())
    compiled(X), module(X)
    kintsugi.reset()
    assert compiled.stats().trace_count == 0 and module.stats().trace_count == 0
    assert torch.equal(compiled(X), add_one(X))
    compiled.reset()
    assert compiled.stats().trace_count == 0


def test_explain_of_whole_function() -> None:
    output = kintsugi.explain(add_one)(X, scale=3.0)
    assert (output.graph_count, output.graph_break_count, output.op_count) == (1, 0, 2)
    assert output.ops_per_graph == [["aten.mul.Tensor", "aten.add.Tensor"]]
    assert output.break_reasons == []
    assert torch.equal(output.result, add_one(X, scale=3.0))
    assert "Graph count: 1" in str(output) and "aten.mul.Tensor" in str(output)


def test_explain_names_code_file_and_line() -> None:
    @kintsugi.disable(reason="not today")
    def left_out(x):
        return x.sum() * 2

    def f(x):
        y = x + 1
        z = left_out(y)  # the break
        return y * z

    output = kintsugi.explain(f)(X)
    assert output.graph_break_count >= 1
    reason = output.break_reasons[0]
    assert reason.code == "KTG0107" and "not today" in reason.reason
    assert reason.file == __file__
    assert reason.line == f.__code__.co_firstlineno + 2
    assert reason.function == "f"
    assert reason.cure
    assert "KTG0107" in str(output)


def test_explain_takes_modules_and_compiled_things() -> None:
    net = Net()
    assert kintsugi.explain(net)(X).op_count >= 2
    compiled = compile(net)
    assert kintsugi.explain(compiled)(X).graph_count == 1
    assert compiled.stats().misses == 0
    with pytest.raises(TypeError, match="explain"):
        kintsugi.explain(3)
    with pytest.warns(FutureWarning, match=r"explain\(fn\)\(\*args"):
        assert kintsugi.explain(add_one, X).op_count == 2


def test_wait_returns() -> None:
    compile(add_one)(X)
    assert kintsugi.wait() is True
    assert kintsugi.wait(0.5) is True
    with pytest.raises(ValueError, match="negative"):
        kintsugi.wait(-1)


def test_traces_are_text() -> None:
    compiled = compile(add_one)
    compiled(X)
    (text,) = compiled.traces()
    assert "aten.add.Tensor" in text and "add_one" in text


# --- disable, marks, is_compiling ---


def test_disable_as_call_and_decorator() -> None:
    @kintsugi.disable
    def plain(x):
        return x + 1

    @kintsugi.disable(reason="slow", recursive=False)
    def with_reason(x):
        return x + 2

    assert plain.__name__ == "plain" and torch.equal(plain(X), X + 1)
    for mine in (plain, with_reason, kintsugi.disable(torch.relu), kintsugi.disable(Net())):
        compiled = compile(lambda x, mine=mine: mine(x) * 2)
        for _ in range(3):
            assert torch.equal(compiled(X), mine(X) * 2)
    original = compile(add_one)
    assert kintsugi.disable(original).__wrapped__ is add_one
    with pytest.raises(TypeError, match="kintsugi.disable"):
        kintsugi.disable(3)


def test_disabled_module_stays_a_module() -> None:
    net = Net()
    off = kintsugi.disable(net)
    assert isinstance(off, nn.Module) and list(off.state_dict()) == list(net.state_dict())
    assert torch.equal(off(X), net(X))


def test_allow_in_graph_and_assume_constant_result() -> None:
    calls = []

    @kintsugi.allow_in_graph
    def one_op(x):
        return x.numpy().copy() is not None and x * 2

    @kintsugi.assume_constant_result
    def table_size():
        calls.append(1)
        return 3

    compiled = compile(lambda x: one_op(x) + table_size())
    for _ in range(4):
        assert torch.equal(compiled(X), X * 2 + 3)
    assert len(calls) == 1
    with pytest.raises(TypeError, match="wrap it"):
        kintsugi.allow_in_graph(len)
    with pytest.raises(TypeError, match="can be called"):
        kintsugi.assume_constant_result(3)


def test_is_compiling() -> None:
    seen = []

    def f(x):
        seen.append((kintsugi.is_compiling(), torch.compiler.is_compiling()))
        return x + 1

    assert kintsugi.is_compiling() is False
    compile(f)(X)
    with kintsugi.config.patch(report_compiling=True):
        compile(f)(X)
    assert seen == [(True, False), (True, True)]
    assert kintsugi.is_compiling() is False


def test_is_compiling_for_backends() -> None:
    """Code whose graphs go to a backend of somebody else's is told, as under torch.compile, and so is the backend."""
    seen = []

    def backend(module, inputs):
        seen.append(("backend", torch.compiler.is_compiling()))
        return module

    def f(x):
        seen.append(("program", torch.compiler.is_compiling()))
        return x + 1

    compiled = kintsugi.compile(f, backend=backend)
    for _ in range(2):
        assert torch.equal(compiled(X), X + 1)
    assert set(seen) == {("program", True), ("backend", True)}
    assert torch.compiler.is_compiling() is False


# --- modes, backends, bad input ---


@pytest.mark.parametrize(
    "mode", [None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
)
def test_modes_are_accepted(mode) -> None:
    compiled = kintsugi.compile(add_one, mode=mode)
    assert torch.equal(compiled(X), add_one(X))


def test_options() -> None:
    compiled = kintsugi.compile(lambda x, s: x + len(s), options={"recompile_limit": 2})
    for name in ("a", "bb", "ccc"):
        assert torch.equal(compiled(X, name), X + len(name))
    assert compiled.stats().trace_count == 2


def test_list_backends_names_ours_and_torchs() -> None:
    assert set(kintsugi.list_backends()) >= {"eager", "native", "aot_eager", "inductor", "cudagraphs"}


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: kintsugi.compile(3), TypeError, "expects a function, method, nn.Module"),
        (lambda: kintsugi.compile("f"), TypeError, "got str"),
        (lambda: kintsugi.compile()(7), TypeError, "got int"),
        (lambda: kintsugi.compile(property(add_one)), TypeError, "got property"),
        (
            lambda: kintsugi.compile(add_one, backend="inductr"),
            ValueError,
            "Did you mean 'inductor'.*Known: aot_eager",
        ),
        (lambda: kintsugi.compile(add_one, backend=3), TypeError, "backend must be a name or a callable"),
        (lambda: kintsugi.compile(add_one, mode="fast"), ValueError, "unknown mode 'fast'. Known: default"),
        (lambda: kintsugi.compile(add_one, mode="default", options={}), ValueError, "mode or options"),
        (
            lambda: kintsugi.compile(add_one, options={"recompile_limt": 1}),
            ValueError,
            "unknown option 'recompile_limt'",
        ),
        (lambda: kintsugi.compile(add_one, options={"recompile_limit": 0}), ValueError, "an int from 1 to"),
        (lambda: kintsugi.compile(add_one, options=[1]), TypeError, "options must be a dict"),
        (lambda: kintsugi.compile(add_one, fullgraph=1), TypeError, "fullgraph must be True or False"),
        (lambda: kintsugi.compile(add_one, dynamic="yes"), TypeError, "dynamic must be None"),
        (lambda: kintsugi.compile(types.SimpleNamespace), TypeError, "instances can't be called"),
    ],
)
def test_bad_input_says_what_to_do(call, error, text) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cudagraphs_needs_a_gpu() -> None:
    with pytest.raises(RuntimeError, match="CUDA"):
        kintsugi.compile(add_one, backend="cudagraphs")


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def test_import_is_quick_and_changes_nothing() -> None:
    code = """
import sys, time, torch
before = set(sys.modules)
hook = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None)()
start = time.process_time()
import kintsugi
took = time.process_time() - start
heavy = {"torch._dynamo", "torch._inductor", "typer", "rich", "torch.fx"} & (set(sys.modules) - before)
assert not heavy, heavy
assert getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None)() is hook
print(took)
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    # Processor time: the clock also counts what else the machine does. The budget is 0.05 on a quiet machine.
    assert float(done.stdout) < 0.25


TRACE = """sources {
  $0 = arg 0  ; arg0
  $1 = attr $0 "k"  ; arg0.k
}
guards 0 {
  type $0 #0
  length $1 3
}
guards 1 {
}
trace @f.py:3 f {
  const #0 "Tensor"
  %0 = input $0 : tensor<0>
  %1 = aten.relu.default %0 : tensor<0> snap !0
  %2, %3 = aten.max.dim %1, 0 : tensor<0>, tensor<1> snap !0
  %4 = kintsugi_tests.op.default %1 : bool snap !1
  guard.true %4 snap !1
  ret %1 snap !1
}
"""


def test_operations_and_guards_are_read_from_the_text() -> None:
    from kintsugi import _explain

    assert _explain.operations(TRACE) == ["aten.relu.default", "aten.max.dim", "kintsugi_tests.op.default"]
    assert _explain.guards(TRACE) == ['type arg0 "Tensor"', "length arg0.k 3", "guard.true %4"]
