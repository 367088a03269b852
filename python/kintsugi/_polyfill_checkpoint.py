"""torch.utils.checkpoint.checkpoint(use_reentrant=False) in training, so that the recorder sees into the function.

Torch runs the function between two pieces of Python code of its own: the first puts hooks in place that keep what
autograd would save as a number and compute it again in the backward, the second takes them away. Each is a step here,
and what lies between is recorded like the program's own code. Which calls this replaces is decided in
csrc/capture/calls/higher_order.cc.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Any

from torch.utils import checkpoint as torch_checkpoint

from kintsugi._marks import allow_in_graph
from kintsugi._polyfill_autograd import apply_function

_generator: Any = getattr(torch_checkpoint, "_checkpoint_without_reentrant_generator", None)
_NAMES = ("fn", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")
_DEFAULTS = {
    "preserve_rng_state": True,
    "context_fn": torch_checkpoint.noop_context_fn,
    "determinism_check": "default",
    "debug": False,
    "early_stop": True,
}
# Does this torch's code take what it is given here?
KNOWN = _generator is not None and tuple(inspect.signature(_generator).parameters)[: len(_NAMES)] == _NAMES


class Region:
    """What torch's code keeps between its two ends."""

    def __init__(self, code: Generator[None, None, None]) -> None:
        self.code = code


@allow_in_graph
def entered(
    function: Callable[..., Any], options: Mapping[str, Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> Region:
    """What torch does before the function runs."""
    code = _generator(function, *[options[name] for name in _NAMES[1:]], *args, **named)
    next(code)
    return Region(code)


@allow_in_graph
def entered_freely(
    function: Callable[..., Any], options: Mapping[str, Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> Region:
    """The same where random numbers need not be the same ones when it is computed again."""
    return entered(function, options, args, named)


@allow_in_graph
def left(region: Region) -> None:
    """What torch does after it."""
    for _ in region.code:
        raise AssertionError("torch.utils.checkpoint: more than one region")


@allow_in_graph
def left_by(region: Region, error: BaseException) -> None:
    """What torch does after it has raised: that raises, too."""
    try:
        region.code.throw(error)
    except StopIteration as stop:
        raise RuntimeError(
            "torch.utils.checkpoint: the forward context provided by context_fn suppressed an exception raised during "
            "the checkpointed forward. This is not supported because checkpoint cannot return a value for a failed "
            "forward."
        ) from stop


def checkpoint_reentrant(
    function: Callable[..., Any], *args: Any, use_reentrant: bool, preserve_rng_state: bool = True
) -> Any:
    """With use_reentrant=True: the function runs without gradients, and again in the backward of one node."""
    return apply_function(torch_checkpoint.CheckpointFunction, function, preserve_rng_state, *args)


def checkpoint_recomputed(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    if not KNOWN:
        return torch_checkpoint.checkpoint(function, *args, **named)
    named.pop("use_reentrant")
    options = {name: named.pop(name, default) for name, default in _DEFAULTS.items()}
    enter = entered if options["preserve_rng_state"] else entered_freely
    region = enter(function, options, args, named)
    try:
        result = function(*args, **named)
    except BaseException as error:
        left_by(region, error)
        raise
    left(region)
    return result
