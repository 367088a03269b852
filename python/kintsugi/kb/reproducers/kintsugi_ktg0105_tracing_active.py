"""tracing-active: sys.settrace or sys.setprofile is active."""

import sys


def around(run):
    sys.settrace(lambda frame, event, arg: None)
    try:
        return run()
    finally:
        sys.settrace(None)


def problem(x):
    return x + 1
