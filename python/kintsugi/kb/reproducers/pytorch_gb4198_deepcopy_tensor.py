"""Attempted to copy.deepcopy a tensor."""

import copy


def problem(x):
    y = copy.deepcopy(x)
    return y.add_(1)


def workaround_1(x):
    y = x.clone()
    return y.add_(1)


def dead_end_1(x):
    y = copy.deepcopy([x])[0]
    return y.add_(1)
