"""Each way in which Python itself uses tensors asks what eager mode asks: seen by function modes, dispatch modes and
by classes of tensors, which note every question."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable
from typing import Any

import harness
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import kintsugi

LOG: list[str] = []


class AskedFunctions(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(getattr(function, "__name__", "?"))
        return function(*args, **(kwargs or {}))


class AskedOperators(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(str(function))
        return function(*args, **(kwargs or {}))


class Asked(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(getattr(function, "__name__", "?"))
        return super().__torch_function__(function, types, args, kwargs or {})


# `x` is a tensor of two numbers, `m` the greater one.
PROGRAMS = """
sorted([m, 4, 1], key=lambda j: -j)
sorted([m, 4, 1])
sorted([m, x.min(), x.sum()], key=lambda t: t.abs(), reverse=True)
sorted(x), sorted(x, reverse=True)
l = [m, x.min()]; l.sort(); l, l.count(x.min())
max([m, 4, 1]), max(x), min(x)
min(m, 4, 1, key=lambda j: -j)
sum([m, 4, 1]), sum(x)
any([m, 4, 1]), all([m, 1])
[m, x.min()].index(x.min())
3 in [m, 3], 2.0 in x
[*x], (*x,), {*x}.__len__()
[r for r in x]
a, b = x; a, b
a, *b = x; a, b
reversed(x), list(zip(x, x)), list(enumerate(x))
list(x), tuple(x)
l = []; l.extend(x); l
l = [1]; l += x; l
l = [1, 2]; l[0:1] = x; l
deque(x), deque(x, maxlen=1)
next(iter(x)), len(list(iter(x)))
list(map(float, x)), list(filter(None, x))
list(itertools.chain(x, x)), list(itertools.accumulate(x))
print(*x)
print(m), "%s" % m, "{:.2f}".format(m), f"{m:.3f} {m}"
divmod(m, 2), pow(m, 2), abs(x)
int(m), float(m), bool(m), complex(m)
m.item(), x.tolist(), len(x), str(x), repr(x)
{x: 1}[x], x in {x}, x is x, hash(x) == hash(x)
m < 3 < x.min(), not m, m and 3, m or 2
3 if m else 4
[m] == [m], (m,) < (m,), [m] == [x.min()]
torch.tensor([m, 2]), torch.stack([x, x]), torch.as_tensor([1]), torch.tensor(3)
x[0], x[x > 0], x[..., None], x[:1], x[-1]
x[0] = 5; x
x += 1; x[0] *= 2; x
1 - x, 2 / (x + 3), 2 ** x, x @ x, x // 2, x % 2, -x, +x, ~(x > 0), x > 1
[3, 4, 5, 6, 7][m.int()], "abcdefg"[m.int()]
[3, 4, 5][:m.int()], "abc"[m.int():], (1, 2, 3)[::m.int()]
l = [1, 2, 3, 4, 5]; l[m.int()] = 0; del l[:m.int()]; l
"ab" * m.int(), [0] * m.int()
range(m.int()), slice(m.int()), bytes([int(v) for v in x])
heapq.heapify([m, x.min(), x.sum()]), bisect.bisect([1.0, 2.0], m)
functools.reduce(operator.add, [x, x, 1]), operator.lt(m, 2), operator.truth(m), operator.index(m.int())
math.sqrt(m.abs()), math.floor(m), math.isclose(m, 2.0), math.hypot(m, 1.0)
x.T if x.dim() > 1 else x, x.shape, x.grad, x.is_leaf, x.requires_grad, x.dtype, x.device, x.ndim, x.data
isinstance(x, torch.Tensor), callable(x), x.__class__.__name__
{"a": x} | {"b": x}, [x] + [x], (x,) * 2, {**{"a": x}}
x.size(), x.shape[0], x.numel(), x.stride(), x.element_size(), x.is_contiguous()
x.foo = 3; x.foo, hasattr(x, "bar"), getattr(x, "baz", 2)
x.requires_grad = True; x.requires_grad
torch.is_tensor(x), torch.numel(x), torch.is_floating_point(x)
x.to(torch.float64), x.float(), x.cpu(), x.type(), x.type_as(x), x.new_zeros(2), x.clone().detach()
torch.zeros(2), torch.arange(3), torch.full((2,), 3.0), torch.eye(2)
copy.copy(x), copy.deepcopy(x)
torch.nn.functional.relu(x), torch.nn.functional.softmax(x, 0), torch.nn.functional.dropout(x, 0.0)
x.__lt__(3), x.__add__(x), getattr(x, "max")(), m.__bool__(), x.__len__(), x.__contains__(2.0)
x.numpy().tolist()
assert m; 0
with torch.no_grad(): y = x * 2
x.view(2, 1).expand(2, 3), x.unsqueeze(0).squeeze(), torch.cat([x, x]), torch.where(x > 1, x, 0)
dict(zip("ab", x)), {k: v for k, v in zip("ab", x)}, {float(v) for v in x}
[v for i, v in enumerate(x) if v > 0], [v for v in x for w in x if w > v]
while m > 0: m = m - 1
for v in x: m = m + v
Fraction(1, 2) + int(m)
isinstance(m, (int, torch.Tensor)), type(m) is torch.Tensor, issubclass(type(m), torch.Tensor)
torch.nn.Linear(2, 2)(x).shape, torch.nn.Sequential(torch.nn.ReLU())(x)
x.apply_(lambda v: v + 1)
x[0] = int(m); x
x[:1] = m.item(); x[..., 1] = m.item() * 2; x
x * int(m), x + m.item(), torch.full((2,), int(m)), torch.clamp(x, m.item())
x.fill_(int(m)), x.mul_(m.item()), torch.where(x > 1, m.item(), 0.0), x.masked_fill(x > 1, int(m))
torch.arange(int(m)), x.new_full((2,), m.item()), torch.pow(int(m), x), torch.lerp(x, x, m.item())
x.expand(int(m), 2), x[:int(m)], x.repeat(int(m)), torch.zeros(int(m)), x.view(1, -1)[0, int(m) - int(m)]
torch.tensor(m.item()), torch.tensor([int(m), 2]), torch.nn.functional.pad(x, (int(m), 0))
torch.stack([row * 2 for row in x]), [part + 1 for part in x.split(2)], [float(v) for v in x.unbind()]
torch.equal(x, x), torch.allclose(x, x), torch.isnan(x).any(), bool((x == x).all())
""".strip().splitlines()

NAMES = """
import bisect, copy, functools, heapq, itertools, math, operator
from collections import deque
from fractions import Fraction
import torch
"""


def made(line: str, number: int) -> Callable[[torch.Tensor], Any]:
    """A function of `x` that runs the line and returns its last expression."""
    body = ast.parse(line).body
    if isinstance(body[-1], ast.Expr):
        body[-1] = ast.Return(body[-1].value)
    else:
        body.append(ast.Return(ast.Name("m", ast.Load())))
    text = "\n".join(ast.unparse(ast.fix_missing_locations(part)) for part in body)
    source = "def program(x):\n    m = x.max()\n" + textwrap.indent(text, "    ")
    space: dict[str, Any] = {}
    exec(compile(NAMES + source, f"<line {number}>", "exec"), space)
    program: Callable[[torch.Tensor], Any] = space["program"]
    return program


def plain(program: Callable[..., Any]) -> Callable[..., Any]:
    return program


def under(mode: Any) -> Callable[..., Any]:
    def wrap(program: Callable[..., Any]) -> Callable[..., Any]:
        def run(x: torch.Tensor) -> Any:
            with mode():
                return program(x)

        return run

    return wrap


WAYS: dict[str, tuple[Callable[..., Any], Callable[[torch.Tensor], Any]]] = {
    "function mode": (under(AskedFunctions), lambda x: x),
    "dispatch mode": (under(AskedOperators), lambda x: x),
    "class": (plain, lambda x: x.as_subclass(Asked)),
    "both": (under(AskedFunctions), lambda x: x.as_subclass(Asked)),
}


SAME = [torch.tensor([1.5, 2.0]) + k for k in range(3)]
# Other numbers of elements, as soon as sizes may vary: no operator is seen twice because its results are others.
VARYING = [torch.linspace(1, 2, n) for n in (2, 4, 1, 3)]


@pytest.mark.parametrize("inputs", [SAME, VARYING], ids=["same sizes", "sizes that vary"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=lambda n: PROGRAMS[n].replace(" ", "")[:40])
def test_as_in_eager_mode(
    number: int, way: str, inputs: list[torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    wrap, make = WAYS[way]
    program = wrap(made(PROGRAMS[number], number))

    def seen(function: Callable[[torch.Tensor], Any]) -> list[Any]:
        found = []
        for x in inputs:
            LOG.clear()
            torch.manual_seed(0)
            try:
                result: Any = harness.describe(function(make(x.clone())))
            except Exception as error:
                result = type(error), str(error)
            found.append((result, [name for name in LOG], capsys.readouterr().out))
        return found

    expected = seen(program)
    assert seen(kintsugi.compile(program, backend="eager")) == expected
