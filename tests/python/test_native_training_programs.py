"""Random functions whose inputs and results are changed between forward and backward: as in eager mode."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_native_training_saved import CHANGES, WAYS, differs, is_known

import kintsugi

Function = Callable[..., Any]
ONE: dict[str, Function] = {
    "sin": torch.sin,
    "exp": torch.exp,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "sqrt": lambda a: (a.abs() + 0.1).sqrt(),
    "abs": torch.abs,
    "twice": lambda a: a * 2,
    "square": lambda a: a * a,
    "softmax": lambda a: a.softmax(-1),
    "log_softmax": lambda a: a.log_softmax(-1),
    "centred": lambda a: a - a.mean(-1, keepdim=True),
    "clamp": lambda a: a.clamp(-0.5, 0.7),
    "detached": lambda a: a.detach() * a,
    "cumsum": lambda a: a.cumsum(0),
    "t": torch.t,
    "view": lambda a: a.reshape(2, 8).view(4, 4),
    "slices": lambda a: torch.cat([a[:2], a[2:]]),
    "contiguous": lambda a: a.contiguous(),
    "clone": torch.clone,
    "copy": lambda a: a.to(torch.float32, copy=True),
    "same": lambda a: a.to(torch.float32),
    "double": lambda a: a.double().float(),
    "dropout": lambda a: F.dropout(a, 0.5, False),
    "conv": lambda a: F.conv2d(a[None, None], torch.full((1, 1, 3, 3), 0.3), padding=1)[0, 0],
    "pool": lambda a: F.max_pool2d(a[None, None], 3, 1, 1)[0, 0],
    "in place": lambda a: (a + 1).mul_(1.3).relu_(),
}
TWO: dict[str, Function] = {
    "mul": torch.mul,
    "add": torch.add,
    "div": lambda a, b: a / (b.abs() + 1),
    "mm": torch.mm,
    "linear": F.linear,
    "linear with bias": lambda a, b: F.linear(a, b, b[0]),
    "maximum": torch.maximum,
    "where": lambda a, b: torch.where(a > b, a, b),
    "layer norm": lambda a, b: F.layer_norm(a, (4,), b[0], b[1]),
    "rms norm": lambda a, b: F.rms_norm(a, (4,), b[0]),
    "batches": lambda a, b: (torch.stack([a, b]).transpose(0, 1) @ b)[:, 0],
    "addcmul": lambda a, b: torch.addcmul(a, a, b),
}
WEIGHTS = torch.linspace(0.5, 2, 16).reshape(4, 4)


def program(rng: random.Random) -> tuple[Function, list[Any]]:
    """Of three matrices; gives the last value and up to two others. With its text."""
    steps: list[tuple[str, Function, list[int]]] = []
    for count in range(3, 3 + rng.randint(2, 7)):
        name, function = rng.choice(list(rng.choice([ONE, TWO]).items()))
        arguments = [rng.randrange(count) for _ in range(1 if name in ONE else 2)]
        if rng.random() < 0.7:
            arguments[rng.randrange(len(arguments))] = count - 1
        steps.append((name, function, arguments))
    last = 2 + len(steps)
    given = sorted({last, *(rng.randrange(3, last + 1) for _ in range(rng.randint(0, 2)))})

    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(inputs)
        for _, function, arguments in steps:
            values.append(function(*(values[k] for k in arguments)))
        return tuple(values[k] for k in given)

    return run, [*((name, arguments) for name, _, arguments in steps), given]


class Attack:
    """A change of one tensor between forward and backward, and a way to ask for gradients."""

    def __init__(self, rng: random.Random, active: list[int], inner: list[int]) -> None:
        self.active, self.inner = active, inner
        self.target, self.outputs = rng.randrange(6), rng.randrange(1, 8)
        self.change = rng.choice(list(CHANGES))
        # All gradients: where a function is more than one segment, autograd.grad() of a part looks at more.
        self.way = rng.choice([way for way in WAYS if way != "of_the_first"])

    def __str__(self) -> str:
        return f"{self.change} {self.target}, {self.way} of {self.outputs:b}, active {self.active}, inner {self.inner}"

    def outcome(self, f: Function) -> Any:
        torch.manual_seed(1)
        leaves = [(torch.rand(4, 4) + 0.2).requires_grad_(k in self.active) for k in range(3)]
        inputs = [leaf * 1 if k in self.inner else leaf for k, leaf in enumerate(leaves)]
        outputs = f(*inputs)
        followed = [output for output in outputs if output.requires_grad]
        if not followed:
            return []
        asked = [output for k, output in enumerate(followed) if self.outputs >> k & 1] or followed
        loss = sum((output * WEIGHTS).sum() + output.mean() for output in asked)
        seen = [*inputs, *outputs]
        try:
            with torch.no_grad():
                CHANGES[self.change](seen[self.target % len(seen)])
            return WAYS[self.way](loss, [leaves[k] for k in self.active])  # type: ignore[arg-type]
        except RuntimeError as error:
            return str(error)


def are_finite(gradients: Any) -> bool:
    return isinstance(gradients, str) or all(x is None or bool(x.isfinite().all()) for x in gradients)


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_random_functions(seed: int, turns: bool) -> None:
    """`turns`: each second call is replayed in a graph of its own."""
    rng = random.Random(seed)
    f, text = program(rng)
    active = [k for k in range(3) if rng.random() < 0.7] or [0]
    inner = [k for k in range(3) if rng.random() < 0.3]
    compiled = kintsugi.compile(f, backend="native", options={"autotune": True} if turns else {"sync": True})
    first = Attack(rng, active, inner)
    first.change, first.way = "nothing", "once"
    for _ in range(3):
        first.outcome(compiled)
    kintsugi.wait()
    for _ in range(24):
        attack = Attack(rng, active, inner)
        expected, actual = attack.outcome(f), attack.outcome(compiled)
        difference = differs(expected, actual) if are_finite(expected) else ""
        assert not difference or is_known(attack.way, attack.change, actual), (
            f"{text}: {attack}: {difference}"
        )
