"""Unsupported function call."""

import decimal


def problem(x):
    return x * float(decimal.Decimal("2"))


def workaround_1(x):
    return x * 2.0
