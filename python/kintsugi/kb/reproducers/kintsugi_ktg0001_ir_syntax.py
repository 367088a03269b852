"""ir-syntax: text that is no trace is given to the parser."""

from kintsugi import _C


def problem(x):
    _C._replay_testing.parse("trace @f.py:1 f {\n  %0 = no such instruction\n}\n")
    return x


def workaround_1(x):
    trace = _C._replay_testing.parse("trace @f.py:1 f {\n  %0 = arg 0 : object\n  ret %0\n}\n")
    return x if "ret %0" in trace.text() else x + 1
