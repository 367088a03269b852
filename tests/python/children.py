"""Work in a forked child, for tests."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

from kintsugi import _C

DEADLINE_S = 60.0


def in_fork(work: Callable[[], Any]) -> Any:
    """The result of `work` in a forked child; fails when the child dies or hangs, or a check of the core failed."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before, _ = _C._failed_checks()
            answer = (True, work())
            failed, text = _C._failed_checks()
            if failed != before:
                answer = (False, f"{failed - before} checks of the core have failed, at last {text}")
        except BaseException as error:
            answer = (False, repr(error))
        os.write(send, pickle.dumps(answer))
        os._exit(0)
    os.close(send)
    timer = threading.Timer(DEADLINE_S, os.kill, (child, signal.SIGKILL))
    timer.start()
    with os.fdopen(receive, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    timer.cancel()
    assert status == 0 and data, f"the child ended with status {status}"
    fine, value = pickle.loads(data)
    assert fine, value
    return value
