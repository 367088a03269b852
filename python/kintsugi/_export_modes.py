"""Modes that a program switches while it runs, as torch.export wants to see them: autocast and inference mode.

A trace has them as the calls of C functions that `torch.autocast` and `torch.inference_mode` are made of. torch.export
knows the context managers: while operators run, one is open that says what those calls have said.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

_INFERENCE = torch._C._InferenceMode
_NAMED: Mapping[Any, tuple[str, str | None]] = {
    torch.set_autocast_enabled: ("enabled", None),
    torch.set_autocast_cpu_enabled: ("enabled", "cpu"),
    torch.set_autocast_dtype: ("dtype", None),
    torch.set_autocast_cpu_dtype: ("dtype", "cpu"),
    torch.set_autocast_gpu_dtype: ("dtype", "cuda"),
}
"""What each says, and of which device where that is no argument."""
_SILENT = (torch.autocast_increment_nesting, torch.autocast_decrement_nesting, torch.clear_autocast_cache)


def is_mode(callee: Any) -> bool:
    """Is it one of the functions that Modes.call() knows?"""
    return (
        callee is _INFERENCE
        or callee is torch.set_autocast_cache_enabled
        or any(callee is known for known in (*_NAMED, *_SILENT))
    )


class _Inference:
    """Stands for the object of an inference mode: entered with one argument, left with four."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._before = True

    def switch(self, entering: bool) -> None:
        if not self._enabled:
            return
        if entering:
            self._before = torch.is_grad_enabled()
            torch._C._set_grad_enabled(False)
        else:
            torch._C._set_grad_enabled(self._before)


class Modes:
    """The modes of one run. enter() opens what the calls so far have said; close() ends it."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, Any]] = {}
        self._open: dict[str, dict[str, Any]] = {}
        self._cache: bool | None = None
        self._stack = contextlib.ExitStack()

    def call(self, callee: Any, args: list[Any]) -> Any:
        """In place of a call. Others than is_mode() tells are those of inference mode's two methods."""
        if callee is _INFERENCE:
            return _Inference(*args)
        if args and isinstance(args[0], _Inference):
            args[0].switch(len(args) == 1)
            return None
        if callee is torch.set_autocast_cache_enabled:
            self._cache = args[0]
        elif callee not in _SILENT:
            what, device = _NAMED[callee]
            if device is None:
                device = args[0] if len(args) == 2 else "cuda"
            self._of(device)[what] = args[-1]
        return None

    def _of(self, device: str) -> dict[str, Any]:
        if device not in self._said:
            before = {
                "enabled": torch.is_autocast_enabled(device),
                "dtype": torch.get_autocast_dtype(device),
            }
            self._said[device] = dict(before)
            self._open[device] = before
        return self._said[device]

    def enter(self) -> None:
        """For the operators that follow."""
        if self._said == self._open:
            return
        self._stack.close()
        self._stack = contextlib.ExitStack()
        for device, said in self._said.items():
            if said["enabled"] != torch.is_autocast_enabled(device) or (
                said["enabled"] and said["dtype"] != torch.get_autocast_dtype(device)
            ):
                self._stack.enter_context(
                    torch.autocast(device, said["dtype"], said["enabled"], cache_enabled=self._cache)
                )
        self._open = {device: dict(said) for device, said in self._said.items()}

    def close(self) -> None:
        """At the end of the run."""
        self._stack.close()
