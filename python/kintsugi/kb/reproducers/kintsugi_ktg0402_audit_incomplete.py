"""audit-incomplete: another thread holds a lock while the process forks; nobody opens it in the copy."""

import threading
import time

from kintsugi import _audit

CONFIG = {"audit": 1}
LOCK = threading.Lock()


def around(run):
    taken = threading.Event()

    def hold():
        with LOCK:
            taken.set()
            time.sleep(0.1)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    patience, _audit.PATIENCE_S = _audit.PATIENCE_S, 0.3
    try:
        return run()
    finally:
        _audit.PATIENCE_S = patience
        thread.join()


def problem(x):
    with LOCK:
        return x + 1


def workaround_1(x):
    return x + 1
