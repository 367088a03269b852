"""The memory of tensors that compiled calls make: kept for the next ones, and indistinguishable from any other."""

from __future__ import annotations

import gc
import pickle
import resource
import threading

import pytest
import torch
from children import in_fork
from harness import SANITIZER

import kintsugi
from kintsugi import _C

SIDE = 512  # a tensor of 1 MiB


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = torch.sort(x, dim=0).values + 1.0
    return x


@pytest.fixture(params=["eager", "native"])
def compiled(request):
    call = kintsugi.compile(
        chain, backend=request.param, options={"sync": True} if request.param == "native" else None
    )
    x = torch.randn(SIDE, SIDE)
    for _ in range(3):
        call(x)
    yield lambda: call(x), lambda: chain(x)
    kintsugi.reset()


def pool() -> dict[str, int]:
    gc.collect()
    return _C.run_memory()


needs_pool = pytest.mark.skipif(SANITIZER, reason="under ASan all memory is the system's")


@needs_pool
def test_steady_state_touches_no_new_page(compiled) -> None:
    call, _ = compiled
    for _ in range(5):
        call()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        call()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < 20 * SIDE * SIDE * 4 // 4096 // 4, "less than a quarter of one of the tensors, each time"


@needs_pool
def test_what_is_freed_is_kept_and_given_back_by_reset(compiled) -> None:
    call, _ = compiled
    used = pool()["pool_used"]
    results = [call() for _ in range(3)]
    assert pool()["pool_used"] >= used + 3 * SIDE * SIDE * 4
    results.clear()
    state = pool()
    assert state["pool_used"] <= used
    assert state["pool_idle"] >= 3 * SIDE * SIDE * 4
    assert kintsugi.cache_info().pool_idle == state["pool_idle"]
    kintsugi.reset()
    assert pool()["pool_idle"] == 0


@needs_pool
def test_the_limit_holds(compiled) -> None:
    call, plain = compiled
    with kintsugi.config.patch(memory_pool_limit=1 << 20):
        results = [call() for _ in range(4)]
        results.clear()
        assert pool()["pool_idle"] <= 1 << 20
    with kintsugi.config.patch(memory_pool_limit=0):
        used = pool()["pool_used"]
        result = call()
        assert pool()["pool_used"] == used
        assert pool()["pool_idle"] == 0
    assert torch.equal(result, plain())


def test_results_outlive_everything(compiled) -> None:
    call, plain = compiled
    result, expected = call(), plain()
    array = call().numpy()
    view = call()[3:, ::2]
    kintsugi.reset()
    kintsugi.clear_cache(disk=False)
    others = [call() for _ in range(4)]
    assert torch.equal(result, expected)
    assert torch.equal(torch.from_numpy(array), expected)
    assert torch.equal(view, expected[3:, ::2])
    assert all(torch.equal(other, expected) for other in others)


def test_results_are_ordinary_tensors(compiled) -> None:
    call, plain = compiled
    expected = plain()
    assert call().data_ptr() % 64 == 0
    assert torch.equal(pickle.loads(pickle.dumps(call())), expected)
    assert torch.equal(call().clone(), expected)

    grown = call()
    grown.resize_(2 * SIDE, SIDE)
    assert torch.equal(grown[:SIDE], expected)
    grown.untyped_storage().resize_(0)
    grown.untyped_storage().resize_(SIDE * SIDE * 4)

    shared = call().share_memory_()
    assert shared.is_shared()
    assert torch.equal(shared, expected)

    owner = torch.empty(0)
    owner.set_(call().untyped_storage())
    assert torch.equal(owner.view(SIDE, SIDE), expected)

    lazy = torch._lazy_clone(call())
    lazy += 1
    assert torch.equal(lazy, expected + 1)


def test_another_thread_may_let_go(compiled) -> None:
    call, plain = compiled
    used = pool()["pool_used"]
    results = [call() for _ in range(4)]
    same = []

    def work() -> None:
        while results:
            same.append(torch.equal(results.pop(), plain()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert same == [True] * 4
    assert pool()["pool_used"] <= used


def test_a_forked_child_has_its_own(compiled) -> None:
    call, plain = compiled
    result, expected = call(), plain()
    assert in_fork(lambda: torch.equal(call(), expected) and torch.equal(result, expected))
    assert torch.equal(result, expected)
    assert torch.equal(call(), expected)


def test_profilers_see_what_is_taken_and_given_back(compiled) -> None:
    call, _ = compiled
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        call()
    sizes = [event.nbytes() for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert sum(sizes) == 0
    assert max(sizes) == SIDE * SIDE * 8  # the indices of sort


def test_memory_outside_of_compiled_calls_is_the_systems(compiled) -> None:
    compiled[0]()
    used = pool()["pool_used"]
    outside = torch.randn(SIDE, SIDE) + 1
    assert pool()["pool_used"] == used
    del outside
