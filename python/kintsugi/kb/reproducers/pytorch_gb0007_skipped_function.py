"""Attempted to call function marked as skipped."""

import time

import torch


def problem(x):
    time.sleep(0)
    return x + 1


def workaround_1(x):
    if not torch.compiler.is_compiling():
        time.sleep(0)
    return x + 1


def dead_end_1(x):
    pause = time.sleep
    pause(0)
    return x + 1
