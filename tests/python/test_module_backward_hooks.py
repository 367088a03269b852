"""Hooks of modules, of views and of leaves around native segments: which ones are called, in which order, with what."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import kintsugi


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = self.act(self.first(x))
        return self.left(h), self.right(h).view(2, -1), h


def total(tensors: Any) -> list[float | None]:
    return [None if x is None else round(x.sum().item(), 3) for x in tensors]


def hooked(names: tuple[str, ...], before: bool, log: list[Any]) -> Heads:
    torch.manual_seed(0)
    model = Heads()
    for name in names:
        module = model.get_submodule(name)

        def full(module: Any, inputs: Any, outputs: Any, name: str = name) -> None:
            log.append((name, total(inputs), total(outputs)))

        def pre(module: Any, outputs: Any, name: str = name) -> None:
            log.append((name, total(outputs)))

        module.register_full_backward_hook(full)
        if before:
            module.register_full_backward_pre_hook(pre)
    return model


def module_events(chosen: tuple[int, ...], names: tuple[str, ...], before: bool, backend: str | None) -> Any:
    log: list[Any] = []
    model = hooked(names, before, log)
    runner: Any = model
    if backend is not None:
        options = {"sync": True} if backend == "native" else None
        runner = kintsugi.compile(model, backend=backend, options=options)
    results = []
    for _ in range(4):
        log.clear()
        x = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
        outputs = runner(x)
        torch.stack([outputs[k].sum() for k in chosen]).sum().backward()
        results.append((list(log), total(p.grad for p in model.parameters()), total([x.grad])))
        model.zero_grad(set_to_none=True)
    if backend == "native":
        assert runner._kintsugi_compiled.stats()["native_runs"] > 0
    return results


@pytest.mark.parametrize("chosen", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
@pytest.mark.parametrize("names", [("first",), ("left",), ("left", "right"), ("", "first", "left", "act")])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_hooks_of_modules(
    chosen: tuple[int, ...], names: tuple[str, ...], before: bool, backend: str
) -> None:
    assert module_events(chosen, names, before, backend) == module_events(chosen, names, before, None)


def views(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    early = x.view(2, 3)
    a = (x * w).sin()
    b = (x + 1.0).cos()
    return early, a.view(3, 2), b, a


def view_events(fn: Any) -> list[Any]:
    log: list[Any] = []
    x, w = (torch.linspace(-1, 1, 6).requires_grad_() for _ in range(2))
    outputs = fn(x, w)
    for k, output in enumerate(outputs):
        output.register_hook(
            lambda g, k=k: log.append((k, round(g.sum().item(), 3), x.grad is None, w.grad is None))
        )
    torch.stack([output.sum() for output in outputs]).sum().backward()
    return [log, total([x.grad, w.grad])]


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_hooks_of_views(backend: str) -> None:
    compiled = kintsugi.compile(
        views, backend=backend, options={"sync": True} if backend == "native" else None
    )
    expected = view_events(views)
    for _ in range(4):
        assert view_events(compiled) == expected


def test_leaves_with_hooks_are_left_to_replay() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x * w).sin()

    compiled: Any = kintsugi.compile(f, backend="native", options={"sync": True})
    x, w = (torch.linspace(-1, 1, 6).requires_grad_() for _ in range(2))
    for _ in range(3):
        compiled(x, w).sum().backward()
    before = compiled._kintsugi_compiled.stats()["native_runs"]
    assert before > 0
    handle = w.register_hook(lambda g: g * 2.0)
    expected = torch.autograd.grad(f(x, w).sum(), [x, w])
    got = torch.autograd.grad(compiled(x, w).sum(), [x, w])
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert compiled._kintsugi_compiled.stats()["native_runs"] == before
    handle.remove()


def test_a_backward_that_raises_can_be_repeated_where_eager_mode_can() -> None:
    """Many backwards that raise leave nothing behind in the graph that the next one would take."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin() * 2.0, x.cos() * w

    compiled: Any = kintsugi.compile(f, backend="native", options={"sync": True})
    for fn in (compiled, compiled, f):
        x, w = (torch.linspace(-1, 1, 6).requires_grad_() for _ in range(2))
        first, second = fn(x, w)
        loss = first.sum() + second.sum()

        def raises(gradient: torch.Tensor) -> None:
            raise ValueError

        handle = first.register_hook(raises)
        for _ in range(50):
            with pytest.raises(ValueError):
                loss.backward(retain_graph=True)
        handle.remove()
        assert w.grad is not None and x.grad is None
        torch.testing.assert_close(w.grad, 50 * x.detach().cos())
        loss.backward()
        torch.testing.assert_close(x.grad, (2 * x.cos() - x.sin() * w).detach())
