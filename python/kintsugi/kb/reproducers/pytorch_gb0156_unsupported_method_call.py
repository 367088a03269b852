"""Unsupported method call."""

import datetime


def problem(x):
    return x + (datetime.datetime.now().year > 0)


def workaround_1(x):
    return x + 1
