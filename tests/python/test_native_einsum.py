"""Einsums in native code: expanded into what ATen runs for them, or left as calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from native_harness import assert_same

import kintsugi

SIZES = dict(zip("abcdehijklnqstvwr", [3, 4, 5, 6, 7, 2, 8, 9, 10, 11, 3, 4, 5, 6, 7, 8, 9], strict=True))

EXPANDED = [
    "ij,jk->ik",
    "ij,kj->ki",
    "bij,bkj->bik",
    "b h i d, b h j d -> b h i j",
    "bhij,bhjd->bhid",
    "bthd,bshd->bhts",
    "bhts,bshd->bthd",
    "bnd,de->bne",
    "nctkv,kvw->nctw",
    "bhwc,hkc->bhwk",
    "abc,abd->cd",
    "abc,dc->adb",
    "ijk,jil->kl",
    "ij,jk,kl->il",
    "ab,bc,ca->",
    "ij,jk",
    "ij,jk->",
    "ij,ij->",
    "ij,ij->i",
    "i,j->ij",
    "bi,bj->bij",
    "ij,k->i",
    "ij,k->ik",
    "i,->",
    "ij,j->ij",
    "i,i->",
    "ij->ji",
    "ij->i",
    "ij->",
    "Ba,aB->B",
    "...ij,...jk->...ik",
    "...ij,jk",
    "i...->...i",
]
CALLS = ["ii->i", "bi,bi,bi->bi", "...i->i", "ij->ij"]


def operands(equation: str, grad: str = "", ones: bool = False) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(len(equation))
    out = []
    for k, labels in enumerate(equation.replace(" ", "").split("->")[0].split(",")):
        shape = [1 if ones else SIZES[c.lower()] for c in labels.replace("...", "rs")]
        out.append(torch.randn(shape, generator=generator, requires_grad=str(k) in grad))
    return out


def within(equation: str) -> Any:
    return lambda *args: torch.einsum(equation, *[arg * 1.5 for arg in args]) + 1.0


@pytest.mark.parametrize("equation", EXPANDED + CALLS)
@pytest.mark.parametrize("grad", ["", "0", "01"])
def test_as_eager_mode(equation: str, grad: str) -> None:
    fn = within(equation)
    compiled = kintsugi.compile(fn, backend="native", options={"sync": True})
    for _ in range(3):
        ours, theirs = operands(equation, grad), operands(equation, grad)
        made, wanted = compiled(*ours), fn(*theirs)
        assert_same(made, wanted)
        assert made.stride() == wanted.stride() and made.requires_grad == wanted.requires_grad
        if grad:
            weight = torch.randn(wanted.shape)
            (made * weight).sum().backward()
            (wanted * weight).sum().backward()
            for a, b in zip(ours, theirs, strict=True):
                assert (a.grad is None) == (b.grad is None)
                if a.grad is not None:
                    assert_same(a.grad, b.grad)
    refused = compiled.stats().native_refused
    assert refused == (1 if grad and equation in CALLS and "," not in equation else 0)


@pytest.mark.parametrize("equation", EXPANDED)
@pytest.mark.parametrize("grad", ["", "0", "01"])
def test_as_a_result(equation: str, grad: str) -> None:
    def fn(*args: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = torch.tanh(args[0])
        return torch.einsum(equation, first, *args[1:]), first

    compiled = kintsugi.compile(fn, backend="native", options={"sync": True})
    for _ in range(3):
        ours, theirs = operands(equation, grad), operands(equation, grad)
        made, wanted = compiled(*ours), fn(*theirs)
        assert_same(made, wanted)
        if grad:
            made[0].sum().backward()
            wanted[0].sum().backward()
            assert_same(
                [x.grad for x in ours if x.requires_grad], [x.grad for x in theirs if x.requires_grad]
            )


@pytest.mark.parametrize("equation", EXPANDED + CALLS)
def test_bit_by_bit_in_strict_mode(equation: str) -> None:
    fn = within(equation)
    compiled = kintsugi.compile(fn, backend="native", options={"sync": True, "strict": True})
    for _ in range(2):
        args = operands(equation)
        assert torch.equal(compiled(*args), fn(*args))


@pytest.mark.parametrize("equation", EXPANDED)
def test_sizes_of_one_are_broadcast(equation: str) -> None:
    fn = within(equation)
    compiled = kintsugi.compile(fn, backend="native", options={"sync": True})
    wide, narrow = operands(equation), operands(equation, ones=True)
    for args in ([narrow[0], *wide[1:]], narrow, wide):
        try:
            wanted = fn(*args)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=str(error).split("[")[0][:20]):
                compiled(*args)
            continue
        assert_same(compiled(*args), wanted)
        assert_same(compiled(*args), wanted)


def test_a_view_stays_a_view() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("ij->ji", x * 1.0).add_(1.0)

    compiled = kintsugi.compile(fn, backend="native", options={"sync": True})
    x = torch.randn(3, 4)
    for _ in range(3):
        assert_same(compiled(x), fn(x))


def test_one_that_changes_nothing_is_a_view_of_its_operand() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x * 1.5
        y = torch.einsum("ij->ij", a)
        return a + 1, y * 2, y

    compiled = kintsugi.compile(fn, backend="native", options={"sync": True})
    x = torch.randn(3, 4)
    for _ in range(3):
        assert_same(compiled(x), fn(x))


def test_a_write_before_the_backward_is_an_error() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bij,bkj->bik", x, y) * 2

    compiled = kintsugi.compile(fn, backend="native", options={"sync": True})
    for run in (fn, compiled, compiled):
        x, y = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 5, 4)
        made = run(x, y)
        y.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            made.sum().backward()


def test_modules_that_train_with_it() -> None:
    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = torch.nn.Parameter(torch.randn(3, 2, 16, 8) * 0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = torch.einsum("bnc,thcd->tbhnd", x, self.qkv).unbind(0)
            weights = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
            return torch.einsum("bhij,bhjd->bihd", weights, v).flatten(2)

    torch.manual_seed(0)
    model = Attention()
    compiled = kintsugi.compile(model, backend="native", options={"sync": True})
    x = torch.randn(2, 6, 16)
    for _ in range(3):
        grads = []
        for run in (model, compiled):
            model.zero_grad()
            run(x).square().sum().backward()
            grads.append(model.qkv.grad)
        assert_same(grads[1], grads[0])
    assert compiled.stats().native_ready == 1 and compiled.stats().native_backwards > 0
