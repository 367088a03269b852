"""asked-for-break: graph_break() was called."""

import kintsugi


def problem(x):
    y = x + 1
    kintsugi.graph_break("to look at y")
    return y * 2


def workaround_1(x):
    y = x + 1
    return y * 2
