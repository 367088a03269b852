"""Hooks of tensors that no gradient arrives for are not called, though native code has one node for several tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kintsugi


def seen(which: str, inside: bool, removed: bool, backend: str | None) -> list[Any]:
    log: list[str] = []

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        log.append(f"{gradient.sum().item():.4f}")
        return gradient * 2.0

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = x * 3.0
        u, w = h.tanh(), h.sin()
        if inside:
            u.register_hook(hook)
        return u, w * 3.0, u * 2.0

    compiled: Any = f
    if backend is not None:
        options = {"sync": True} if backend == "native" else None
        compiled = kintsugi.compile(f, backend=backend, options=options)
    results = []
    for _ in range(5):
        log.clear()
        x = torch.linspace(-1, 1, 6).requires_grad_()
        outputs = compiled(x)
        if not inside:
            handle = outputs[0].register_hook(hook)
            outputs[0].register_hook(lambda gradient: log.append("second"))
            if removed:
                handle.remove()
        for output in outputs[:2]:
            output.retain_grad()
        chosen = {"first": outputs[:1], "second": outputs[1:2], "third": outputs[2:], "all": outputs}[which]
        torch.stack([output.sum() for output in chosen]).sum().backward()
        assert x.grad is not None
        kept = [None if output.grad is None else round(output.grad.sum().item(), 4) for output in outputs[:2]]
        results.append((list(log), kept, [round(number, 5) for number in x.grad.tolist()]))
    return results


@pytest.mark.parametrize("which", ["first", "second", "third", "all"])
@pytest.mark.parametrize("inside, removed", [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_hooks_of_what_is_not_in_the_loss(which: str, inside: bool, removed: bool, backend: str) -> None:
    assert seen(which, inside, removed, backend) == seen(which, inside, removed, None)
