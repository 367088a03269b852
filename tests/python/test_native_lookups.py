"""backend="native": embedding, index_select, gather, indexing by a tensor; losses that pick an element of each row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from native_harness import assert_same, check, native

import kintsugi

Looks = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# What looks `i` up in `x` along its first dimension (by_last: along its last one).
ROWS: dict[str, Looks] = {
    "embedding": lambda x, i: F.embedding(i, x),
    "padding": lambda x, i: F.embedding(i, x, padding_idx=0),
    "index": lambda x, i: x[i],
    "behind": lambda x, i: x.t()[:, i],
}
FLAT: dict[str, Looks] = {
    "index_select": lambda x, i: x.index_select(0, i),
    "by_last": lambda x, i: x.t().index_select(-1, i),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, x.shape[1])),
    "gather_part": lambda x, i: x.gather(0, i[:, None].expand(-1, 3)),
    "by_row": lambda x, i: x.t().gather(1, i.expand(x.shape[1], -1)),
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)


def _more(fn: Looks) -> Looks:
    """Something fused on top."""
    return lambda x, i: fn(x, i).logical_not() if x.dtype == torch.bool else fn(x, i) * 2 + 1


@pytest.mark.parametrize("name", [*ROWS, *FLAT])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_forms(name: str, dtype: torch.dtype) -> None:
    fn = _more((ROWS | FLAT)[name])
    torch.manual_seed(0)
    table = (torch.randn(19, 33) * 3).to(dtype)
    for index in (torch.tensor([18, 0, 3, 3, 7]), torch.randint(19, (40,)), torch.tensor([4])):
        check(fn, table, index, exact=True)
        check(fn, table, index.int()) if name in ("embedding", "index", "index_select") else None


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 1, 3), (0,)], ids=str)
def test_shapes_of_indices(name: str, shape: tuple[int, ...]) -> None:
    if name in ("index", "behind") and shape == ():
        pytest.skip("that is select")
    check(_more(ROWS[name]), torch.randn(5, 7), torch.randint(5, shape), exact=True)


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (3, 1), (3, 16), (2, 17)], ids=str)
@pytest.mark.parametrize("name", [*ROWS, *FLAT])
def test_sizes_and_strides(name: str, size: tuple[int, int]) -> None:
    fn = (ROWS | FLAT)[name]
    if name == "gather_part" and size[1] < 3:
        pytest.skip("no such part")
    index = torch.randint(size[0], (6, 2))[:, 0]
    check(_more(fn), torch.randn(2 * size[0], 3 * size[1])[::2, ::3], index, exact=True)
    check(lambda x, i: fn(x * 2, i + 0) + 1, torch.randn(size), index, exact=True)


def test_negative_indices() -> None:
    x, i = torch.randn(6, 5), torch.tensor([-1, 2, -6, 5])
    check(lambda x, i: x[i] * 2, x, i, exact=True)
    check(lambda x, i: x[:, i] * 2, torch.randn(3, 6), i, exact=True)


@pytest.mark.parametrize("name", [*ROWS, *FLAT])
@pytest.mark.parametrize("wrong", [6, 1000, -7, 2**40, -(2**62)])
def test_errors_are_those_of_eager_mode(name: str, wrong: int) -> None:
    fn = _more((ROWS | FLAT)[name])
    runner = native(fn)
    x, good = torch.randn(6, 5), torch.tensor([1, 2, 5, 0])
    bad = torch.tensor([1, 2, wrong, 0])
    with torch.no_grad():
        for _ in range(2):
            assert_same(runner(x, good), fn(x, good), exact=True)
            with pytest.raises((IndexError, RuntimeError)) as wanted:
                fn(x, bad)
            with pytest.raises(type(wanted.value)) as got:
                runner(x, bad)
            assert str(got.value).split("\n")[0] == str(wanted.value).split("\n")[0]
    assert runner._kintsugi_compiled.stats()["native_runs"] >= 1


def test_only_some_dimensions_take_negative_indices() -> None:
    for fn in (lambda x, i: F.embedding(i, x) * 2, lambda x, i: x.index_select(0, i) * 2):
        runner = native(fn)
        with torch.no_grad():
            runner(torch.randn(6, 5), torch.tensor([1]))
            with pytest.raises((IndexError, RuntimeError)):
                runner(torch.randn(6, 5), torch.tensor([-1]))


def test_what_was_found_in_the_function() -> None:
    def best(x: torch.Tensor) -> torch.Tensor:
        return x.gather(1, x.argmax(-1, keepdim=True)) * 2

    check(best, torch.randn(9, 33))
    check(lambda x, i: F.embedding((i + 1) % 5, x) * 2, torch.randn(5, 7), torch.randint(5, (4, 3)))
    check(lambda x, i: F.embedding(i, x * 2).exp(), torch.randn(5, 7), torch.randint(5, (4, 3)))
    check(lambda x, i: (x[i] + x[i + 1]) * x[i], torch.randn(9, 4), torch.randint(8, (21,)))
    check(lambda x, i: x[i].sum(-1) + x[i].mean((0, 1)).sum(), torch.randn(9, 40), torch.randint(8, (3, 5)))
    check(lambda x, i: torch.cat([x[i] * 2, x[i] + 1], -1).relu(), torch.randn(9, 8), torch.randint(8, (6,)))


def test_two_indices_and_masks_are_calls() -> None:
    x = torch.randn(6, 5)
    check(lambda x, i: (x[i, i] * 2) + 1, x, torch.tensor([1, 2]))
    check(lambda x, m: (x[m.nonzero()[:, 0]] * 2).relu(), x, torch.tensor([1, 0, 1, 0, 0, 1]))


def test_first_lines_of_bert() -> None:
    words, places, kinds = torch.randn(50, 48), torch.randn(20, 48), torch.randn(2, 48)
    weight, bias = torch.randn(48), torch.randn(48)

    def fn(ids: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        at = torch.arange(ids.shape[1]).unsqueeze(0)
        x = F.embedding(ids, words) + F.embedding(kind, kinds)
        return F.layer_norm(x + F.embedding(at, places), (48,), weight, bias, 1e-12)

    check(fn, torch.randint(50, (3, 17)), torch.randint(2, (3, 17)))


def test_sizes_that_vary() -> None:
    table = torch.randn(11, 6)

    def fn(i: torch.Tensor) -> torch.Tensor:
        return F.softmax(F.embedding(i, table) * 2, -1)

    runner = kintsugi.compile(fn, backend="native", dynamic=True, options={"sync": True})
    with torch.no_grad():
        for shape in ((3, 4), (2, 9), (7, 5), (1, 1), (6, 0)):
            i = torch.randint(11, shape)
            assert_same(runner(i), fn(i))
        with pytest.raises(IndexError):
            runner(torch.tensor([[11, 2], [3, 4]]))


TARGETS = ((torch.tensor([0, 4, 2, 2, 1, 3, 0]), "all"), (torch.tensor([0, -100, 2, 2, -100, 3, 0]), "some"))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["cross_entropy", "nll_loss"])
def test_losses(loss: str, weighted: bool, reduction: str) -> None:
    weight = torch.rand(5) + 0.5 if weighted else None

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return getattr(F, loss)(x, y, weight, reduction=reduction) * 2

    for target, _ in TARGETS:
        check(fn, torch.randn(7, 5) * 3, target)
    check(fn, torch.randn(3, 5, 4, 2), torch.randint(5, (3, 4, 2)))
    check(fn, torch.randn(3, 5, 6).transpose(0, 2)[..., :1].squeeze(-1), torch.randint(5, (6,)))


def test_losses_ignore_what_they_are_told_to() -> None:
    x = torch.randn(7, 5)
    check(lambda x, y: F.cross_entropy(x, y, ignore_index=2) + 1, x, TARGETS[0][0])
    check(lambda x, y: F.cross_entropy(x, y) + 1, x, torch.full((7,), -100))
    check(lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1) + 1, x, TARGETS[0][0])
    check(lambda x, y: F.cross_entropy(x, y.softmax(-1)) + 1, x, torch.randn(7, 5))
    check(lambda x, y: F.cross_entropy(x * 2 + 1, y) + 1, x, TARGETS[0][0])
    with torch.no_grad():
        x[2, 3], x[4, 1] = float("inf"), float("nan")
    check(lambda x, y: F.cross_entropy(x, y, reduction="none") + 1, x, TARGETS[0][0])


@pytest.mark.parametrize("wrong", [5, -1, 1 << 33])
def test_errors_of_losses(wrong: int) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, y) * 2

    runner = native(fn)
    x, good = torch.randn(7, 5), TARGETS[0][0]
    bad = good.clone()
    bad[3] = wrong
    with torch.no_grad():
        for _ in range(2):
            assert_same(runner(x, good), fn(x, good))
            with pytest.raises(IndexError, match="out of bounds"):
                runner(x, bad)


def test_training_of_an_embedding() -> None:
    table = torch.randn(9, 6, requires_grad=True)
    weight = torch.randn(5, 6, requires_grad=True)

    def fn(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(F.linear(F.gelu(F.embedding(i, table)), weight), y)

    runner = native(fn)
    i, y = torch.randint(9, (12,)), torch.randint(5, (12,))
    for _ in range(3):
        for call in (fn, runner):
            table.grad = weight.grad = None
            call(i, y).backward()
            found = [table.grad.clone(), weight.grad.clone()]
            if call is fn:
                wanted = found
        assert_same(found, wanted)
    with pytest.raises(IndexError):
        runner(torch.full((12,), 9), y)


WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index_add": lambda x, i, y: x.index_add(0, i, y),
    "index_add_twice": lambda x, i, y: x.index_add(0, i, y, alpha=2),
    "index_copy": lambda x, i, y: x.index_copy(0, i, y),
    "index_put": lambda x, i, y: x.index_put((i,), y),
    "accumulate": lambda x, i, y: x.index_put((i,), y, accumulate=True),
    "scatter_add": lambda x, i, y: x.scatter_add(0, i[:, None].expand_as(y), y),
    "scatter": lambda x, i, y: x.scatter(0, i[:, None].expand_as(y), y),
    "scatter_value": lambda x, i, y: x.scatter(0, i[:, None].expand_as(y), 3.5),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_copies(name: str) -> None:
    fn = WRITES[name]
    x, y, i = torch.randn(160, 130), torch.randn(7, 130), torch.randperm(160)[:7]
    before = x.clone()
    check(lambda x, i, y: fn(x * 2, i, y) + 1, x, i, y)
    check(lambda x, i, y: fn(x, i, y) + 1, x, i, y)
    check(lambda x, i, y: fn(x * 2, i, y), x, i, y)

    def kept(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x * 2
        b = fn(a, i, y)
        return b, a, fn(b, i, y * 2), b.t()

    check(kept, x, i, y)
    check(lambda x, i, y: (fn(a := x * 2, i, y) + a.sum(), fn(a.view(160, 130), i, y) * 2), x, i, y)
    check(lambda x, i, y: fn(a := x * 2, i, a[:7]) + 1, x, i, y)
    check(lambda x, i, y: fn((x * 2).t().contiguous().t(), i, y) + 1, x, i, y)
    assert torch.equal(x, before)
    runner = kintsugi.compile(lambda x, i, y: fn(x * 2, i, y) + 1, backend="native", mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(12):
            assert_same(runner(x, i, y), fn(x * 2, i, y) + 1)
        with pytest.raises((IndexError, RuntimeError)):
            runner(x, i + 160, y)
        assert_same(runner(x, i, y), fn(x * 2, i, y) + 1)


PLACES: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "scatter": lambda x, i, y: x.scatter(1, i, y),
    "scatter_twice": lambda x, i, y: x.scatter(1, i, y).scatter(-1, i // 2, y * 2),
    "scatter_rows": lambda x, i, y: x.t().contiguous().scatter(0, i.t().contiguous(), y.t().contiguous()),
    "scatter_middle": lambda x, i, y: x.view(2, 32, 10, 10).scatter(
        1, i.view(2, 32, -1, 10) // 4, y.view(2, 32, -1, 10)
    ),
    "scatter_value": lambda x, i, y: x.scatter(1, i, -1.5),
    "scatter_add": lambda x, i, y: x.scatter_add(1, i, y),
    "scatter_few": lambda x, i, y: x.scatter(1, i[:5], y),
    "index_add": lambda x, i, y: x.index_add(0, i[:, 0] % 64, y.repeat(1, 2)[:, : x.shape[1]]),
    "index_add_columns": lambda x, i, y: x.index_add(-1, i[0], y),
    "index_add_of_halves": lambda x, i, y: x.index_add(
        0, i[:, 0] % 64, y.repeat(1, 2)[:, : x.shape[1]], alpha=0.5
    ),
    "index_copy": lambda x, i, y: x.index_copy(1, torch.arange(y.shape[1]), y),
    "doubles": lambda x, i, y: x.double().scatter_add(1, i, y.double()),
    "integers": lambda x, i, y: (x * 9).bool().long().scatter(1, i, i),
}


RAISES = (
    "scatter",
    "scatter_rows",
    "scatter_value",
    "scatter_add",
    "index_add_columns",
    "doubles",
    "integers",
)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PLACES)
def test_places_of_plain_tensors(name: str, threads: int) -> None:
    torch.manual_seed(7)
    fn = PLACES[name]
    x, y = torch.randn(64, 100), torch.randn(64, 80)
    unique = torch.stack([torch.randperm(100)[:80] for _ in range(64)])
    # The order of what falls into one place is eager mode's business where it writes; sums are the same.
    index = unique if "scatter" in name and "add" not in name else torch.randint(100, (64, 80))
    before, count = x.clone(), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(lambda x, i, y: fn(x * 2, i, y * 2) + 1, x, index, y)
        runner = native(lambda x, i, y: fn(x * 2, i, y) + 1)
        with torch.no_grad():
            runner(x, index, y)
            for wrong in (index + 10_000, index - 10_000) if name in RAISES else ():
                with pytest.raises((IndexError, RuntimeError)):
                    runner(x, wrong, y)
            assert_same(runner(x, index, y), fn(x * 2, index, y) + 1)
    finally:
        torch.set_num_threads(count)
    assert torch.equal(x, before)
