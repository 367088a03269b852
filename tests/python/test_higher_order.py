"""Torch's higher-order operators: what they call is recorded like the program's own code, and equals eager."""

from __future__ import annotations

import dataclasses
import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from harness import Case, Suite, check, check_captured, signs
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as map_over
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import kintsugi

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    # What the operators import when they are first called: once, and not again in the child that each test may be.
    import torch._dynamo
    import torch._functorch.aot_autograd
    import torch._inductor.ir
    import torch.nn.attention.flex_attention

    torch.cond(torch.ones(1) > 0, torch.sin, torch.cos, (torch.ones(1),))

pytestmark = pytest.mark.filterwarnings("ignore")

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


# --- what eager mode does ---


@case(inputs=signs, traces=2)
def cond(x):
    return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))


@case(inputs=signs, traces=2)
def cond_of_structures(x):
    def some(a, more):
        return {"a": a + more[0], "b": [a.t() * 2, 3]}

    def others(a, more):
        return {"a": a * more[0], "b": [a.t() - 1, 4]}

    return torch.cond(x.sum() > 0, some, others, (x, [x * 2]))


@case()
def cond_of_a_known_predicate(x):
    return torch.cond(x.dim() == 2, lambda a: a.sin(), lambda a: a.cos(), (x,))


@case(inputs=signs, traces=2)
def cond_without_operands(x):
    return torch.cond((x.sum() > 0).reshape(1), lambda: x.sin(), lambda: x.cos())


@case(inputs=signs, traces=None)
def cond_in_cond(x):
    def inner(a):
        return torch.cond(a.max() > 1, lambda b: b * 2, lambda b: b * 3, (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: a - 1, (x,))


@case(inputs=signs, traces=2)
def cond_that_draws(x):
    dropout = torch.nn.functional.dropout
    return torch.cond(x.sum() > 0, lambda a: dropout(a), lambda a: dropout(a, 0.1), (x,))


@case(inputs=signs, traces=2)
def cond_under_autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return torch.cond(x.sum() > 0, lambda a: a @ a.t(), lambda a: (a @ a.t()) * 2, (x,))


@factory(inputs=signs, traces=None)
def make_cond_with_changing_closures():
    scale = [1.0]
    calls = [0]

    def program(x):
        calls[0] += 1
        if calls[0] == 3:
            scale[0] = 2.0
        return torch.cond(x.sum() > 0, lambda a: a * scale[0], lambda a: a - scale[0], (x,))

    return program, scale


OFFSET = 1


@factory(inputs=signs, traces=None)
def make_cond_with_a_changing_global():
    calls = [0]

    def program(x):
        global OFFSET
        calls[0] += 1
        OFFSET = 1 if calls[0] < 3 else 2
        return torch.cond(x.sum() > 0, lambda a: a * OFFSET, lambda a: a - OFFSET, (x,))

    return program


@factory(inputs=signs, traces=2)
def make_cond_of_modules():
    some, others = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    for number, parameter in enumerate([*some.parameters(), *others.parameters()]):
        torch.nn.init.constant_(parameter, 0.1 + number)

    @torch.no_grad()
    def program(x):
        return torch.cond(x.sum() > 0, some, others, (x,))

    return program


@case((3,), (3,))
def while_of_tensors(x, y):
    def going(i, a):
        return i < 3

    return while_loop(going, lambda i, a: (i + 1, a * y), (torch.tensor(0), x))


@case()
def while_of_numbers(x):
    def body(i, a):
        return i + 1, {"a": a["a"] * 2}

    return while_loop(lambda i, a: i < 3, body, [0, {"a": x}])


@case(inputs=signs, traces=None)
def while_of_data(x):
    return while_loop(lambda a: a.sum() < 20, lambda a: (a * 0.5 + 4,), (x,))


@case(breaks=None, traces=None)
def while_that_does_not_run(x):
    return while_loop(lambda i, a: i > 0, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x))


@case()
def mapped(x):
    return map_over(lambda a: (a * 2, a.sum()), x)


@case((5, 3, 4), (4,))
def mapped_structures(x, y):
    def body(row, more, factor):
        return {"a": row["a"] + more["y"] * factor, "b": (row["b"][0].t() * 1, None)}

    return map_over(body, {"a": x, "b": [x + 1]}, {"y": y}, 3)


@case(inputs=signs, traces=None)
def map_of_cond(x):
    def row(a):
        return torch.cond(a.sum() > 0, lambda b: b + 1, lambda b: b - 1, (a,))

    return map_over(row, x)


@case((3, 4), (4,))
def scanned(x, c):
    return scan(lambda carry, a: (carry * 0.5 + a, carry + 1), c, x)


@case((2, 3, 4), (2, 4))
def scanned_structures(x, c):
    def step(carry, a):
        return [carry[0] + a["a"], carry[1] * 2], {"sum": carry[0] * 1, "last": (a["a"].t() * carry[1].t(),)}

    return scan(step, [c, c + 1], {"a": x}, dim=1, reverse=True)


@case((4, 3), breaks=None)
def scanned_associatively(x):
    return associative_scan(lambda a, b: a + b, x, dim=0, combine_mode="generic")


@case((2, 3, 4), traces=1)
def map_in_map(x):
    return map_over(lambda rows: map_over(lambda row: row.cumsum(0), rows), x)


@case((3, 4))
def checkpoint_without_gradients(x):
    with torch.no_grad():
        y = checkpoint(lambda a, scale: (a * scale).sin(), x, scale=2.0, use_reentrant=False)
        return checkpoint(torch.cos, y, use_reentrant=False, preserve_rng_state=False)


@factory((3, 4))
def make_sequence_without_gradients():
    layers = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh(), torch.nn.Sigmoid())

    @torch.no_grad()
    def program(x):
        return checkpoint_sequential(layers, 2, x, use_reentrant=False)

    return program


@case((3, 4), breaks=None)
def other_checkpoints(x):
    with torch.no_grad():
        y = checkpoint(torch.cos, x, use_reentrant=True)
        return y, checkpoint(torch.sin, y, use_reentrant=False, determinism_check="none")


@case((3, 4), grad=True, breaks=None, traces=None)
def checkpoint_in_training(x):
    def block(a):
        return torch.nn.functional.dropout(a.sin() * 2).exp()

    return checkpoint(block, x, use_reentrant=False)


# --- who else wants to see the operator ---


@case((3, 4), breaks=None, traces=None)
def cond_under_vmap(x):
    return torch.vmap(lambda a: torch.cond(a.sum() > 0, lambda b: b + 1, lambda b: b - 1, (a,)))(x)


@SUITE.parametrize()
def test_equals_eager(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)


# --- programs that torch refuses ---

SEEN: list[int] = []


def with_side_effects(a):
    SEEN.append(1)
    return a + 1


def branches_with_side_effects(x):
    return torch.cond(x.sum() > 0, with_side_effects, with_side_effects, (x,))


def branches_of_other_types(x):
    return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: (a + 1).double(), (x,))


def branches_of_other_structures(x):
    return torch.cond(x.sum() > 0, lambda a: (a + 1,), lambda a: [a + 1], (x,))


def branches_that_give_their_argument(x):
    return torch.cond(x.sum() > 0, lambda a: a, lambda a: a - 1, (x,))


def predicate_of_many_elements(x):
    return torch.cond(x > 0, lambda a: a + 1, lambda a: a - 1, (x,))


def operands_of_numbers(x):
    return torch.cond(x.sum() > 0, lambda a, b: a + b, lambda a, b: a - b, (x, 2))


def map_over_numbers(x):
    return map_over(lambda a: a, [x, 1])


def map_that_gives_its_slice(x):
    return map_over(lambda a: a, x)


def carry_of_another_size(x):
    return scan(lambda carry, a: (torch.cat([carry, a]), a * 1), x[0], x)


def loop_on_many_elements(x):
    return while_loop(lambda a: a < 3, lambda a: (a + 1,), (x,))


REFUSED = (
    branches_with_side_effects,
    branches_of_other_types,
    branches_of_other_structures,
    branches_that_give_their_argument,
    predicate_of_many_elements,
    operands_of_numbers,
    map_over_numbers,
    map_that_gives_its_slice,
    carry_of_another_size,
    loop_on_many_elements,
)


def said(function: Callable[..., Any], *args: Any) -> Any:
    """The exception's type and first line: torch's compiler says in the others where it stood."""
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error).splitlines()[:1]


@pytest.mark.parametrize("program", REFUSED, ids=lambda program: program.__name__)
def test_what_torch_refuses(program: Callable[..., Any]) -> None:
    """Raised in each call, after eager mode has raised it and before; and again in a handler of the program's."""
    x = torch.rand(3, 3)
    function = kintsugi.compile(program, backend="eager")
    handled = kintsugi.compile(lambda x: said(program, x), backend="eager")
    first = said(function, x)
    expected = said(program, x)
    assert isinstance(expected, tuple) and isinstance(expected[0], type), expected
    for _ in range(2):
        assert said(function, x) == first == expected
        assert handled(x) == expected
    assert not SEEN


# --- with gradients ---

BACKENDS = ("eager", "native")


def compiled(program: Callable[..., Any], backend: str, **more: Any) -> Any:
    return kintsugi.compile(
        program, backend=backend, options={"sync": True} if backend == "native" else None, **more
    )


def same(mine: Any, theirs: Any, exact: bool) -> bool:
    if theirs is None or mine is None:
        return mine is theirs
    near = torch.equal(mine, theirs) if exact else torch.allclose(mine, theirs, 1e-5, 1e-5)
    return near and (mine.dtype, mine.shape, mine.stride()) == (theirs.dtype, theirs.shape, theirs.stride())


@dataclasses.dataclass
class Training:
    """A program, and which of its results are differentiated (all, if none is named)."""

    program: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    breaks: int | None
    parameters: tuple[torch.Tensor, ...]


TRAININGS: list[Training] = []


def training(
    *shapes: tuple[int, ...], breaks: int | None = 0, parameters: tuple[torch.Tensor, ...] = ()
) -> Any:
    def add(program: Callable[..., Any]) -> Callable[..., Any]:
        TRAININGS.append(Training(program, shapes, breaks, parameters))
        return program

    return add


WEIGHT = torch.nn.Parameter(torch.tensor([0.5, 1.5, 2.5, -0.0]))
LAYER = torch.nn.Linear(4, 4)


@training((3, 4), (4,))
def cond_with_unused_arguments(x, y):
    return torch.cond(x.sum() > 0, lambda a, b: (a * 2, b.exp()), lambda a, b: (a.sin(), b * 3), (x, y))


@training((3, 4), parameters=(WEIGHT,))
def cond_that_reads_a_parameter(x):
    return torch.cond(x.sum() > 0, lambda a: a * WEIGHT, lambda a: a - WEIGHT, (x,)) + x


@training((3, 4), breaks=None, parameters=tuple(LAYER.parameters()))
def cond_with_parameters_of_one_branch(x):
    return torch.cond(x.sum() > 0, lambda a: LAYER(a), lambda a: a.sin(), (x,))


@training((3, 4))
def cond_with_a_constant_result(x):
    return torch.cond(
        x.sum() > 0, lambda a: (a * a, torch.ones(3)), lambda a: (a * a * a, torch.zeros(3)), (x,)
    )


@training((3, 4))
def cond_with_many_uses(x):
    def some(a):
        return a * a + a.sin() * a - a / 3

    y = x * 1.5
    return torch.cond(x.sum() > 0, some, lambda a: a.exp() * a, (y,)) + y * y


@training((3, 4), (4,))
def while_that_trains(x, y):
    return while_loop(
        lambda i, a, b: i < 3, lambda i, a, b: (i + 1, a * b, b.sin()), (torch.tensor(0), x, y)
    )[1:]


@training((3, 4), breaks=None)
def while_that_trains_nothing(x):
    return while_loop(lambda i, a: i > 0, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x))[1]


@training((5, 4), (4,))
def map_that_trains(x, y):
    return map_over(lambda a, b: (a * b + b, b.exp()), x, y)


@training((5, 4), breaks=None, parameters=(WEIGHT,))
def map_that_reads_a_parameter(x):
    return map_over(lambda a: a * WEIGHT + a, x)


@training((5, 4), (4,))
def scan_that_trains(x, c):
    return scan(lambda carry, a: (carry * a + carry, carry.sin()), c, x)


@training((5, 4), (4,))
def scan_with_unused_slices(x, c):
    return scan(lambda carry, a: (carry * 2, carry + a), c, x, reverse=True)


@training((3, 4), breaks=None)
def checkpoint_in_training_draws(x):
    return checkpoint(lambda a: torch.nn.functional.dropout(a.sin() * 2).exp(), x, use_reentrant=False)


@training((3, 4), breaks=None)
def reentrant_checkpoint_in_training(x):
    return checkpoint(lambda a: (a.sin() * 2).exp(), x, use_reentrant=True)


def trained(entry: Training, function: Callable[..., Any], call: int, only: int | None) -> list[Any]:
    """Results, and gradients of all of them or of one."""
    torch.manual_seed(call)
    made = [torch.randn(shape) for shape in entry.shapes]
    made[0] = made[0].abs() * (1 if call % 2 else -1)
    inputs = [tensor.requires_grad_() for tensor in made]
    for parameter in entry.parameters:
        parameter.grad = None
    results = function(*inputs)
    flat = [results] if isinstance(results, torch.Tensor) else list(results)
    wanted = [result for result in flat if result.is_floating_point()]
    flags = [(result.requires_grad, result.is_leaf) for result in flat]
    chosen = wanted if only is None else [wanted[only % len(wanted)]]
    torch.autograd.backward(
        [(result * torch.arange(1.0, result.numel() + 1).reshape(result.shape)).sum() for result in chosen]
    )
    return [
        flags,
        *[result.detach() for result in flat],
        *[tensor.grad for tensor in (*inputs, *entry.parameters)],
    ]


@pytest.mark.parametrize("only", (None, 0, 1), ids=("all", "first", "second"))
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("entry", TRAININGS, ids=lambda entry: entry.program.__name__)
def test_gradients(entry: Training, backend: str, only: int | None) -> None:
    function = compiled(entry.program, backend)
    for call in range(6):
        expected = trained(entry, entry.program, call, only)
        found = trained(entry, function, call, only)
        assert found[0] == expected[0], (call, found[0], expected[0])
        for number, (mine, theirs) in enumerate(zip(found[1:], expected[1:], strict=True)):
            assert same(mine, theirs, backend == "eager"), (call, number, mine, theirs)
    if entry.breaks is not None:
        assert function.stats().graph_break_count <= entry.breaks, function.breaks()


def test_checkpoint_keeps_its_memory() -> None:
    """In training nothing between the functions that are computed again is saved."""

    def block(a: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            a = a.sin().exp()
        return a

    def saved(function: Callable[..., Any]) -> int:
        kept: list[torch.Tensor] = []
        x = torch.rand(1000, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            function(x)
        return sum(tensor.numel() for tensor in kept)

    def program(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x, use_reentrant=False)

    function = kintsugi.compile(program)
    x = torch.rand(1000, requires_grad=True)
    for _ in range(4):
        function(x).sum().backward()
    kintsugi.wait()
    for _ in range(3):
        assert saved(function) <= saved(program)


# --- what is guarded ---


def test_an_argument_that_gets_a_gradient_later() -> None:
    """The branch that is taken does not read it, and the operator gives it a gradient of zeros."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a, b: a.cumsum(0), lambda a, b: a + b, (x, y))

    function = kintsugi.compile(program, backend="eager")
    x = torch.rand(3)
    for _ in range(3):
        assert not function(x, torch.rand(3)).requires_grad
    y = torch.rand(3, requires_grad=True)
    function(x, y).sum().backward()
    assert torch.equal(y.grad, torch.zeros(3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_that_vary(backend: str) -> None:
    def program(x: torch.Tensor) -> Any:
        total, rows = scan(lambda carry, a: (carry + a, carry * a), x[0], x)
        return map_over(lambda a: a.cumsum(0), rows), torch.cond(
            x.shape[0] > 3, torch.sin, torch.cos, (total,)
        )

    function = compiled(program, backend)
    for rows, columns in ((2, 3), (4, 3), (4, 5), (2, 3), (7, 2), (3, 3), (4, 6)):
        x = torch.rand(rows, columns)
        for mine, theirs in zip(function(x), program(x), strict=True):
            assert same(mine, theirs, backend == "eager")


def test_a_mode_sees_the_operator() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def program(x: torch.Tensor) -> torch.Tensor:
        return map_over(lambda a: a * 2, x)

    function = kintsugi.compile(program, backend="eager")
    x = torch.rand(3, 2)
    function(x), function(x)
    both: list[Any] = []
    for called in (program, function):
        seen: list[str] = []
        try:
            with Names():
                both.append((called(x).tolist(), seen))
        except Exception as error:
            both.append((type(error), seen))
    assert both[0] == both[1]


# --- backends that get graphs ---


def graphs_of(program: Callable[..., Any], *args: Any, calls: int = 3) -> tuple[int, Any]:
    seen: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _examples: Any) -> torch.fx.GraphModule:
        seen.append(graph)
        return graph

    function = kintsugi.compile(program, backend=backend, fullgraph=True)
    for _ in range(calls):
        result = function(*args)
    return len(seen), result


@pytest.mark.parametrize(
    "program",
    (
        lambda x: map_over(lambda a: a * 2, x.sin()) + 1,
        lambda x: scan(lambda c, a: (c + a, c * 1), torch.zeros(4), x.sin())[1] + 1,
        lambda x: torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a.sin(), (x,)) * 2,
        lambda x: torch.nn.attention.flex_attention.flex_attention(*[x.sin().reshape(1, 1, 3, 4)] * 3) + 1,
    ),
    ids=("map", "scan", "cond", "flex_attention"),
)
def test_one_graph(program: Callable[..., Any]) -> None:
    x = torch.rand(3, 4)
    expected = program(x)
    count, result = graphs_of(program, x)
    assert count == 1 and torch.equal(result, expected)


# --- flex_attention ---

BIAS = torch.rand(2, 6, 6)
DOCUMENT = torch.tensor([0, 0, 1, 1, 1, 2])


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def of_one_document(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (DOCUMENT[q] == DOCUMENT[k]) & (q >= k)


def biased(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.tanh(score + BIAS[h, q, k] - 0.1 * (q - k).abs() * (h + 1))


def nothing(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q < 0


def attentions() -> Iterator[Any]:
    from torch.nn.attention.flex_attention import create_block_mask

    def mask(function: Callable[..., Any], queries: int = 6, keys: int = 6) -> Any:
        return create_block_mask(function, None, None, queries, keys, device="cpu", BLOCK_SIZE=4)

    yield "plain", {}, {}
    yield "scaled", {"scale": 0.3}, {}
    yield "biased", {"score_mod": biased}, {}
    yield "causal", {"block_mask": mask(causal)}, {}
    yield "documents", {"block_mask": mask(of_one_document), "score_mod": biased}, {}
    yield "all masked", {"block_mask": mask(nothing)}, {}
    yield "grouped", {"enable_gqa": True}, {"heads": 4}
    yield "with sums", {"return_lse": True}, {}
    yield "other lengths", {"score_mod": lambda s, b, h, q, k: s * 2}, {"queries": 5}
    yield "double", {"score_mod": biased}, {"dtype": torch.float64}
    yield "bfloat16", {"block_mask": mask(causal)}, {"dtype": torch.bfloat16}
    yield "transposed", {"score_mod": biased}, {"transposed": True}


def attention_inputs(
    call: int,
    heads: int = 2,
    queries: int = 6,
    dtype: torch.dtype = torch.float32,
    transposed: bool = False,
) -> list[torch.Tensor]:
    torch.manual_seed(call)

    def make(heads: int, length: int) -> torch.Tensor:
        if transposed:
            return torch.randn(2, length, heads, 8, dtype=dtype).transpose(1, 2)
        return torch.randn(2, heads, length, 8, dtype=dtype)

    return [make(heads, queries), make(2, 6), make(2, 6)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [name for name, *_ in attentions()])
def test_flex_attention(name: str, backend: str) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    (options, shape), *_ = [rest for other, *rest in attentions() if other == name]

    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return flex_attention(q, k, v, **options)

    function = compiled(program, backend)
    program(*attention_inputs(0, **shape))  # warns once
    for call in range(4):
        inputs = attention_inputs(call, **shape)
        expected, found = program(*inputs), function(*inputs)
        assert type(found) is type(expected)
        pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
        for mine, theirs in pairs:
            exact = backend == "eager"
            near = same(mine, theirs, exact) or (
                not exact
                and torch.allclose(mine, theirs, 2e-2 if mine.dtype is torch.bfloat16 else 1e-5, 2e-2)
                and mine.stride() == theirs.stride()
            )
            assert near, (call, mine, theirs)
    assert function.stats().graph_break_count == 0, function.breaks()
    assert function.stats().misses == 1


def test_flex_attention_raises_as_torch_does() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    x = torch.rand(1, 2, 4, 8)
    wrong = (
        ((x, x[:, :1], x[:, :1]), {}),
        ((x[0], x, x), {}),
        ((x, x[..., :4], x), {}),
        ((x.clone().requires_grad_(), x, x), {}),
        ((x, x, x), {"kernel_options": {"BACKEND": "none"}}),
        ((x, x, x), {"score_mod": lambda s, b, h, q, k: s.item()}),
    )
    for args, options in wrong:
        function = kintsugi.compile(
            lambda *args, options=options: flex_attention(*args, **options), backend="eager"
        )
        expected = said(lambda *args, options=options: flex_attention(*args, **options), *args)
        assert isinstance(expected, tuple) and isinstance(expected[0], type), expected
        for _ in range(2):
            assert said(function, *args) == expected


# --- by identity ---


def test_names_fool_nobody() -> None:
    """Functions of the program's that are called as torch's are, and have inner functions of the same names."""

    def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> Any:
        def _cond_op_wrapper(*args: Any) -> Any:
            return operands[0] * 7

        return _cond_op_wrapper(pred, true_fn, false_fn, operands)

    def checkpoint(function: Any, *args: Any, use_reentrant: bool) -> Any:
        return function(*args) + 5

    cond.__module__ = "torch._higher_order_ops.cond"
    checkpoint.__module__ = "torch.utils.checkpoint"

    def program(x: torch.Tensor) -> Any:
        y = cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return checkpoint(torch.neg, y, use_reentrant=False)

    function = kintsugi.compile(program, backend="eager")
    x = torch.rand(3)
    for _ in range(3):
        assert torch.equal(function(x), -(x * 7) + 5)


def test_a_function_of_torchs_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    function = kintsugi.compile(program, backend="eager")
    x = torch.rand(3)
    for _ in range(3):
        assert torch.equal(function(x), x.sin())
    monkeypatch.setattr(torch, "cond", lambda pred, *rest: rest[2][0] * 3)
    for _ in range(3):
        assert torch.equal(function(x), x * 3)


def test_torch_has_what_is_looked_up() -> None:
    """On each version of torch that is supported."""
    utils = importlib.import_module("torch._higher_order_ops.utils")
    for name in ("_hop_compile_and_call", "setup_compilation_env", "_stack_pytree"):
        assert callable(getattr(utils, name))
    assert callable(importlib.import_module("torch._dynamo.eval_frame").set_fullgraph_compiled_frame_count)
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    for name in ("_create_empty_block_mask", "_vmap_for_bhqkv", "noop_mask", "_LARGE_SPARSE_BLOCK_SIZE"):
        assert hasattr(flex, name)
