"""Custom backends: segments as FX graphs, from hand-written descriptions and from compiled programs."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from fx_recorder import Recorder
from harness import check_gradients
from torch import fx, nn

import kintsugi
from kintsugi.backends import fx as fx_backend


def ref(number: int) -> tuple[str, int]:
    return ("%", number)


def op(target: str, *args: Any, results: list[int | None], **kwargs: Any) -> dict[str, Any]:
    return {"target": target, "args": list(args), "kwargs": kwargs, "results": results}


def segment(
    inputs: list[Any], ops: list[dict[str, Any]], outputs: list[int | None], **more: Any
) -> dict[str, Any]:
    return {
        "inputs": list(range(len(inputs))),
        "example_inputs": inputs,
        "ops": ops,
        "outputs": outputs,
        **more,
    }


X = torch.linspace(-2, 3, 12).reshape(3, 4)
W = torch.linspace(-1, 1, 20).reshape(5, 4)


def run(described: dict[str, Any], *inputs: Any) -> tuple[Any, ...]:
    return fx_backend.backend_compile(described, Recorder())(*inputs)


# --- the builder, from hand-written segments ---


def test_linear_relu() -> None:
    described = segment(
        [X, W],
        [
            op("aten.linear.default", ref(0), ref(1), None, results=[2]),
            op("aten.relu.default", ref(2), results=[3]),
        ],
        [3],
        input_names=["x", "self.fc.weight"],
        name="forward_0",
    )
    backend = Recorder()
    compiled = fx_backend.backend_compile(described, backend)
    (out,) = compiled(X, W)
    assert torch.equal(out, torch.relu(X @ W.T))
    (gm,) = backend.graphs
    assert [n.name for n in gm.graph.nodes if n.op == "placeholder"] == ["x", "self_fc_weight"]
    assert backend.targets() == [["aten.linear.default", "aten.relu.default"]]
    assert backend.examples[0][0] is X
    for node in gm.graph.nodes:
        if node.op != "output":
            assert tuple(node.meta["val"].shape) == {"x": (3, 4), "self_fc_weight": (5, 4)}.get(
                node.name, (3, 5)
            )


def test_keyword_only_arguments_and_defaults_are_placed_by_the_schema() -> None:
    described = segment(
        [X],
        [
            op("aten.sum.dim_IntList", ref(0), [1], False, None, results=[1]),
            op("aten.add.Tensor", ref(0), ref(0), 2, results=[2]),
            op("aten.mul.Tensor", ref(0), 1.5, results=[3]),
            op(
                "aten.zeros.default",
                [2, 2],
                torch.float64,
                torch.strided,
                torch.device("cpu"),
                False,
                results=[4],
            ),
        ],
        [1, 2, 3, 4],
    )
    backend = Recorder()
    out = fx_backend.backend_compile(described, backend)(X)
    expected = (X.sum(1), torch.add(X, X, alpha=2), X * 1.5, torch.zeros(2, 2, dtype=torch.float64))
    assert all(torch.equal(a, b) for a, b in zip(out, expected, strict=True))
    calls = [n for n in backend.graphs[0].graph.nodes if n.op == "call_function"]
    assert calls[0].args[1:] == ([1],) and calls[1].kwargs == {"alpha": 2}
    assert calls[3].args == ([2, 2],) and calls[3].kwargs["dtype"] is torch.float64


def test_multiple_results_and_lists() -> None:
    described = segment(
        [X],
        [
            op("aten.max.dim", ref(0), 1, results=[1, None]),
            op("aten.topk.default", ref(0), 2, results=[None, 2]),
            op("aten.split.Tensor", ref(0), 2, results=[3, 4]),
            op("aten.cat.default", [ref(4), ref(3)], results=[5]),
            op("aten.unbind.int", ref(0), results=[6, None, 7]),
        ],
        [1, 2, 5, 6, 7],
    )
    out = run(described, X)
    expected = (X.max(1).values, X.topk(2).indices, torch.cat([X[2:], X[:2]]), X[0], X[2])
    assert all(torch.equal(a, b) for a, b in zip(out, expected, strict=True))


def test_optional_and_indexed_arguments() -> None:
    index = torch.tensor([2, 0])
    described = segment(
        [X, index],
        [
            op("aten.index.Tensor", ref(0), [None, ref(1)], results=[2]),
            op("aten.clamp.default", ref(0), None, 1.0, results=[3]),
            op("aten.slice.Tensor", ref(0), 0, 1, 9223372036854775807, 1, results=[4]),
        ],
        [2, 3, 4],
    )
    out = run(described, X, index)
    assert (
        torch.equal(out[0], X[:, index])
        and torch.equal(out[1], X.clamp(max=1.0))
        and torch.equal(out[2], X[1:])
    )


def test_in_place_operations_keep_their_order_and_reach_the_input() -> None:
    described = segment(
        [X],
        [
            op("aten.select.int", ref(0), 0, 1, results=[1]),
            op("aten.mul_.Tensor", ref(1), 10, results=[2]),
            op("aten.sum.default", ref(0), results=[3]),
            op("aten.zero_.default", ref(1), results=[None]),
        ],
        [3, 2, 0],
    )
    x = X.clone()
    expected = X.clone()
    expected[1] *= 10
    total = expected.sum()
    expected[1].zero_()
    out = run(described, x)
    assert torch.equal(out[0], total)
    assert out[2] is x and torch.equal(x, expected)
    assert out[1].data_ptr() == x[1].data_ptr()


def test_mutations_survive_dead_code_elimination() -> None:
    described = segment([X], [op("aten.add_.Tensor", ref(0), 1, results=[None])], [])

    def backend(gm: fx.GraphModule, _: Any) -> Any:
        gm.graph.eliminate_dead_code()
        gm.recompile()
        return gm

    x = X.clone()
    assert fx_backend.backend_compile(described, backend)(x) == ()
    assert torch.equal(x, X + 1)


def test_none_outputs_inputs_as_outputs_and_scalars() -> None:
    described = segment([X, 3], [op("aten.add.Scalar", ref(0), ref(1), results=[2])], [None, 0, 2, 2])
    out = run(described, X, 5)
    assert out[0] is None and out[1] is X and torch.equal(out[2], X + 5) and out[3] is out[2]


def test_empty_segment() -> None:
    assert run(segment([X], [], [0]), X) == (X,)


def test_data_dependent_shapes_need_no_meta() -> None:
    described = segment(
        [X],
        [op("aten.nonzero.default", ref(0), results=[1]), op("aten.sum.default", ref(1), results=[2])],
        [1, 2],
    )
    assert torch.equal(run(described, X)[0], X.nonzero())


def test_names_of_inputs_are_made_unique_and_legal() -> None:
    described = segment([X, X, X, X], [], [0], input_names=["x", "x", "1.for", "for"])
    backend = Recorder()
    fx_backend.backend_compile(described, backend)
    names = [n.name for n in backend.graphs[0].graph.nodes if n.op == "placeholder"]
    assert len(set(names)) == 4 and names[0] == "x"


def test_custom_operators() -> None:
    @torch.library.custom_op("kintsugi_tests_fx::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    described = segment([X], [op("kintsugi_tests_fx.twice.default", ref(0), results=[1])], [1])
    assert torch.equal(run(described, X)[0], X * 2)


@pytest.mark.parametrize(
    ("ops", "text"),
    [
        (
            [op("aten.nothing_like_it.default", ref(0), results=[1])],
            "no operator 'aten.nothing_like_it.default'",
        ),
        ([op("aten.relu", ref(0), results=[1])], "aten.relu"),
        ([op("aten.relu.default", ref(7), results=[1])], "%7 is used before it is made"),
        ([op("aten.relu.default", ref(0), 1, 2, results=[1])], "takes 1 arguments"),
        ([op("aten.relu.default", ref(0), results=[1, 2])], "makes one value"),
    ],
)
def test_wrong_segments_are_named(ops, text) -> None:
    with pytest.raises(ValueError, match=text):
        fx_backend.build_graph(segment([X], ops, []))


def test_failing_backend_runs_uncompiled_or_raises(capsys) -> None:
    described = segment([X], [op("aten.relu.default", ref(0), results=[1])], [1], name="seg")

    def broken(gm: Any, inputs: Any) -> Any:
        raise KeyError("oh")

    (out,) = fx_backend.backend_compile(described, broken, name="broken")(X)
    assert torch.equal(out, X.relu())
    err = capsys.readouterr().err
    assert "broken" in err and "seg" in err and "KeyError" in err
    with kintsugi.config.patch(suppress_errors=False):
        with pytest.raises(fx_backend.BackendError, match="'broken' failed on seg") as caught:
            fx_backend.backend_compile(described, broken, name="broken")
        assert isinstance(caught.value.__cause__, KeyError)
        with pytest.raises(fx_backend.BackendError, match="can't be called"):
            fx_backend.backend_compile(described, lambda gm, inputs: None)


def test_results_of_other_shapes_are_accepted_or_named() -> None:
    described = segment([X], [op("aten.relu.default", ref(0), results=[1])], [1])
    assert torch.equal(
        fx_backend.backend_compile(described, lambda gm, i: lambda x: x.relu())(X)[0], X.relu()
    )
    assert torch.equal(
        fx_backend.backend_compile(described, lambda gm, i: lambda x: [x.relu()])(X)[0], X.relu()
    )
    with pytest.raises(fx_backend.BackendError, match="returned 2 values, the graph has 1"):
        fx_backend.backend_compile(described, lambda gm, i: lambda x: (x, x))(X)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aot_eager", "inductor"])
def test_torchs_own_backends_on_a_segment(name: str) -> None:
    from kintsugi.backends.registry import SegmentCompiler

    described = segment(
        [X, W],
        [
            op("aten.linear.default", ref(0), ref(1), None, results=[2]),
            op("aten.relu.default", ref(2), results=[3]),
            op("aten.add_.Tensor", ref(0), 1, results=[None]),
        ],
        [3],
    )
    compiled = SegmentCompiler(name)(described)
    x = X.clone()
    (out,) = compiled(x, W)
    torch.testing.assert_close(out, torch.relu(X @ W.T))
    assert torch.equal(x, X + 1)


# --- through kintsugi.compile ---


def test_callable_backend_gets_the_graph() -> None:
    backend = Recorder()

    def f(x, w):
        return torch.relu(x @ w.T) + 1

    compiled = kintsugi.compile(f, backend=backend)
    for call in range(3):
        assert torch.equal(compiled(X + call, W), f(X + call, W))
    assert len(backend.graphs) == 1
    assert "aten.relu.default" in backend.targets()[0]
    assert compiled.stats().hits == 2


def test_backend_sees_parameters_and_trains() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    backend = Recorder()
    compiled = kintsugi.compile(net, backend=backend)
    for _ in range(3):
        check_gradients(compiled, net, X)
    assert sum(t.count("aten.linear.default") for t in backend.targets()) == 2


def test_mutation_of_the_callers_tensor_through_a_backend() -> None:
    def f(x):
        x.add_(1)
        return x[0] * 2

    compiled = kintsugi.compile(f, backend=Recorder())
    for _ in range(3):
        mine, theirs = X.clone(), X.clone()
        assert torch.equal(compiled(mine), f(theirs)) and torch.equal(mine, theirs)


def test_python_around_the_graphs() -> None:
    log: list[str] = []

    def f(x):
        y = x * 2
        log.append("middle")
        z = y + 1
        if z.sum() > 0:
            z = z - 1
        return {"z": z, "n": len(log)}

    backend = Recorder()
    compiled = kintsugi.compile(f, backend=backend)
    for call in range(3):
        out = compiled(X + call)
        assert torch.equal(out["z"], (X + call) * 2 + 1 - 1) and out["n"] == call + 1


def test_registered_backend_by_name() -> None:
    backend = Recorder()
    kintsugi.register_backend(backend, name="kintsugi_tests_recorder")
    assert "kintsugi_tests_recorder" in kintsugi.list_backends()
    compiled = kintsugi.compile(lambda x: x + 1, backend="kintsugi_tests_recorder")
    assert torch.equal(compiled(X), X + 1)
    assert len(backend.graphs) == 1

    @kintsugi.register_backend
    def kintsugi_tests_second(gm, inputs):
        return gm

    assert kintsugi.compile(lambda x: x - 1, backend="kintsugi_tests_second")(X)[0, 0] == X[0, 0] - 1


def ops(*targets: str) -> list[str]:
    return [f"aten.{t}" for t in targets]


def test_print_between_operations_is_one_graph(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x):
        y = torch.relu(x)
        print("relu gives", y.sum())
        z = y * 2
        print("twice", z[0, 0])
        return z + 1

    backend = Recorder()
    compiled = kintsugi.compile(f, backend=backend)
    for call in range(4):
        expected = f(X + call)
        eager = capsys.readouterr().out
        assert torch.equal(compiled(X + call), expected)
        assert capsys.readouterr().out == eager
    assert len(backend.graphs) == 1
    assert {"aten.relu.default", "aten.mul.Tensor", "aten.add.Tensor"} <= set(backend.targets()[0])


def test_counters_and_logs_do_not_split() -> None:
    class Counter:
        n = 0

    log: list[Any] = []
    counter = Counter()

    def f(x):
        y = x.exp()
        counter.n += 1
        log.append(y)
        return y.sin() + 1

    backend = Recorder()
    compiled = kintsugi.compile(f, backend=backend)
    for call in range(3):
        assert torch.equal(compiled(X + call), (X + call).exp().sin() + 1)
        assert counter.n == call + 1 and torch.equal(log[call], (X + call).exp())
    assert backend.targets() == [ops("exp.default", "sin.default", "add.Tensor")]


def test_printed_before_it_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x):
        y = x + 1
        print(y[0])
        y.mul_(2)
        print(y[0])
        return y

    compiled = kintsugi.compile(f, backend=Recorder())
    for call in range(3):
        expected = f(X + call)
        eager = capsys.readouterr().out
        assert torch.equal(compiled(X + call), expected)
        assert capsys.readouterr().out == eager


def test_an_operation_that_raises_leaves_what_eager_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    log: list[str] = []

    def f(table, index):
        y = table * 2
        print("before")
        log.append("before")
        z = y[index]
        print("after")
        log.append("after")
        return z + 1

    compiled = kintsugi.compile(f, backend=Recorder())
    table = torch.arange(5.0)
    for _ in range(3):
        assert torch.equal(compiled(table, torch.tensor([1, 4])), torch.tensor([3.0, 9.0]))
    log.clear()
    capsys.readouterr()
    with pytest.raises(IndexError) as mine:
        compiled(table, torch.tensor([1, 7]))
    assert capsys.readouterr().out == "before\n" and log == ["before"]
    with pytest.raises(IndexError) as theirs:
        f(table, torch.tensor([1, 7]))
    assert str(mine.value) == str(theirs.value)
    assert mine.traceback[-1].lineno == theirs.traceback[-1].lineno


def test_an_exception_in_a_graph_is_caught_where_the_program_catches_it() -> None:
    def f(table, index):
        y = table * 2
        try:
            z = y[index] + 1
        except IndexError:
            z = y - 1
        return z

    compiled = kintsugi.compile(f, backend=Recorder())
    table = torch.arange(5.0)
    for index in (1, 4, 9, 2, 7):
        tensor = torch.tensor([index, index])
        assert torch.equal(compiled(table, tensor), f(table, tensor))


def test_inputs_of_graphs_that_are_needed_elsewhere() -> None:
    """A graph's inputs come as Python objects; a side trace, and a graph taken back, need the tensors."""
    weight = torch.arange(5.0)

    def f(x, index):
        y = x * weight
        if y.sum() > 0:
            y = y + weight
        z = torch.dropout(y, 0.5, False)
        return z[index] - 1

    backend = Recorder()
    compiled = kintsugi.compile(f, backend=backend)
    for sign, last in ((1, 2), (1, 3), (-1, 2), (-1, 4), (1, 9), (-1, 9), (-1, 1), (1, 0)):
        x, index = torch.full((5,), float(sign)), torch.tensor([0, last])
        if last < 5:
            assert torch.equal(compiled(x, index), f(x, index))
            continue
        with pytest.raises(IndexError) as theirs:
            f(x, index)
        with pytest.raises(IndexError) as mine:
            compiled(x, index)
        assert str(mine.value) == str(theirs.value)
    references = sys.getrefcount(weight)
    for _ in range(5):
        compiled(torch.ones(5), torch.tensor([0, 1]))
    assert sys.getrefcount(weight) == references


def test_random_numbers_are_drawn_once() -> None:
    def f(table, index):
        noise = torch.rand(3)
        return table[index].sum() + noise

    compiled = kintsugi.compile(f, backend=Recorder())
    table = torch.arange(5.0)
    for index in (1, 2, 9, 3):
        results = []
        for program in (f, compiled):
            torch.manual_seed(index)
            try:
                results.append(program(table, torch.tensor([index])))
            except IndexError as error:
                results.append(torch.tensor(float(len(str(error)))))
            results.append(torch.rand(2))
        assert torch.equal(results[0], results[2]) and torch.equal(results[1], results[3])


def test_no_grad_inside_a_graph() -> None:
    def f(x, w):
        y = x @ w
        with torch.no_grad():
            scale = y.abs().mean()
        return (y * scale).sum()

    backend = Recorder()
    compiled = kintsugi.compile(f, backend=backend)
    for _ in range(3):
        w, v = torch.ones(4, 2, requires_grad=True), torch.ones(4, 2, requires_grad=True)
        compiled(X, w).backward()
        f(X, v).backward()
        assert torch.equal(w.grad, v.grad)
    assert len(backend.graphs) == 1
    assert "_set_grad_enabled" in str(backend.graphs[0].graph)


def test_numbers_that_vary() -> None:
    def f(x, k, s):
        return x * k + s

    backend = Recorder()
    compiled = kintsugi.compile(f, backend=backend)
    for call in range(20):
        k, s = call % 12, call / 7
        assert torch.equal(compiled(X, k, s), f(X, k, s))


def test_sizes_that_depend_on_data() -> None:
    def f(x):
        kept = x[x > 0]
        return (kept * 2).sum() + kept.exp().numel()

    backend = Recorder()
    compiled = kintsugi.compile(f, backend=backend)
    for call in range(4):
        assert torch.equal(compiled(X - call), f(X - call))
    assert any("index" in target for target in backend.targets()[0])


def test_frames_are_rebuilt_when_a_deferred_effect_raises() -> None:
    class Log(list):
        pass

    class Broken:
        def write(self, text):
            raise OSError("full")

        def flush(self):
            pass

    import contextlib

    def f(x):
        y = x * 2
        h = y.sin()
        try:
            print("value", h)
        except OSError as error:
            return y + h, str(error)
        return h.cos(), "fine"

    compiled = kintsugi.compile(f, backend=Recorder())
    for broken in (False, False, True, False, True):
        with contextlib.redirect_stdout(Broken() if broken else None):  # type: ignore[type-var]
            mine, theirs = compiled(X), f(X)
        assert torch.equal(mine[0], theirs[0]) and mine[1] == theirs[1] == ("full" if broken else "fine")


def test_threads_share_one_graph() -> None:
    import threading

    backend = Recorder()
    compiled = kintsugi.compile(lambda x: (x * 2).relu() + 1, backend=backend)
    compiled(X)
    wrong: list[Any] = []

    def work() -> None:
        for call in range(50):
            if not torch.equal(compiled(X + call), ((X + call) * 2).relu() + 1):
                wrong.append(call)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong and len(backend.graphs) == 1


def test_failing_backends_through_compile(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(gm: Any, inputs: Any) -> Any:
        raise KeyError("oh")

    compiled = kintsugi.compile(lambda x: x * 3, backend=broken)
    assert torch.equal(compiled(X), X * 3) and torch.equal(compiled(X), X * 3)
    assert "KTG0112" in capsys.readouterr().err
    with kintsugi.config.patch(suppress_errors=False):
        compiled = kintsugi.compile(lambda x: x * 3, backend=broken)
        for _ in range(2):
            with pytest.raises(fx_backend.BackendError, match="'broken' failed on") as caught:
                compiled(X)
            assert isinstance(caught.value.__cause__, KeyError)


def test_reset_frees_the_graphs() -> None:
    import gc
    import weakref

    backend = Recorder()
    compiled = kintsugi.compile(lambda x: x * 3, backend=backend)
    compiled(X)
    dead = weakref.ref(backend.graphs.pop())
    backend.examples.clear()
    compiled.reset()
    gc.collect()
    assert dead() is None
    assert torch.equal(compiled(X), X * 3)


def test_register_backend_refuses_what_it_must() -> None:
    with pytest.raises(ValueError, match="built-in"):
        kintsugi.register_backend(lambda gm, i: gm, name="eager")
    with pytest.raises(ValueError, match="another backend"):
        kintsugi.register_backend(lambda gm, i: gm, name="kintsugi_tests_dup")
        kintsugi.register_backend(lambda gm, i: gm, name="kintsugi_tests_dup")
    with pytest.raises(TypeError, match="callable"):
        kintsugi.register_backend(3, name="three")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aot_eager", "inductor"])
def test_torchs_own_backends(name: str) -> None:
    def f(x, w):
        y = torch.relu(x @ w.T)
        print("in between")
        return y.softmax(-1) * 2

    compiled = kintsugi.compile(f, backend=name)
    for call in range(3):
        torch.testing.assert_close(compiled(X + call, W), f(X + call, W))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aot_eager", "inductor"])
def test_training_with_torchs_own_backends(name: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    compiled = kintsugi.compile(net, backend=name)
    for _ in range(3):
        check_gradients(compiled, net, X, close=True)


@pytest.mark.slow
def test_as_a_backend_of_torch_compile() -> None:
    from kintsugi.backends import torch_backend

    torch_backend.register_with_torch()
    assert "kintsugi" in torch._dynamo.list_backends()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    compiled = torch.compile(net, backend="kintsugi")
    for call in range(4):
        assert torch.equal(compiled(X + call), net(X + call))
    check_gradients(compiled, net, X)
    torch._dynamo.reset()


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
def test_a_backend_that_traces_does_not_make_modules_record_again(train: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
    compiled = kintsugi.compile(model, backend="aot_eager")
    for _ in range(3):
        x = torch.randn(3, 4)
        with torch.set_grad_enabled(train):
            assert torch.allclose(compiled(x), model(x))
    assert (compiled.stats().misses, compiled.stats().hits) == (1, 2)


def test_a_class_that_stays_changed_is_seen() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    def changes(gm: Any, inputs: Any) -> Any:
        Scaled.forward = lambda self, x: x * 3
        return gm.forward

    compiled = kintsugi.compile(Scaled(), backend=changes)
    assert compiled(X).equal(X * 2)
    assert compiled(X).equal(X * 3)
