"""set_stance(): each stance as a call, a block and a decorator, beside what torch.compile does under the same one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import kintsugi

X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.fixture(autouse=True)
def _default_stance() -> Iterator[None]:
    yield
    kintsugi.set_stance("default")
    torch.compiler.set_stance("default")


class Counter:
    """A backend that counts the graphs that it gets."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm, example_inputs):
        self.graphs += 1
        return gm.forward


def both(body):
    """`body(compile, set_stance)` with ours and with torch's; returns what each comes to."""
    results = []
    for compile, set_stance in (
        (kintsugi.compile, kintsugi.set_stance),
        (torch.compile, torch.compiler.set_stance),
    ):
        torch._dynamo.reset()
        try:
            results.append(body(compile, set_stance))
        finally:
            set_stance("default")
    return results


def agree(body):
    ours, torchs = both(body)
    assert ours == torchs
    return ours


# --- force_eager ---


def test_force_eager_as_block_call_and_decorator() -> None:
    def body(compile, set_stance):
        counter = Counter()
        compiled = compile(lambda x: x * 2 + 1, backend=counter)
        seen = []
        with set_stance("force_eager"):
            assert torch.equal(compiled(X), X * 2 + 1)
        seen.append(counter.graphs)

        @set_stance("force_eager")
        def eagerly():
            return compiled(X)

        eagerly()
        seen.append(counter.graphs)
        set_stance("force_eager")
        compiled(X)
        seen.append(counter.graphs)
        set_stance("default")
        compiled(X)
        seen.append(counter.graphs)
        eagerly()
        compiled(X.double())
        return [*seen, counter.graphs]

    assert agree(body) == [0, 0, 0, 1, 2]


def test_force_eager_ignores_fullgraph_as_torch_does() -> None:
    def breaking(x):
        print("", end="")
        return x.tolist()

    compiled = kintsugi.compile(lambda: (yield 1), fullgraph=True)
    with kintsugi.set_stance("force_eager"):
        assert list(compiled()) == [1]
        assert kintsugi.compile(breaking, fullgraph=True)(X) == X.tolist()


def test_blocks_nest_and_come_back_after_exceptions() -> None:
    compiled = kintsugi.compile(lambda x: x + 1, backend="eager")
    with kintsugi.set_stance("force_eager"):
        with pytest.raises(KeyError), kintsugi.set_stance("fail_on_recompile"):
            raise KeyError
        compiled(X)
        assert compiled.stats().trace_count == 0
    compiled(X)
    assert compiled.stats().trace_count == 1


# --- eager_on_recompile ---


def test_eager_on_recompile_uses_what_is_there() -> None:
    def body(compile, set_stance):
        counter = Counter()
        compiled = compile(lambda x: x * 3, backend=counter)
        with set_stance("eager_on_recompile"):
            compiled(X)
        seen = [counter.graphs]
        compiled(X)
        with set_stance("eager_on_recompile"):
            compiled(X)
            assert torch.equal(compiled(X.double()), X.double() * 3)
        seen.append(counter.graphs)
        compiled(X.double())
        return [*seen, counter.graphs]

    assert agree(body) == [0, 1, 2]


def test_eager_on_recompile_records_no_side_trace() -> None:
    def f(x):
        return x + 1 if x.sum() > 0 else x - 1

    compiled = kintsugi.compile(f, backend="eager")
    compiled(torch.ones(3))
    with kintsugi.set_stance("eager_on_recompile"):
        for _ in range(3):
            assert torch.equal(compiled(-torch.ones(3)), -torch.ones(3) - 1)
    assert compiled.stats().side_traces == 0 and compiled.stats().side_exits == 3
    compiled(-torch.ones(3))
    assert compiled.stats().side_traces == 1


# --- fail_on_recompile ---


def test_fail_on_recompile() -> None:
    def body(compile, set_stance):
        compiled = compile(lambda x: x * 5, backend="eager")
        seen = []
        with set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="fail_on_recompile"):
            compiled(X)
        compiled(X)
        with set_stance("fail_on_recompile"):
            seen.append(torch.equal(compiled(X), X * 5))
            with pytest.raises(RuntimeError, match="fail_on_recompile") as caught:
                compiled(X.double())
        seen.append("filename" in str(caught.value) and "line number" in str(caught.value))
        seen.append(torch.equal(compiled(X.double()), X.double() * 5))
        return seen

    assert agree(body) == [True, True, True]


def test_fail_on_recompile_names_the_guard() -> None:
    compiled = kintsugi.compile(lambda x, n: x * n, backend="eager")
    compiled(X, "a") if False else compiled(X, 2)
    with (
        kintsugi.set_stance("fail_on_recompile"),
        pytest.raises(RuntimeError, match=r"expected n == 2, saw '?ab"),
    ):
        compiled(X, "ab")


def test_fail_on_recompile_at_an_exit_raises_where_it_is() -> None:
    done = []

    def f(x):
        done.append("before")
        if x.sum() > 0:
            return x + 1
        done.append("after")
        return x - 1

    compiled = kintsugi.compile(f, backend="eager")
    compiled(torch.ones(3))
    with kintsugi.set_stance("fail_on_recompile"):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
        done.clear()
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            compiled(-torch.ones(3))
    assert done == ["before"]
    assert torch.equal(compiled(-torch.ones(3)), torch.full((3,), -2.0))
    with kintsugi.set_stance("fail_on_recompile"):  # a side trace goes on there now
        assert torch.equal(compiled(-torch.ones(3)), torch.full((3,), -2.0))


# --- eager_then_compile ---


@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_the_first_call_tells_what_varies(stance) -> None:
    def body(compile, set_stance):
        counter = Counter()
        compiled = compile(lambda x, more: x.sin() + more["bias"][0], backend=counter)
        with set_stance(stance):
            for size in (3, 5, 7, 9):
                x, bias = torch.ones(size), torch.ones(size)
                assert torch.equal(compiled(x, {"bias": [bias]}), x.sin() + bias)
        return counter.graphs

    assert agree(body) == 1


def test_eager_then_compile_of_numbers_and_keywords() -> None:
    compiled = kintsugi.compile(lambda x, *, n: x * n, backend="eager")
    with kintsugi.set_stance("eager_then_compile"):
        for n in (2, 3, 4, 5):
            assert torch.equal(compiled(X, n=n), X * n)
    stats = compiled.stats()
    assert stats.trace_count == 1 and stats.hits == 2


def test_eager_then_compile_begins_anew_after_reset() -> None:
    compiled = kintsugi.compile(lambda x: x + 1, backend="eager")
    with kintsugi.set_stance("eager_then_compile"):
        compiled(X)
        assert compiled.stats().trace_count == 0
        compiled(X)
        assert compiled.stats().trace_count == 1
        compiled.reset()
        compiled(X)
        assert compiled.stats().trace_count == 0


# --- skip_guard_eval_unsafe ---

SCALE = 2


def scaled(x):
    return x * SCALE


def test_skipped_guards_are_not_checked() -> None:
    def body(compile, set_stance):
        global SCALE
        SCALE = 2
        compiled = compile(scaled, backend="eager")
        compiled(X)
        SCALE = 3
        with set_stance(skip_guard_eval_unsafe=True):
            stale = torch.equal(compiled(X), X * 2)
        fresh = torch.equal(compiled(X), X * 3)
        SCALE = 2
        return stale, fresh

    assert agree(body) == (True, True)


def test_guards_that_tell_calls_apart_go_on_being_checked() -> None:
    def body(compile, set_stance):
        compiled = compile(lambda x, how: x + 1 if how == "a" else x - 1, backend="eager")
        compiled(X, "a")
        compiled(X, "b")
        with set_stance(skip_guard_eval_unsafe=True):
            return torch.equal(compiled(X, "a"), X + 1), torch.equal(compiled(X, "b"), X - 1)

    assert agree(body) == (True, True)


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_machine_code_is_not_run_for_tensors_that_it_was_not_made_for(backend) -> None:
    options = {"sync": True} if backend == "native" else None
    compiled = kintsugi.compile(lambda x: (x * 2 + 1).relu(), backend=backend, options=options)
    for _ in range(3):
        compiled(torch.ones(64, 64))
    with kintsugi.set_stance(skip_guard_eval_unsafe=True):
        for shape in ((3,), (64, 64), (2, 128), (1, 1)):
            x = torch.randn(shape)
            assert torch.equal(compiled(x), (x * 2 + 1).relu())
        assert compiled.stats().trace_count == 1


def test_what_is_no_input_of_the_kind_is_recorded() -> None:
    compiled = kintsugi.compile(lambda x: x * 2, backend="eager")
    compiled(X)
    with kintsugi.set_stance(skip_guard_eval_unsafe=True):
        assert compiled(3) == 6 and compiled("ab") == "abab"
        assert torch.equal(compiled(X), X * 2)


# --- force_backend ---


def test_force_backend_stands_in_for_each_callables_own() -> None:
    def body(compile, set_stance):
        own, other = Counter(), Counter()
        compiled = compile(lambda x: x * 7, backend=own)
        with set_stance("default", force_backend=other):
            compiled(X)
            assert torch.equal(compiled(X), X * 7)
        seen = [own.graphs, other.graphs]
        compiled(X)
        return [*seen, own.graphs, other.graphs]

    assert agree(body) == [0, 1, 1, 1]


def test_force_backend_by_name_keeps_its_traces() -> None:
    counter = Counter()
    compiled = kintsugi.compile(lambda x: x + 2, backend=counter)
    for _ in range(3):
        with kintsugi.set_stance(force_backend="eager"):
            assert torch.equal(compiled(X), X + 2)
    assert counter.graphs == 0 and compiled.stats().trace_count == 0


# --- wrong use ---


def test_wrong_use() -> None:
    for set_stance in (kintsugi.set_stance, torch.compiler.set_stance):
        with pytest.raises(RuntimeError, match="force_backend"):
            set_stance("force_eager", force_backend="eager")
    with pytest.raises(ValueError, match="unknown stance 'eager'. Known: default, force_eager"):
        kintsugi.set_stance("eager")
    with pytest.raises(ValueError, match="unknown backend"):
        kintsugi.set_stance(force_backend="inductr")
    with pytest.raises(TypeError, match="skip_guard_eval_unsafe"):
        kintsugi.set_stance(skip_guard_eval_unsafe=1)


def test_not_in_compiled_code() -> None:
    def f(x):
        kintsugi.set_stance("force_eager")
        return x + 1

    compiled = kintsugi.compile(f)
    with pytest.raises(RuntimeError, match="in compiled code"):
        compiled(X)
    other = kintsugi.compile(lambda x: x + 1, backend="eager")
    other(X)
    assert other.stats().trace_count == 1


def test_a_disabled_function_may_set_one() -> None:
    inner = kintsugi.compile(lambda x: x + 1, backend="eager")

    @kintsugi.disable
    def step(x):
        with kintsugi.set_stance("force_eager"):
            return inner(x)

    compiled = kintsugi.compile(lambda x: step(x) * 2, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(X), (X + 1) * 2)
    assert inner.stats().trace_count == 0


def test_decorated_generators_have_the_stance_while_they_run() -> None:
    compiled = kintsugi.compile(lambda x: x + 1, backend="eager")

    @kintsugi.set_stance("force_eager")
    def steps():
        yield compiled(X)
        yield compiled(X)

    for _ in steps():
        pass
    assert compiled.stats().trace_count == 0
    compiled(X)
    assert compiled.stats().trace_count == 1
