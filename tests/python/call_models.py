"""For test_call_models.py: ways to change each word of the process's state, and arguments for rows that want some."""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import random
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy
import torch
from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def _set(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


class _PassOn(TorchFunctionMode):
    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


def _c(name: str) -> Any:
    return getattr(torch._C, name)


# Each changes one thing that a C function could read, for the length of a block.
CHANGES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast_uncached": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    "autocast_dtype": lambda: _set(
        lambda: torch.get_autocast_dtype("cpu"), lambda d: torch.set_autocast_dtype("cpu", d), torch.float16
    ),
    "autocast_dtype_of_cuda": lambda: _set(
        lambda: torch.get_autocast_dtype("cuda"),
        lambda d: torch.set_autocast_dtype("cuda", d),
        torch.bfloat16,
    ),
    "default_dtype": lambda: _set(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "deterministic": lambda: _set(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "mkldnn": lambda: _set(_c("_get_mkldnn_enabled"), _c("_set_mkldnn_enabled"), False),
    "mkldnn_deterministic": lambda: _set(
        _c("_get_mkldnn_deterministic"), _c("_set_mkldnn_deterministic"), True
    ),
    "cudnn": lambda: _set(_c("_get_cudnn_enabled"), _c("_set_cudnn_enabled"), False),
    "cudnn_benchmark": lambda: _set(_c("_get_cudnn_benchmark"), _c("_set_cudnn_benchmark"), True),
    "cudnn_deterministic": lambda: _set(_c("_get_cudnn_deterministic"), _c("_set_cudnn_deterministic"), True),
    "nnpack": lambda: _set(_c("_get_nnpack_enabled"), _c("_set_nnpack_enabled"), False),
    "flash_sdp": lambda: _set(_c("_get_flash_sdp_enabled"), _c("_set_sdp_use_flash"), False),
    "mem_efficient_sdp": lambda: _set(
        _c("_get_mem_efficient_sdp_enabled"), _c("_set_sdp_use_mem_efficient"), False
    ),
    "math_sdp": lambda: _set(_c("_get_math_sdp_enabled"), _c("_set_sdp_use_math"), False),
    "matmul_precision": lambda: _set(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
    "threads": lambda: _set(torch.get_num_threads, torch.set_num_threads, 3),
    "warn_always": lambda: _set(torch.is_warn_always_enabled, torch.set_warn_always, True),
    "default_device": lambda: torch.device("meta"),
    "function_mode": _PassOn,
    "function_overrides_off": torch._C.DisableTorchFunctionSubclass,
    "view_replay": lambda: torch.autograd._force_original_view_tracking(True),
}


def process_state() -> dict[str, Any]:
    """What a call that says nothing of it leaves as it is."""
    return {
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": [
            (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")
        ],
        "autocast's cache": torch.is_autocast_cache_enabled(),
        "defaults": (torch.get_default_dtype(), torch.get_default_device()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "backends": [
            _c(f"_get_{name}")()
            for name in ("mkldnn_enabled", "cudnn_enabled", "cudnn_benchmark", "flash_sdp_enabled")
        ],
        "precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "random": (torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist()),
        "warnings": list(warnings.filters),
        "interpreter": (sys.getrecursionlimit(), gc.isenabled(), os.getcwd(), sys.getswitchinterval()),
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
    }


# Arguments of rows that are called with some; several of each, which are tried in turns.
ARGUMENTS: dict[str, list[tuple[Any, ...]]] = {
    "torch.is_autocast_enabled": [("cpu",), ("cuda",), ()],
    "torch.get_autocast_dtype": [("cpu",), ("cuda",)],
    "torch._C._is_autocast_available": [("cpu",), ("cuda",)],
    "torch.promote_types": [
        (torch.float16, torch.float32),
        (torch.int32, torch.bool),
        (torch.bfloat16, torch.float16),
        (torch.float64, torch.float32),
    ],
    "torch.can_cast": [(torch.float32, torch.int32), (torch.int32, torch.float32), (torch.bool, torch.int8)],
    "torch.finfo": [(torch.float16,), (torch.float32,), (torch.bfloat16,), ()],
    "torch.iinfo": [(torch.int8,), (torch.int64,)],
    "torch._C._log_api_usage_once": [("a test",)],
}


# --- waiting ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def two_groups() -> Iterator[tuple[Any, Any]]:
    """Two process groups of gloo's whose members, ranks 0 and 1, are threads of this process."""
    c10d = torch._C._distributed_c10d
    store = c10d.HashStore()
    found: list[Any] = [None, None]

    def make(rank: int) -> None:
        group = c10d.ProcessGroup(c10d.PrefixStore("group", store), rank, 2)
        device = c10d.ProcessGroupGloo.create_device(interface="lo")
        options = c10d.ProcessGroupGloo._Options()
        options._devices = [device]
        backend = c10d.ProcessGroupGloo(c10d.PrefixStore("gloo", store), rank, 2, options)
        group._register_backend(torch.device("cpu"), c10d.ProcessGroup.BackendType.GLOO, backend)
        group._set_default_backend(c10d.ProcessGroup.BackendType.GLOO)
        found[rank] = group

    threads = [threading.Thread(target=make, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield found[0], found[1]


_Waited = Iterator[tuple[tuple[Any, ...], Callable[[], Any]]]


@contextlib.contextmanager
def _lock() -> _Waited:
    lock = threading.Lock()
    lock.acquire()
    yield (lock,), lock.release


@contextlib.contextmanager
def _recursive_lock() -> _Waited:
    lock = threading.RLock()
    yield (lock,), lambda: None


@contextlib.contextmanager
def _queue_() -> _Waited:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    yield (waiting,), lambda: waiting.put(1)


def _pipe(mode: str, *more: Any, buffering: int = -1) -> Callable[[], AbstractContextManager[Any]]:
    """A file at one end of a pipe; at the other end somebody writes a line and closes it."""

    @contextlib.contextmanager
    def opened() -> _Waited:
        read, write = os.pipe()

        def act() -> None:
            os.write(write, b"line\n")
            os.close(write)

        with open(read, mode, buffering) as file:
            yield (file, *more), act

    return opened


def _random_access(*more: Any) -> Callable[[], AbstractContextManager[Any]]:
    @contextlib.contextmanager
    def opened() -> _Waited:
        with tempfile.TemporaryFile("w+b") as file:
            file.write(b"line\n")
            file.seek(0)
            yield (file, *more), lambda: None

    return opened


@contextlib.contextmanager
def _received() -> _Waited:
    with two_groups() as (mine, others):
        work = mine.recv([torch.zeros(2)], 1, 0)
        yield (work,), lambda: others.send([torch.ones(2)], 0, 0).wait()


@contextlib.contextmanager
def _barrier() -> _Waited:
    with two_groups() as (mine, others):
        yield (mine,), others.barrier


@contextlib.contextmanager
def _monitored_barrier() -> _Waited:
    with two_groups() as (mine, others):
        threads: list[threading.Thread] = []

        def act() -> None:
            threads.append(threading.Thread(target=others.monitored_barrier))
            threads[0].start()

        yield (mine,), act
        for thread in threads:
            thread.join()


# How a row that waits, or tells of others, is given something to wait for: arguments, and what another thread does.
WAITED: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    **{f"_thread.LockType.{name}": _lock for name in ("acquire", "__enter__", "locked")},
    **{f"_thread.RLock.{name}": _recursive_lock for name in ("acquire", "__enter__")},
    **{f"_queue.SimpleQueue.{name}": _queue_ for name in ("get", "get_nowait", "empty", "qsize")},
    "_io.TextIOWrapper.read": _pipe("r"),
    "_io.TextIOWrapper.readline": _pipe("r"),
    "_io.BufferedReader.read": _pipe("rb", 2),
    "_io.BufferedReader.read1": _pipe("rb", 2),
    "_io.BufferedReader.readline": _pipe("rb"),
    "_io.BufferedReader.peek": _pipe("rb"),
    "_io.BufferedReader.readinto": _pipe("rb", bytearray(2)),
    "_io.BufferedRandom.read": _random_access(2),
    "_io.BufferedRandom.readline": _random_access(),
    "_io.FileIO.read": _pipe("rb", 2, buffering=0),
    "_io.FileIO.readall": _pipe("rb", buffering=0),
    "_io.FileIO.readinto": _pipe("rb", bytearray(2), buffering=0),
    "_io._IOBase.readlines": _pipe("r"),
    **{
        f"torch._C._distributed_c10d.Work.{name}": _received
        for name in ("wait", "synchronize", "is_completed", "is_success")
    },
    "torch._C._distributed_c10d.ProcessGroup.barrier": _barrier,
    "torch._C._distributed_c10d.ProcessGroup.monitored_barrier": _monitored_barrier,
}
