"""An operator that lets another thread act while it runs, as any operator of torch may.

Its kernel is C code that waits for a thread, so what that thread does happens at the same point in eager mode, while a
call is recorded and in each run of a trace. (Behind a kernel in Python everything would be read again, whoever acts.)
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

_requests: queue.SimpleQueue[None] = queue.SimpleQueue()
_replies: queue.SimpleQueue[torch.Tensor] = queue.SimpleQueue()


def _empty(waiting: queue.SimpleQueue[Any]) -> None:
    while not waiting.empty():
        waiting.get()


def _fill() -> None:
    while _replies.qsize() < 100:
        _replies.put(torch.zeros(()))


@contextlib.contextmanager
def acting(act: Callable[[], object] | None) -> Iterator[None]:
    """Within the block, the first `let_others_act` runs `act` in another thread.

    Only the first, since a graph that is left may be computed again. Without an act no other thread is there at all.
    """
    _empty(_requests)
    _fill()
    if act is None:
        yield
        return
    wanted = True

    def serve() -> None:
        _requests.get()
        try:
            if wanted:
                act()
        finally:
            _fill()

    _empty(_replies)
    other = threading.Thread(target=serve)
    other.start()
    try:
        yield
    finally:
        wanted = False
        _requests.put(None)
        other.join()


# Each item asks the other thread to act, and waits for its reply. There are replies where there is no such thread.
_turns = zip(map(_requests.put, itertools.repeat(None)), iter(_replies.get, None))
_library = torch.library.Library("kintsugi_test_threads", "DEF")
_library.define("others_act(Tensor x) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_library.impl("others_act", functools.partial(next, map(operator.itemgetter(1), _turns)), "CPU")


@torch.library.register_fake("kintsugi_test_threads::others_act")
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(())


def let_others_act(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ops.kintsugi_test_threads.others_act(x)


_fill()
# Torch may import modules in an operator's first call, and classes that they register with ABCs make a program
# be recorded again. That is not the subject of the tests.
let_others_act(torch.ones(1))
