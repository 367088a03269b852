"""An operator that lets another thread act while it runs, as any operator of torch may.

Its kernel is Python code, so what the other thread does happens at the same point in eager mode, while a call is
recorded and in each run of a trace.
"""

from __future__ import annotations

import contextlib
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


@torch.library.custom_op("kintsugi_test::let_others_act", mutates_args=())
def let_others_act(x: torch.Tensor) -> torch.Tensor:
    global _act
    act, _act = _act, None
    if act is not None:
        other = threading.Thread(target=act)
        other.start()
        other.join()
    return x.clone()


@let_others_act.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


# Torch may import modules in an operator's first call, and classes that they register with ABCs make a program
# be recorded again. That is not the subject of the tests.
let_others_act(torch.ones(1))
