"""An operator that lets another thread act while it runs, as any operator of torch may.

Its kernel is C code that waits for a thread, so what that thread does happens at the same point in eager mode, while a
call is recorded and in each run of a trace. (Behind a kernel in Python everything would be read again, whoever acts.)
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import queue
import threading
from collections.abc import Callable, Iterator

import torch

_act: Callable[[], object] | None = None


@contextlib.contextmanager
def acting(act: Callable[[], object] | None) -> Iterator[None]:
    """Within the block, the first `let_others_act` runs `act` in another thread.

    Only the first, since a graph that is left may be computed again.
    """
    global _act
    _act = act
    try:
        yield
    finally:
        _act = None


_requests: queue.SimpleQueue[None] = queue.SimpleQueue()
_replies: queue.SimpleQueue[torch.Tensor] = queue.SimpleQueue()


def _serve() -> None:
    global _act
    while True:
        _requests.get()
        act, _act = _act, None
        try:
            if act is not None:
                act()
        finally:
            _replies.put(torch.zeros(()))


def _start() -> None:
    threading.Thread(target=_serve, daemon=True).start()


_start()
os.register_at_fork(after_in_child=_start)

# Each item asks the thread to act, and waits for its reply.
_turns = zip(map(_requests.put, itertools.repeat(None)), iter(_replies.get, None))
_library = torch.library.Library("kintsugi_test_threads", "DEF")
_library.define("others_act() -> Tensor")
_library.impl("others_act", map(operator.itemgetter(1), _turns).__next__, "CompositeExplicitAutograd")


@torch.library.register_fake("kintsugi_test_threads::others_act")
def _() -> torch.Tensor:
    return torch.zeros(())


def let_others_act(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ops.kintsugi_test_threads.others_act()


# Torch may import modules in an operator's first call, and classes that they register with ABCs make a program
# be recorded again. That is not the subject of the tests.
let_others_act(torch.ones(1))
