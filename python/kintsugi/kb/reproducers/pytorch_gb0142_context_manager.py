"""Unsupported context manager."""

import threading

lock = threading.Lock()


def problem(x):
    with lock:
        return x + 1


def workaround_1(x):
    return x + 1
