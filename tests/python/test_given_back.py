"""Operators that give their argument back as it is in one call and make another tensor in the next, by ranks, sizes and
strides that are known only in the run; subscripts, whose bindings decide by the rank; and errors of bindings, which
check arguments before operators do."""

from __future__ import annotations

import itertools
from typing import Any, Callable

import pytest
import torch

import kintsugi

# Each gives a tensor whose rank or sizes follow from the data.
SOURCES = {
    "squeezed": "y = torch.nonzero(x > 0).squeeze()",
    "masked": "y = x[x > 0].squeeze()",
    "sliced": "y = (x * 1)[: int((x > 0).sum())].squeeze()",
    "in_place": "y = x[x > 0]; y.squeeze_()",
    "rows": "y = x[x > 0][:, None].repeat(1, 2).t()",
    "column": "y = x[x > 0][:, None].repeat(1, 2)[:, 0]",
}
READINGS = [
    "y.flatten()",
    "torch.flatten(y, 0, -1)",
    "torch.atleast_1d(y)",
    "torch.atleast_2d(y)",
    "torch.atleast_3d(y)",
    "y.to(torch.float32)",
    "y.float()",
    "y.type_as(x)",
    "y.contiguous()",
    "y.reshape(-1)",
    "y.ravel()",
    "y.expand_as(y)",
    "y.to(memory_format=torch.contiguous_format)",
    "torch.positive(y)",
    "torch.nn.functional.dropout(y.float(), 0.5, False)",
    "y.sum_to_size(y.shape)",
    "y.sum_to_size(1) if y.dim() == 1 else y",
    "torch.cartesian_prod(y.flatten())",
    "y[y > 0]",
    "y[..., None]",
    "y[None]",
    "y[y.long() * 0]",
    "y[0]",
    "y[..., -1]",
    "y[:1]",
    "y[()]",
    "y.unsqueeze(-1)",
    "y.tolist()",
    "[int(v) for v in y.flatten()]",
]
INPUTS = [[1.0, 2, -1], [-1.0, -2, 3], [1.0, 2, 3], [-1.0, -1, -1], [2.0, -1, -1], [1.0, -1, 2]]
ORDERS = [(0, 1, 2, 3, 4, 5, 1, 0), (1, 0, 4, 2, 3, 5, 1, 2), (3, 1, 0, 2, 1, 5)]


def program(source: str, reading: str, tail: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {"torch": torch}
    exec(f"def f(x):\n    {source}\n    z = {reading}\n    {tail}\n", scope)
    f: Callable[..., Any] = scope["f"]
    return f


TAILS = {
    "read": "return z",
    "same": "return z is y, z",
    # What is written to the result is written to the argument, where they share memory.
    "written": "z.add_(1) if isinstance(z, torch.Tensor) else 0; return y, z",
}


def seen(f: Callable[..., Any], x: torch.Tensor) -> tuple[Any, ...]:
    """What a call gives, as far as it can be compared: values, types, sizes, strides and who is whom; or the error."""
    try:
        result = f(x)
    except Exception as error:
        return type(error).__name__, str(error)
    parts = result if isinstance(result, tuple) else (result,)
    return tuple(
        (str(part), part.dtype, part.stride(), part.shape) if isinstance(part, torch.Tensor) else part
        for part in parts
    )


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_ranks_that_follow_from_data(source: str, backend: str) -> None:
    wrong = []
    for reading, tail, order in itertools.product(READINGS, TAILS, ORDERS):
        f = program(SOURCES[source], reading, TAILS[tail])
        options: dict[str, Any] = {"options": {"sync": True}} if backend == "native" else {}
        compiled = kintsugi.compile(f, backend=backend, **options)
        for k in order:
            wanted, got = seen(f, torch.tensor(INPUTS[k])), seen(compiled, torch.tensor(INPUTS[k]))
            if wanted != got:
                wrong.append(f"{reading} {tail} {order} {INPUTS[k]}: {wanted} and not {got}")
                break
    assert not wrong, "\n".join(wrong)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x.contiguous(),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x,
    "to channels last": lambda x: x.to(memory_format=torch.channels_last) if x.dim() == 4 else x,
    "to": lambda x: x.to("cpu", torch.float32),
    "to copy": lambda x: x.to(torch.float32, copy=True),
    "type": lambda x: x.type(torch.float32),
    "flatten": lambda x: x.flatten(),
    "flatten some": lambda x: x.flatten(0, 1) if x.dim() > 1 else x,
    "atleast_2d": torch.atleast_2d,
    "sum_to_size": lambda x: x.sum_to_size(3, 4),
    "sum_to_first": lambda x: x.sum_to_size(x.shape[0], 4),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, training=False),
    "dropout of nothing": lambda x: torch.nn.functional.dropout(x, 0.5, training=True)[:0],
    "matrix_power": lambda x: torch.linalg.matrix_power(x.t() @ x, 1),
    "chain": lambda x: torch.linalg.multi_dot([x, x.t()]),
    "broadcast": lambda x: torch.broadcast_tensors(x, x)[0],
    "conj": lambda x: x.conj().resolve_conj(),
    "expand": lambda x: x.expand(x.shape),
    "view": lambda x: x.view(x.shape),
    "requires_grad_": lambda x: x.requires_grad_(False),
}

SHAPES: list[Callable[[], torch.Tensor]] = [
    lambda: torch.arange(12.0).reshape(3, 4),
    lambda: torch.arange(20.0).reshape(5, 4),
    lambda: torch.arange(12.0).reshape(4, 3).t(),
    lambda: torch.arange(24.0).reshape(6, 4)[::2],
    lambda: torch.arange(4.0).reshape(1, 4),
    lambda: torch.arange(5.0).reshape(5, 1).expand(5, 4),
    lambda: torch.zeros(0, 4),
    lambda: torch.arange(12.0).reshape(3, 4),
]
IMAGES: list[Callable[[], torch.Tensor]] = [
    lambda: torch.arange(48.0).reshape(2, 2, 3, 4),
    lambda: torch.arange(48.0).reshape(2, 3, 4, 2).permute(0, 3, 1, 2),
    lambda: torch.arange(72.0).reshape(3, 2, 3, 4),
    lambda: torch.arange(72.0).reshape(3, 1, 6, 4),
    lambda: torch.arange(72.0).reshape(3, 1, 6, 4).contiguous(memory_format=torch.channels_last),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_layouts_that_vary(layout: str, backend: str) -> None:
    change = LAYOUTS[layout]

    def same(x: torch.Tensor) -> Any:
        y = change(x)
        return y is x, y

    def written(x: torch.Tensor) -> Any:
        y = change(x)
        y.mul_(2.0)
        return x + 1.0, y

    options: dict[str, Any] = {"options": {"sync": True}} if backend == "native" else {}
    wrong = []
    for f, dynamic, made in itertools.product([same, written], [None, True], [SHAPES, IMAGES]):
        for first in range(len(made)):
            compiled = kintsugi.compile(f, backend=backend, dynamic=dynamic, **options)
            for k in [first, *range(len(made)), first]:
                wanted, got = seen(f, made[k]()), seen(compiled, made[k]())
                if wanted != got:
                    wrong.append(f"{f.__name__} {dynamic} {first} {k}: {wanted} and not {got}")
                    break
    assert not wrong, "\n".join(wrong)


def test_sizes_stay_open_behind_a_conversion() -> None:
    """What is given back by its type does not tie a trace to the sizes."""
    compiled = kintsugi.compile(
        lambda x: torch.atleast_2d(torch.nn.functional.dropout(x.float(), 0.5, False).to("cpu")) + 1,
        backend="eager",
        dynamic=True,
    )
    for n in range(2, 9):
        assert compiled(torch.ones(n, 3)).shape == (n, 3)
    assert len(compiled.traces()) == 1 and compiled.stats().recompiles == 0


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_numbers_that_decide(dynamic: bool | None, backend: str) -> None:
    def summed(x: torch.Tensor, m: int) -> torch.Tensor:
        return (x * 1).sum_to_size(x.shape[0], m) * 2

    def itself(x: torch.Tensor, m: int) -> Any:
        y = x.sum_to_size(x.shape[0], m)
        return y is x, y

    def power(x: torch.Tensor, m: int) -> torch.Tensor:
        return torch.linalg.matrix_power(x.t() @ x, m) + 1

    options: dict[str, Any] = {"options": {"sync": True}} if backend == "native" else {}
    calls = [
        (2, 3, 3),
        (2, 3, 3),
        (4, 3, 3),
        (2, 3, 1),
        (2, 1, 1),
        (2, 1, 1),
        (2, 1, 0),
        (5, 4, 4),
        (5, 4, 1),
        (5, 4, 2),
    ]
    for f in (summed, itself, power):
        compiled = kintsugi.compile(f, backend=backend, dynamic=dynamic, **options)
        for rows, columns, m in calls:
            x = torch.arange(float(rows * columns)).reshape(rows, columns)
            assert seen(lambda x: compiled(x, m), x) == seen(lambda x: f(x, m), x), (
                f.__name__,
                rows,
                columns,
                m,
            )


LISTS = {
    "broadcast_tensors": "a, b = torch.broadcast_tensors(p, q)",
    "broadcast_tensors of three": "a, b, _ = torch.broadcast_tensors(p, q, p + q)",
    "meshgrid": "a, b = torch.meshgrid(p.flatten(), q.flatten(), indexing='ij')",
    "atleast_2d": "a, b = torch.atleast_2d(p, q)",
    "foreach in place": "a, b = p, q; torch._foreach_add_([a, b], 1.0)",
    "align": "a, b = torch.functional.broadcast_tensors(q, p)",
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("made", ["p * 2", "p.clone().requires_grad_()", "p.detach().requires_grad_()", "p"])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_operators_that_take_lists(name: str, made: str, backend: str) -> None:
    """Each of several tensors is given back where its sizes are those of the result."""
    scope: dict[str, Any] = {"torch": torch}
    body = f"def f(p, q):\n    p = {made}\n    with torch.no_grad():\n        {LISTS[name]}\n"
    exec(body + "    return a is p, b is q, a is b, a + b, p.sum()\n", scope)
    compiled = kintsugi.compile(scope["f"], backend=backend)
    sizes = [((2, 3), (2, 3)), ((2, 3), (2, 3)), ((3,), (2, 3)), ((2, 3), (1, 3)), ((2, 3), (2, 3))]
    for first, second in sizes:
        inputs = torch.rand(first), torch.rand(second)
        expected = scope["f"](*(x.clone() for x in inputs))
        actual = compiled(*(x.clone() for x in inputs))
        assert actual[:3] == expected[:3]
        torch.testing.assert_close(actual[3:], expected[3:])
